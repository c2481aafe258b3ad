"""Compiles a corpus under several policies, links each project, and measures.

for each project: for each module: compile under default, options, policy, both, baselines -> objects
                  when all are compiled: score, link once per policy -> ProjectResult; delete the objects
"""

import contextlib
import dataclasses
import datetime
import math
import shutil
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler_opt.collect.compilation_files import CompilationFiles
from compiler_opt.collect.rollout import FailureWatch, Rollout, RolloutSettings
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.errors import CompileError, ConfigError, OutputError, ProtocolError
from compiler_opt.evaluation.results import (
    DEFAULT,
    NEVER_WORSE,
    OPTIONS,
    Evaluation,
    ModuleResult,
    Output,
    ProjectResult,
)
from compiler_opt.llvm.object_file import TextParts, linked_parts, read_parts
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.pass_options.sets import OptionSets
from compiler_opt.policies.policy import Policy
from compiler_opt.problem import Problem


@dataclasses.dataclass(frozen=True)
class EvaluationSettings:
    """How to evaluate.

    Attributes:
      num_workers: compilations at a time; None for one per CPU.
      seed: seed of policies that sample; each module has a random stream of its own, so the order does not matter.
      keep_objects: folder to move the objects to, as `POLICY/MODULE.o`; None deletes them.
      link_shared: also link each project into a shared library, for `ProjectResult.shared`.
      compilation_files: where to keep all files of compilations; None removes them.
    """

    num_workers: int | None = None
    seed: int = 0
    rollout: RolloutSettings = RolloutSettings()
    keep_objects: Path | None = None
    compilation_files: CompilationFiles | None = None
    link_shared: bool = False


def baselines(problem: Problem, names: Sequence[str] | None = None) -> list[Policy]:
    """The baselines of these names; by default all that the problem has.

    Raises:
      ConfigError: the problem has no such baseline.
    """
    known = problem.decision.action_space.baselines()
    for name in known if names is None else names:
        if name not in known:
            raise ConfigError(f"unknown baseline {name!r} for {problem.name}; expected {', '.join(known) or 'none'}")
    return [known[name] for name in dict.fromkeys(known if names is None else names)]


@dataclasses.dataclass(frozen=True)
class _Variant:
    """What modules are compiled under: a policy or the default, with options of LLVM's passes or without."""

    policy: Policy | None = None
    has_options: bool = False


