"""A prefix made of a policy: compilers that any build can use.

    bin/mlgo-clang, bin/mlgo-clang++        clang with the policy; -NN for one of several versions
    bin/mlgo-llvm-ar, ...                   links to clang's own tools, under the names that CMake derives from these
    lib/mlgo-inliner-NN.so                  the pass plugin with the policy built in, for each version; of one for
                                            the register allocator mlgo-regalloc-NN.so, with mlgo-nowhere.in and .out
    share/mlgo/                             what was deployed, and the policy's model card

It may be moved or copied: the programs find the plugin from where they are.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from compiler_opt.deploy.driver import DriverCompiler, DriverConfig, build_driver, fingerprint
from compiler_opt.errors import ConfigError, OutputError, ToolchainError
from compiler_opt.files import check_folder_writable, nearest_folder, write_atomically
from compiler_opt.llvm import processes
from compiler_opt.llvm.advisors import INLINING
from compiler_opt.llvm.inliner_plugin import INLINER
from compiler_opt.llvm.plugin import PluginKind, user_cache
from compiler_opt.llvm.probe import probe_module
from compiler_opt.llvm.regalloc_plugin import NOWHERE, REGALLOC
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.policies.model_card import CARD_FILE, MARKDOWN_FILE, ModelCard
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.problems import problem as problems
from compiler_opt.spaces.native import embedded_source

DRIVERS = ("mlgo-clang", "mlgo-clang++")
LINKED_TOOLS = ("llvm-ar", "llvm-ranlib", "clang-scan-deps")
SHARE = Path("share") / "mlgo"
DEPLOYMENT_FILE = "deployment.json"
DEFAULT_LEVELS = ("Oz",)
DEFAULT_SPEED_LEVELS = ("O2", "O3")

_LEVEL = re.compile(r"-?(O[0-3sz])")
_OURS = re.compile(
    r"mlgo-(inliner|regalloc)-\d+\.so|mlgo-clang(\+\+)?-\d+|mlgo-nowhere\.(in|out)|"
    rf"mlgo-({'|'.join(LINKED_TOOLS)})(-\d+)?"
)
_TIMEOUT_S = 60.0


@dataclasses.dataclass(frozen=True)
class Deployment:
    """A policy, deployed.

    Attributes:
      prefix: the folder.
      clangs: the compilers, by major version; the first is the one of `mlgo-clang` without a number.
      tools: those of `LINKED_TOOLS` that are installed, by major version and name.
      kind: which of the compiler's decisions: those of the inliner or the register allocator.
      policy_checksum: SHA-256 of the policy's native form.
      levels: the optimisation levels at which it decides.
      never_worse: both ways are compiled, and the smaller object is kept.
      strict: what cannot be compiled with the policy fails.
    """

    prefix: Path
    clangs: Mapping[int, Path]
    tools: Mapping[int, Mapping[str, Path]]
    kind: PluginKind
    policy_checksum: str
    levels: tuple[str, ...]
    never_worse: bool
    strict: bool

    def driver(self, *, cpp: bool = False, major: int | None = None) -> Path:
        """Path of a compiler driver: of the C or C++ one, of one version or of the first."""
        return self.prefix / "bin" / (DRIVERS[cpp] + (f"-{major}" if major is not None else ""))

    def plugin(self, major: int) -> Path:
        """Path of the plugin of a version."""
        return self.prefix / "lib" / self.kind.file_name(major)

    @property
    def links(self) -> Mapping[Path, str]:
        """What is a link to something else, below the prefix."""
        links = {Path("bin") / f"{name}-{major}": name for name in DRIVERS for major in self.clangs}
        first, *others = self.tools.values()
        # Without a number for all versions only: what CMake does not find with it, it takes without.
        links |= {Path("bin") / f"mlgo-{name}": str(first[name]) for name in first if all(name in o for o in others)}
        for major, tools in self.tools.items():
            links |= {Path("bin") / f"mlgo-{name}-{major}": str(path) for name, path in tools.items()}
        if self.kind == REGALLOC:
            links |= {Path("lib") / name: os.devnull for name in NOWHERE}
        return links


def deploy(
    policy_dir: Path,
    output: Path,
    clangs: Sequence[str | Path] = (),
    *,
    levels: Sequence[str] | None = None,
    never_worse: bool = False,
    strict: bool = False,
) -> Deployment:
    """Builds everything, tries it out, and only then puts it in place of what an earlier deployment left.

    Args:
      policy_dir: a trained policy.
      output: the prefix.
      clangs: compilers to deploy for, one of each version; by default the newest that is installed.
      levels: optimisation levels at which the policy is to decide; by default those of its problem.
      never_worse: compile both ways and keep the smaller object, for twice the time.
      strict: fail rather than compile without the policy.

    Raises:
      PolicyError: there is no policy, or a compiler lacks a feature that it needs.
      ToolchainError: a compiler is missing or cannot carry the policy.
      ConfigError: two compilers of one version, or what is no optimisation level.
      OutputError: the prefix cannot be written; an earlier deployment still works.
    """
    spelled = _check_levels(levels) if levels is not None else ()
    weights = NetworkWeights.load(policy_dir)
    problem = problems.recorded(weights.metadata, str(policy_dir))
    kind = INLINER if problem.advisor == INLINING else REGALLOC
    if never_worse and not problem.is_size:
        raise ConfigError(f"--never_worse: keeps the smaller object, and {problem.name} is not about size")
    spelled = spelled or (DEFAULT_LEVELS if problem.is_size else DEFAULT_SPEED_LEVELS)
    policy = problem.policy(weights, origin=str(policy_dir))
    card = ModelCard.load(policy_dir) or weights.card()
    blob = problem.native_form(weights)
    checksum = hashlib.sha256(blob).hexdigest()
    if output.exists() and not output.is_dir():
        raise OutputError(f"{output}: expected the name of a folder, found a file; give another --output")
    check_folder_writable(output)
    toolchains = _probe_all(clangs)
    for toolchain in toolchains.values():
        policy.check([spec.name for spec in toolchain.require(problem.advisor.problem).features])
    # Beside the prefix, as programs may not run in a temporary folder.
    with scratch_directory(nearest_folder(output)) as scratch:
        source = scratch / "policy.cpp"
        source.write_text(embedded_source(blob), encoding="ascii")
        files: dict[Path, bytes] = {}
        compilers = []
        for major, toolchain in toolchains.items():
            name = kind.file_name(major)
            library = scratch / "prefix" / "lib" / name
            user_cache().build(toolchain, kind, library, [source])
            content = files[Path("lib") / name] = library.read_bytes()
            compilers.append(DriverCompiler(major, toolchain.clang, name, len(content), fingerprint(content)))
        config = DriverConfig(tuple(compilers), spelled, checksum, never_worse, strict)
        program = build_driver(config, list(toolchains.values()), scratch)
        deployment = Deployment(
            prefix=output,
            clangs={each.major: each.clang for each in compilers},
            tools={major: dict(_tools_to_link(toolchain)) for major, toolchain in toolchains.items()},
            kind=kind,
            policy_checksum=checksum,
            levels=spelled,
            never_worse=never_worse,
            strict=strict,
        )
        files[SHARE / DEPLOYMENT_FILE] = _description(deployment, toolchains)
        files[SHARE / CARD_FILE] = card.to_json().encode()
        files[SHARE / MARKDOWN_FILE] = card.to_markdown().encode()
        # Last, as they come to life with what was put there before.
        files |= {Path("bin") / name: program for name in DRIVERS}
        tried = dataclasses.replace(deployment, prefix=scratch / "prefix")
        _install(tried, files)
        for toolchain in toolchains.values():
            _try_out(tried, toolchain, scratch)
        _install(deployment, files)
    return deployment


def _check_levels(levels: Sequence[str]) -> tuple[str, ...]:
    matches = [_LEVEL.fullmatch(level) for level in levels]
    if not levels or not all(matches):
        wrong = next((level for level, match in zip(levels, matches, strict=True) if not match), "none")
        raise ConfigError(f"--levels: expected some of O0 O1 O2 O3 Os Oz, found {wrong}")
    return tuple(dict.fromkeys(match.group(1) for match in matches if match))


def _probe_all(clangs: Sequence[str | Path]) -> dict[int, Toolchain]:
    toolchains: dict[int, Toolchain] = {}
    for clang in clangs or (None,):
        toolchain = probe(clang)
        other = toolchains.setdefault(toolchain.version[0], toolchain)
        if other is not toolchain:
            raise ConfigError(
                f"--clang_path: {other.clang} and {toolchain.clang} are both clang-{toolchain.version[0]}; "
                "give one of each version"
            )
    return toolchains


def _tools_to_link(toolchain: Toolchain) -> Iterator[tuple[str, Path]]:
    """In the folder of the compiler's other tools, else with its number on PATH."""
    for name in LINKED_TOOLS:
        beside = toolchain.tool("llvm-config").with_name(name)
        path = shutil.which(beside) or shutil.which(f"{name}-{toolchain.version[0]}")
        if path is not None:
            yield name, Path(path)


