"""Evolution strategies: parameters follow the gradients of pairs of rollouts, as far as these are significant."""

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.problems import problem as problems
from compiler_opt.tensorflow_loading import load_tensorflow

load_tensorflow()

from compiler_opt.rl.algorithm import AlgorithmConfigs  # noqa: E402
from compiler_opt.rl.algorithms.evolution import ALGORITHM, EvolutionConfig  # noqa: E402
from compiler_opt.rl.algorithms.evolution.algorithm import (  # noqa: E402
    ParameterSearch,
    cloned_parameters,
    weighted_gain,
)
from compiler_opt.rl.training_context import TrainingContext  # noqa: E402

_SCALE = np.array([0.1, 1.0, 0.5])
_BEST = np.array([0.3, -2.0, 0.0])


def _quality(values: np.ndarray) -> np.ndarray:
    """Of rows of parameters; the third one does not matter."""
    result: np.ndarray = -(((values - _BEST) / _SCALE) ** 2)[..., :2].sum(axis=-1)
    return result


def _search(search: ParameterSearch, iterations: int, noise: float, seed: int = 1) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(iterations):
        directions = search.directions(40, rng)
        difference = _quality(search.current + directions) - _quality(search.current - directions)
        search.update(directions, difference + noise * rng.standard_normal(len(directions)))


@pytest.mark.parametrize("seed", range(3))
def test_the_search_finds_the_optimum_in_noise(seed: int) -> None:
    search = ParameterSearch(np.zeros(3), _SCALE, EvolutionConfig())
    _search(search, 80, noise=3.0, seed=seed)
    found = (search.averaged - _BEST) / _SCALE
    assert np.abs(found[:2]).max() < 0.5
    # The parameter that does not matter has not drifted far.
    assert abs(found[2]) < 3


def test_without_gains_the_parameters_stay() -> None:
    search = ParameterSearch(np.ones(3), _SCALE, EvolutionConfig())
    directions = search.directions(8, np.random.default_rng(0))
    assert not search.update(directions, np.zeros(8)).any()
    assert search.current.tolist() == search.averaged.tolist() == [1.0, 1.0, 1.0]


def test_a_step_is_no_longer_than_configured() -> None:
    search = ParameterSearch(np.zeros(3), _SCALE, EvolutionConfig(step=0.5))
    directions = search.directions(64, np.random.default_rng(0))
    z_scores = search.update(directions, directions[:, 0] * 1e6)
    assert z_scores[0] > 3
    assert search.current[0] == pytest.approx(0.05)


def test_it_resumes_from_its_state() -> None:
    config = EvolutionConfig()
    whole, first = (ParameterSearch(np.zeros(3), _SCALE, config) for _ in range(2))
    _search(whole, 3, noise=0.0)
    _search(whole, 2, noise=0.0, seed=2)
    _search(first, 3, noise=0.0)
    second = ParameterSearch(np.zeros(3), _SCALE, config)
    second.restore(first.state())
    _search(second, 2, noise=0.0, seed=2)
    assert second.averaged.tolist() == whole.averaged.tolist()
    assert second.current.tolist() == whole.current.tolist()


def test_weights_of_functions() -> None:
    along, against = {"cold": 5.0, "hot": 900.0, "new": 10.0}, {"cold": 15.0, "hot": 1100.0}
    assert weighted_gain(along, against, score_exponent=1.0, offset=1.0) == pytest.approx(10 + 200 - 10)
    assert weighted_gain(along, against, score_exponent=0.0, offset=10.0) == pytest.approx(
        10 / 20 + 200 / 1010 - 10 / 15
    )
    assert weighted_gain({}, {}, score_exponent=0.5, offset=1.0) == 0


def _policy(metadata: dict[str, object]) -> NetworkWeights:
    return NetworkWeights(
        ("x",), (np.array([0.5]),), (np.zeros((3, 1), np.float32),), (np.zeros(1, np.float32),), metadata
    )


def test_it_resumes_from_the_parameters_of_an_earlier_policy() -> None:
    rule = problems.load("regalloc_eviction").decision.rule
    assert rule is not None
    found = {parameter.name: 0.25 * index for index, parameter in enumerate(rule.parameters)}
    assert rule.named(cloned_parameters(rule, _policy({"rule": found}))) == found
    with pytest.raises(PolicyError, match="expected the parameters of a rule in its metadata"):
        cloned_parameters(rule, _policy({"method": "behavioral cloning"}))
    with pytest.raises(PolicyError, match="they differ in eager"):
        cloned_parameters(rule, _policy({"rule": {name: value for name, value in found.items() if name != "eager"}}))


def test_problems_without_a_rule_are_refused() -> None:
    context = cast(TrainingContext, SimpleNamespace(problem=problems.load("regalloc_priority")))
    with pytest.raises(ConfigError, match="regalloc_priority: has no rule whose parameters could be searched for"):
        ALGORITHM.build(context, AlgorithmConfigs())
