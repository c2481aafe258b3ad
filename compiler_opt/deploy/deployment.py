"""Deploys policies, and options of LLVM's passes, to a prefix with compilers that any build can use.

    bin/mlgo-clang, bin/mlgo-clang++        clang with them; with the suffix -NN for one of several versions
    bin/mlgo-llvm-ar, ...                   links to clang's tools, under the names that CMake derives from the above
    lib/mlgo-inliner-NN.so                  for each version, the pass plugin with a policy built in; for the register
                                            allocator mlgo-regalloc-NN.so, with mlgo-nowhere.in and .out; for the second
                                            policy of a plugin mlgo-inliner-2-NN.so
    lib/mlgo-decisions-NN.mlgo              decisions that the plugin replays before it asks the policy, if any
    lib/mlgo-options-LEVEL-NN.so            the pass plugin with options of LLVM's passes for single functions, if any
    lib/mlgo-pass-DIGEST.so                 a pass plugin of the user's own, which that one loads, if any
    share/mlgo/                             CMake toolchain files and a description of the deployment
    share/mlgo/inliner/                     the model card of that policy

The prefix may be moved or copied: the programs find the plugins relative to themselves.
"""

import dataclasses
import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from compiler_opt import pretrained
from compiler_opt import problem as problems
from compiler_opt.deploy.cmake_toolchain import cmake_toolchain
from compiler_opt.deploy.decision_files import DeployedDecisions, load_decisions
from compiler_opt.deploy.driver import (
    NO_PLUGIN,
    DriverCompiler,
    DriverConfig,
    DriverPlugin,
    build_driver,
)
from compiler_opt.deploy.installation import LINKED_TOOLS, SHARE, install
from compiler_opt.deploy.pass_options import NO_OPTIONS, UsableOptions, usable_options
from compiler_opt.deploy.plugins import DeployedPolicy as DeployedPolicy
from compiler_opt.deploy.plugins import deployed_options, policy_plugins
from compiler_opt.deploy.policies import LoadedPolicy, PolicyRequest, check_together, names_of
from compiler_opt.errors import ConfigError, OutputError, ToolchainError
from compiler_opt.files import check_folder_writable, nearest_folder
from compiler_opt.llvm import processes
from compiler_opt.llvm.advisors import INLINING
from compiler_opt.llvm.inliner_plugin import INLINER
from compiler_opt.llvm.options_plugin import FunctionOptions
from compiler_opt.llvm.probe import probe_module
from compiler_opt.llvm.regalloc_plugin import NOWHERE, REGALLOC
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.pass_options.sets import LEVELS, OptionSets, architecture_of
from compiler_opt.policies.model_card import CARD_FILE, MARKDOWN_FILE

DRIVERS = ("mlgo-clang", "mlgo-clang++")
DEPLOYMENT_FILE = "deployment.json"
FORMAT = 2
"""Of `deployment.json`; without a number, it had one policy."""

_DESCRIBED = ("never_worse", "never_worse_above_kb", "strict")
_TIMEOUT_S = 60.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Deployment(DriverConfig):
    """Deployed policies: the configuration of their drivers, and what else the prefix has.

    Attributes:
      prefix: the folder.
      tools: the installed tools of `LINKED_TOOLS`, by major version and name; relative paths are those from `bin`.
    """

    prefix: Path
    tools: Mapping[int, Mapping[str, Path]]
    policies: tuple[DeployedPolicy, ...]

    @property
    def clangs(self) -> dict[int, Path]:
        """The compilers by major version; `mlgo-clang` without a suffix runs the first."""
        return {compiler.major: compiler.clang for compiler in self.compilers}

    def driver(self, *, cpp: bool = False, major: int | None = None) -> Path:
        """The C or C++ driver for one version, by default the first."""
        return self.prefix / "bin" / (DRIVERS[cpp] + (f"-{major}" if major is not None else ""))

    def plugin(self, major: int, name: str | None = None) -> Path:
        """The plugin of the policy of a name, by default the first."""
        policy = next(policy for policy in self.policies if name in (None, policy.name))
        return self.prefix / "lib" / policy.plugins[major].library.name

    @property
    def links(self) -> Mapping[Path, str]:
        """The symbolic links: path relative to the prefix, and target."""
        links = {Path("bin") / f"{name}-{major}": name for name in DRIVERS for major in self.clangs}
        first, *others = self.tools.values()
        # Without a suffix only if every version has it: CMake falls back to that name.
        links |= {Path("bin") / f"mlgo-{name}": str(first[name]) for name in first if all(name in o for o in others)}
        for major, tools in self.tools.items():
            links |= {Path("bin") / f"mlgo-{name}-{major}": str(path) for name, path in tools.items()}
        if any(policy.kind == REGALLOC for policy in self.policies):
            links |= {Path("lib") / name: os.devnull for name in NOWHERE}
        return links


