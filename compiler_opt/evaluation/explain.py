"""Explains the difference between two builds of a corpus: which functions changed, and which decisions changed them.

for each project: for each module: compile under the first policy and under the second, with call sites -> objects
                  link both, attribute the change of each function to decisions
for the largest decisions: compile their modules again with one decision as in the first build; link
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler_opt.collect.rollout import FailureWatch, Rollout, RolloutSettings
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.errors import CompileError, ConfigError, ProtocolError
from compiler_opt.evaluation.attribution import Attribution, CompiledModule, DecisionChange, FunctionChange, attribute
from compiler_opt.llvm import processes
from compiler_opt.llvm.object_file import TextParts, linked_parts
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.llvm.sandbox import Sandbox
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.decisions import Decisions, OverridingPolicy, Site, sites_of
from compiler_opt.policies.policy import Policy
from compiler_opt.problem import Problem


@dataclasses.dataclass(frozen=True)
class ExplainSettings:
    """How to explain.

    Attributes:
      num_workers: compilations at a time; None for one per CPU.
      num_verified: how many decisions, those with the largest changes, are measured by making them alone as the first
        build does.
      rollout: of all compilations; call sites are recorded in any case.
    """

    num_workers: int | None = None
    num_verified: int = 0
    rollout: RolloutSettings = RolloutSettings()


@dataclasses.dataclass(frozen=True)
class ProjectExplanation:
    """The builds of one project.

    Attributes:
      num_modules: modules that both policies compile; the others are left out.
      num_decisions: decisions in the second build.
      linked: linked text of both builds; None if they cannot be linked.
    """

    name: str
    num_modules: int
    num_decisions: int
    linked: tuple[TextParts, TextParts] | None
    attribution: Attribution


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The difference between two builds of a corpus.

    Attributes:
      policies: names of the first and the second policy.
      failures: why a module, or the linking of a project, failed; by name.
      demangled: C++ names of the functions that are in the explanation, by symbol name; empty if the tool is missing.
      provenance: compiler, corpus, ..., as text, in order.
    """

    policies: tuple[str, str]
    projects: tuple[ProjectExplanation, ...]
    failures: Mapping[str, str]
    demangled: Mapping[str, str]
    provenance: Mapping[str, str]

    def name(self, symbol: str) -> str:
        """A function's name for readers."""
        return self.demangled.get(symbol, symbol)

    def decisions(self) -> list[tuple[str, DecisionChange]]:
        """The decisions of all projects, with the name of each project, the largest first."""
        found = [(project.name, each) for project in self.projects for each in project.attribution.decisions]
        return sorted(found, key=lambda pair: -abs(pair[1].change))

    def functions(self) -> list[tuple[str, FunctionChange]]:
        """The functions of all projects that differ, with the name of each project, the largest first."""
        found = [(project.name, each) for project in self.projects for each in project.attribution.functions]
        return sorted(found, key=lambda pair: -abs(pair[1].change))


