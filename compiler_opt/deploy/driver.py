"""Builds `mlgo-clang` (`native/driver/`), a small program that runs clang with or without plugins and options."""

import dataclasses
import json
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from compiler_opt.deploy.pass_options import UsableOptions
from compiler_opt.errors import ToolchainError
from compiler_opt.llvm.build_cache import digest_of, user_builds
from compiler_opt.llvm.plugin import NATIVE, c_literal, cpp_compilers, run_first
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.decisions import DEFAULT_BASE

SOURCE = NATIVE / "driver" / "driver.cpp"
FLAGS = "-std=c++17 -O2 -DNDEBUG -Wall -Wextra".split()

# It starts before every compilation, in half the time if linked statically, which not every system supports.
_LINK_FLAGS: tuple[tuple[str, ...], ...] = (("-s", "-static"), ("-s", "-static-libgcc", "-static-libstdc++"), ("-s",))

_TIMEOUT_S = 300.0


@dataclasses.dataclass(frozen=True)
class DriverFile:
    """A file in the prefix's folder `lib`: its name, size, and `fingerprint`."""

    name: str
    num_bytes: int
    fingerprint: str

    @classmethod
    def of(cls, name: str, content: bytes) -> "DriverFile":
        return cls(name, len(content), fingerprint(content))

    @property
    def date_s(self) -> int:
        """Its modification time, which stands for its content: the driver reads a file only if that is another."""
        return 1_000_000_000 + int(self.fingerprint, 16) % 2**28

    def initializer(self) -> str:
        """In C++."""
        return f"{{{c_literal(self.name.encode())}, {self.num_bytes}, {c_literal(self.fingerprint.encode())}}}"


_NO_FILE = DriverFile("", 0, "")


@dataclasses.dataclass(frozen=True)
class DriverPlugin:
    """The files of one policy for one compiler.

    Attributes:
      library: the pass plugin.
      decisions: the decision file; without a name if there is none.
      about_decisions: one line about that file.
    """

    library: DriverFile
    decisions: DriverFile = _NO_FILE
    about_decisions: str = ""

    def initializer(self) -> str:
        """In C++."""
        about = c_literal(self.about_decisions.encode())
        return f"{{{self.library.initializer()}, {self.decisions.initializer()}, {about}}}"


NO_PLUGIN = DriverPlugin(_NO_FILE)
"""Where a policy does not decide in a compiler."""


@dataclasses.dataclass(frozen=True)
class DriverPolicy:
    """A policy of a driver.

    Attributes:
      problem: what it decides.
      checksum: `NetworkWeights.checksum`, or `DEFAULT_BASE` if the compiler's own heuristic decides.
      levels: optimisation levels at which it decides, such as `Oz`.
      is_for_size: whether a smaller object is better.
      plugins: by the major version of the compiler, for each of the driver's.
    """

    problem: str
    checksum: str
    levels: tuple[str, ...]
    is_for_size: bool
    plugins: Mapping[int, DriverPlugin]

    @property
    def files(self) -> tuple[DriverFile, ...]:
        """Those of all compilers."""
        files = [file for plugin in self.plugins.values() for file in (plugin.library, plugin.decisions)]
        return tuple(file for file in files if file != _NO_FILE)

    def definitions(self, name: str, majors: Iterable[int]) -> str:
        """C++ that defines the levels of policy `name`, and its plugins for these compilers in turn."""
        levels = ", ".join(c_literal(level.encode()) for level in self.levels)
        plugins = ",\n    ".join(self.plugins[major].initializer() for major in majors)
        return (
            f"const char *const {name}_levels[] = {{{levels}}};\nconst Plugin {name}_plugins[] = {{\n    {plugins}}};\n"
        )

    def initializer(self, name: str) -> str:
        """In C++, after its definitions."""
        strings = f"{c_literal(self.problem.encode())}, {c_literal(self.checksum.encode())}"
        flags = f"{json.dumps(self.checksum != DEFAULT_BASE)}, {json.dumps(self.is_for_size)}"
        return f"{{{strings}, {flags}, {name}_levels, {len(self.levels)}, {name}_plugins}}"


@dataclasses.dataclass(frozen=True)
class DriverCompiler:
    """A compiler of a driver.

    Attributes:
      major: the version.
      clang: the compiler; if its path is relative, it is relative to the prefix.
      only_version: the only version of LLVM that policies may be used with; empty for all of the same major version.
      architecture: that of its default target.
      options: the options of LLVM's passes that it takes.
    """

    major: int
    clang: Path
    only_version: str = ""
    architecture: str = ""
    options: UsableOptions = dataclasses.field(default_factory=UsableOptions)

    def definitions(self) -> str:
        """C++ that defines its options."""
        sets: list[str] = []
        arrays = []
        for architecture, levels in (("", self.options.sets.levels), *self.options.sets.targets.items()):
            for level, options in levels.items():
                name = f"options_{self.major}_{len(sets)}"
                words = ", ".join([*(c_literal(option.encode()) for option in options), "nullptr"])
                arrays.append(f"const char *const {name}[] = {{{words}}};\n")
                sets.append(f"{{{c_literal(level.encode())}, {c_literal(architecture.encode())}, {name}}}, ")
        return f"{''.join(arrays)}const OptionSet options_{self.major}[] = {{{''.join(sets)}{{}}}};\n"

    def initializer(self) -> str:
        """In C++, after its definitions."""
        clang, version = c_literal(os.fsencode(self.clang)), c_literal(self.only_version.encode())
        return f"{{{self.major}, {clang}, {version}, {c_literal(self.architecture.encode())}, options_{self.major}}}"