def deploy(
    requests: Sequence[PolicyRequest],
    output: Path,
    clangs: Sequence[str | Path] = (),
    *,
    decisions: Sequence[Path] = (),
    options: OptionSets | Literal["auto"] = NO_OPTIONS,
    function_options: FunctionOptions | None = None,
    option_trials: int = 0,
    pass_plugin: Path | None = None,
    never_worse: bool = False,
    never_worse_above_kb: int = 0,
    strict: bool = False,
    relative_clang: bool = False,
    pin_clang: bool = False,
    margin: float | None = None,
) -> Deployment:
    """Builds a deployment, and tries it out before it replaces an earlier one.

    Args:
      requests: the policies; none to deploy options alone, which need neither plugins nor LLVM's headers. Those for
        inlining and for register allocation may decide at the same level.
      output: the prefix.
      clangs: compilers to deploy for, of different versions; by default the newest installed one.
      decisions: decision files to replay, each for one of the compilers and made with the one policy for inlining.
      options: those of LLVM's passes for each level, or those that ship; `DriverCompiler.options` has those that a
        compiler can take.
      function_options: those of single functions, for one compiler; at their level, in place of `options`.
      option_trials: how many sets of the menu of `options` a compiler tries on each function besides the first, by
        generating code with each of them.
      pass_plugin: a plugin for one compiler, whose options and passes that menu may have; it becomes a part of the
        deployment, and compilations load it.
      never_worse: compile both ways and keep the smaller object, in twice the time, where no policy for speed decides.
      never_worse_above_kb: do so only if the policy's object has more text than this; a kB is 1000 bytes.
      strict: fail rather than compile without a policy.
      relative_clang: find the compilers relative to the prefix, and nowhere else: they are moved together.
      pin_clang: use the policies only with the exact versions of the compilers, such as 22.1.2.
      margin: replaces that of the policies that can have one, see `NetworkWeights`; larger is more careful.

    Raises:
      PolicyError: there is no policy, it is damaged, a compiler lacks one of its features, or a decision file is
        damaged or for another compiler or policy.
      ToolchainError: a compiler is missing or does not work with the policies.
      ConfigError: two compilers have the same version, policies and settings do not fit each other, or there are
        neither policies nor options that a compiler takes.
      OutputError: the prefix cannot be written; an earlier deployment still works.
    """
    if not requests and not options and not option_trials and function_options is None:
        raise ConfigError(
            "--policy_path: expected a policy, or options without one (--options), found neither; give either"
        )
    if not requests and not option_trials and function_options is None and pin_clang:
        raise ConfigError(
            "--pin_clang: expected a policy or trials, whose plugin checks the version, found none; leave it out"
        )
    toolchains: Mapping[int, Toolchain] = {}
    policies = []
    for request in requests:
        origin = ""
        if request.folder is None and not decisions:
            toolchains = toolchains or _probe_all(clangs)
            origin = pretrained.default(problems.load(INLINING.problem), toolchains.values(), "--policy_path")
            request = dataclasses.replace(request, folder=pretrained.folder(origin))
        policies.append(LoadedPolicy.load(request, margin, origin))
    check_together(policies, never_worse=never_worse, margin=margin)
    if decisions and sum(policy.kind == INLINER for policy in policies) != 1:
        found = " and ".join(map(str, policies)) or "none"
        raise ConfigError(
            f"--decisions: expected one policy for inlining, whose decisions are replayed, found {found}; leave it out"
        )
    if output.exists() and not output.is_dir():
        raise OutputError(f"{output}: expected the name of a folder, found a file; give another --output_dir")
    check_folder_writable(output)
    toolchains = toolchains or _probe_all(clangs)
    if function_options is not None and len(toolchains) > 1:
        raise ConfigError(
            f"expected one compiler for options of functions, found clang-{', clang-'.join(map(str, toolchains))}"
        )
    if pass_plugin is not None and len(toolchains) > 1:
        raise ConfigError(
            f"--pass_plugin={pass_plugin}: is for one compiler, found clang-{', clang-'.join(map(str, toolchains))}"
        )
    for toolchain, policy in itertools.product(toolchains.values(), policies):
        features = toolchain.require(policy.problem.decision.advisor.problem).feature_names
        if policy.policy is not None:
            policy.policy.check(features)
    decision_files = [_replayed(policy, decisions, toolchains) for policy in policies]
    # Beside the prefix, since a temporary folder may not allow execution.
    with scratch_directory(nearest_folder(output)) as scratch:
        files: dict[Path, bytes] = {}
        deployed = []
        for name, policy, replayed in zip(names_of(policies), policies, decision_files, strict=True):
            deployed.append(
                DeployedPolicy(
                    problem=policy.problem.name,
                    checksum=policy.base.name,
                    levels=policy.levels,
                    is_for_size=policy.problem.objective.is_size,
                    plugins=dict(policy_plugins(name, policy, replayed, toolchains, files, scratch)),
                    name=name,
                    kind=policy.kind,
                    origin=policy.origin,
                )
            )
            if policy.card is not None:
                files[SHARE / name / CARD_FILE] = policy.card.to_json().encode()
                files[SHARE / name / MARKDOWN_FILE] = policy.card.to_markdown().encode()
        usable = {
            major: usable_options(options, toolchain, option_trials, pass_plugin)
            for major, toolchain in toolchains.items()
        }
        for by_compiler in _by_function(function_options, usable, toolchains):
            deployed.append(deployed_options(by_compiler, toolchains, files, scratch))
        first, *_ = compilers = tuple(
            DriverCompiler(
                major,
                _relative(toolchain.clang, output) if relative_clang else toolchain.clang,
                only_version=toolchain.identity()["version"] if pin_clang else "",
                architecture=architecture_of(toolchain.target),
                options=usable[major],
            )
            for major, toolchain in toolchains.items()
        )
        if not deployed and not any(compiler.options.sets.has_constants for compiler in compilers):
            reasons = "; ".join(line for compiler in compilers for line in compiler.options.summary())
            reasons = reasons or "menus need --option_trials"
            raise ConfigError(f"--options: expected an option that the compiler takes, found none ({reasons})")
        deployment = Deployment(
            compilers=compilers,
            policies=tuple(deployed),
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
        )
        program = build_driver(deployment, list(toolchains.values()), scratch)
        files[SHARE / DEPLOYMENT_FILE] = _description(deployment, toolchains, files)
        for suffix, compiler in zip(("", *(f"-{major}" for major in toolchains)), (first, *compilers), strict=True):
            levels = [*(policy.levels for policy in deployed), compiler.options.sets.levels]
            files[SHARE / f"toolchain{suffix}.cmake"] = cmake_toolchain(suffix, levels).encode()
        # Last, as they use the other files.
        files |= {Path("bin") / name: program for name in DRIVERS}
        trial = dataclasses.replace(deployment, prefix=scratch / "prefix")
        dates_s = {Path("lib") / file.name: file.date_s for policy in deployed for file in policy.files}
        install(trial.prefix, files, trial.links, dates_s)
        for toolchain in toolchains.values():
            _try_out(trial, toolchain, scratch)
        install(deployment.prefix, files, deployment.links, dates_s)
    return deployment


