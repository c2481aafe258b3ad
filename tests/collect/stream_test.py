"""Iterations that are collected ahead, by the real pool, whose workers answer after given times."""

import pickle
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from benchmarks.simulated_workers import Conditions, Recorded, SimulatedWorkers
from compiler_opt.collect.baseline import Baseline
from compiler_opt.collect.groups import CollectionPolicy, CompileCosts, GroupCollection, RepeatedPolicy
from compiler_opt.collect.rollout import Rollout, RolloutSettings
from compiler_opt.collect.stream import Collector, InTurn, RolloutStream
from compiler_opt.collect.trajectory import Trajectory
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.module import Module
from compiler_opt.errors import PolicyError
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import ConstantPolicy, Policy
from compiler_opt.tensor_spec import TensorSpec
from tests.own_scores import OWN_SCORES

_QUICK_S, _SLOW_S = 0.01, 2.0
_QUICK = [f"quick-{number}" for number in range(6)]
_SPEC = TensorSpec("x", np.dtype("i8"), (1,))
_TRAJECTORY = Trajectory(Header((_SPEC,), _SPEC), bytes(8), np.zeros(1, np.int64), None, None)


def _modules(*names: str) -> list[Module]:
    return [Module(name, "p", Path("/nowhere")) for name in names]


def _recorded(name: str, seconds: float) -> list[Recorded]:
    rollouts = [Rollout(name, "p", "recorded", 0, _TRAJECTORY, score, seconds) for score in (1.0, 2.0)]
    return [Recorded(seconds, pickle.dumps(rollout)) for rollout in rollouts]


@pytest.fixture(scope="module")
def simulated() -> Iterator[SimulatedWorkers]:
    recorded = {name: _recorded(name, _QUICK_S) for name in _QUICK} | {"slow": _recorded("slow", _SLOW_S)}
    recorded["unusable"] = [Recorded(_QUICK_S, pickle.dumps(PolicyError("unusable policy")))]
    with SimulatedWorkers(recorded, Conditions(start_s=0.0)) as workers:
        yield workers


@pytest.fixture
def pool(simulated: SimulatedWorkers) -> Iterator[WorkerPool[float]]:
    toolchain = cast(Toolchain, None)
    with WorkerPool(toolchain, OWN_SCORES, 4, start_worker=simulated.start) as pool:
        yield pool


class _WithFollowUps(CollectionPolicy):
    settings = RolloutSettings()

    def policies(self, module: Module, rng: np.random.Generator) -> Sequence[Policy]:
        return [ConstantPolicy(0)] * 2

    def follow_ups(self, rollouts: Sequence[Rollout], rng: np.random.Generator) -> Sequence[Policy]:
        return [ConstantPolicy(1)] * int(rng.integers(3))


_TWICE = RepeatedPolicy(ConstantPolicy(0), 2, RolloutSettings())


def _collection(
    pool: WorkerPool[float],
    *names: str,
    number: int = 0,
    policy: CollectionPolicy = _TWICE,
    indispensable: Sequence[str] = (),
) -> GroupCollection[float, None]:
    baseline = Baseline({name: float(index) for index, name in enumerate(sorted(names))}, {"p": None}, {}, 0.0)
    modules = _modules(*names)
    return GroupCollection(modules, policy, baseline, OWN_SCORES, seed=(1, number), indispensable=indispensable)


def _costs() -> CompileCosts:
    return CompileCosts(dict.fromkeys(_QUICK, 1.0))


def _stream(pool: WorkerPool[float], max_cut: int = 0) -> RolloutStream[float, None]:
    return RolloutStream(pool, _costs(), max_cut)


@pytest.mark.parametrize("policy", [_TWICE, _WithFollowUps()])
def test_collecting_ahead_gives_the_batches_of_collecting_in_turn(
    pool: WorkerPool[float], policy: CollectionPolicy
) -> None:
    def batches(collector: Collector[float, None]) -> list[object]:
        for number in range(3):
            collector.submit(_collection(pool, *_QUICK[number:], number=number, policy=policy))
        assert len(collector) == 3
        found = [collector.next() for _ in range(3)]
        assert len(collector) == 0
        return [
            [(group.module, group.measurements, len(group.follow_ups)) for group in batch.groups] for batch in found
        ]

    in_turn = batches(InTurn(pool, _costs()))
    with _stream(pool) as stream:
        assert batches(stream) == in_turn