@dataclasses.dataclass(frozen=True)
class DriverConfig:
    """The settings built into a driver.

    Attributes:
      compilers: the first is the default.
      policies: at each level, each plugin is that of one policy at most.
      never_worse: compile with and without the policies and options and keep the smaller object, where all policies are
        for size.
      strict: fail rather than continue without a policy or options.
      never_worse_above_kb: compare only objects with more text than this, in kB.
    """

    compilers: tuple[DriverCompiler, ...]
    policies: tuple[DriverPolicy, ...]
    never_worse: bool
    strict: bool
    never_worse_above_kb: int = 0

    def source(self) -> str:
        """C++ that defines what `config.h` declares."""
        majors = [compiler.major for compiler in self.compilers]
        names = [f"policy_{index}" for index in range(len(self.policies))]
        named = list(zip(self.policies, names, strict=True))
        policies = "".join(f"{policy.initializer(name)},\n    " for policy, name in named)
        compilers = ",\n    ".join(compiler.initializer() for compiler in self.compilers)
        return (
            "// The settings of one mlgo-clang, generated by compiler_opt.tools.deploy.\n"
            '#include "config.h"\n'
            "namespace mlgo::config {\n"
            "namespace {\n"
            f"{''.join(compiler.definitions() for compiler in self.compilers)}"
            f"{''.join(policy.definitions(name, majors) for policy, name in named)}"
            "}  // namespace\n"
            f"const Compiler kCompilers[] = {{\n    {compilers}}};\n"
            f"const std::size_t kNumCompilers = {len(self.compilers)};\n"
            f"const Policy kPolicies[] = {{\n    {policies}{{}}}};\n"
            f"const std::size_t kNumPolicies = {len(self.policies)};\n"
            f"const bool kNeverWorse = {json.dumps(self.never_worse)};\n"
            f"const std::uint64_t kNeverWorseAboveKb = {self.never_worse_above_kb};\n"
            f"const bool kStrict = {json.dumps(self.strict)};\n"
            "}  // namespace mlgo::config\n"
        )


def build_driver(config: DriverConfig, toolchains: Sequence[Toolchain], scratch: Path) -> bytes:
    """Builds the driver by the first C++ compiler of the toolchains that can, and returns the content of its file.

    What does not depend on the settings is compiled once, and kept in the user's cache.

    Raises:
      ToolchainError: no compiler can.
    """
    compilers = [compiler for toolchain in toolchains for compiler in cpp_compilers(toolchain)]
    compiled, source, output = scratch / "driver.o", scratch / "driver_config.cpp", scratch / "driver"
    sources = (SOURCE, *sorted(SOURCE.parent.glob("*.h")))
    digest = digest_of(FLAGS, sources, (Path(compiler[0]) for compiler in compilers))
    compiled.write_bytes(user_builds().content(f"mlgo-driver-{digest}.o", lambda: _compiled(compilers, scratch)))
    source.write_text(config.source(), encoding="utf-8")
    inputs = ["-I", str(SOURCE.parent), str(source), str(compiled)]
    _run_first([*each, *FLAGS, *link, *inputs, "-o", str(output)] for link in _LINK_FLAGS for each in compilers)
    return output.read_bytes()


def _compiled(compilers: Sequence[Sequence[str]], scratch: Path) -> bytes:
    output = scratch / "compiled.o"
    _run_first([*each, *FLAGS, "-c", str(SOURCE), "-o", str(output)] for each in compilers)
    return output.read_bytes()


def _run_first(commands: Iterable[Sequence[str]]) -> None:
    if reason := run_first(commands, _TIMEOUT_S):
        raise ToolchainError(f"mlgo-clang cannot be built: {reason}; reinstall the package g++")


def fingerprint(content: bytes) -> str:
    """A hash that identifies a plugin, in hexadecimal; the driver computes the same (`identity.h`)."""
    value = 0xCBF29CE484222325
    padded = content + bytes(-len(content) % 8)
    for word in (*struct.unpack(f"<{len(padded) // 8}Q", padded), len(content)):
        value = (value ^ word) * 0x100000001B3 % 2**64
    return f"{value:016x}"