def _by_function(
    given: FunctionOptions | None, usable: Mapping[int, UsableOptions], toolchains: Mapping[int, Toolchain]
) -> Iterator[Mapping[int, FunctionOptions]]:
    """For each level that has options of functions, those of each compiler: given, or else found by trials."""
    if given is not None:
        yield dict.fromkeys(toolchains, given)
    for level in LEVELS:
        found = {
            major: usable[major].sets.by_function(level, toolchain.target.partition("-")[0])
            for major, toolchain in toolchains.items()
        }
        by_compiler = {major: options for major, options in found.items() if options is not None}
        if by_compiler and (given is None or given.level != level):
            yield by_compiler


def _replayed(
    policy: LoadedPolicy, paths: Sequence[Path], toolchains: Mapping[int, Toolchain]
) -> Mapping[int, DeployedDecisions]:
    """The decision files for a policy."""
    if policy.kind != INLINER:
        return {}
    return load_decisions(paths, toolchains, policy.problem.name, policy.base)


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
        beside = toolchain.tools.get("llvm-config", toolchain.clang.resolve()).with_name(name)
        path = shutil.which(beside) or shutil.which(f"{name}-{toolchain.version[0]}")
        if path is not None:
            yield name, Path(path)


def _relative(program: Path, folder: Path) -> Path:
    """The program's path relative to a folder, both without symbolic links; the program itself may be one."""
    return Path(os.path.relpath(program.parent.resolve() / program.name, folder.resolve()))