def _description(deployment: Deployment, toolchains: Mapping[int, Toolchain]) -> bytes:
    content = {
        "policy_checksum": deployment.policy_checksum,
        "levels": deployment.levels,
        "never_worse": deployment.never_worse,
        "strict": deployment.strict,
        "compilers": [
            {"clang": str(toolchain.clang), "plugin": f"lib/{deployment.kind.file_name(major)}", **toolchain.identity()}
            for major, toolchain in toolchains.items()
        ],
    }
    return (json.dumps(content, indent=1) + "\n").encode()


def _install(deployment: Deployment, files: Mapping[Path, bytes]) -> None:
    """Writes each file whole, and removes what an earlier deployment left for other versions."""
    prefix = deployment.prefix
    for name, content in files.items():
        write_atomically(prefix / name, content, executable=name.parts[0] == "bin")
    plugins = {deployment.kind.file_name(major) for major in deployment.clangs}
    wanted = {path.name for path in deployment.links} | plugins
    try:
        for link, target in deployment.links.items():
            _link_atomically(prefix / link, target)
        for path in _of_other_versions(prefix, wanted):
            path.unlink()
    except OSError as error:
        raise OutputError(f"{prefix}: cannot be written: {error.strerror}; choose another folder") from error


def _link_atomically(path: Path, target: str) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as scratch:
        link = Path(scratch) / path.name
        link.symlink_to(target)
        link.replace(path)


def _of_other_versions(prefix: Path, wanted: set[str]) -> Iterator[Path]:
    for folder in ("bin", "lib"):
        for path in (prefix / folder).iterdir():
            if _OURS.fullmatch(path.name) and path.name not in wanted:
                yield path


def _try_out(deployment: Deployment, toolchain: Toolchain, scratch: Path) -> None:
    """Raises ToolchainError unless the driver compiles with the policy."""
    source, target = scratch / "probe.ll", scratch / "probe.o"
    source.write_text(probe_module())
    driver = deployment.driver(major=toolchain.version[0])
    command = [str(driver), "-Wno-override-module", f"-{deployment.levels[0]}", "-c", str(source), "-o", str(target)]
    strictly = {**os.environ, "MLGO_STRICT": "1", "MLGO_DISABLE": "0", "MLGO_NEVER_WORSE": "0"}
    result = processes.run(command, timeout_s=_TIMEOUT_S, environment=strictly)
    with contextlib.suppress(FileNotFoundError):
        target.unlink()
    if not result.ok:
        raise ToolchainError(f"{toolchain.clang}: does not work with this policy: {result.describe()}")
