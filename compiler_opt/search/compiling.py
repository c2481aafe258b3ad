"""Compiles the modules of a program in worker processes, under a base policy and decisions."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from compiler_opt.collect.rollout import Rollout, RolloutSettings
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.module import Module
from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.policies.decisions import Advice, Decisions, OverridingPolicy, Site, sites_of
from compiler_opt.policies.policy import Policy
from compiler_opt.search.builds import Compiled, Compiler, build_of, comdat_groups
from compiler_opt.search.program import Program

T = TypeVar("T")


def rollouts(
    pool: WorkerPool[T],
    modules: Sequence[Module],
    base: Policy,
    requests: Mapping[int, Mapping[Site, Advice]],
    settings: RolloutSettings = RolloutSettings(),
    object_path: Callable[[int], Path] | None = None,
) -> Iterator[tuple[int, Rollout[T]]]:
    """Compiles modules of a program under decisions, in any order.

    Args:
      pool: of workers.
      modules: of the program, in link order.
      base: decides where no decision is given; greedy, and able to decide in the plugin.
      requests: decisions by the module's number.
      settings: limits.
      object_path: where to keep each object; None to keep none.

    Raises:
      PolicyError: the base cannot decide in the compiler.
      ResourceError: no worker starts.
      ToolchainError: the plugin cannot be built.
    """
    settings = dataclasses.replace(settings, record_call_sites=True, record_default=True, backend="plugin")
    numbers = {modules[module].name: module for module in requests}
    jobs = (
        Job(
            modules[module],
            OverridingPolicy(base, Decisions(decisions)),
            settings=settings,
            keep_object=None if object_path is None else object_path(module),
        )
        for module, decisions in requests.items()
    )
    for job, rollout in pool.rollouts(jobs):
        yield numbers[job.module.name], rollout


class PoolCompiler:
    """Compiles modules in a pool of workers; a `Compiler`.

    Attributes:
      modules: of the program, in link order.
      base: decides where no decision is given; greedy, and able to decide in the plugin.
    """

    def __init__(
        self,
        pool: WorkerPool[ObjectSizes],
        modules: Sequence[Module],
        base: Policy,
        settings: RolloutSettings = RolloutSettings(),
    ):
        self.modules = modules
        self.base = base
        self._pool = pool
        self._settings = settings

    def compile(
        self,
        requests: Mapping[int, Mapping[Site, Advice]],
        object_path: Callable[[int], Path] | None = None,
    ) -> dict[int, Compiled | str]:
        """See `Compiler`; raises as `rollouts`. Objects are kept where `object_path` says."""
        found = rollouts(self._pool, self.modules, self.base, requests, self._settings, object_path)
        return {module: compiled_of(rollout) for module, rollout in found}


class PlainProgram:
    """A program by plain clang, to compare a search with; compiled when its text is first asked for.

    Attributes:
      compiles: of modules, so far.
      cpu_s: CPU seconds of them.
    """

    def __init__(self, compiler: Compiler, num_modules: int):
        self._compiler, self._num_modules = compiler, num_modules
        self.compiles, self.cpu_s = 0, 0.0

    @functools.cached_property
    def linked_bytes(self) -> float:
        """Its text, composed as that of a search (`Program.linked_bytes`)."""
        results = self._compiler.compile({module: {} for module in range(self._num_modules)})
        found = {module: each for module, each in sorted(results.items()) if isinstance(each, Compiled)}
        self.compiles, self.cpu_s = len(results), sum(each.cpu_s for each in found.values())
        groups = comdat_groups(found.values())
        return Program(build_of(each, module, groups) for module, each in found.items()).linked_bytes


def compiled_of(rollout: Rollout[ObjectSizes]) -> Compiled | str:
    """What a search needs of a rollout, or why it failed."""
    return compiled_with(rollout, rollout.measurement)


def compiled_with(rollout: Rollout[Any], sizes: ObjectSizes | None) -> Compiled | str:
    """The same of a rollout whose object has these sizes, or None if it failed."""
    if sizes is None:
        return rollout.failure or f"{rollout.module}: failed"
    trajectory = rollout.trajectory
    if trajectory is None:
        return Compiled((), (), (), None, sizes, rollout.cpu_s)
    # The plugin records call sites for an overriding policy.
    assert isinstance(trajectory.sites, CallSites)
    return Compiled(
        sites=sites_of(trajectory.sites),
        advice=trajectory.advice.tolist(),
        inlined=trajectory.sites.inlined.tolist(),
        defaults=None if trajectory.default_advice is None else trajectory.default_advice.tolist(),
        sizes=sizes,
        cpu_s=rollout.cpu_s,
    )
