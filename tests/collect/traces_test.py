"""Default traces, without a compiler: which modules are sampled, what is in a context, and when a run stops."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from compiler_opt import problem as problems
from compiler_opt.collect import traces
from compiler_opt.collect.rollout import Rollout
from compiler_opt.collect.trajectory import Trajectory
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.module import Module
from compiler_opt.errors import ConfigError, CorpusError
from compiler_opt.llvm.training_log import Header
from compiler_opt.tensor_spec import TensorSpec

_INLINING = problems.load("inlining")
_INT64 = np.dtype("i8")
MODULES = [Module(f"p/{index}.o", "p", Path("/nowhere")) for index in range(30)]


def _rollout(module: str, trajectory: Trajectory | None = None, failure: str | None = None) -> Rollout:
    return Rollout(module, "p", "default", 0, trajectory, None, 0.0, 0.0, failure)


class _Pool:
    """Fails the modules with the given numbers, and counts the modules that it has compiled."""

    def __init__(self, failing: Iterable[int]):
        self._failing = {MODULES[index].name for index in failing}
        self.num_compiled = 0

    def rollouts(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Rollout]]:
        for job in jobs:
            self.num_compiled += 1
            name = job.module.name
            yield job, _rollout(name, failure=f"{name}: no such luck" if name in self._failing else None)


def _default_trace(pool: _Pool) -> list[Rollout]:
    return list(traces.default_trace(MODULES, _INLINING, cast(WorkerPool, pool)))


def test_a_sample_keeps_the_order_and_depends_on_the_seed() -> None:
    sample = traces.sample_modules(MODULES, 0.4, seed=3)
    assert len(sample) == 12
    assert sample == [module for module in MODULES if module in sample]
    assert sample == traces.sample_modules(MODULES, 0.4, seed=3)
    assert sample != traces.sample_modules(MODULES, 0.4, seed=4)
    assert traces.sample_modules(MODULES, 1.0, seed=3) == MODULES
    assert len(traces.sample_modules(MODULES, 1e-9, seed=3)) == 1


@pytest.mark.parametrize("rate", [0.0, -1.0, 1.1, float("nan")])
def test_a_sampling_rate_out_of_range_is_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match="sampling rate"):
        traces.sample_modules(MODULES, rate, seed=0)


def test_a_few_failures_are_passed_on() -> None:
    found = _default_trace(_Pool(failing=[0, 1, 29]))
    assert [rollout.failure is not None for rollout in found].count(True) == 3
    assert len(found) == 30


def test_a_run_stops_early_if_every_module_fails() -> None:
    pool = _Pool(failing=range(30))
    with pytest.raises(CorpusError, match=r"20 of 20 modules failed to compile; the first: p/0\.o: no such luck"):
        _default_trace(pool)
    assert pool.num_compiled == 20


def test_a_run_stops_at_the_end_if_most_modules_failed() -> None:
    with pytest.raises(CorpusError, match="16 of 30 modules"):
        _default_trace(_Pool(failing=[*range(5), *range(19, 30)]))


def _trajectory(**features: Any) -> Trajectory:
    specs = tuple(TensorSpec(name, _INT64, (1,)) for name in features)
    columns = np.stack([np.asarray(values) for values in features.values()], axis=-1).astype(np.int64)
    advice = TensorSpec("inlining_decision", _INT64, (1,))
    return Trajectory(Header(specs, advice), columns.tobytes(), np.array([1, 0, 1]), None, None)


def test_a_context_holds_scalars_and_not_the_default_decision() -> None:
    trajectory = _trajectory(cost=[5, 6, 7], inlining_default=[1, 0, 1])
    (context,) = traces.contexts(_rollout("p/0.o", trajectory), _INLINING.decision)
    assert (context.module, context.project, context.identifier) == ("p/0.o", "p", "default")
    assert list(context.values) == ["cost"]
    np.testing.assert_array_equal(context.values["cost"], [5, 6, 7])
    assert context.features == (TensorSpec("cost", _INT64, ()),)
    assert context.advice == TensorSpec("inlining_decision", _INT64, ())
    np.testing.assert_array_equal(context.action, [1, 0, 1])
    np.testing.assert_array_equal(context.reward, [0, 0, 0])


def test_a_module_without_decisions_has_no_context() -> None:
    assert traces.contexts(_rollout("p/0.o"), _INLINING.decision) == []


@pytest.mark.parametrize(("shape", "expected"), [((), ()), ((1,), ()), ((1, 33), (33,)), ((33,), (33,))])
def test_the_batch_dimension_is_left_out(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    header = Header((TensorSpec("x", _INT64, shape),), TensorSpec("inlining_decision", _INT64, (1,)))
    trajectory = Trajectory(header, bytes(3 * header.features[0].num_bytes), np.array([1, 0, 1]), None, None)
    (context,) = traces.contexts(_rollout("p/0.o", trajectory), _INLINING.decision)
    assert context.features[0].shape == expected and context.values["x"].shape == (3, *expected)
