"""Permutation importance: known networks over known decisions, for each action space."""

import dataclasses
import math

import numpy as np
import pytest

from compiler_opt import problem as problems
from compiler_opt.errors import PolicyError, ProtocolError
from compiler_opt.evaluation.importance import DecisionSample, Importance, csv_rows, permutation_importance, table
from compiler_opt.evaluation.plots import importance_bars
from compiler_opt.llvm.training_log import Header, record_dtype
from compiler_opt.policies.weights import TRANSFORMS, NetworkWeights
from compiler_opt.spaces.binary import BinaryPolicy
from compiler_opt.spaces.learned_policy import LearnedPolicy
from compiler_opt.tensor_spec import TensorSpec
from tests.real_observations import recurrent


def _linear(features: tuple[str, ...], weights: dict[str, float], outputs: int, **changes: object) -> NetworkWeights:
    """The last output is the sum of weight x rank, where the rank is 0 below 0 and otherwise 1."""
    kernel = np.zeros((len(TRANSFORMS) * len(features), outputs), np.float32)
    for name, weight in weights.items():
        kernel[len(TRANSFORMS) * features.index(name), -1] = weight
    bias = np.zeros(outputs, np.float32)
    network = NetworkWeights(features, (np.zeros(1),) * len(features), (kernel,), (bias,))
    return dataclasses.replace(network, **changes)  # type: ignore[arg-type]


def _measured(
    policy: LearnedPolicy, projects: dict[str, dict[str, np.ndarray]], num_decisions: int = 4000, repeats: int = 8
) -> dict[str, Importance]:
    sample = DecisionSample(policy, 4000, seed=1)
    for name, features in projects.items():
        sample.add(name, features, np.zeros(len(next(iter(features.values()))), np.int64))
    found = permutation_importance(policy, sample, num_decisions, repeats=repeats, seed=2)
    assert found == permutation_importance(policy, sample, num_decisions, repeats=repeats, seed=2)
    return {each.feature: each for each in found}


def _coins(size: int, seed: int, probability: float = 0.5) -> np.ndarray:
    return np.where(np.random.default_rng(seed).random(size) < probability, 1, -1)


def test_one_feature_decides() -> None:
    weights = _linear(("deciding", "helping", "idle"), {"deciding": 2, "helping": 0.5}, 2)
    weights = dataclasses.replace(weights, biases=(np.array([1.25, 0], np.float32),))
    policy = BinaryPolicy(weights)
    features = {name: _coins(3000, seed) for seed, name in enumerate(("deciding", "helping", "idle"))}
    found = _measured(policy, {"all": features})
    assert list(found) == ["deciding", "helping", "idle"]
    # A shuffled coin shows the other side in half of the decisions.
    assert found["deciding"].changed.value == pytest.approx(0.5, abs=0.02)
    assert found["deciding"].changed.low < found["deciding"].changed.value < found["deciding"].changed.high
    assert found["helping"].changed.value == 0
    assert dataclasses.astuple(found["idle"])[1:] == ((0, 0, 0), (0, 0, 0))
    # Of four equally likely logits, two are a helping rank apart; each decision is changed with probability 1/2.
    logits = np.array([-1.25, -0.75, 0.75, 1.25])
    log_probs = {logit: -math.log1p(math.exp(-abs(logit))) for logit in logits}
    expected = 0.5 * (log_probs[1.25] - log_probs[0.75])
    assert found["helping"].log_prob_change.value == pytest.approx(expected, rel=0.05)


def test_projects_count_the_same() -> None:
    """In the large project the feature is constant, in the small one a coin."""
    policy = BinaryPolicy(_linear(("coin",), {"coin": 2}, 2, biases=(np.array([1, 0], np.float32),)))
    projects = {"large": {"coin": np.ones(4000, np.int64)}, "small": {"coin": _coins(40, 0)}}
    share = (1 + np.mean(projects["small"]["coin"] > 0)) / 2
    found = _measured(policy, projects)["coin"]
    assert found.changed.value == pytest.approx(2 * share * (1 - share), abs=0.02)


def test_a_margin_leaves_the_default() -> None:
    """Logits differ by at most 1, so the default decides always."""
    policy = BinaryPolicy(_linear(("coin",), {"coin": 1}, 2, margin=1.5))
    found = _measured(policy, {"all": {"coin": _coins(500, 0)}})["coin"]
    assert found.changed.value == 0 and found.log_prob_change.value > 0.1


def test_a_recurrent_policy_is_refused() -> None:
    policy = BinaryPolicy(recurrent(_linear(("coin",), {"coin": 1}, 2), 2))
    with pytest.raises(PolicyError, match="decisions depend on earlier ones"):
        _measured(policy, {"all": {"coin": _coins(500, 0)}})


def test_continuous_actions() -> None:
    problem = problems.load("regalloc_priority")
    names = problem.decision.feature_names
    weights = _linear(names, {names[1]: 1}, 1)
    # The mean is the rank of the second feature, the deviation the middle one.
    kernel = np.concatenate([weights.kernels[0], np.zeros_like(weights.kernels[0])], axis=1)
    policy = problem.decision.policy(NetworkWeights(names, weights.quantiles, (kernel,), (np.zeros(2, np.float32),)))
    found = _measured(policy, {"all": {name: _coins(2000, seed) for seed, name in enumerate(names)}})
    assert found[names[1]].changed.value == pytest.approx(0.5, abs=0.03)
    # Half of the means move by one, which is 10 of the middle deviation of 0.1: a log density of 10^2 / 2 less.
    assert found[names[1]].log_prob_change.value == pytest.approx(0.5 * 50, rel=0.05)
    assert all(found[name].changed.value == 0 for name in names if name != names[1])


