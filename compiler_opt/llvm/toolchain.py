"""A compiler with its tools: found once, probed by behaviour, recorded with everything it produces."""

import contextlib
import dataclasses
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from compiler_opt.errors import ToolchainError
from compiler_opt.llvm import ir2vec, processes
from compiler_opt.llvm.advisors import ADVISORS, INLINING
from compiler_opt.llvm.probe import TIMEOUT_S, Prober, ProblemSupport
from compiler_opt.llvm.scratch import scratch_directory

OLDEST_MAJOR = 17
"""The first LLVM with the interactive channel; the plugins need a later one, see `plugin.PluginKind`."""

TOOL_PACKAGES: Mapping[str, str] = {
    "clang++": "clang",
    "ld.lld": "lld",
    "llvm-ar": "llvm",
    "llvm-config": "llvm",
    "llvm-cxxfilt": "llvm",
    "llvm-ir2vec": "llvm",  # from 22 on
    "llvm-mc": "llvm",
    "llvm-mca": "llvm",
    "llvm-objcopy": "llvm",
    "llvm-profdata": "llvm",
    "llvm-readobj": "llvm",
    "llvm-size": "llvm",
    "opt": "llvm",
}
"""The tools to find, and the Debian and Ubuntu package (without `-NN`) of each."""

