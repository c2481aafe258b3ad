"""Connecting to a Ray cluster."""

import importlib
import os
import socket
import sys
from pathlib import Path
from typing import Any

from compiler_opt.errors import ConfigError, MissingPackageError
from compiler_opt.files import printable
from compiler_opt.llvm import processes

_CONNECT_TIMEOUT_S = 10.0
_CHECK_TIMEOUT_S = 90.0
_OPTIONS = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
_CHECK = f"import ray, sys; ray.init(address=sys.argv[1], **{_OPTIONS})"


def import_ray() -> Any:
    """The package; raises MissingPackageError if it is not installed."""
    # Read when it is imported, and when a cluster is started.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise MissingPackageError(
            "--worker_manager=ray needs the package ray; pip install 'compiler_opt[ray]' here and on each node"
        ) from None


def connect(ray: Any, address: str) -> None:
    """Raises ConfigError if no cluster answers."""
    _check_address(address)
    ray.init(address=address, **_OPTIONS)


def _check_address(address: str) -> None:
    """Connects once in a process of its own: where nobody answers, Ray waits for minutes.

    Raises:
      ConfigError: no cluster answers.
    """
    where, remedy = f"--ray_address={printable(address)}", "see docs/cluster.md"
    host, separator, port = address.rpartition(":")
    if address != "auto" and not (separator and host and port.isdecimal() and "/" not in host):
        raise ConfigError(
            f"{where}: expected auto, or HOST:PORT of the head of a cluster that this machine belongs to; {remedy}"
        )
    if address == "auto":
        _check_auto(where)
    else:
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT_S).close()
        except (OSError, OverflowError) as error:
            raise ConfigError(f"{where}: nobody answers: {error}; start a cluster there, {remedy}") from None
    command = [sys.executable, "-c", _CHECK, address]
    result = processes.run(command, timeout_s=_CHECK_TIMEOUT_S, memory_bytes=None)
    if result.timed_out:
        raise ConfigError(f"{where}: nobody answered as Ray does for {_CHECK_TIMEOUT_S:.0f} s; {remedy}")
    if not result.ok:
        lines = [line for line in result.stderr_tail.splitlines() if line.strip()]
        raise ConfigError(f"{where}: cannot be used: {printable(lines[-1] if lines else result.describe())}; {remedy}")


def _check_auto(where: str) -> None:
    """`auto` is what a file says that anybody could have made, or any cluster that runs here, if there is no such file.

    Results are unpickled, so whoever runs the cluster could run programs as this user.

    Raises:
      ConfigError: it is the cluster of another user, who is not root.
    """
    if os.environ.get("RAY_ADDRESS"):
        return
    import psutil  # Only a host on a cluster needs it.

    trusted = {0, os.getuid()}
    folder = Path(os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp") / "ray"
    found = [path.lstat().st_uid for path in (folder, folder / "ray_current_cluster") if path.exists()]
    if len(found) < 2:
        found = [
            each.info["uids"].real
            for each in psutil.process_iter(["name", "uids"])
            if each.info["name"] == "gcs_server"
        ]
    if not trusted.issuperset(found):
        raise ConfigError(
            f"{where}: the Ray cluster of this machine is another user's, who could run programs as you; if you "
            "trust it, give the HOST:PORT of its head"
        )
