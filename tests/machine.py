"""What some machines lack, such as a chroot: mounts of one's own, and terminals. Tests that need them are skipped."""

import errno
import fcntl
import functools
import os
import struct
import subprocess
import termios

import pytest


def with_mounts(script: str, *command: str) -> list[str]:
    """The command after a script of bash, whose mounts nobody else sees."""
    starter = _own_mounts()
    if starter is None:
        pytest.skip("this machine gives no process mounts of its own")
    return [*starter, "bash", "-c", f'{script}; exec "$@"', "bash", *command]


@functools.cache
def _own_mounts() -> tuple[str, ...] | None:
    """As root of a user namespace or, where there is none, as root."""
    for starter in (("unshare", "--mount", "--map-root-user"), ("unshare", "--mount")):
        if subprocess.run([*starter, "true"], capture_output=True, check=False).returncode == 0:
            return starter
    return None


def open_terminal() -> tuple[int, int]:
    """Descriptors of a terminal of 80 columns: what it shows, and what programs write to."""
    try:
        ours, theirs = os.openpty()
    except OSError as error:
        if error.errno not in (errno.ENODEV, errno.ENOENT):
            raise
        pytest.skip("this machine has no pseudo-terminals")
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    return ours, theirs
