"""The rebuilt priorities, and how compilers interpret advice."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from compiler_opt import problem as problems
from compiler_opt.collect.rollout import Rollout, rollout
from compiler_opt.corpus.description import Corpus
from compiler_opt.decisions.regalloc_priority import ADVICE, STAGE_ASSIGN, STAGE_SPLIT, DefaultPriority
from compiler_opt.errors import PolicyError
from compiler_opt.llvm.interactive import FunctionOfDecisions
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import Decider, Policy
from compiler_opt.tensor_spec import TensorSpec
from tests.small_corpus import make_busy_corpus

_ADVICE = TensorSpec("priority", np.dtype("f4"), (1,))
_SPECS = (
    TensorSpec("li_size", np.dtype("i8"), (1,)),
    TensorSpec("stage", np.dtype("i8"), (1,)),
    TensorSpec("weight", np.dtype("f4"), (1,)),
)
_PROBLEM = problems.load("regalloc_priority")


def _advice(size: int, stage: int, weight: float = 1.0) -> float:
    observation = np.array([size, stage], "i8").tobytes() + np.array([weight], "f4").tobytes()
    return DefaultPriority().start(Header(_SPECS, _ADVICE), 0)(observation)


def test_the_order_of_the_rules() -> None:
    split, assign = STAGE_SPLIT, STAGE_ASSIGN
    # Ranges that wait to be split, by length; short ones, in order of arrival; then the others, by length.
    expected = [
        (16, split),
        (4000, split),
        (10**6, split),
        (16, assign),
        (200, assign),
        (4000, assign),
        (10**6, assign),
    ]
    advice = [_advice(*live_range) for live_range in expected]
    assert advice == sorted(set(advice))
    assert _advice(16, assign) == _advice(100, assign) == _advice(16, assign, np.inf)
    # The remains of splitting and of spilling count by length.
    assert _advice(16, 3) == _advice(16, 4) > _advice(16, split)
    assert _advice(2**62, assign) <= ADVICE.largest_advice
    assert _advice(0, split) == _advice(-1, split) == 0


def test_a_missing_feature_is_named() -> None:
    with pytest.raises(PolicyError, match="does not send the features stage"):
        DefaultPriority().start(Header((_SPECS[0], _SPECS[2]), _ADVICE), 0)


class _BySize(Policy):
    """Advice by the length of a live range."""

    name = "by size"

    def __init__(self, advice: Callable[[int], float]):
        self._advice = advice

    def start(self, header: Header, seed: int) -> Decider:
        return _Deciding(header, self._advice)


class _Deciding(Decider):
    def __init__(self, header: Header, advice: Callable[[int], float]):
        self._offset = sum(spec.num_bytes for spec in header.features[: header.names.index("li_size")])
        self._advice = advice

    def __call__(self, observation: bytes) -> float:
        return self._advice(int(np.frombuffer(observation, "i8", 1, self._offset)[0]))


@pytest.fixture(scope="module")
def busy(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_busy_corpus(tmp_path_factory.mktemp("busy"), str(toolchain.clang))


def _compile(policy: Policy | None, busy: Corpus, toolchain: Toolchain, directory: Path) -> tuple[Rollout, bytes]:
    module = next(module for module in busy.modules if module.name == "mixed/both.c.o")
    scratch = directory / "scratch"
    scratch.mkdir(exist_ok=True)
    kept = directory / "kept.o"
    result = rollout(module, policy, _PROBLEM, toolchain, scratch=scratch, keep_object=kept)
    assert result.failure is None, result.failure
    return result, kept.read_bytes()


@pytest.mark.both_compilers
def test_compilers_truncate_advice_and_take_the_highest_first(
    busy: Corpus, toolchain: Toolchain, tmp_path: Path
) -> None:
    def objects(long: float, short: float) -> bytes:
        return _compile(_BySize(lambda size: long if size > 300 else short), busy, toolchain, tmp_path)[1]

    long_first, equal = objects(2, 1), objects(1, 1)
    assert objects(1, 2) != long_first != equal
    assert objects(1.9, 1) == objects(7, 7) == equal
    largest = ADVICE.largest_advice
    assert objects(largest, largest - 1) == objects(1, 0) == long_first


def test_the_rebuilt_default_compiles_and_names_functions(busy: Corpus, toolchain: Toolchain, tmp_path: Path) -> None:
    plain, _ = _compile(None, busy, toolchain, tmp_path)
    default, _ = _compile(_PROBLEM.decision.default_policy, busy, toolchain, tmp_path)
    trajectory = default.trajectory
    assert trajectory is not None and isinstance(trajectory.sites, FunctionOfDecisions)
    assert trajectory.advice.dtype == np.float32 and trajectory.sampled_actions is None
    assert set(trajectory.sites.functions) == {"looped", "summed"}
    features = trajectory.features()
    assert set(_PROBLEM.decision.feature_names) <= set(features)
    assert np.isposinf(features["weight"]).any()
    sizes = features["li_size"][features["stage"] == STAGE_ASSIGN]
    assert sizes.min() > 0
    # Both keep most values in registers; the rebuilt default only resembles the compiler's.
    scores = [_PROBLEM.score(result.measurement, None) for result in (plain, default)]
    assert 0 < scores[1] < 2 * scores[0]
