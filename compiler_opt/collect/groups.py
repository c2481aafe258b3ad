"""Collecting one iteration: several modules, several rollouts of each under the same policy."""

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from tqdm import tqdm

from compiler_opt.collect.advantages import Group
from compiler_opt.collect.baseline import Baseline
from compiler_opt.collect.rollout import Rollout, RolloutSettings
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.description import Module
from compiler_opt.policies.policy import Policy


@dataclasses.dataclass(frozen=True)
class Collection:
    """What came of an iteration.

    Attributes:
      groups: the modules that can be learned from.
      undecided: modules in which there is nothing to decide.
      failures: one line for each rollout that failed.
      num_compiles: rollouts done, failures included.
      cpu_s: CPU seconds of compilers and workers.
    """

    groups: list[Group]
    undecided: list[str]
    failures: list[str]
    num_compiles: int
    cpu_s: float


def collect(
    modules: Sequence[Module],
    policy: Policy,
    baseline: Baseline,
    pool: WorkerPool,
    *,
    rollouts_per_module: int,
    settings: RolloutSettings,
    seed: tuple[int, ...],
    description: str = "",
) -> Collection:
    """Rolls every module out several times.

    Args:
      modules: which.
      policy: who decides.
      baseline: the default's scores; its longest modules are begun first, so that no worker waits long at the end.
      pool: who compiles.
      rollouts_per_module: size of a group.
      settings: of each rollout.
      seed: what all rollouts' seeds derive from.
      description: in front of the progress bar.
    """
    by_size = sorted(modules, key=lambda module: -baseline.scores[module.name])
    jobs = [
        Job(module, policy, _seed((*seed, index, repetition)), settings)
        for index, module in enumerate(by_size)
        for repetition in range(rollouts_per_module)
    ]
    results: defaultdict[str, list[Rollout]] = defaultdict(list)
    with tqdm(total=len(jobs), desc=description, unit="compile", leave=False, disable=None) as progress:
        for job, result in pool.rollouts(jobs):
            results[job.module.name].append(result)
            progress.update()
    groups, undecided, failures = [], [], []
    for module in by_size:
        # They come in as they finish; learning must not depend on that.
        rollouts = sorted(results[module.name], key=lambda rollout: rollout.seed)
        failures += [rollout.failure for rollout in rollouts if rollout.failure is not None]
        good = [rollout for rollout in rollouts if rollout.failure is None]
        decided = [rollout for rollout in good if rollout.trajectory is not None]
        if good and not decided:
            undecided.append(module.name)
        if len(decided) > 1:
            context = baseline.contexts[module.project]
            groups.append(Group(module.name, decided, baseline.scores[module.name], context))
    everything = [rollout for rollouts in results.values() for rollout in rollouts]
    cpu_s = sum(rollout.cpu_s + rollout.host_cpu_s for rollout in everything)
    return Collection(groups, undecided, failures, len(everything), cpu_s)


def _seed(entropy: tuple[int, ...]) -> int:
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0])
