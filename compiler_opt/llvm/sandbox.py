"""A sandbox for compilers of untrusted bitcode: they write to one folder only, and have no network.

sandbox = Sandbox.for_folder(scratch)              # None where there is none, or where the user wants none
processes.run([...], sandbox=sandbox)

A corpus may come from anybody, and LLVM's readers of bitcode are not made for hostile input. What a compiler that was
taken over can do is limited by two mechanisms of Linux, which need no privileges and which its children inherit:

- Landlock: files are created, changed and removed in the folder only (and /dev/null is written). Depending on the
  kernel, it also has no TCP, no abstract sockets, and sends no signals to processes outside.
- seccomp: it can create no socket of any kind.

Reading is not limited: a compiler needs its libraries and headers, and what it has read cannot leave the folder.
"""

import ctypes
import dataclasses
import errno
import functools
import os
import platform
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from compiler_opt.errors import ConfigError, ToolchainError

VARIABLE = "COMPILER_OPT_SANDBOX"
"""Environment variable; 0 switches sandboxes off, for compilers that have to write elsewhere, such as wrappers."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_NO_NEW_PRIVS = 38

# Landlock: linux/landlock.h. The numbers of its system calls are the same on all machines.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
_WRITE_FILE, _TRUNCATE, _IOCTL_DEV = 1 << 1, 1 << 14, 1 << 15
_MAKE_AND_REMOVE = sum(1 << bit for bit in range(4, 13))
_REFER = 1 << 13
_TCP = 0b11  # bind and connect
_SCOPES = 0b11  # abstract sockets and signals
# From which version on the kernel knows these rights.
_REFER_ABI, _TRUNCATE_ABI, _TCP_ABI, _IOCTL_ABI, _SCOPES_ABI = 2, 3, 4, 5, 6

# seccomp: linux/seccomp.h and linux/filter.h.
_SET_MODE_FILTER, _GET_ACTION_AVAILABLE = 1, 2
_SPEC_ALLOW = 1 << 2  # The filter is not for mitigating speculation, which would slow the compiler down.
_RETURN_ERRNO, _RETURN_ALLOW = 0x0005_0000, 0x7FFF_0000
_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _RETURN = 0x20, 0x15, 0x35, 0x06
_OFFSET_NUMBER, _OFFSET_MACHINE = 0, 4
_IO_URING_SETUP = 425  # through which sockets can be created, too
_X32 = 0x4000_0000  # added to the numbers of x86-64 for another ABI


@dataclasses.dataclass(frozen=True)
class _Machine:
    """The kernel's identifier of a machine, and its numbers of the calls `seccomp` and `socket`."""

    audit: int
    seccomp: int
    socket: int


_MACHINES = {"x86_64": _Machine(0xC000_003E, 317, 41), "aarch64": _Machine(0xC000_00B7, 277, 198)}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


@dataclasses.dataclass(frozen=True)
class Sandbox:
    """Processes in it write only to the folder `writable`, also their temporary files, and have no network."""

    writable: Path

    @classmethod
    def for_folder(cls, folder: Path) -> "Sandbox | None":
        """A sandbox for this folder; None if the kernel has no Landlock or the user has switched sandboxes off.

        Raises:
          ConfigError: the environment variable is neither 0 nor 1.
        """
        value = os.environ.get(VARIABLE, "")
        if value not in ("", "0", "1"):
            raise ConfigError(f"{VARIABLE}: expected 0 or 1, found {value!r}")
        return cls(folder) if value != "0" and landlock_version() else None

    def environment(self, variables: Mapping[str, str] | None) -> dict[str, str]:
        """All environment variables of a process in it that would have these; None for those of this process."""
        return {**(os.environ if variables is None else variables), "TMPDIR": str(self.writable)}

    @contextmanager
    def entrance(self) -> Iterator[Callable[[], None]]:
        """Yields a function that puts the calling process into the sandbox, for ever; made for children after a fork.

        It consists of system calls alone, and raises OSError if one fails.

        Raises:
          ToolchainError: the sandbox cannot be set up.
        """
        try:
            with ExitStack() as opened:
                ruleset = _ruleset(self.writable, opened)
                machine, program = _MACHINES.get(platform.machine()), _no_sockets()

                def enter() -> None:
                    _checked(_LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
                    _checked(_LIBC.syscall(_RESTRICT_SELF, ruleset, 0))
                    if machine is not None and program is not None:
                        _checked(_LIBC.syscall(machine.seccomp, _SET_MODE_FILTER, _SPEC_ALLOW, ctypes.byref(program)))

                yield enter
        except OSError as error:
            raise ToolchainError(
                f"{self.writable}: the compiler's sandbox cannot be set up: {error.strerror}; {VARIABLE}=0 does without"
            ) from error


@functools.cache
def landlock_version() -> int:
    """The version of Landlock that the kernel offers; 0 for none."""
    return max(0, _LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _CREATE_RULESET_VERSION))


