"""Plugins for an unmodified clang: built once for each LLVM, tried out, kept in the user's cache.

Here are the inliner's (`native/inliner_plugin.cpp`), which decides in the compiler's own process, and what it has in
common with the register allocator's (see `regalloc_plugin`). Clang loads them by `-fpass-plugin=`. Building one takes
LLVM's headers and some 6 seconds, nearly all of them for compiling our own sources: what comes of that is kept too, and
only linked when a policy is built in. Nothing is built before somebody asks for it. `inliner_plugin` is the way in:

    plugin = inliner_plugin(toolchain)                                   # ToolchainError says what is missing
    processes.run([..., load_option(plugin)], environment=environment(policy=blob, seed=1, log=log))
    inliner_log.read(log, features)
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from compiler_opt.errors import CompilerOptError, OutputError, ToolchainError
from compiler_opt.files import default_cache_dir, write_atomically
from compiler_opt.llvm import processes
from compiler_opt.llvm.advisors import INLINING
from compiler_opt.llvm.inliner_log import DECISION
from compiler_opt.llvm.interactive import compile_interactively, llvm_channel
from compiler_opt.llvm.probe import TIMEOUT_S
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.llvm.training_log_reader import decode_log

NATIVE = Path(__file__).parents[1] / "native"

SOURCES = tuple(
    NATIVE / name for name in ("inliner_plugin.cpp", "inline_advisor.h", "plugin_environment.h", "policy_network.h")
)
"""What the inliner's plugin is made of."""

PROBE_SOURCE = NATIVE / "inliner_probe.cpp"
"""C++20, without headers, which the inliner's plugin is tried out on."""


@dataclasses.dataclass(frozen=True)
class PluginKind:
    """What there is to build.

    Attributes:
      name: in files' names and messages.
      sources: C++ files, and headers beside them.
      try_out: raises ToolchainError unless the compiler loads a library and lets it decide; given a scratch folder.
      oldest: the first LLVM that has what it takes.
      newest: the last LLVM whose insides it is known to fit; None where its try-out says enough.
    """

    name: str
    sources: tuple[Path, ...]
    try_out: Callable[[Toolchain, Path, Path], None]
    oldest: int
    newest: int | None = None

    def fits(self, toolchain: Toolchain) -> bool:
        """Whether it is for this version of LLVM."""
        return self.oldest <= toolchain.version[0] and (self.newest is None or toolchain.version[0] <= self.newest)

    def file_name(self, major: int) -> str:
        """Of the library with a policy built in, for a version of LLVM."""
        return f"mlgo-{self.name}-{major}.so"


FLAGS = (
    "-std=c++17 -O2 -DNDEBUG -fPIC -fno-rtti -fno-exceptions -fvisibility=hidden -fvisibility-inlines-hidden"
).split()
"""For compiling them."""

# Undefined symbols are found in the compiler that loads it, function by function as they are called.
_LINK_FLAGS = "-shared -s -Wl,-z,lazy".split()

_BUILD_TIMEOUT_S = 900.0
_HEADERS_VERSION = re.compile(r'^#define LLVM_VERSION_STRING "(\d+)\.(\d+)\.(\d+)', re.MULTILINE)


def load_option(plugin: Path) -> str:
    """The option by which clang and cc1 load it."""
    return f"-fpass-plugin={plugin}"


def environment(
    *,
    policy: Path | None,
    temperature: float = 0.0,
    seed: int = 0,
    log: Path | None = None,
    log_default: bool = False,
    thinlto: bool = False,
    strict: bool = True,
) -> dict[str, str]:
    """All environment variables of a compiler that loads the plugin: ours, and what the plugin is to do.

    Args:
      policy: a policy's native form; None decides as the compiler itself would.
      temperature: 0 is greedy; otherwise what the logits are divided by before sampling.
      seed: what sampling starts from.
      log: where to write the training log to (and `LOG.functions`).
      log_default: the log also tells the compiler's own decisions; it always does without a policy.
      thinlto: decide in the backends of a ThinLTO link as well.
      strict: what cannot be done as told ends the compilation, instead of going on without the policy.
    """
    return {
        **os.environ,
        "MLGO_INLINER_MODE": "default" if policy is None else "policy",
        "MLGO_INLINER_POLICY": str(policy or ""),
        "MLGO_INLINER_TEMPERATURE": repr(float(temperature)),
        "MLGO_INLINER_SEED": str(seed % (1 << 64)),
        "MLGO_INLINER_LOG": str(log or ""),
        "MLGO_INLINER_LOG_DEFAULT": str(int(log_default)),
        "MLGO_INLINER_THINLTO": str(int(thinlto)),
        "MLGO_INLINER_STRICT": str(int(strict)),
    }