def explain(
    corpus: Corpus,
    first: Policy,
    second: Policy,
    *,
    problem: Problem[Any, Any],
    toolchain: Toolchain,
    settings: ExplainSettings = ExplainSettings(),
    provenance: Mapping[str, str] | None = None,
    on_rollout: Callable[[Rollout], None] = lambda rollout: None,
) -> Explanation:
    """Explains how a corpus under the second policy differs from itself under the first.

    Both must run in the inliner's plugin: the compiler's default, or learned policies. `on_rollout` is called after
    each compilation.

    Raises:
      ConfigError: the policies have the same name.
      CorpusError: most compilations fail; the message has the first reason.
      PolicyError: a policy does not fit the compiler or does not run in the plugin.
      ToolchainError: the compiler or lld is missing, or the plugin cannot be built.
    """
    if first.name == second.name:
        raise ConfigError(f"explain: expected policies of different names, found {first.name!r} twice")
    lld = toolchain.tool("ld.lld")
    # Only the plugin says which call a decision is about, whatever happened before it.
    rollout_settings = dataclasses.replace(settings.rollout, record_call_sites=True, backend="plugin")
    failures: dict[str, str] = {}
    builds: list[_ProjectBuilds] = []
    with scratch_directory() as scratch, WorkerPool(toolchain, problem, settings.num_workers) as pool:
        for number, (name, modules) in enumerate(corpus.projects().items()):
            builds.append(_ProjectBuilds(name, modules, (first, second), scratch / str(number), rollout_settings))
        by_name = {build.name: build for build in builds}
        watch = FailureWatch(2 * len(corpus.modules), "compilations")
        for job, rollout in pool.rollouts(job for build in builds for job in build.jobs()):
            watch.add(rollout.module, rollout.failure)
            if rollout.failure is not None:
                failures[rollout.module] = rollout.failure
            by_name[job.module.project].add(job, rollout)
            on_rollout(rollout)
        watch.finish()
        projects = [build.explain(lld, failures) for build in builds]
        if settings.num_verified:
            projects = _verify(projects, by_name, pool, lld, settings.num_verified, failures, on_rollout)
    names = _demangled(toolchain, projects)
    return Explanation((first.name, second.name), tuple(projects), failures, names, dict(provenance or {}))


class _ProjectBuilds:
    """Both builds of a project, whose objects are kept."""

    def __init__(
        self,
        name: str,
        modules: Sequence[Module],
        policies: tuple[Policy, Policy],
        folder: Path,
        settings: RolloutSettings,
    ):
        self.name = name
        self._modules = {module.name: module for module in modules}
        self._numbers = {module.name: number for number, module in enumerate(modules)}
        self._policies = policies
        self._folder = folder
        self._settings = settings
        self._compiled: tuple[dict[str, CompiledModule], dict[str, CompiledModule]] = ({}, {})
        self._linked: tuple[TextParts, TextParts] | None = None

    def jobs(self) -> Iterator[Job]:
        for name, module in self._modules.items():
            for number, policy in enumerate(self._policies):
                path = self._object(number, name)
                yield Job(module, policy, settings=self._settings, keep_object=path)

    def add(self, job: Job, rollout: Rollout) -> None:
        if rollout.measurement is not None:
            number = [policy.name for policy in self._policies].index(rollout.policy)
            inlined: dict[Site, bool] = {}
            if rollout.trajectory is not None:
                assert isinstance(rollout.trajectory.sites, CallSites)
                sites = rollout.trajectory.sites
                inlined = dict(zip(sites_of(sites), sites.inlined.tolist(), strict=True))
            self._compiled[number][rollout.module] = CompiledModule(rollout.module, rollout.measurement, inlined)

    def explain(self, lld: Path, failures: dict[str, str]) -> ProjectExplanation:
        names = self._included()
        first, second = ([compiled[name] for name in names] for compiled in self._compiled)
        try:
            before, after = (
                linked_parts(lld, [self._object(number, name) for name in names], scratch=self._folder)
                for number in range(2)
            )
            self._linked = before, after
        except (CompileError, ProtocolError) as error:
            failures[f"link of {self.name}"] = str(error)
        num_decisions = sum(len(module.inlined) for module in second)
        return ProjectExplanation(self.name, len(names), num_decisions, self._linked, attribute(first, second))

    def flip(self, decision: DecisionChange, number: int) -> Iterator[tuple[int, Job]]:
        """Compilations under the second policy, but for one decision; each with the number."""
        assert decision.first is not None
        policy = OverridingPolicy(self._policies[1], Decisions({decision.site: int(decision.first)}), f"flip {number}")
        for name in decision.modules:
            path = self._folder / "flips" / f"{number}-{self._numbers[name]}.o"
            yield number, Job(self._modules[name], policy, settings=self._settings, keep_object=path)

    def added(self, lld: Path, objects: Mapping[str, Path]) -> TextParts:
        """What the second build has more than the same with some other objects, by module."""
        assert self._linked is not None
        paths = [objects.get(name, self._object(1, name)) for name in self._included()]
        return self._linked[1] - linked_parts(lld, paths, scratch=self._folder)

    def _included(self) -> list[str]:
        return [name for name in self._modules if all(name in compiled for compiled in self._compiled)]

    def _object(self, number: int, module: str) -> Path:
        return self._folder / str(number) / f"{self._numbers[module]}.o"