@pytest.mark.ci
def test_the_next_iteration_begins_before_the_first_has_ended_and_while_the_caller_learns(
    pool: WorkerPool[float],
) -> None:
    with _stream(pool) as stream:
        stream.submit(_collection(pool, "slow", *_QUICK[:2]))
        stream.submit(_collection(pool, *_QUICK, number=1))
        stream.next()
        # It was collected while the first waited for its slow module.
        start_s = time.monotonic()
        assert len(stream.next().groups) == len(_QUICK)
        assert time.monotonic() < start_s + _SLOW_S / 2
        stream.submit(_collection(pool, "slow", number=2))
        time.sleep(_SLOW_S)  # learns
        start_s = time.monotonic()
        stream.next()
        assert time.monotonic() < start_s + _SLOW_S / 2


@pytest.mark.ci
def test_a_late_module_is_cut_unless_it_was_before(pool: WorkerPool[float]) -> None:
    with _stream(pool, max_cut=1) as stream:
        stream.submit(_collection(pool, "slow", *_QUICK))
        start_s = time.monotonic()
        batch = stream.next()
        assert batch.cut == ["slow"] and [group.module for group in batch.groups] == _QUICK[::-1]
        # One worker still compiles for the last iteration; what it answers is dropped.
        stream.submit(_collection(pool, "slow", *_QUICK, number=1, indispensable=["slow"]))
        batch = stream.next()
        assert batch.cut == [] and [group.module for group in batch.groups] == ["slow", *_QUICK[::-1]]
        assert time.monotonic() > start_s + _SLOW_S


def test_the_pool_is_free_while_the_stream_is_paused(pool: WorkerPool[float]) -> None:
    with _stream(pool) as stream:
        for number in range(3):
            stream.submit(_collection(pool, *_QUICK, number=number))
        stream.next()
        with stream.paused():
            [(job, _)] = pool.rollouts([Job(_modules("quick-0")[0], None)])
            assert job.module.name == "quick-0"
        assert [len(stream.next().groups) for _ in range(2)] == [len(_QUICK)] * 2


def test_what_is_wrong_with_the_policy_reaches_the_caller(pool: WorkerPool[float]) -> None:
    with _stream(pool) as stream:
        stream.submit(_collection(pool, "unusable"))
        with pytest.raises(PolicyError, match="unusable policy"):
            stream.next()


def test_a_stream_ends_although_a_compilation_has_not(pool: WorkerPool[float]) -> None:
    start_s = time.monotonic()
    with _stream(pool) as stream:
        stream.submit(_collection(pool, "slow"))
        time.sleep(0.1)
    assert time.monotonic() < start_s + _SLOW_S


def test_workers_that_die_cost_only_their_jobs(caplog: pytest.LogCaptureFixture) -> None:
    recorded = {name: _recorded(name, _QUICK_S) for name in _QUICK}
    toolchain = cast(Toolchain, None)
    with (
        SimulatedWorkers(recorded, Conditions(start_s=0.0, death_rate=0.05)) as simulated,
        WorkerPool(toolchain, OWN_SCORES, 4, start_worker=simulated.start) as pool,
    ):
        jobs = [Job(module, None, seed) for module in _modules(*_QUICK) for seed in range(10)]
        results = [rollout for _, rollout in pool.rollouts(jobs)]
        assert len(results) == len(jobs)
        assert not any(rollout.failure for rollout in results)
        assert "died" in caplog.text
        # Each answer came once, and only what the dead had begun was begun again.
        assert len(simulated.events()) == len(jobs)


def test_the_longest_come_first_by_what_they_took() -> None:
    costs = CompileCosts({"large": 10.0, "small": 1.0, "new": 5.0})
    assert costs.seconds("large") > costs.seconds("new") > costs.seconds("small")
    for name, seconds in (("large", 1.0), ("small", 4.0), ("small", 2.0)):
        costs.add(Rollout(name, "p", "recorded", 0, cpu_s=seconds))
    assert (costs.seconds("large"), costs.seconds("small")) == (1.0, 3.0)
    # 7 seconds of modules with a score of 12 together.
    assert costs.seconds("new") == pytest.approx(5.0 * 7 / 12)
