"""Deploys a policy to a prefix with compilers that any build can use.

    bin/mlgo-clang, bin/mlgo-clang++        clang with the policy; with the suffix -NN for one of several versions
    bin/mlgo-llvm-ar, ...                   links to clang's tools, under the names that CMake derives from the above
    lib/mlgo-inliner-NN.so                  for each version, the pass plugin with the policy built in; for the register
                                            allocator mlgo-regalloc-NN.so, with mlgo-nowhere.in and .out
    lib/mlgo-decisions-NN.mlgo              decisions that the plugin replays before it asks the policy, if any
    share/mlgo/                             CMake toolchain files, a description of the deployment, and the policy's
                                            model card

The prefix may be moved or copied: the programs find the plugin relative to themselves.
"""

import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from compiler_opt import pretrained
from compiler_opt.deploy.cmake_toolchain import cmake_toolchain
from compiler_opt.deploy.decision_files import DeployedDecisions, load_decisions
from compiler_opt.deploy.driver import DriverCompiler, DriverConfig, DriverFile, build_driver
from compiler_opt.deploy.versions import replace_link
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
from compiler_opt.policies.decisions import DEFAULT_BASE, policy_checksum
from compiler_opt.policies.model_card import CARD_FILE, MARKDOWN_FILE, ModelCard
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.problems import problem as problems
from compiler_opt.problems.problem import AnyProblem
from compiler_opt.spaces.learned_policy import LearnedPolicy
from compiler_opt.spaces.native import embedded_source

DRIVERS = ("mlgo-clang", "mlgo-clang++")
LINKED_TOOLS = ("llvm-ar", "llvm-ranlib", "clang-scan-deps")
SHARE = Path("share") / "mlgo"
DEPLOYMENT_FILE = "deployment.json"
DEFAULT_LEVELS = ("Oz",)
DEFAULT_SPEED_LEVELS = ("O2", "O3")

_LEVELS = ("O0", "O1", "O2", "O3", "Os", "Oz")
_OURS = re.compile(
    r"mlgo-(inliner|regalloc)-\d+\.so|mlgo-decisions-\d+\.mlgo|mlgo-clang(\+\+)?-\d+|mlgo-nowhere\.(in|out)|"
    rf"mlgo-({'|'.join(LINKED_TOOLS)})(-\d+)?|toolchain(-\d+)?\.cmake|{re.escape(CARD_FILE)}|"
    rf"{re.escape(MARKDOWN_FILE)}"
)
_DESCRIBED = ("policy_checksum", "levels", "never_worse", "never_worse_above_kb", "strict")
_FOLDERS = (Path("bin"), Path("lib"), SHARE)
_TIMEOUT_S = 60.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Deployment(DriverConfig):
    """A deployed policy, or the default with decisions: the configuration of its drivers, and what else the prefix has.

    Attributes:
      prefix: the folder.
      tools: the installed tools of `LINKED_TOOLS`, by major version and name; relative paths are those from `bin`.
      kind: the inliner's or the register allocator's plugin.
      policy_name: `pretrained:NAME` if nobody named a policy; otherwise empty.
    """

    prefix: Path
    tools: Mapping[int, Mapping[str, Path]]
    kind: PluginKind
    policy_name: str = ""

    @property
    def clangs(self) -> dict[int, Path]:
        """The compilers by major version; `mlgo-clang` without a suffix runs the first."""
        return {compiler.major: compiler.clang for compiler in self.compilers}

    def driver(self, *, cpp: bool = False, major: int | None = None) -> Path:
        """The C or C++ driver for one version, by default the first."""
        return self.prefix / "bin" / (DRIVERS[cpp] + (f"-{major}" if major is not None else ""))

    def plugin(self, major: int) -> Path:
        return self.prefix / "lib" / self.kind.file_name(major)

    @property
    def links(self) -> Mapping[Path, str]:
        """The symbolic links: path relative to the prefix, and target."""
        links = {Path("bin") / f"{name}-{major}": name for name in DRIVERS for major in self.clangs}
        first, *others = self.tools.values()
        # Without a suffix only if every version has it: CMake falls back to that name.
        links |= {Path("bin") / f"mlgo-{name}": str(first[name]) for name in first if all(name in o for o in others)}
        for major, tools in self.tools.items():
            links |= {Path("bin") / f"mlgo-{name}-{major}": str(path) for name, path in tools.items()}
        if self.kind == REGALLOC:
            links |= {Path("lib") / name: os.devnull for name in NOWHERE}
        return links