def _verify(
    projects: Sequence[ProjectExplanation],
    builds: Mapping[str, _ProjectBuilds],
    pool: WorkerPool[Any],
    lld: Path,
    num_verified: int,
    failures: dict[str, str],
    on_rollout: Callable[[Rollout], None],
) -> list[ProjectExplanation]:
    """Measures the largest decisions of all projects."""
    chosen = verifiable(projects)[:num_verified]
    jobs = [job for number, (project, decision) in enumerate(chosen) for job in builds[project].flip(decision, number)]
    numbers = {job.keep_object: number for number, job in jobs}
    objects: dict[int, dict[str, Path]] = {}
    failed: set[int] = set()
    for job, rollout in pool.rollouts(job for _, job in jobs):
        assert job.keep_object is not None
        if rollout.failure is not None:
            failures[f"{rollout.module} with one decision changed"] = rollout.failure
            failed.add(numbers[job.keep_object])
        objects.setdefault(numbers[job.keep_object], {})[rollout.module] = Path(job.keep_object)
        on_rollout(rollout)
    measured: dict[tuple[str, Site], TextParts] = {}
    for number, (project, decision) in enumerate(chosen):
        if number not in failed:
            try:
                measured[project, decision.site] = builds[project].added(lld, objects[number])
            except (CompileError, ProtocolError) as error:
                failures[f"link of {project} with one decision changed"] = str(error)

    def with_measurements(project: ProjectExplanation) -> ProjectExplanation:
        decisions = tuple(
            dataclasses.replace(decision, linked=measured.get((project.name, decision.site)))
            for decision in project.attribution.decisions
        )
        return dataclasses.replace(project, attribution=dataclasses.replace(project.attribution, decisions=decisions))

    return [with_measurements(project) for project in projects]


def verifiable(projects: Sequence[ProjectExplanation]) -> list[tuple[str, DecisionChange]]:
    """The decisions that can be measured, with their projects, the largest first: on calls that both builds have."""
    found = [
        (project.name, decision)
        for project in projects
        if project.linked is not None
        for decision in project.attribution.decisions
        if decision.first is not None and decision.second is not None
    ]
    return sorted(found, key=lambda pair: -abs(pair[1].change))


_DEMANGLER = "llvm-cxxfilt"
_MAX_ARGUMENT_BYTES = 100_000


def _demangled(toolchain: Toolchain, projects: Sequence[ProjectExplanation]) -> Mapping[str, str]:
    """C++ names by symbol name; nothing if the tool is missing."""
    symbols: dict[str, None] = {}
    for project in projects:
        symbols.update((function.name, None) for function in project.attribution.functions)
        for decision in project.attribution.decisions:
            symbols.update({decision.site.caller: None, decision.site.callee: None})
    waiting = [symbol for symbol in symbols if symbol.startswith("_Z")]
    names: dict[str, str] = {}
    while waiting and _DEMANGLER in toolchain.tools:
        batch = [waiting.pop()]
        num_bytes = len(batch[0])
        while waiting and num_bytes < _MAX_ARGUMENT_BYTES:
            batch.append(waiting.pop())
            num_bytes += len(batch[-1]) + 1
        result = processes.run([str(toolchain.tool(_DEMANGLER)), *batch], sandbox=Sandbox.for_folder(None))
        lines = result.stdout.decode("utf-8", "replace").splitlines()
        if result.ok and len(lines) == len(batch):
            names.update(zip(batch, lines, strict=True))
    return names
