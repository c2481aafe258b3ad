"""A Ray cluster of several nodes on this machine, for tests."""

import contextlib
import functools
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

_START_TIMEOUT_S = 120
_STORE_BYTES = 80_000_000


@functools.cache
def environment_of_ray() -> Mapping[str, str]:
    """Environment variables of all processes that use the clusters of this process: only they know the token."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
    }


class RayNode:
    """A node: the processes that `ray start` starts."""

    def __init__(self, process: "subprocess.Popen[bytes]", cache: Path):
        """`cache`: the user's cache folder on this node."""
        self.cache = cache
        self._process = process

    def kill(self) -> None:
        """Kills all of its processes at once, as if the machine had lost its power."""
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self._process.pid)
            family = [root, *root.children(recursive=True)]
            for member in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
            psutil.wait_procs(family, timeout=20)
        self._process.wait()

    @property
    def num_modules(self) -> int:
        """Modules in its cache."""
        folder = self.cache / "compiler_opt" / "nodes" / "modules"
        return len(list(folder.iterdir())) if folder.is_dir() else 0


class RayCluster:
    """A cluster whose head has no CPUs.

    Attributes:
      address: HOST:PORT.
    """

    def __init__(self, folder: Path, sessions: Path):
        self._folder = folder
        self._sessions = sessions
        self._nodes: list[RayNode] = []
        (folder / "plugins").mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        head = ["--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={sessions}"]
        self._start([*head, "--disable-usage-stats"], {})

    def add(self, num_cpus: int = 1, environment: Mapping[str, str] | None = None) -> RayNode:
        """Starts a node, with a cache of its own."""
        return self._start([f"--address={self.address}", f"--num-cpus={num_cpus}"], environment or {})

    def close(self) -> None:
        for node in reversed(self._nodes):
            node.kill()

    def _start(self, options: list[str], environment: Mapping[str, str]) -> RayNode:
        number = len(self._nodes)
        ray = str(Path(sys.executable).parent / "ray")
        cache, log = self._folder / f"cache-{number}", self._folder / f"node-{number}.log"
        # Nodes build what they need. Those of one machine share it, since a build takes half a minute of a busy CPU.
        plugins = cache / "compiler_opt" / "plugins"
        plugins.parent.mkdir(parents=True)
        plugins.symlink_to(self._folder / "plugins")
        with log.open("wb") as output:
            process = subprocess.Popen(
                [ray, "start", *options, "--block", f"--object-store-memory={_STORE_BYTES}"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": str(Path(__file__).parents[1]),
                    **environment_of_ray(),
                    "RAY_worker_niceness": "0",
                    "XDG_CACHE_HOME": str(cache),
                    **environment,
                },
            )
        node = RayNode(process, cache)
        self._nodes.append(node)
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while b"Ray runtime started" not in log.read_bytes():
            assert process.poll() is None and time.monotonic() < deadline_s, log.read_text(errors="replace")
            time.sleep(0.1)
        return node


@contextlib.contextmanager
def ray_cluster(folder: Path) -> Iterator[RayCluster]:
    """Starts a cluster, with folders of its nodes in `folder`, and ends it."""
    # The paths of Ray's sockets must be short.
    sessions = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    cluster = None
    try:
        cluster = RayCluster(folder, sessions)
        yield cluster
    finally:
        if cluster is not None:
            cluster.close()
        shutil.rmtree(sessions, ignore_errors=True)