def can_build(toolchain: Toolchain) -> bool:
    """Whether the inliner's plugin can be had, as far as can be told without building it."""
    return INLINER.fits(toolchain) and toolchain.pass_plugins and toolchain.plugin_headers is not None


def inliner_plugin(toolchain: Toolchain) -> Path:
    """The inliner's plugin for a compiler: see `cached_plugin`."""
    return cached_plugin(toolchain, INLINER)


def cached_plugin(toolchain: Toolchain, kind: PluginKind) -> Path:
    """The plugin for a compiler: from the cache, or built and tried out now.

    Raises:
      ToolchainError: it cannot be had; the message says why, and names the package to install.
    """
    # Whoever compiles a thousand modules asks a thousand times.
    key = (kind.name, toolchain.clang)
    if key not in _known:
        try:
            _known[key] = build_plugin(toolchain, kind=kind)
        except CompilerOptError as error:
            _known[key] = str(error)
    plugin = _known[key]
    if isinstance(plugin, str):
        raise ToolchainError(plugin)
    return plugin


_known: dict[tuple[str, Path], Path | str] = {}
"""By kind and compiler: the plugin, or why there is none."""


def build_plugin(
    toolchain: Toolchain,
    output: Path | None = None,
    *,
    kind: PluginKind | None = None,
    cache_dir: Path | None = None,
    extra_sources: Sequence[Path] = (),
) -> Path:
    """Builds the plugin for a compiler, and sees it decide there.

    Args:
      toolchain: the compiler.
      output: where to write the library; by default into the cache, and what is there already is taken from it.
      kind: which; by default the inliner's.
      cache_dir: by default the user's.
      extra_sources: C++ files to build in, such as `native.embedded_source` of a policy.

    Returns:
      path of the library.

    Raises:
      ToolchainError: headers or a C++ compiler are missing, or what was built does not work in this compiler.
      OutputError: the output cannot be written.
    """
    kind = kind or INLINER
    headers = _headers(toolchain, kind)
    folder = (cache_dir or default_cache_dir()) / "plugins"
    if output is not None:
        write_atomically(
            output, _link(toolchain, kind, _compiled_somewhere(toolchain, kind, headers, folder), extra_sources)
        )
        return output
    library = folder / f"{_name(toolchain, kind, headers, extra_sources)}.so"
    with _locked(folder):
        if not library.is_file():
            write_atomically(
                library, _link(toolchain, kind, _compiled(toolchain, kind, headers, folder), extra_sources)
            )
    return library


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Whoever comes to the cache while something is being built waits for it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            raise OutputError(f"{folder}: belongs to another user; set XDG_CACHE_HOME to a folder of your own")
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written: {error.strerror}; set XDG_CACHE_HOME") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _compiled(toolchain: Toolchain, kind: PluginKind, headers: Path, folder: Path) -> bytes:
    """Our own sources as an object: the cache's, or made now and put there."""
    path = folder / f"{_name(toolchain, kind, headers)}.o"
    if not path.is_file():
        write_atomically(path, _compile(toolchain, kind, headers))
    return path.read_bytes()


def _compiled_somewhere(toolchain: Toolchain, kind: PluginKind, headers: Path, folder: Path) -> bytes:
    """The same, also where nothing can be kept."""
    try:
        with _locked(folder):
            return _compiled(toolchain, kind, headers, folder)
    except OutputError:
        return _compile(toolchain, kind, headers)