def deploy(
    policy_dir: Path | None,
    output: Path,
    clangs: Sequence[str | Path] = (),
    *,
    decisions: Sequence[Path] = (),
    levels: Sequence[str] | None = None,
    never_worse: bool = False,
    never_worse_above_kb: int = 0,
    strict: bool = False,
    relative_clang: bool = False,
    pin_clang: bool = False,
    margin: float | None = None,
) -> Deployment:
    """Builds a deployment, and tries it out before it replaces an earlier one.

    Args:
      policy_dir: a trained policy; None for the compiler's own heuristic if there are decisions, otherwise for the
        policy for inlining that ships and suits all of the compilers.
      output: the prefix.
      clangs: compilers to deploy for, of different versions; by default the newest installed one.
      decisions: decision files to replay, each for one of the compilers and made with this policy.
      levels: optimisation levels at which the policy decides; by default those of its problem.
      never_worse: compile both ways and keep the smaller object, in twice the time.
      never_worse_above_kb: do so only if the policy's object has more text than this; a kB is 1000 bytes.
      strict: fail rather than compile without the policy.
      relative_clang: find the compilers relative to the prefix, and nowhere else: they are moved together.
      pin_clang: use the policy only with the exact versions of the compilers, such as 22.1.2.
      margin: replaces the policy's margin, see `NetworkWeights`; larger is more careful.

    Raises:
      PolicyError: there is no policy, it is damaged, a compiler lacks one of its features, or a decision file is
        damaged or for another compiler or policy.
      ToolchainError: a compiler is missing or does not work with the policy.
      ConfigError: two compilers have the same version, a level is unknown, or there is neither policy nor decisions.
      OutputError: the prefix cannot be written; an earlier deployment still works.
    """
    given_levels = _check_levels(levels) if levels is not None else ()
    toolchains: Mapping[int, Toolchain] = {}
    policy_name = ""
    if policy_dir is None and not decisions:
        toolchains = _probe_all(clangs)
        policy_name = pretrained.default(problems.load(INLINING.problem), toolchains.values(), "--policy")
        policy_dir = pretrained.folder(policy_name)
    base = _Base.load(policy_dir, margin) if policy_dir is not None else _Base(problems.load(INLINING.problem))
    problem = base.problem
    kind = INLINER if problem.advisor == INLINING else REGALLOC
    if decisions and kind != INLINER:
        raise ConfigError(f"--decisions: only inlining decisions can be replayed, not {problem.name}; leave it out")
    if never_worse and not problem.is_size:
        raise ConfigError(
            f"--never_worse: keeps the smaller object, but {problem.name} does not optimise size; leave it out"
        )
    if output.exists() and not output.is_dir():
        raise OutputError(f"{output}: expected the name of a folder, found a file; give another --output")
    check_folder_writable(output)
    toolchains = toolchains or _probe_all(clangs)
    for toolchain in toolchains.values():
        features = toolchain.require(problem.advisor.problem).feature_names
        if base.policy is not None:
            base.policy.check(features)
    checksum = DEFAULT_BASE if base.blob is None else policy_checksum(base.blob)
    replayed = load_decisions(decisions, toolchains, problem.name, checksum)
    # Beside the prefix, since a temporary folder may not allow execution.
    with scratch_directory(nearest_folder(output)) as scratch:
        sources = []
        if base.blob is not None:
            sources = [scratch / "policy.cpp"]
            sources[0].write_text(embedded_source(base.blob), encoding="ascii")
        files: dict[Path, bytes] = {}
        compilers = []
        for major, toolchain in toolchains.items():
            name = kind.file_name(major)
            library = scratch / "prefix" / "lib" / name
            user_cache().build(toolchain, kind, library, sources)
            content = files[Path("lib") / name] = library.read_bytes()
            clang = _relative(toolchain.clang, output) if relative_clang else toolchain.clang
            only_version = toolchain.identity()["version"] if pin_clang else ""
            compiler = DriverCompiler(major, clang, DriverFile.of(name, content), only_version=only_version)
            if major in replayed:
                name, content = DeployedDecisions.file_name(major), replayed[major].content
                files[Path("lib") / name] = content
                about = replayed[major].summary
                compiler = dataclasses.replace(compiler, decisions=DriverFile.of(name, content), about_decisions=about)
            compilers.append(compiler)
        deployment = Deployment(
            compilers=tuple(compilers),
            levels=given_levels or (DEFAULT_LEVELS if problem.is_size else DEFAULT_SPEED_LEVELS),
            policy_checksum=DEFAULT_BASE if base.blob is None else hashlib.sha256(base.blob).hexdigest(),
            never_worse=never_worse,
            never_worse_above_kb=never_worse_above_kb,
            strict=strict,
            prefix=output,
            tools={
                major: {
                    name: _relative(path, output / "bin") if relative_clang else path
                    for name, path in _tools_to_link(toolchain)
                }
                for major, toolchain in toolchains.items()
            },
            kind=kind,
            policy_name=policy_name,
        )
        program = build_driver(deployment, list(toolchains.values()), scratch)
        files[SHARE / DEPLOYMENT_FILE] = _description(deployment, toolchains, replayed)
        for suffix in ("", *(f"-{major}" for major in toolchains)):
            content = cmake_toolchain(suffix, deployment.levels).encode()
            files[SHARE / f"toolchain{suffix}.cmake"] = content
        if base.card is not None:
            files[SHARE / CARD_FILE] = base.card.to_json().encode()
            files[SHARE / MARKDOWN_FILE] = base.card.to_markdown().encode()
        # Last, as they use the other files.
        files |= {Path("bin") / name: program for name in DRIVERS}
        trial = dataclasses.replace(deployment, prefix=scratch / "prefix")
        _install(trial, files)
        for toolchain in toolchains.values():
            _try_out(trial, toolchain, scratch)
        _install(deployment, files)
    return deployment


