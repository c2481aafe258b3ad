"""Pass plugins for a stock clang: built once per LLVM, tried out, and kept in the user's cache.

Clang loads a plugin by `-fpass-plugin=`; those that exist are defined by `inliner_plugin`, `regalloc_plugin` and
`options_plugin`. Building one requires LLVM's headers and some 6 seconds, nearly all of them for compiling our sources.
Their object is cached too, so that building in a policy only links.
"""

import dataclasses
import functools
import re
import shutil
import string
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from compiler_opt.errors import CompilerOptError, ToolchainError
from compiler_opt.files import default_cache_dir, write_atomically
from compiler_opt.llvm import processes
from compiler_opt.llvm.build_cache import BuildCache, digest_of
from compiler_opt.llvm.probe import TIMEOUT_S
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain

NATIVE = Path(__file__).parents[1] / "native"

FLAGS = (
    "-std=c++17 -O2 -DNDEBUG -fPIC -fno-rtti -fno-exceptions -fvisibility=hidden -fvisibility-inlines-hidden"
).split()
"""Compiler flags for plugins."""

# The compiler that loads the plugin resolves its undefined symbols, each when it is first called.
_LINK_FLAGS = "-shared -s -Wl,-z,lazy".split()

_BUILD_TIMEOUT_S = 900.0
_HEADERS_VERSION = re.compile(r'^#define LLVM_VERSION_STRING "(\d+)\.(\d+)\.(\d+)', re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class PluginKind:
    """A plugin that can be built.

    Attributes:
      name: used in file names and messages.
      sources: C++ files and headers, all in one folder.
      try_out: given the compiler, the built library and a scratch folder, raises ToolchainError unless the compiler
        loads the library and lets it decide.
      oldest: the first major version of LLVM that it supports.
      newest: the last one; None if `try_out` alone decides.
    """

    name: str
    sources: tuple[Path, ...]
    try_out: Callable[[Toolchain, Path, Path], None]
    oldest: int
    newest: int | None = None

    def fits(self, toolchain: Toolchain) -> bool:
        """Whether it supports this version of LLVM."""
        return self.oldest <= toolchain.version[0] and (self.newest is None or toolchain.version[0] <= self.newest)


def load_option(plugin: Path) -> str:
    """The option that loads a plugin, for clang and cc1."""
    return f"-fpass-plugin={plugin}"


@functools.cache
def user_cache() -> "PluginCache":
    """The plugins in the user's cache folder."""
    return PluginCache(default_cache_dir() / "plugins")


def compile_sources(toolchain: Toolchain, kind: PluginKind, headers: Path) -> bytes:
    """Compiles a plugin's sources to an object; raises ToolchainError if no compiler can."""
    sources = [str(source) for source in kind.sources if source.suffix != ".h"]
    options = [*FLAGS, *llvm_definitions(toolchain), "-isystem", str(headers), "-I", str(NATIVE), "-c", *sources]
    with scratch_directory() as scratch:
        return _run_cpp_compiler(toolchain, kind, options, scratch / "plugin.o").read_bytes()


def link_plugin(toolchain: Toolchain, kind: PluginKind, compiled: bytes, extra_sources: Sequence[Path]) -> bytes:
    """Links the object of `compile_sources` and extra sources to a library; raises ToolchainError unless it works."""
    with scratch_directory() as scratch:
        (scratch / "plugin.o").write_bytes(compiled)
        standard_library = [word for word in llvm_definitions(toolchain) if word.startswith("-stdlib=")]
        inputs = [str(scratch / "plugin.o"), *map(str, extra_sources)]
        options = [*FLAGS, *_LINK_FLAGS, *standard_library, *inputs]
        library = _run_cpp_compiler(toolchain, kind, options, scratch / "plugin.so")
        kind.try_out(toolchain, library, scratch)
        return library.read_bytes()


class PluginCache:
    """Builds plugins and keeps them, with their objects, in a folder that processes share."""

    def __init__(
        self,
        folder: Path,
        compile_sources: Callable[[Toolchain, PluginKind, Path], bytes] = compile_sources,
        link: Callable[[Toolchain, PluginKind, bytes, Sequence[Path]], bytes] = link_plugin,
    ):
        self._builds = BuildCache(folder)
        self._compile = compile_sources
        self._link = link
        self._results: dict[tuple[str, Path], Path | str] = {}  # the plugin, or why there is none

    def get(self, toolchain: Toolchain, kind: PluginKind) -> Path:
        """The plugin for a compiler, built and tried out if the folder has none; later calls repeat the result.

        Raises:
          ToolchainError: there is none; the message says why and what to install.
        """
        key = (kind.name, toolchain.clang)
        if key not in self._results:
            try:
                self._results[key] = self._find_or_build(toolchain, kind)
            except CompilerOptError as error:
                self._results[key] = str(error)
        result = self._results[key]
        if isinstance(result, str):
            raise ToolchainError(result)
        return result

    def build(self, toolchain: Toolchain, kind: PluginKind, output: Path, extra_sources: Sequence[Path] = ()) -> None:
        """Links and tries out a plugin with more C++ sources, such as `native.embedded_source` of a policy.

        The plugin's object is taken from the folder if possible.

        Raises:
          ToolchainError: headers or a C++ compiler are missing, or the library does not work in this compiler.
          OutputError: the output cannot be written.
        """
        headers = _checked_headers(toolchain, kind)
        name = _name(toolchain, kind, headers)
        compiled = self._builds.content(f"{name}.o", lambda: self._compile(toolchain, kind, headers))
        write_atomically(output, self._link(toolchain, kind, compiled, extra_sources))

    def _find_or_build(self, toolchain: Toolchain, kind: PluginKind) -> Path:
        headers = _checked_headers(toolchain, kind)
        name = _name(toolchain, kind, headers)
        found = self._builds.find(f"{name}.so")
        if found is not None:
            return found
        compiled = self._builds.get(f"{name}.o", lambda: self._compile(toolchain, kind, headers)).read_bytes()
        return self._builds.get(f"{name}.so", lambda: self._link(toolchain, kind, compiled, ()))


def _checked_headers(toolchain: Toolchain, kind: PluginKind) -> Path:
    """LLVM's headers; raises ToolchainError unless the plugin can be built with them for this compiler."""
    major = toolchain.version[0]
    if not kind.fits(toolchain):
        expected = f">= {kind.oldest}" if kind.newest is None else f"{kind.oldest} to {kind.newest}"
        raise ToolchainError(
            f"{toolchain.clang}: the {kind.name} plugin needs LLVM {expected}, found {major}; use such a clang or "
            "the backend channel"
        )
    if not toolchain.pass_plugins:
        raise ToolchainError(
            f"{toolchain.clang}: does not load pass plugins; use a clang with LLVM as a shared library"
        )
    if toolchain.plugin_headers is None:
        raise ToolchainError(
            f"{toolchain.clang}: building the {kind.name} plugin needs LLVM's headers; "
            f"install the packages llvm-{major} and llvm-{major}-dev"
        )
    config = toolchain.plugin_headers / "llvm" / "Config" / "llvm-config.h"
    try:
        match = _HEADERS_VERSION.search(config.read_text())
    except OSError as error:
        raise ToolchainError(f"{config}: {error.strerror}; install the package llvm-{major}-dev again") from error
    found = tuple(map(int, match.groups())) if match else ()
    if found != toolchain.version:
        raise ToolchainError(
            f"{config}: expected the headers of LLVM {'.'.join(map(str, toolchain.version))}, found those of "
            f"{'.'.join(map(str, found)) or 'none'}; install the package llvm-{major}-dev of the same version"
        )
    return toolchain.plugin_headers


def _name(toolchain: Toolchain, kind: PluginKind, headers: Path) -> str:
    """A file name that identifies the sources, flags and LLVM; computed without starting a process."""
    libraries = sorted(headers.parent.glob("lib*/libLLVM*.so*"))
    digest = digest_of((*FLAGS, *_LINK_FLAGS), kind.sources, (toolchain.clang, *libraries))
    return f"mlgo-{kind.name}-{toolchain.version[0]}-{digest}"


def _run_cpp_compiler(toolchain: Toolchain, kind: PluginKind, options: Sequence[str], output: Path) -> Path:
    commands = ([*compiler, *options, "-o", str(output)] for compiler in cpp_compilers(toolchain))
    if reason := run_first(commands, _BUILD_TIMEOUT_S):
        raise ToolchainError(
            f"{toolchain.clang}: its {kind.name} plugin cannot be built: {reason}; reinstall the packages g++ and "
            f"llvm-{toolchain.version[0]}-dev"
        )
    return output


def run_first(commands: Iterable[Sequence[str]], timeout_s: float) -> str:
    """Runs commands until one succeeds; returns an empty string or, if none does, how the first failed."""
    reason = ""
    for command in commands:
        result = processes.run(command, timeout_s=timeout_s)
        if result.ok:
            return ""
        reason = reason or result.describe()
    return reason


def llvm_definitions(toolchain: Toolchain) -> list[str]:
    """The flags of LLVM's own build on which its headers depend."""
    result = processes.run([str(toolchain.tool("llvm-config")), "--cxxflags"], timeout_s=TIMEOUT_S)
    words = result.stdout.decode("utf-8", "replace").split()
    return [word for word in words if word.startswith(("-D", "-U", "-stdlib="))]


def cpp_compilers(toolchain: Toolchain) -> list[list[str]]:
    """C++ compiler commands to try in turn: this LLVM's own first."""
    own = toolchain.tools.get("clang++")
    others = [path for name in ("c++", "g++") if (path := shutil.which(name)) is not None]
    return [[str(own)] if own else [str(toolchain.clang), "--driver-mode=g++"], *([path] for path in others)]


def c_literal(text: bytes) -> str:
    """A C string literal; special characters are octal escapes, which end after three digits."""
    plain = f"/._-+ {string.digits}{string.ascii_letters}".encode()
    return '"' + "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in text) + '"'