def _headers(toolchain: Toolchain, kind: PluginKind) -> Path:
    major = toolchain.version[0]
    if not kind.fits(toolchain):
        expected = f">= {kind.oldest}" if kind.newest is None else f"{kind.oldest} to {kind.newest}"
        raise ToolchainError(
            f"{toolchain.clang}: the {kind.name} plugin needs LLVM {expected}, found {major}; use such a clang, or "
            "have decisions made over the channel"
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


def _name(toolchain: Toolchain, kind: PluginKind, headers: Path, extra_sources: Sequence[Path] = ()) -> str:
    """Says what it was built from and for; found without starting a process."""
    digest = hashlib.sha256(" ".join((*FLAGS, *_LINK_FLAGS)).encode())
    for source in (*kind.sources, *extra_sources):
        digest.update(hashlib.sha256(source.read_bytes()).digest())
    libraries = sorted(headers.parent.glob("lib*/libLLVM*.so*"))
    for path in (toolchain.clang.resolve(), *(library.resolve() for library in libraries)):
        status = path.stat()
        digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return f"mlgo-{kind.name}-{toolchain.version[0]}-{digest.hexdigest()[:20]}"


def _compile(toolchain: Toolchain, kind: PluginKind, headers: Path) -> bytes:
    sources = [str(source) for source in kind.sources if source.suffix != ".h"]
    options = [*FLAGS, *_definitions(toolchain), "-isystem", str(headers), "-I", str(NATIVE), "-c", *sources]
    with scratch_directory() as scratch:
        return _run_cpp_compiler(toolchain, kind, options, scratch / "plugin.o").read_bytes()


def _link(toolchain: Toolchain, kind: PluginKind, compiled: bytes, extra_sources: Sequence[Path]) -> bytes:
    with scratch_directory() as scratch:
        (scratch / "plugin.o").write_bytes(compiled)
        standard_library = [word for word in _definitions(toolchain) if word.startswith("-stdlib=")]
        inputs = [str(scratch / "plugin.o"), *map(str, extra_sources)]
        options = [*FLAGS, *_LINK_FLAGS, *standard_library, *inputs]
        library = _run_cpp_compiler(toolchain, kind, options, scratch / "plugin.so")
        kind.try_out(toolchain, library, scratch)
        return library.read_bytes()


def _run_cpp_compiler(toolchain: Toolchain, kind: PluginKind, options: Sequence[str], output: Path) -> Path:
    reason = ""
    for compiler in cpp_compilers(toolchain):
        result = processes.run([*compiler, *options, "-o", str(output)], timeout_s=_BUILD_TIMEOUT_S)
        if result.ok:
            return output
        reason = reason or result.describe()
    raise ToolchainError(
        f"{toolchain.clang}: its {kind.name} plugin cannot be built: {reason}; "
        "see that the packages g++ and llvm-{0}-dev are whole".format(toolchain.version[0])
    )


def _definitions(toolchain: Toolchain) -> list[str]:
    """What LLVM itself was compiled with, as far as its headers depend on it."""
    result = processes.run([str(toolchain.tool("llvm-config")), "--cxxflags"], timeout_s=TIMEOUT_S)
    words = result.stdout.decode("utf-8", "replace").split()
    return [word for word in words if word.startswith(("-D", "-U", "-stdlib="))]


def cpp_compilers(toolchain: Toolchain) -> list[list[str]]:
    """Commands to try when C++ is to be built: this LLVM's own compiler first."""
    own = toolchain.tools.get("clang++")
    others = [path for name in ("c++", "g++") if (path := shutil.which(name)) is not None]
    return [[str(own)] if own else [str(toolchain.clang), "--driver-mode=g++"], *([path] for path in others)]


def _try_out_inliner(toolchain: Toolchain, plugin: Path, scratch: Path) -> None:
    """See `PluginKind.try_out`: what was built must see what LLVM's own advisor sees, number by number."""
    command = [str(toolchain.clang), "-std=c++20", "-O2", "-x", "c++", str(PROBE_SOURCE), "-c", "-o"]
    differing = differing_features(toolchain, plugin, [*command, str(scratch / "probe.o")], scratch)
    if differing:
        raise ToolchainError(
            f"{toolchain.clang}: the inliner plugin finds other values than LLVM's own advisor in the features "
            f"{', '.join(differing)}; have decisions made over the channel"
        )


def differing_features(toolchain: Toolchain, plugin: Path, command: Sequence[str], scratch: Path) -> list[str]:
    """Names of the features in which plugin and channel tell different values, by the compiler's own decisions.

    Args:
      toolchain: the compiler; one without a channel tells nothing to compare with.
      plugin: the inliner's.
      command: compiles something in which there is something to decide.
      scratch: a directory of the caller's own.

    Raises:
      ToolchainError: one of the two does not work.
    """
    log, support = scratch / "probe.log", toolchain.problems[INLINING.problem]
    variables = environment(policy=None, log=log)
    result = processes.run([*command, load_option(plugin)], timeout_s=TIMEOUT_S, environment=variables)
    if not result.ok:
        raise ToolchainError(f"{toolchain.clang}: does not work with the inliner plugin: {result.describe()}")
    try:
        decided = decode_log(log.read_bytes())
    except OSError:
        raise ToolchainError(f"{toolchain.clang}: loads the inliner plugin, but does not ask it") from None
    if decided.features[: len(support.features)] != support.features:
        raise ToolchainError(f"{toolchain.clang}: tells the inliner plugin other features than the channel")
    if not support.interactive:
        return []
    ours = decided.columns()
    advice = iter(ours[DECISION].reshape(-1).tolist())
    channel = compile_interactively(
        command,
        connect=llvm_channel(INLINING),
        start_deciding=lambda header: lambda observation: next(advice, 0),
        scratch=scratch,
        timeout_s=TIMEOUT_S,
    )
    if not channel.process.ok or channel.header is None:
        raise ToolchainError(f"{toolchain.clang}: does not decide over the channel: {channel.process.describe()}")
    theirs = channel.header.decode(channel.observations)
    return [name for name in theirs if not np.array_equal(ours[name].reshape(-1), theirs[name].reshape(-1))]


INLINER = PluginKind("inliner", SOURCES, _try_out_inliner, oldest=19)