def evaluate(
    corpus: Corpus,
    policy: Policy | None,
    other_policies: Sequence[Policy] = (),
    *,
    problem: Problem,
    toolchain: Toolchain,
    options: OptionSets | None = None,
    settings: EvaluationSettings = EvaluationSettings(),
    provenance: Mapping[str, str] | None = None,
    pool: WorkerPool | None = None,
    on_rollout: Callable[[Rollout], None] = lambda rollout: None,
) -> Evaluation:
    """Compares a policy, and baselines (`other_policies`), with the compiler's default on every module of a corpus.

    With `options`, of LLVM's passes, these are compared with it, too: alone, and with the policy, if there is one. A
    module gets those of its own level and architecture.

    Modules that the default fails to compile are left out. If another policy fails, the default's object takes its
    place. Both are in `Evaluation.failures`. `provenance` is recorded in the result; `pool` compiles, by default a new
    one; `on_rollout` is called after each of `num_rollouts` compilations, for progress bars.

    Raises:
      ConfigError: neither policy nor options are given, or policies do not differ in name.
      CorpusError: most compilations fail under the default, the policy or options; the message has the first reason.
      PolicyError: the policy does not fit the compiler.
      ToolchainError: the compiler or lld is missing, or has no channel for decisions.
    """
    started_at, start_s = datetime.datetime.now().astimezone(), time.monotonic()
    lld = toolchain.tool("ld.lld")
    named = _variants(policy, options, other_policies)
    variants = dict(named)
    if len(variants) < len(named):
        raise ConfigError(f"policies must differ in name, found {[name for name, _ in named]}")
    baseline_names = [other.name for other in other_policies]
    *alone, evaluated = [name for name in variants if name != DEFAULT and name not in baseline_names]

    results: dict[str, ProjectResult] = {}
    with scratch_directory() as scratch, contextlib.ExitStack() as stack:
        runs = {
            name: _ProjectRun(name, modules, variants, evaluated, scratch / str(number))
            for number, (name, modules) in enumerate(corpus.projects().items())
        }
        if pool is None:
            pool = stack.enter_context(
                WorkerPool(toolchain, problem, settings.num_workers, compilation_files=settings.compilation_files)
            )
        jobs = (job for run in tuple(runs.values()) for job in run.jobs(options, toolchain, settings))
        watches = {
            name: FailureWatch(len(corpus.modules), f"modules (with {name})") for name in (DEFAULT, *alone, evaluated)
        }
        for job, rollout in pool.rollouts(jobs):
            run = runs[job.module.project]
            name = run.add(job, rollout)
            if name in watches:
                watches[name].add(rollout.module, rollout.failure)
            on_rollout(rollout)
            if run.complete:
                results[run.name] = run.finish(problem, lld, settings)
                del runs[run.name]
        for watch in watches.values():
            watch.finish()
    return Evaluation(
        problem=problem,
        policy=evaluated,
        baselines=tuple(baseline_names),
        projects=tuple(results[name] for name in corpus.projects()),
        started_at=started_at.isoformat(" ", "minutes"),
        wall_s=time.monotonic() - start_s,
        seed=settings.seed,
        provenance=dict(provenance or {}),
        alone=tuple(alone),
    )


def num_rollouts(
    corpus: Corpus, policy: Policy | None, other_policies: Sequence[Policy] = (), options: OptionSets | None = None
) -> int:
    """The number of compilations of `evaluate`."""
    return len(corpus.modules) * len(_variants(policy, options, other_policies))


def _variants(
    policy: Policy | None, options: OptionSets | None, other_policies: Sequence[Policy]
) -> list[tuple[str, _Variant]]:
    """All variants with their names: the default, options, the policy, both, the others."""
    variants = [(DEFAULT, _Variant())]
    if options is not None:
        variants.append((OPTIONS, _Variant(has_options=True)))
    if policy is not None:
        variants.append((policy.name, _Variant(policy)))
    if policy is not None and options is not None:
        variants.append((f"{policy.name}+{OPTIONS}", _Variant(policy, has_options=True)))
    if len(variants) == 1:
        raise ConfigError("nothing to evaluate: expected a policy, options, or both")
    return [*variants, *((other.name, _Variant(other)) for other in other_policies)]


