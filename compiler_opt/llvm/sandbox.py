"""A sandbox for compilers of untrusted bitcode: they write to one folder only, and have no network.

sandbox = Sandbox.for_folder(scratch)              # None where there is none, or where the user wants none
processes.run([...], sandbox=sandbox)
processes.run([...], sandbox=Sandbox.for_folder(None))                  # what only reads: it writes nowhere

A corpus may come from anybody, and LLVM's readers of bitcode are not made for hostile input. What a compiler that was
taken over can do is limited by three mechanisms of Linux, which need no privileges and which its children inherit:

- Landlock: files and folders are created, changed and removed in the folder only (and /dev/null is written); no links,
  pipes or devices are made. Depending on the kernel, it also has no TCP, no abstract sockets, and sends no signals to
  processes outside.
- seccomp (`system_calls.py`): it creates no socket of any kind, changes no permissions, owners, times or attributes of
  files, and no limits, priorities or memory of other processes.
- Capabilities: root's are dropped, except those to read and write what others own.

Reading is not limited: a compiler needs its libraries and headers, and what it has read cannot leave the folder.
"""

import ctypes
import dataclasses
import functools
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from compiler_opt.errors import ConfigError, ToolchainError
from compiler_opt.llvm import system_calls

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
_MAKE_SPECIAL = sum(1 << bit for bit in (6, 9, 10, 11, 12))  # of these: devices, sockets, pipes, symbolic links
_REFER = 1 << 13
_TCP = 0b11  # bind and connect
_SCOPES = 0b11  # abstract sockets and signals
# From which version on the kernel knows these rights.
_REFER_ABI, _TRUNCATE_ABI, _TCP_ABI, _IOCTL_ABI, _SCOPES_ABI = 2, 3, 4, 5, 6

# Capabilities: linux/capability.h.
_CAPABILITY_VERSION = 0x2008_0522
_KEPT_CAPABILITIES = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
_CAPABILITIES = struct.Struct("=6I")  # effective, permitted and inheritable: the lower halves, then the upper ones


@dataclasses.dataclass(frozen=True)
class Sandbox:
    """Processes in it write only to the folder `writable`, also their temporary files, and have no network.

    Without a folder, they write nowhere.
    """

    writable: Path | None

    @classmethod
    def for_folder(cls, folder: Path | None) -> "Sandbox | None":
        """A sandbox for this folder, if any; None if the kernel has no Landlock or the user has switched sandboxes off.

        Raises:
          ConfigError: the environment variable is neither 0 nor 1.
        """
        value = os.environ.get(VARIABLE, "")
        if value not in ("", "0", "1"):
            raise ConfigError(f"{VARIABLE}: expected 0 or 1, found {value!r}")
        return cls(folder) if value != "0" and landlock_version() else None

    def environment(self, variables: Mapping[str, str] | None) -> dict[str, str]:
        """All environment variables of a process in it that would have these; None for those of this process."""
        temporary = {} if self.writable is None else {"TMPDIR": str(self.writable)}
        return {**(os.environ if variables is None else variables), **temporary}

    @contextmanager
    def entrance(self, *, forks: bool = False) -> Iterator[Callable[[], None]]:
        """Yields a function that puts the calling process into the sandbox, for ever; made for children after a fork.

        It consists of system calls alone, and raises OSError if one fails. A process in it cannot leave its process
        group, unless it `forks` others: a fork server, whose forks begin groups of their own.

        Raises:
          ToolchainError: the sandbox cannot be set up.
        """
        with ExitStack() as opened:
            try:
                ruleset = _ruleset(self.writable, opened)
                program = system_calls.refusing(sessions=not forks)
                header, capabilities = struct.pack("=Ii", _CAPABILITY_VERSION, 0), _fewer_capabilities()
            except OSError as error:
                raise ToolchainError(
                    f"{self.writable or os.devnull}: the compiler's sandbox cannot be set up: {error.strerror}; "
                    f"{VARIABLE}=0 does without"
                ) from error

            def enter() -> None:
                _checked(_LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
                _checked(_LIBC.syscall(_RESTRICT_SELF, ruleset, 0))
                _checked(_LIBC.capset(header, capabilities))
                if program is not None:
                    _checked(system_calls.install(program))

            yield enter


@functools.cache
def landlock_version() -> int:
    """The version of Landlock that the kernel offers; 0 for none."""
    return max(0, _LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _CREATE_RULESET_VERSION))


def describe() -> str:
    """One line about what compilers of corpora can do here."""
    if os.environ.get(VARIABLE) == "0":
        return f"no, switched off by {VARIABLE}"
    version = landlock_version()
    if not version:
        return "no (optional; this kernel has no Landlock)"
    network = "no network" if system_calls.has_seccomp() else "no TCP" if version >= _TCP_ABI else "but the network"
    return f"yes, compilers of corpora have their scratch folder to write to, {network} (Landlock {version})"


def _ruleset(writable: Path | None, opened: ExitStack) -> int:
    """A descriptor of the rules, which `opened` closes."""
    version = landlock_version()
    file_rights = _WRITE_FILE
    file_rights |= _TRUNCATE if version >= _TRUNCATE_ABI else 0
    file_rights |= _IOCTL_DEV if version >= _IOCTL_ABI else 0
    rights = file_rights | _MAKE_AND_REMOVE | (_REFER if version >= _REFER_ABI else 0)
    granted = rights & ~_MAKE_SPECIAL
    # struct landlock_ruleset_attr; older kernels accept what they do not know if it is zero.
    attributes = struct.pack(
        "=QQQ", rights, _TCP if version >= _TCP_ABI else 0, _SCOPES if version >= _SCOPES_ABI else 0
    )
    ruleset = _checked(_LIBC.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0))
    opened.callback(os.close, ruleset)
    for path, allowed in ((writable, granted), (Path(os.devnull), file_rights)):
        if path is None:
            continue
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        opened.callback(os.close, descriptor)
        rule = struct.pack("=Qi", allowed, descriptor)  # struct landlock_path_beneath_attr
        _checked(_LIBC.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0))
    return ruleset


def _fewer_capabilities() -> bytes:
    """This process's capabilities without those that a compiler does not need, for `capset`: none, unless it is root.

    Root's would allow devices, mounts, signals and more; as it has no new privileges, it does not regain them.
    """
    header, data = struct.pack("=Ii", _CAPABILITY_VERSION, 0), ctypes.create_string_buffer(_CAPABILITIES.size)
    _checked(_LIBC.capget(header, data))
    effective, permitted, *_ = _CAPABILITIES.unpack(data.raw)
    return _CAPABILITIES.pack(effective & _KEPT_CAPABILITIES, permitted & _KEPT_CAPABILITIES, 0, 0, 0, 0)


def _checked(result: int) -> int:
    """The result of a system call; raises OSError if it failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
