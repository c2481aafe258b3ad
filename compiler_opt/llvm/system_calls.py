"""The system calls that a sandboxed compiler may not make, as a seccomp filter.

Landlock guards the contents and names of files. It guards neither their permissions, owners, times, attributes and
locks, nor other processes' limits, priorities and CPUs, nor memory and messages that processes share. seccomp sees the
numbers of calls and their arguments, but no paths: so all calls of a kind are refused, in the scratch folder, too.
Compilers, linkers and the other tools of LLVM make none of them.
"""

import ctypes
import dataclasses
import errno
import functools
import platform
import struct
from collections.abc import Sequence

_LIBC = ctypes.CDLL(None, use_errno=True)

REFUSED = """
    # Sockets. A pair of datagram sockets can send to others, too.
    socket 41 198, socketpair 53 199, io_uring_setup 425 425
    # Permissions, owners, times, attributes and locks of files. A descriptor for reading suffices.
    chmod 90 -, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452
    chown 92 -, fchown 93 55, lchown 94 -, fchownat 260 54
    utime 132 -, utimes 235 -, futimesat 261 -, utimensat 280 88
    setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, setxattrat 463 463
    removexattr 197 14, lremovexattr 198 15, fremovexattr 199 16, removexattrat 466 466
    file_setattr 469 469, flock 73 32
    # Other processes.
    ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, pidfd_getfd 438 438, kcmp 312 272
    process_madvise 440 440, pidfd_send_signal 424 424, perf_event_open 298 241
    setpriority 141 140, ioprio_set 251 30, sched_setaffinity 203 122, sched_setscheduler 144 119
    sched_setparam 142 118, sched_setattr 314 274, migrate_pages 256 238, move_pages 279 239
    # What processes share: memory, messages, semaphores, keys.
    shmget 29 194, shmat 30 196, shmctl 31 195, semget 64 190, semop 65 193, semctl 66 191, semtimedop 220 192
    msgget 68 186, msgsnd 69 189, msgrcv 70 188, msgctl 71 187, mq_open 240 180, mq_unlink 241 181
    add_key 248 217, request_key 249 218, keyctl 250 219
    # The kernel's less tried parts.
    bpf 321 280, userfaultfd 323 282, unshare 272 97, setns 308 268, fanotify_init 300 262, open_by_handle_at 304 265
    mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, fsopen 430 430, fsconfig 431 431, fsmount 432 432
    fspick 433 433, open_tree 428 428, move_mount 429 429, mount_setattr 442 442
    open_tree_attr 467 467
"""
"""Calls with their numbers on x86-64 and AArch64, `-` where there is none."""

SESSIONS = "setsid 112 157, setpgid 109 154"
"""By these, a process would outlive its process group. A fork server's filter allows them: its forks begin sessions."""

PRLIMIT64, FCNTL, IOCTL, CLONE = (302, 261), (72, 25), (16, 29), (56, 220)
"""Their numbers on both; these are refused for some arguments, see `_FCNTL_REFUSED` and the following."""
CLONE3 = (435, 435)
"""It hides its flags in memory. As on older kernels, it does not exist, and C libraries use `clone`."""

