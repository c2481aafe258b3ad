"""What a compiler that was taken over tries; run by `sandbox_test.py`, inside the sandbox and outside.

    python sandbox_attacks.py OUTSIDE SCRATCH VICTIM NUMBERS

OUTSIDE holds `file` and the datagram socket `service`, VICTIM is a process, NUMBERS maps system calls to their numbers
(JSON). Prints, as JSON, the name of the error by attack; null where it succeeded.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import stat
import struct
import sys
from collections.abc import Callable
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_FS_IOC_SETFLAGS = 0x4008_6602
_AT_FDCWD, _PTRACE_ATTACH, _IPC_PRIVATE, _IPC_RMID, _CLONE_NEWUSER, _CLONE_PARENT = -100, 16, 0, 0, 1 << 28, 1 << 15
_F_SET_RW_HINT = 1036
_USUAL_CAPABILITIES = 0b110  # to read and write what others own


def main() -> None:
    outside, scratch, victim, numbers = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
    file = outside / "file"
    reading, pidfd = os.open(file, os.O_RDONLY), os.pidfd_open(victim)

    def call(name: str, *arguments: object) -> int:
        result = _LIBC.syscall(numbers[name], *arguments)
        if result < 0:
            raise OSError(ctypes.get_errno(), name)
        return int(result)

    def send() -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with ours, theirs:
            ours.sendto(b"hello", str(outside / "service"))

    def share_memory() -> None:
        call("shmctl", call("shmget", _IPC_PRIVATE, 4096, 0o600), _IPC_RMID, 0)

    def clone(flags: int) -> None:
        if child := call("clone", flags | signal.SIGCHLD, 0, 0, 0, 0):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)
        else:
            os._exit(0)

    def clone_for_parent() -> None:
        """From a child, so that this process becomes the parent, and not the one that waits for it."""
        child = os.fork()
        if not child:
            try:
                clone(_CLONE_PARENT)
            except OSError as error:
                os._exit(error.errno or 1)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            raise OSError(status, "clone")
        os.wait()

    def clone_by_structure() -> None:
        arguments = struct.pack("=8Q", _CLONE_NEWUSER, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
        if not call("clone3", arguments, len(arguments)):
            os._exit(0)

    def use_capabilities() -> None:
        status = Path("/proc/self/status").read_text().split()
        if not int(status[status.index("CapPrm:") + 1], 16) & ~_USUAL_CAPABILITIES:
            raise PermissionError(errno.EPERM, "none")

    attacks: dict[str, Callable[[], object]] = {
        "chmod": lambda: file.chmod(0o777),
        "fchmod": lambda: os.fchmod(reading, 0o777),
        "fchmodat2": lambda: call("fchmodat2", _AT_FDCWD, os.fsencode(file), 0o777, 0),
        "chown": lambda: os.chown(file, os.getuid(), os.getgid()),
        "fchown": lambda: os.fchown(reading, os.getuid(), os.getgid()),
        "lchown": lambda: os.lchown(file, os.getuid(), os.getgid()),
        "utime": lambda: os.utime(file, (0, 0)),
        "futime": lambda: os.utime(reading, (0, 0)),
        "setxattr": lambda: os.setxattr(file, "user.a", b"1"),
        "fsetxattr": lambda: os.setxattr(reading, "user.a", b"1"),
        "setxattrat": lambda: call("setxattrat", _AT_FDCWD, os.fsencode(file), 0, b"user.a", 0, 0),
        "removexattr": lambda: os.removexattr(file, "user.a"),
        "flags": lambda: fcntl.ioctl(reading, _FS_IOC_SETFLAGS, struct.pack("l", 0)),
        "flock": lambda: fcntl.flock(reading, fcntl.LOCK_EX | fcntl.LOCK_NB),
        "lease": lambda: fcntl.fcntl(reading, fcntl.F_SETLEASE, fcntl.F_RDLCK),
        "signal owner": lambda: fcntl.fcntl(reading, fcntl.F_SETOWN, victim),
        "prlimit": lambda: resource.prlimit(victim, resource.RLIMIT_NOFILE, (50, 50)),
        "priority": lambda: os.setpriority(os.PRIO_PROCESS, victim, 5),
        "affinity": lambda: os.sched_setaffinity(victim, {min(os.sched_getaffinity(victim))}),
        "scheduler": lambda: os.sched_setscheduler(victim, os.SCHED_BATCH, os.sched_param(0)),
        "ioprio": lambda: call("ioprio_set", 1, victim, 3 << 13),
        "kill": lambda: os.kill(victim, 0),
        "pidfd signal": lambda: signal.pidfd_send_signal(pidfd, signal.SIGCONT),
        "pidfd_getfd": lambda: call("pidfd_getfd", pidfd, 1, 0),
        "memory": lambda: call("process_vm_writev", victim, 0, 0, 0, 0, 0),
        "ptrace": lambda: call("ptrace", _PTRACE_ATTACH, victim, 0, 0),
        "shared memory": share_memory,
        "keys": lambda: call("keyctl", 0, -3, 1),
        "user namespace": lambda: call("unshare", _CLONE_NEWUSER),
        "user namespace by clone": lambda: clone(_CLONE_NEWUSER),
        "user namespace by clone3": clone_by_structure,
        "child of the parent": clone_for_parent,
        "file system": lambda: call("fsopen", b"tmpfs", 0),
        "root": lambda: os.chroot("/"),
        "hint": lambda: fcntl.fcntl(reading, _F_SET_RW_HINT, struct.pack("Q", 2)),
        "datagram": send,
        "symbolic link": lambda: (scratch / "link").symlink_to("/etc/passwd"),
        "pipe": lambda: os.mkfifo(scratch / "pipe"),
        "device": lambda: os.mknod(scratch / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3)),
        "capabilities": use_capabilities,
    }
    results: dict[str, str | None] = {}
    for name, attack in attacks.items():
        try:
            attack()
            results[name] = None
        except OSError as error:
            results[name] = errno.errorcode[error.errno or 0]
    # What programs need still works.
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    os.set_inheritable(reading, True)
    os.isatty(reading)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