@functools.cache
def has_seccomp() -> bool:
    """Whether system calls can be refused on this machine."""
    machine, action = _MACHINES.get(platform.machine()), ctypes.c_uint32(_RETURN_ERRNO)
    return machine is not None and not _LIBC.syscall(machine.seccomp, _GET_ACTION_AVAILABLE, 0, ctypes.byref(action))


def describe() -> str:
    """One line about what compilers of corpora can do here."""
    if os.environ.get(VARIABLE) == "0":
        return f"no, switched off by {VARIABLE}"
    version = landlock_version()
    if not version:
        return "no (optional; this kernel has no Landlock)"
    network = "no network" if has_seccomp() else "no TCP" if version >= _TCP_ABI else "but the network"
    return f"yes, compilers of corpora have their scratch folder to write to, {network} (Landlock {version})"


def _ruleset(writable: Path, opened: ExitStack) -> int:
    """A descriptor of the rules, which `opened` closes."""
    version = landlock_version()
    file_rights = _WRITE_FILE
    file_rights |= _TRUNCATE if version >= _TRUNCATE_ABI else 0
    file_rights |= _IOCTL_DEV if version >= _IOCTL_ABI else 0
    rights = file_rights | _MAKE_AND_REMOVE | (_REFER if version >= _REFER_ABI else 0)
    # struct landlock_ruleset_attr; older kernels accept what they do not know if it is zero.
    attributes = struct.pack(
        "=QQQ", rights, _TCP if version >= _TCP_ABI else 0, _SCOPES if version >= _SCOPES_ABI else 0
    )
    ruleset = _checked(_LIBC.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0))
    opened.callback(os.close, ruleset)
    for path, allowed in ((writable, rights), (Path(os.devnull), file_rights)):
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        opened.callback(os.close, descriptor)
        rule = struct.pack("=Qi", allowed, descriptor)  # struct landlock_path_beneath_attr
        _checked(_LIBC.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0))
    return ruleset


@functools.cache
def _no_sockets() -> _Program | None:
    """A seccomp filter; None if this machine's calls are unknown."""
    machine = _MACHINES.get(platform.machine())
    if machine is None or not has_seccomp():
        return None
    # (code, jump if true, jump if false, operand); jumps count the instructions to skip.
    instructions = [
        (_LOAD, 0, 0, _OFFSET_MACHINE),
        (_JUMP_EQUAL, 0, 5, machine.audit),  # else it is a call of another ABI
        (_LOAD, 0, 0, _OFFSET_NUMBER),
        (_JUMP_EQUAL, 3, 0, machine.socket),
        (_JUMP_EQUAL, 2, 0, _IO_URING_SETUP),
        (_JUMP_GREATER_EQUAL, 1, 0, _X32),
        (_RETURN, 0, 0, _RETURN_ALLOW),
        (_RETURN, 0, 0, _RETURN_ERRNO | errno.EACCES),
    ]
    return _Program(len(instructions), b"".join(struct.pack("=HBBI", *each) for each in instructions))


def _checked(result: int) -> int:
    """The result of a system call; raises OSError if it failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
