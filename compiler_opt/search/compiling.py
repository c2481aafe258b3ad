"""Compiles the modules of a program in worker processes, under a base policy and decisions."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from compiler_opt.collect.rollout import Rollout, RolloutSettings
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.module import Module
from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.policies.decisions import Decisions, OverridingPolicy, Site, sites_of
from compiler_opt.policies.policy import Policy
from compiler_opt.search.builds import Compiled


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
        self._settings = dataclasses.replace(settings, record_call_sites=True, record_default=True, backend="plugin")

    def compile(
        self,
        requests: Mapping[int, Mapping[Site, int]],
        object_path: Callable[[int], Path] | None = None,
    ) -> dict[int, Compiled | str]:
        """See `Compiler`. Objects are kept where `object_path` says.

        Raises:
          PolicyError: the base cannot decide in the compiler.
          ResourceError: no worker starts.
          ToolchainError: the plugin cannot be built.
        """
        numbers = {self.modules[module].name: module for module in requests}
        jobs = (
            Job(
                self.modules[module],
                OverridingPolicy(self.base, Decisions(decisions)),
                settings=self._settings,
                keep_object=None if object_path is None else object_path(module),
            )
            for module, decisions in requests.items()
        )
        return {numbers[job.module.name]: compiled_of(rollout) for job, rollout in self._pool.rollouts(jobs)}


def compiled_of(rollout: Rollout[ObjectSizes]) -> Compiled | str:
    if rollout.measurement is None:
        return rollout.failure or f"{rollout.module}: failed"
    trajectory = rollout.trajectory
    if trajectory is None:
        return Compiled((), (), (), None, rollout.measurement, rollout.cpu_s)
    # The plugin records call sites for an overriding policy.
    assert isinstance(trajectory.sites, CallSites)
    return Compiled(
        sites=sites_of(trajectory.sites),
        advice=trajectory.advice.tolist(),
        inlined=trajectory.sites.inlined.tolist(),
        defaults=None if trajectory.default_advice is None else trajectory.default_advice.tolist(),
        sizes=rollout.measurement,
        cpu_s=rollout.cpu_s,
    )