@dataclasses.dataclass(frozen=True)
class _Base:
    """What decides where nothing is replayed: a policy, with its native form and model card; or the default."""

    problem: AnyProblem
    policy: LearnedPolicy | None = None
    blob: bytes | None = None
    card: ModelCard | None = None

    @classmethod
    def load(cls, directory: Path, margin: float | None) -> "_Base":
        trained = NetworkWeights.load(directory)
        weights = trained.with_margin(margin)
        problem = problems.recorded(weights.metadata, str(directory))
        policy = problem.policy(weights, origin=str(directory))
        # What was measured with another margin does not hold with this one.
        card = (ModelCard.load(directory) if weights.margin == trained.margin else None) or weights.card()
        return cls(problem, policy, problem.native_form(weights), card)


def _check_levels(levels: Sequence[str]) -> tuple[str, ...]:
    names = [level.removeprefix("-") for level in levels]
    if not names or set(names) - set(_LEVELS):
        wrong = next((name for name in names if name not in _LEVELS), "none")
        raise ConfigError(f"--levels: expected some of {' '.join(_LEVELS)}, found {wrong}; separate them by commas")
    return tuple(dict.fromkeys(names))


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
    """The installed `LINKED_TOOLS`: beside the compiler's other tools, or on PATH with its version as a suffix."""
    for name in LINKED_TOOLS:
        beside = toolchain.tool("llvm-config").with_name(name)
        path = shutil.which(beside) or shutil.which(f"{name}-{toolchain.version[0]}")
        if path is not None:
            yield name, Path(path)


def _relative(program: Path, folder: Path) -> Path:
    """The program's path relative to a folder, both without symbolic links; the program itself may be one."""
    return Path(os.path.relpath(program.parent.resolve() / program.name, folder.resolve()))


def _description(
    deployment: Deployment, toolchains: Mapping[int, Toolchain], replayed: Mapping[int, DeployedDecisions]
) -> bytes:
    content = {
        **{name: getattr(deployment, name) for name in _DESCRIBED},
        "compilers": [
            {
                "clang": str(deployment.clangs[major]),
                "plugin": f"lib/{deployment.kind.file_name(major)}",
                **toolchain.identity(),
            }
            | (_describe_decisions(major, replayed[major]) if major in replayed else {})
            for major, toolchain in toolchains.items()
        ],
    }
    return (json.dumps(content, indent=1) + "\n").encode()


def _describe_decisions(major: int, decisions: DeployedDecisions) -> dict[str, str]:
    checksum = hashlib.sha256(decisions.content).hexdigest()
    name = f"lib/{decisions.file_name(major)}"
    return {"decisions": name, "decisions_checksum": checksum, "about_decisions": decisions.summary}


def _install(deployment: Deployment, files: Mapping[Path, bytes]) -> None:
    """Writes each file and link atomically, and removes an earlier deployment's files for other versions."""
    prefix = deployment.prefix
    for name, content in files.items():
        write_atomically(prefix / name, content, executable=name.parts[0] == "bin")
    wanted = {path.name for path in (*deployment.links, *files)}
    try:
        for link, target in deployment.links.items():
            replace_link(prefix / link, target)
        for path in (folder_file for name in _FOLDERS for folder_file in (prefix / name).iterdir()):
            if _OURS.fullmatch(path.name) and path.name not in wanted:
                path.unlink()
    except OSError as error:
        raise OutputError(f"{prefix}: cannot be written: {error.strerror}; choose another folder") from error


def _try_out(deployment: Deployment, toolchain: Toolchain, scratch: Path) -> None:
    """Raises ToolchainError unless the driver compiles with the policy."""
    source, target = scratch / "probe.ll", scratch / "probe.o"
    source.write_text(probe_module())
    driver = deployment.driver(major=toolchain.version[0])
    command = [str(driver), "-Wno-override-module", f"-{deployment.levels[0]}", "-c", str(source), "-o", str(target)]
    strictly = {"MLGO_STRICT": "1", "MLGO_DISABLE": "0", "MLGO_NEVER_WORSE": "0", "MLGO_LOG": ""}
    # A relative path is that from the final prefix.
    environment = {**os.environ, **strictly, "MLGO_CLANG": str(toolchain.clang)}
    result = processes.run(command, timeout_s=_TIMEOUT_S, environment=environment)
    target.unlink(missing_ok=True)
    if not result.ok:
        raise ToolchainError(f"{toolchain.clang}: does not work with this policy: {result.describe()}")
