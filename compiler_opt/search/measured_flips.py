"""Flips of a program that runs: what single inlining decisions save when what functions cost counts as bytes.

    flips = measured_flips(modules, pool, problem, toolchain, run, cost, scratch, rounds=20)
    FlipStore(folder).add(flips)                   # the algorithm `flips` learns from it: flips.stores

In each round, decisions in all modules are flipped, as many as do not touch. The program is linked and measured, and
its functions' changed costs tell what each flip saves (`measured`). COMDAT functions are flipped in the module whose
copy the linker keeps.
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from compiler_opt.collect.flip_store import Flips
from compiler_opt.collect.rollout import DefaultPolicy, Rollout, RolloutSettings
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.module import Module
from compiler_opt.errors import CorpusError
from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.decisions import DEFAULT_BASE, Decisions, OverridingPolicy
from compiler_opt.problems.problem import AnyProblem
from compiler_opt.search.compiling import PoolCompiler
from compiler_opt.search.flips import GROUP_FEATURES, ModuleFlips
from compiler_opt.search.measured import Cost, MeasuredCompiler, Run

_MAX_FLIPS = 200
"""In a module and round."""


def measured_flips(
    modules: Sequence[Module],
    pool: WorkerPool[ObjectSizes],
    problem: AnyProblem,
    toolchain: Toolchain,
    run: Run,
    cost: Cost,
    scratch: Path,
    *,
    rounds: int,
    seed: int = 0,
    on_round: Callable[[], object] = lambda: None,
) -> Flips:
    """Flips decisions of the default in a program, and measures what each of them saves.

    Args:
      modules: of the program, in link order.
      pool: workers for this toolchain and problem.
      problem: inlining for size, whose rollouts have the sizes of functions.
      toolchain: the compiler; it must be able to load the plugin, whose features are recorded if it has them.
      run: measures the program.
      cost: what counts; gains are in its bytes.
      scratch: folder for objects.
      rounds: measurements of the program with flips, at most; fewer if no decision is left that was not flipped.
      seed: of what is flipped together.
      on_round: called after each of them.

    Raises:
      BenchmarkError: the program is wrong as it is.
      CorpusError: no module compiles, or nothing is decided in them.
      ToolchainError: the compiler cannot load the plugin.
    """
    rollouts = _rollouts(modules, pool, problem)
    names = [spec.name for spec in toolchain.require(problem.advisor.problem).features]
    context = problem.project_context([each.measurement for each in rollouts.values()])
    kept = _kept(rollouts)
    grouped = set(names).issuperset(GROUP_FEATURES)
    flips_of = {
        number: ModuleFlips(rollout, context, groups=grouped, kept=kept[number])
        for number, rollout in rollouts.items()
        if rollout.trajectory is not None
    }
    rng = np.random.default_rng(seed)
    drawn = {number: each.draw(rounds, _MAX_FLIPS, rng) for number, each in flips_of.items()}
    compiler = MeasuredCompiler(PoolCompiler(pool, modules, DefaultPolicy(problem)), run, cost, scratch)
    compiler.compile({number: {} for number in rollouts})
    found: list[tuple[int, int, float]] = []  # module, decision and gain
    for index in range(max(map(len, drawn.values()), default=0)):
        requests = {number: each[index] for number, each in drawn.items() if index < len(each)}
        for number, trial in compiler.compile(requests).items():
            gains = flips_of[number].gains(trial, Decisions(requests[number]))
            found += [(number, position, saved) for position, saved in gains]
        on_round()
    if not found:
        raise CorpusError(f"{modules[0].project}: expected inlining decisions whose effect can be measured, found none")
    return _stored(found, modules, rollouts, names, problem, toolchain)


def _rollouts(
    modules: Sequence[Module], pool: WorkerPool[ObjectSizes], problem: AnyProblem
) -> dict[int, Rollout[ObjectSizes]]:
    """Those of the default by the module's number; raises CorpusError if all fail."""
    settings = dataclasses.replace(RolloutSettings(), record_call_sites=True, backend="plugin")
    policy = OverridingPolicy(DefaultPolicy(problem), Decisions())
    numbers = {module.name: number for number, module in enumerate(modules)}
    results = {
        numbers[job.module.name]: rollout
        for job, rollout in pool.rollouts(Job(module, policy, settings=settings) for module in modules)
    }
    found = {number: results[number] for number in sorted(results) if results[number].failure is None}
    if not found:
        reason = next((each.failure for each in results.values()), "there is none")
        raise CorpusError(f"no module compiles; the first: {reason}")
    return found


def _kept(rollouts: dict[int, Rollout[ObjectSizes]]) -> dict[int, set[str]]:
    """Signatures of the COMDAT groups that a linker takes from each module: the first that emits them."""
    seen: set[str] = set()
    kept: dict[int, set[str]] = {}
    for number, rollout in rollouts.items():
        assert rollout.measurement is not None
        kept[number] = rollout.measurement.comdats.keys() - seen
        seen |= kept[number]
    return kept


def _stored(
    found: Sequence[tuple[int, int, float]],
    modules: Sequence[Module],
    rollouts: dict[int, Rollout[ObjectSizes]],
    names: Sequence[str],
    problem: AnyProblem,
    toolchain: Toolchain,
) -> Flips:
    observations, advice = {}, {}
    for number in {number for number, *_ in found}:
        trajectory = rollouts[number].trajectory
        assert trajectory is not None
        features = trajectory.features()
        observations[number] = np.stack([features[name].reshape(-1) for name in names], axis=-1)
        advice[number] = trajectory.advice
    base_actions = np.array([advice[number][position] for number, position, _ in found], np.int64)
    return Flips(
        problem=problem.name,
        compiler=".".join(map(str, toolchain.version)),
        base=DEFAULT_BASE,
        features=tuple(names),
        modules=tuple(module.name for module in modules),
        projects=tuple(module.project for module in modules),
        observations=np.stack([observations[number][position] for number, position, _ in found]),
        actions=1 - base_actions,
        base_actions=base_actions,
        gains=np.array([saved for *_, saved in found]),
        linked_gains=np.full(len(found), np.nan),
        owners=np.array([number for number, *_ in found], np.int32),
    )