# linux/fcntl.h: signals to others (F_SETOWN, F_SETSIG, F_SETOWN_EX); holding up others (F_SETLEASE); F_NOTIFY; what is
# said of files (F_SET_RW_HINT, F_SET_FILE_RW_HINT)
_FCNTL_REFUSED = (8, 10, 15, 1024, 1026, 1036, 1038)
# linux/sched.h: all kinds of namespaces, and children of somebody else (CLONE_NEW*, CLONE_PARENT)
_CLONE_REFUSED = 0x7E02_8000
# asm-generic/ioctls.h: whether it is a terminal, and how wide (TCGETS, TCGETS2, TIOCGWINSZ); FIONREAD, FIONBIO,
# FIONCLEX, FIOCLEX. Others set attributes of files, or type into terminals.
_IOCTL_ALLOWED = (0x5401, 0x802C_542A, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
_OWN_PROCESS = (0,)

# linux/seccomp.h and linux/filter.h
_SET_MODE_FILTER, _GET_ACTION_AVAILABLE = 1, 2
_SPEC_ALLOW = 1 << 2  # The filter is not for mitigating speculation, which would slow the compiler down.
_RETURN_ERRNO, _RETURN_ALLOW = 0x0005_0000, 0x7FFF_0000
_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_OFFSET_NUMBER, _OFFSET_MACHINE, _OFFSET_ARGUMENTS = 0, 4, 16
_X32 = 0x4000_0000  # added to the numbers of x86-64 for another ABI

# (code, jump if true, jump if false, operand); jumps count the instructions to skip.
_Instruction = tuple[int, int, int, int]
_REFUSE: _Instruction = (_RETURN, 0, 0, _RETURN_ERRNO | errno.EPERM)
_UNKNOWN: _Instruction = (_RETURN, 0, 0, _RETURN_ERRNO | errno.ENOSYS)
_ALLOW: _Instruction = (_RETURN, 0, 0, _RETURN_ALLOW)


@dataclasses.dataclass(frozen=True)
class _Machine:
    """The column of its numbers, the kernel's identifier of it, and its number of the call `seccomp`."""

    column: int
    audit: int
    seccomp: int


_MACHINES = {"x86_64": _Machine(0, 0xC000_003E, 317), "aarch64": _Machine(1, 0xC000_00B7, 277)}


class Program(ctypes.Structure):
    """A filter, as the kernel takes it (`struct sock_fprog`)."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def numbers(table: str = REFUSED + SESSIONS) -> dict[str, tuple[int | None, int | None]]:
    """The refused calls by name: their numbers on x86-64 and AArch64."""
    lines = (line for line in table.splitlines() if not line.lstrip().startswith("#"))
    words = (entry.split() for line in lines for entry in line.split(",") if entry.strip())
    return {name: (_number(x86_64), _number(aarch64)) for name, x86_64, aarch64 in words}


@functools.cache
def has_seccomp() -> bool:
    """Whether system calls can be refused on this machine."""
    machine, action = _MACHINES.get(platform.machine()), ctypes.c_uint32(_RETURN_ERRNO)
    return machine is not None and not _LIBC.syscall(machine.seccomp, _GET_ACTION_AVAILABLE, 0, ctypes.byref(action))


@functools.cache
def refusing(*, sessions: bool = True) -> Program | None:
    """The filter, with or without the calls of `SESSIONS`; None if this machine's calls are unknown."""
    machine = _MACHINES.get(platform.machine())
    if machine is None or not has_seccomp():
        return None
    column = machine.column
    instructions: list[_Instruction] = [
        (_LOAD, 0, 0, _OFFSET_MACHINE),
        (_JUMP_EQUAL, 1, 0, machine.audit),
        _REFUSE,  # a call of another ABI
        (_LOAD, 0, 0, _OFFSET_NUMBER),
        (_JUMP_GREATER_EQUAL, 0, 1, _X32),
        _REFUSE,
    ]
    for pair in numbers(REFUSED + SESSIONS if sessions else REFUSED).values():
        number = pair[column]
        instructions += [] if number is None else [(_JUMP_EQUAL, 0, 1, number), _REFUSE]
    instructions += [(_JUMP_EQUAL, 0, 1, CLONE3[column]), _UNKNOWN]
    flags: list[_Instruction] = [(_LOAD, 0, 0, _OFFSET_ARGUMENTS), (_JUMP_BITS, 0, 1, _CLONE_REFUSED), _REFUSE, _ALLOW]
    instructions += [(_JUMP_EQUAL, 0, len(flags), CLONE[column]), *flags]
    instructions += _by_argument(PRLIMIT64[column], 0, _OWN_PROCESS, _ALLOW, _REFUSE)
    instructions += _by_argument(FCNTL[column], 1, _FCNTL_REFUSED, _REFUSE, _ALLOW)
    instructions += _by_argument(IOCTL[column], 1, _IOCTL_ALLOWED, _ALLOW, _REFUSE)
    instructions.append(_ALLOW)
    return Program(len(instructions), b"".join(struct.pack("=HBBI", *each) for each in instructions))


def install(program: Program) -> int:
    """Restricts the calling process, for ever, which must have no new privileges; negative, with errno, on failure.

    It is one system call, for use between fork and exec.
    """
    machine = _MACHINES[platform.machine()]
    return int(_LIBC.syscall(machine.seccomp, _SET_MODE_FILTER, _SPEC_ALLOW, ctypes.byref(program)))


def _by_argument(
    number: int, position: int, values: Sequence[int], if_listed: _Instruction, otherwise: _Instruction
) -> list[_Instruction]:
    """What becomes of a call by one of its arguments, of which the kernel, too, takes the lower half (an int)."""
    decision = [(_LOAD, 0, 0, _OFFSET_ARGUMENTS + 8 * position)]
    for value in values:
        decision += [(_JUMP_EQUAL, 0, 1, value), if_listed]
    decision.append(otherwise)
    return [(_JUMP_EQUAL, 0, len(decision), number), *decision]


def _number(word: str) -> int | None:
    return None if word == "-" else int(word)
