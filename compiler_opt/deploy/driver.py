"""Builds `mlgo-clang` (`native/driver/`): a small program that runs clang with the plugin, or without it."""

import dataclasses
import json
import os
import struct
from collections.abc import Sequence
from pathlib import Path

from compiler_opt.errors import ToolchainError
from compiler_opt.llvm.plugin import cpp_compilers, run_first
from compiler_opt.llvm.toolchain import Toolchain

SOURCE = Path(__file__).parents[1] / "native" / "driver" / "driver.cpp"
FLAGS = "-std=c++17 -O2 -DNDEBUG -Wall -Wextra -s".split()

# It starts before every compilation: without a dynamic linker that takes half the time. Not every system can.
_LINK_FLAGS: tuple[tuple[str, ...], ...] = (("-static",), ("-static-libgcc", "-static-libstdc++"), ())

_TIMEOUT_S = 300.0


@dataclasses.dataclass(frozen=True)
class DriverCompiler:
    """One compiler of a driver.

    Attributes:
      major: its LLVM's major version.
      clang: its path.
      plugin: name of the plugin's file in the folder `lib` of the prefix.
      plugin_bytes: size of that file.
      fingerprint: of that file's content.
    """

    major: int
    clang: Path
    plugin: str
    plugin_bytes: int
    fingerprint: str


@dataclasses.dataclass(frozen=True)
class DriverConfig:
    """What is built into a driver.

    Attributes:
      compilers: the first is the one that it runs when it is not asked for another.
      levels: optimisation levels that the policy is for, such as `Oz`.
      policy_checksum: SHA-256 of the policy's native form.
      never_worse: compile both ways and keep the smaller object.
      strict: fail rather than go on without the policy.
    """

    compilers: tuple[DriverCompiler, ...]
    levels: tuple[str, ...]
    policy_checksum: str
    never_worse: bool
    strict: bool

    def header(self) -> str:
        """The text of `driver_config.h`."""
        compilers = ",\n".join(
            f"    {{{each.major}, {_literal(os.fsencode(each.clang))}, {_literal(each.plugin.encode())}, "
            f"{each.plugin_bytes}, {_literal(each.fingerprint.encode())}}}"
            for each in self.compilers
        )
        levels = ", ".join(_literal(level.encode()) for level in self.levels)
        return (
            "// What one deployment builds into mlgo-clang; made by compiler_opt.tools.deploy.\n"
            "namespace mlgo::config {\n"
            "struct Compiler {\n  int major;\n  const char *clang, *plugin;\n"
            "  long plugin_bytes;\n  const char *fingerprint;\n};\n"
            f"inline constexpr Compiler kCompilers[] = {{\n{compilers}}};\n"
            f"inline constexpr const char *kLevels[] = {{{levels}}};\n"
            f"inline constexpr char kPolicy[] = {_literal(self.policy_checksum.encode())};\n"
            f"inline constexpr bool kNeverWorse = {json.dumps(self.never_worse)};\n"
            f"inline constexpr bool kStrict = {json.dumps(self.strict)};\n"
            "}  // namespace mlgo::config\n"
        )


def build_driver(config: DriverConfig, toolchains: Sequence[Toolchain], scratch: Path) -> bytes:
    """The program, as the content of its file.

    Args:
      config: what is built in.
      toolchains: whose C++ compilers may be used.
      scratch: a folder of the caller's own.

    Raises:
      ToolchainError: no C++ compiler can build it.
    """
    (scratch / "driver_config.h").write_text(config.header(), encoding="utf-8")
    output = scratch / "driver"
    commands = (
        [*compiler, *FLAGS, *link_flags, "-I", str(scratch), str(SOURCE), "-o", str(output)]
        for link_flags in _LINK_FLAGS
        for toolchain in toolchains
        for compiler in cpp_compilers(toolchain)
    )
    if reason := run_first(commands, _TIMEOUT_S):
        raise ToolchainError(f"mlgo-clang cannot be built: {reason}; reinstall the package g++")
    return output.read_bytes()


def fingerprint(content: bytes) -> str:
    """What tells one plugin from another, in hexadecimal; the driver computes the same (`identity.h`)."""
    value = 0xCBF29CE484222325
    padded = content + bytes(-len(content) % 8)
    for word in (*struct.unpack(f"<{len(padded) // 8}Q", padded), len(content)):
        value = (value ^ word) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def _literal(text: bytes) -> str:
    """A C string; whatever is not a plain character is spelled in octal, which ends after three digits."""
    plain = b"/._-+ " + bytes(range(ord("0"), ord("9") + 1)) + bytes(range(ord("A"), ord("Z") + 1))
    plain += bytes(range(ord("a"), ord("z") + 1))
    return '"' + "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in text) + '"'