def _evictions(count: int) -> tuple[Header, np.ndarray]:
    """Made-up decisions of eviction between 2 to 33 legal candidates, as records."""
    problem = problems.load("regalloc_eviction")
    rng = np.random.default_rng(0)
    names = [name for name in problem.decision.action_space.used_features(()) if name != "mask"]
    specs = tuple(
        TensorSpec(name, np.dtype("f4" if "by_max" in name or name in ("use_def_density", "progress") else "i8"), shape)
        for name, shape in {"mask": (33,), **{n: (1,) if n == "progress" else (33,) for n in names}}.items()
    )
    records = np.zeros(count, record_dtype(specs))
    for spec in specs:
        records[spec.name] = rng.integers(0, 9, records[spec.name].shape)
    records["mask"] = rng.random(records["mask"].shape) < 0.3
    records["mask"][:, :2] = 1
    return Header(specs, TensorSpec("index_to_evict", np.dtype("i8"), ()), None), records


def test_candidates() -> None:
    """The candidate with the most broken hints is evicted; nothing else counts."""
    problem = problems.load("regalloc_eviction")
    names = problem.decision.feature_names
    quantiles = tuple(np.arange(9.0) for _ in names)
    weights = dataclasses.replace(_linear(names, {"nr_broken_hints": 3}, 1), quantiles=quantiles)
    policy = problem.decision.policy(weights)
    header, records = _evictions(300)
    features = {name: records[name] for name in header.names}
    decider = policy.start(header, 0)
    one_at_a_time = [decider(record.tobytes()) for record in records]
    inputs = policy.network_inputs(features)
    decisions = policy.greedy_decisions(inputs, np.zeros(len(records)))
    places = np.concatenate([np.flatnonzero(mask) for mask in records["mask"]])
    assert places[decisions.advice].tolist() == one_at_a_time
    hints = records["nr_broken_hints"].astype(np.float64)
    likelihood = np.exp(3 * (hints + 1) / 9) * records["mask"]
    expected = np.log(likelihood.max(axis=1) / likelihood.sum(axis=1))
    np.testing.assert_allclose(decisions.log_probs(decisions.actions), expected, rtol=1e-5)
    found = _measured(policy, {"all": features}, num_decisions=100, repeats=2)
    assert found["nr_broken_hints"].changed.value > 0.5
    assert {name for name in names if found[name].log_prob_change.value} == {"nr_broken_hints"}


def test_drawn_decisions_keep_their_candidates() -> None:
    policy = problems.load("regalloc_eviction")
    header, records = _evictions(6)
    features = {name: records[name] for name in header.names}
    weights = dataclasses.replace(
        _linear(policy.decision.feature_names, {}, 1), quantiles=(np.arange(9.0),) * len(policy.decision.feature_names)
    )
    inputs = policy.decision.policy(weights).network_inputs(features)
    indices = np.array([4, 0, 4, 5])
    taken = inputs.take(indices)
    for number, index in enumerate(indices):
        np.testing.assert_array_equal(taken.ranks[taken.decisions == number], inputs.ranks[inputs.decisions == index])


def test_the_sample_is_bounded_and_uniform() -> None:
    policy = BinaryPolicy(_linear(("number",), {}, 2))
    sample = DecisionSample(policy, 500, seed=3)
    for start in range(0, 10_000, 100):
        numbers = np.arange(start, start + 100)
        sample.add("only", {"number": numbers, "unused": numbers}, numbers)
    [(inputs, default)] = sample.projects().values()
    assert sample.num_seen == 10_000
    assert len(inputs.ranks) == len(set(default.tolist())) == 500
    # Three standard errors of the mean of 500 numbers.
    assert abs(default.mean() - 5000) < 3 * 10_000 / math.sqrt(12 * 500)


def test_what_cannot_be_measured() -> None:
    policy = BinaryPolicy(_linear(("coin",), {}, 2), origin="FOLDER")
    with pytest.raises(PolicyError, match="FOLDER: needs features that this compiler does not send: coin"):
        DecisionSample(policy, 5, seed=0).add("all", {"other": _coins(5, 0)}, np.zeros(5))
    with pytest.raises(ProtocolError, match="found no decisions"):
        permutation_importance(policy, DecisionSample(policy, 5, seed=0), 5, repeats=2, seed=0)


def test_reports() -> None:
    policy = BinaryPolicy(_linear(("a<b", "idle"), {"a<b": 2}, 2, biases=(np.array([1, 0], np.float32),)))
    sample = DecisionSample(policy, 100, seed=0)
    sample.add("all", {"a<b": _coins(100, 0), "idle": _coins(100, 1)}, np.zeros(100))
    found = permutation_importance(policy, sample, 100, repeats=4, seed=0)
    lines = table(found).lines()
    assert lines[2].startswith("a<b ") and f"{found[0].changed.value:.2%}" in lines[2]
    assert [row["feature"] for row in csv_rows(found)] == ["a<b", "idle"]
    assert csv_rows(found)[1]["changed"] == 0
    svg = importance_bars(found)
    assert svg.startswith("<?xml") and "a&lt;b" in svg