def _description(deployment: Deployment, toolchains: Mapping[int, Toolchain], files: Mapping[Path, bytes]) -> bytes:
    content = {
        "format": FORMAT,
        **{name: getattr(deployment, name) for name in _DESCRIBED},
        "policies": [
            {"name": policy.name, "problem": policy.problem, "checksum": policy.checksum, "levels": policy.levels}
            for policy in deployment.policies
        ],
        "compilers": [
            {
                "clang": str(compiler.clang),
                **toolchains[compiler.major].identity(),
                "plugins": [
                    {"policy": policy.name, **_describe_plugin(policy.plugins[compiler.major], files)}
                    for policy in deployment.policies
                    if policy.plugins[compiler.major] != NO_PLUGIN
                ],
                "options": {"levels": compiler.options.sets.levels, "targets": compiler.options.sets.targets},
                "options_left_out": [dataclasses.asdict(each) for each in compiler.options.left_out],
            }
            for compiler in deployment.compilers
        ],
    }
    return (json.dumps(content, indent=1) + "\n").encode()


def _describe_plugin(plugin: DriverPlugin, files: Mapping[Path, bytes]) -> dict[str, str]:
    described = {"plugin": f"lib/{plugin.library.name}"}
    if plugin.decisions.name:
        path = Path("lib") / plugin.decisions.name
        described["decisions"] = str(path)
        described["decisions_checksum"] = hashlib.sha256(files[path]).hexdigest()
        described["about_decisions"] = plugin.about_decisions
    return described


def _try_out(deployment: Deployment, toolchain: Toolchain, scratch: Path) -> None:
    """Raises ToolchainError unless the driver compiles with all policies and options that are used together."""
    source, target = scratch / "probe.ll", scratch / "probe.o"
    source.write_text(probe_module())
    driver = deployment.driver(major=toolchain.version[0])
    strictly = {"MLGO_STRICT": "1", "MLGO_DISABLE": "0", "MLGO_NEVER_WORSE": "0", "MLGO_LOG": ""}
    # A relative path is that from the final prefix.
    environment = {**os.environ, **strictly, "MLGO_CLANG": str(toolchain.clang)}
    [options] = [each.options.sets for each in deployment.compilers if each.major == toolchain.version[0]]
    for level in _levels_to_try(deployment.policies, options):
        command = [str(driver), "-Wno-override-module", f"-{level}", "-c", str(source), "-o", str(target)]
        result = processes.run(command, timeout_s=_TIMEOUT_S, environment=environment)
        target.unlink(missing_ok=True)
        if not result.ok:
            raise ToolchainError(
                f"{toolchain.clang}: does not work with this deployment at -{level}: {result.describe()}"
            )


def _levels_to_try(policies: Sequence[DeployedPolicy], options: OptionSets) -> Iterable[str]:
    """One level for each set of policies and options that are used together."""
    together: dict[tuple[str, ...], str] = {}
    for level in (*(level for policy in policies for level in policy.levels), *options.levels):
        names = [policy.name for policy in policies if level in policy.levels]
        together.setdefault((*names, *options.levels.get(level, ())), level)
    return together.values()