class _ProjectRun:
    """A project in progress; results are keyed by policy and module."""

    def __init__(
        self, name: str, modules: Sequence[Module], variants: Mapping[str, _Variant], evaluated: str, directory: Path
    ):
        self.name = name
        self._modules = modules
        self._variants = variants
        self._policies = tuple(variants)
        self._evaluated = evaluated
        self._directory = directory
        self._number = {module.name: number for number, module in enumerate(modules)}
        self._outputs: dict[tuple[str, str], Output] = {}  # Scores follow when all modules are compiled.
        self._measurements: dict[tuple[str, str], Any] = {}
        self._failures: dict[tuple[str, str], str] = {}

    def jobs(self, options: OptionSets | None, toolchain: Toolchain, settings: EvaluationSettings) -> Iterator[Job]:
        for module in self._modules:
            with_options = module if options is None else options.apply(module, toolchain)
            # Python's hash differs from run to run.
            seed = zlib.crc32(module.name.encode("utf-8", "surrogateescape"), settings.seed & 0xFFFFFFFF)
            for name, variant in self._variants.items():
                compiled = with_options if variant.has_options else module
                yield Job(compiled, variant.policy, seed, settings.rollout, self._object_path(name, module.name))

    def _object_path(self, policy_name: str, module: str) -> Path:
        # By numbers, since the name of a module may be a folder in the name of another.
        return self._directory / str(self._policies.index(policy_name)) / f"{self._number[module]}.o"

    def _object_of(self, name: str, module: str) -> Path:
        """The object to link for a policy or for `NEVER_WORSE`."""
        policy_name = self._evaluated if name == NEVER_WORSE else name
        output = self._outputs.get((policy_name, module))
        if output is None or (name == NEVER_WORSE and not output.text.is_better(self._outputs[DEFAULT, module].text)):
            policy_name = DEFAULT
        return self._object_path(policy_name, module)

    def add(self, job: Job, rollout: Rollout) -> str:
        """Adds a module; returns the name of the policy."""
        assert job.keep_object is not None
        path = Path(job.keep_object)
        policy_name = self._policies[int(path.parent.name)]
        failure = rollout.failure
        if failure is None:
            try:
                self._outputs[policy_name, rollout.module] = Output(
                    text=read_parts(path),
                    score=math.nan,
                    num_decisions=len(rollout.trajectory) if rollout.trajectory is not None else 0,
                    cpu_s=rollout.cpu_s,
                    host_cpu_s=rollout.host_cpu_s,
                )
                self._measurements[policy_name, rollout.module] = rollout.measurement
            except ProtocolError as error:
                failure = str(error)
        if failure is not None:
            self._failures[policy_name, rollout.module] = failure
        return policy_name

    @property
    def complete(self) -> bool:
        return len(self._outputs) + len(self._failures) == len(self._modules) * len(self._policies)

    def finish(self, problem: Problem, lld: Path, settings: EvaluationSettings) -> ProjectResult:
        """Scores and links the modules, then deletes or moves the objects."""
        included = [module for module in self._modules if (DEFAULT, module.name) in self._outputs]
        context = problem.objective.project_context(
            (self._measurements[DEFAULT, module.name] for module in included),
            (
                self._measurements[policy.name, module.name]
                for policy in problem.context_policies
                for module in included
                if (policy.name, module.name) in self._measurements
            ),
        )
        linked: dict[str, TextParts] = {}
        shared: dict[str, TextParts] = {}
        link_failures: dict[str, str] = {}
        for name in (*self._policies, NEVER_WORSE):
            objects = [self._object_of(name, module.name) for module in included]
            try:
                linked[name] = linked_parts(lld, objects, scratch=self._directory)
                if settings.link_shared:
                    shared[name] = linked_parts(lld, objects, shared=True, scratch=self._directory)
            except (CompileError, ProtocolError) as error:
                link_failures[name] = str(error)
        result = ProjectResult(
            name=self.name,
            modules=tuple(self._module_result(module, problem, context) for module in included),
            excluded={
                m.name: self._failures[DEFAULT, m.name] for m in self._modules if (DEFAULT, m.name) in self._failures
            },
            linked=linked,
            link_failures=link_failures,
            shared=shared,
        )
        if settings.keep_objects is not None:
            self._move_objects(settings.keep_objects)
        shutil.rmtree(self._directory, ignore_errors=True)
        return result

    def _module_result(self, module: Module, problem: Problem, context: Any) -> ModuleResult:
        outputs, failures = {}, {}
        for policy_name in self._policies:
            key = policy_name, module.name
            if key in self._failures:
                failures[policy_name] = self._failures[key]
            else:
                score = problem.score(self._measurements[key], context)
                outputs[policy_name] = dataclasses.replace(self._outputs[key], score=score)
        return ModuleResult(module.name, self.name, module.language(), outputs, failures)

    def _move_objects(self, directory: Path) -> None:
        for policy_name, module in self._outputs:
            path = directory / policy_name / (module if module.endswith(".o") else f"{module}.o")
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(self._object_path(policy_name, module), path)
            except OSError as error:
                raise OutputError(f"{path}: cannot be written: {error.strerror}") from error