_VERSION = re.compile(r"clang version (\d+)\.(\d+)\.(\d+)")
_TARGET = re.compile(r"^Target: (\S+)", re.MULTILINE)
_INSTALL = "install e.g. the packages clang-19 llvm-19 lld-19, or give another by --clang_path"
_DEPLOYED = "mlgo-clang"
_DEPLOYED_CLANG = re.compile(r"^clang: (/.+?)(?: \(\d+ bytes .*)?$", re.MULTILINE)
_INSTALLED_DIR = re.compile(r"^InstalledDir: (.+)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Toolchain:
    """One clang and its tools.

    Attributes:
      clang: absolute path of the compiler, as found or given.
      version: major, minor, patch.
      version_text: the first line of `clang --version`.
      target: default target triple.
      tools: absolute paths of the installed tools of `TOOL_PACKAGES`, all of this clang's version.
      problems: its support of each problem in `advisors.ADVISORS`.
      pass_plugins: it loads pass plugins.
      plugin_headers: folder of LLVM's headers, needed to build a plugin; None if they are not installed.
      embeddings: the vocabulary of the IR2Vec embeddings among the features of inlining.
    """

    clang: Path
    version: tuple[int, int, int]
    version_text: str
    target: str
    tools: Mapping[str, Path]
    problems: Mapping[str, ProblemSupport]
    pass_plugins: bool
    plugin_headers: Path | None
    embeddings: ir2vec.Ir2VecVocabulary | None = None

    @property
    def development_mode(self) -> bool:
        """Whether it supports the development mode (was built with TFLite) for any problem."""
        return any(support.development for support in self.problems.values())

    def tool(self, name: str) -> Path:
        """Path of one of the tools; if it is not installed, raises ToolchainError, which names its package."""
        if name not in self.tools:
            raise ToolchainError(
                f"{name}: not found beside {self.clang} nor as {name}-{self.version[0]} on PATH; "
                f"install the package {self.package(name)}"
            )
        return self.tools[name]

    def package(self, tool: str) -> str:
        """The Debian and Ubuntu package of a tool for this version."""
        return f"{TOOL_PACKAGES[tool]}-{self.version[0]}"

    def require(self, problem: str) -> ProblemSupport:
        """The support of a problem.

        Raises:
          ToolchainError: its decisions cannot be made over the channel; the message says why.
        """
        support = self.problems[problem]
        if not support.interactive:
            raise ToolchainError(
                f"{self.clang}: offers no {problem} decisions over the channel: {support.reason}; "
                f"use a clang >= {OLDEST_MAJOR} that passes compiler_opt doctor"
            )
        return support

    def identity(self) -> dict[str, Any]:
        """What a corpus, trace or policy records about its compiler (no paths, which differ between machines)."""
        known = {"version": ".".join(map(str, self.version)), "version_text": self.version_text, "target": self.target}
        return known if self.embeddings is None else {**known, ir2vec.IDENTITY: self.embeddings.sha256}


def find_clang(clang: str | Path | None = None, *, llvm_folders: Iterable[Path] | None = None) -> Path:
    """Absolute path of the compiler to use: a path or a name on PATH; for None, the newest clang installed.

    That is the newest `clang` or `clang-NN` on PATH or in `llvm_folders`, by default `/usr/lib/llvm-*`.

    Raises:
      ToolchainError: it is missing, not executable, not clang, or older than `OLDEST_MAJOR`.
    """
    if clang is not None:
        path, which = _locate(str(clang)), ""
        version = _read_version(path).version
    else:
        found = []
        folders = sorted(Path("/usr/lib").glob("llvm-*")) if llvm_folders is None else llvm_folders
        for path in _installed_clangs(folders):
            # A broken installation must not hide a working one.
            with contextlib.suppress(ToolchainError):
                found.append((_read_version(path).version, path))
        if not found:
            raise ToolchainError(f"no clang found on PATH or in /usr/lib/llvm-*/bin; {_INSTALL}")
        (version, path), which = max(found), " (the newest installed)"
    if version[0] < OLDEST_MAJOR:
        raise ToolchainError(
            f"{path}{which}: expected clang >= {OLDEST_MAJOR}, the first with the interactive channel; found "
            f"{'.'.join(map(str, version))}; {_INSTALL}"
        )
    return path


def deployed_clang(compiler: str | Path) -> Path | None:
    """The clang that a compiler with policies of its own runs, such as `PREFIX/bin/mlgo-clang`; None for others."""
    path = shutil.which(str(compiler))
    if path is None or not Path(os.path.realpath(path)).name.startswith(_DEPLOYED):
        return None
    result = processes.run([path, "--mlgo-info"], timeout_s=TIMEOUT_S, max_stdout_bytes=1 << 16)
    match = _DEPLOYED_CLANG.search(os.fsdecode(result.stdout))
    return Path(match[1]) if match else None


def probe(clang: str | Path | None = None, embeddings: ir2vec.Ir2VecVocabulary | None = None) -> Toolchain:
    """Finds a compiler (see `find_clang`) and its tools, and tries out its features; takes some 0.5 s.

    With a vocabulary, the features of inlining include its embeddings. Missing tools and modes are reported later, by
    `Toolchain.tool` and `Toolchain.require`.

    Raises:
      ToolchainError: there is no usable compiler, or it supports no embeddings.
    """
    path = find_clang(clang)
    version = _read_version(path)
    tools = dict(_find_tools(path, version))
    with scratch_directory() as scratch:
        prober = Prober(path, scratch)
        problems = {name: prober.support(flags) for name, flags in ADVISORS.items()}
        pass_plugins = prober.accepts_pass_plugins()
        inlining = problems[INLINING.problem]
        if embeddings is not None and inlining.interactive:
            features = prober.features_with_embeddings(embeddings)
            problems[INLINING.problem] = dataclasses.replace(inlining, features=features)
    return Toolchain(
        clang=path,
        version=version.version,
        version_text=version.text,
        target=version.target,
        tools=tools,
        problems=problems,
        pass_plugins=pass_plugins,
        plugin_headers=_plugin_headers(tools),
        embeddings=embeddings,
    )


@dataclasses.dataclass(frozen=True)
class _Version:
    version: tuple[int, int, int]
    text: str
    target: str
    installed_dir: Path | None


def _locate(clang: str) -> Path:
    """The absolute path of the user's compiler, which must be an executable file."""
    if os.sep not in clang and not clang.startswith("~"):
        on_path = shutil.which(clang)
        if on_path is None and not Path(clang).exists():
            raise ToolchainError(f"{clang}: no such program on PATH; {_INSTALL}")
        clang = on_path or clang
    path = Path(clang).expanduser().absolute()
    if not path.exists():
        raise ToolchainError(f"{path}: no such file; {_INSTALL}")
    if not path.is_file():
        raise ToolchainError(f"{path}: expected the clang executable, found a folder or device; {_INSTALL}")
    if not os.access(path, os.X_OK):
        raise ToolchainError(f"{path}: not executable; check its permissions, or give another by --clang_path")
    if (runs := deployed_clang(path)) is not None:
        raise ToolchainError(
            f"{path}: is a compiler with a policy of its own, made by compiler_opt deploy; expected a clang "
            f"without one, such as the one that it runs: --clang_path={runs}"
        )
    return path


def _read_version(clang: Path) -> _Version:
    result = processes.run([str(clang), "--version"], timeout_s=TIMEOUT_S, max_stdout_bytes=1 << 16)
    text = result.stdout.decode("utf-8", "replace")
    match = _VERSION.search(text)
    if not result.ok or match is None:
        first_line = text.strip().split("\n")[0]
        found = repr(first_line[:60]) if result.ok else result.describe()
        raise ToolchainError(f"{clang}: expected clang, by its --version; found {found}; {_INSTALL}")
    target, installed_dir = _TARGET.search(text), _INSTALLED_DIR.search(text)
    major, minor, patch = map(int, match.groups())
    return _Version(
        (major, minor, patch),
        text.splitlines()[0].strip(),
        target.group(1) if target else "",
        Path(installed_dir.group(1)) if installed_dir else None,
    )


def _installed_clangs(llvm_folders: Iterable[Path]) -> Iterator[Path]:
    """Each installed `clang` and `clang-NN`, without duplicates by symbolic links."""
    seen = set()
    folders = [Path(folder) for folder in os.get_exec_path() if Path(folder).is_absolute()]
    on_path = (path for folder in folders for path in (folder / "clang", *sorted(folder.glob("clang-[0-9]*"))))
    for path in (*on_path, *(folder / "bin" / "clang" for folder in llvm_folders)):
        if os.access(path, os.X_OK) and path.is_file() and re.fullmatch(r"clang(-\d+)?", path.name):
            target = path.resolve()
            if target not in seen and not target.name.startswith(_DEPLOYED):
                seen.add(target)
                yield path


def _find_tools(clang: Path, version: _Version) -> Iterator[tuple[str, Path]]:
    """The tools of the same version: in the compiler's own folder, or with its version as a suffix."""
    # `--version` prints where the compiler really is, even behind ccache; next best is the target of a symbolic link.
    home = version.installed_dir or clang.resolve().parent
    for name in TOOL_PACKAGES:
        suffixed = f"{name}-{version.version[0]}"
        for path in (home / name, clang.parent / suffixed, shutil.which(suffixed)):
            if path is not None and os.access(path, os.X_OK):
                yield name, Path(path)
                break


def _plugin_headers(tools: Mapping[str, Path]) -> Path | None:
    if "llvm-config" not in tools:
        return None
    result = processes.run([str(tools["llvm-config"]), "--includedir"], timeout_s=TIMEOUT_S)
    folder = Path(result.stdout.decode("utf-8", "replace").strip())
    return folder if result.ok and (folder / "llvm/IR/Module.h").exists() else None
