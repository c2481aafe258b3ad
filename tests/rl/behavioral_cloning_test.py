"""Behavioural cloning of simple rules."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.collect.traces import TraceContext
from compiler_opt.errors import PolicyError, ProtocolError
from compiler_opt.policies.weights import NetworkConfig
from compiler_opt.rl.behavioral_cloning import (
    Cloned,
    Cloner,
    Examples,
    Teacher,
    held_out_modules,
    load_examples,
    split_by_module,
)
from compiler_opt.rl.config import BehavioralCloningConfig
from compiler_opt.rl.trace_files import Trace, TraceWriter
from compiler_opt.spaces.binary import Binary, BinaryPolicy
from compiler_opt.spaces.heads.categorical import BinaryHead
from compiler_opt.spaces.heads.networks import FIRST, RANKS
from compiler_opt.tensor_spec import TensorSpec

CONFIG = BehavioralCloningConfig(batch_size=64, num_epochs=20, learning_rate=1e-2, seed=3)
QUANTILES = {"cost": np.arange(-10.0, 10.0), "noise": np.arange(0.0, 10.0)}


def examples(seed: int, count: int = 2000, costs: tuple[int, ...] = tuple(range(-10, 10))) -> Examples:
    """Inline what costs less than 3."""
    rng = np.random.default_rng(seed)
    cost, noise = rng.choice(costs, count), rng.integers(0, 10, count)
    observations = BinaryHead(QUANTILES).observe({"cost": cost, "noise": noise})
    return Examples(observations, (cost < 3).astype(np.int64), num_modules=1)


def kind(*names: str) -> BinaryHead:
    return BinaryHead(dict.fromkeys(names, np.arange(100.0)))


def costs(examples: Examples) -> set[int]:
    """Those of the last feature of a `kind`."""
    return {round(100 * rank) - 1 for rank in examples.observations[RANKS][:, -1].tolist()}


def clone(
    config: BehavioralCloningConfig = CONFIG, on_epoch: Callable[[Mapping[str, float]], None] = lambda entry: None
) -> Cloned:
    cloner = Cloner(BinaryHead(QUANTILES), "inlining_decision", NetworkConfig(fc_layer_params=(16,)), config)
    return cloner.clone(examples(1), examples(2), on_epoch)


def test_a_simple_rule_is_learnt() -> None:
    cloned = clone()
    assert cloned.best["accuracy"] > 0.99
    assert cloned.best["majority_rate"] == pytest.approx(13 / 20, abs=0.03)
    assert cloned.best["default_rate"] == pytest.approx(13 / 20, abs=0.03)
    assert cloned.best["advised_rate"] == pytest.approx(13 / 20, abs=0.03)


@pytest.mark.ci
@pytest.mark.parametrize("smoothing", [0.03, 0.2])
def test_probabilities_are_the_smoothed_labels(smoothing: float) -> None:
    config = dataclasses.replace(CONFIG, label_smoothing=smoothing, num_epochs=60, patience=60)
    cloner = Cloner(BinaryHead(QUANTILES), "inlining_decision", NetworkConfig(fc_layer_params=(16,)), config)
    cloned = cloner.clone(examples(1, costs=(-8, 8)), examples(2, costs=(-8, 8)))
    noise = np.arange(10)
    for cost, expected in ((-8, 1 - smoothing), (8, smoothing)):
        logits = BinaryPolicy(cloned.weights).logits({"cost": np.full(10, cost), "noise": noise})
        probability = np.exp(logits[:, 1]) / np.exp(logits).sum(axis=1)
        np.testing.assert_allclose(probability, expected, atol=0.01)


def test_it_stops_early_and_keeps_the_best_epoch() -> None:
    epochs: list[Mapping[str, float]] = []
    cloned = clone(dataclasses.replace(CONFIG, num_epochs=200, patience=2, learning_rate=0.05), epochs.append)
    assert len(epochs) < 200
    losses = [entry["loss"] for entry in epochs]
    assert cloned.best["loss"] == min(losses)
    assert cloned.best["iteration"] == len(losses) - 2
    # The network is that of the best epoch.
    held_out = examples(2)
    logits = BinaryHead(QUANTILES).logits(cloned.weights, held_out.observations)
    assert ((logits[:, 1] > logits[:, 0]) == held_out.actions).mean() == cloned.best["accuracy"]


@pytest.mark.ci
def test_the_same_seed_learns_the_same() -> None:
    config = dataclasses.replace(CONFIG, num_epochs=2)
    first, second = clone(config).weights, clone(config).weights
    for one, other in zip(first.kernels, second.kernels, strict=True):
        np.testing.assert_array_equal(one, other)
    other_seed = clone(dataclasses.replace(config, seed=4)).weights
    assert (first.kernels[0] != other_seed.kernels[0]).any()


def test_the_measured_loss_is_the_one_that_is_trained() -> None:
    """One batch of all examples: the loss before the step is what the first weights measure."""
    held_out = examples(1, 100)
    config = dataclasses.replace(CONFIG, num_epochs=1, batch_size=100)
    cloner = Cloner(BinaryHead(QUANTILES), "inlining_decision", NetworkConfig(fc_layer_params=(16,)), config)
    logits = BinaryHead(QUANTILES).logits(cloner.weights(), held_out.observations)
    log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    rows = np.arange(100)
    expected = -(0.97 * log_probs[rows, held_out.actions] + 0.03 * log_probs[rows, 1 - held_out.actions]).mean()
    assert cloner.clone(held_out, held_out).best["training_loss"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.ci
def test_an_example_of_weight_two_counts_as_two() -> None:
    once, config = examples(1, 100), dataclasses.replace(CONFIG, num_epochs=1, batch_size=1000)
    doubled = np.arange(100) % 3 == 0
    weights = np.where(doubled, 2.0, 1.0).astype(np.float32)
    rows = np.concatenate([np.arange(100), np.flatnonzero(doubled)])
    twice = Examples({name: values[rows] for name, values in once.observations.items()}, once.actions[rows], 1)
    weighted = dataclasses.replace(once, weights=weights * 100 / weights.sum())
    losses = [
        Cloner(BinaryHead(QUANTILES), "inlining_decision", NetworkConfig(fc_layer_params=(16,)), config)
        .clone(part, once)
        .best["training_loss"]
        for part in (twice, weighted)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_held_out_modules() -> None:
    names = [f"m{index}" for index in range(40)]
    projects = dict.fromkeys(names, "p")
    held_out = held_out_modules(projects, 0.1, seed=1)
    assert len(held_out) == 4
    assert held_out == held_out_modules(dict.fromkeys(names[::-1], "p"), 0.1, seed=1)
    assert held_out != held_out_modules(projects, 0.1, seed=2)
    assert len(held_out_modules({"a": "p", "b": "p"}, 0.001, seed=1)) == 1


def test_whole_projects_are_held_out_as_far_as_the_share_allows() -> None:
    # 4 projects of 2 modules and one of 12: two modules are a tenth, so one small project is held out.
    projects = {
        f"{name}/{index}": name for name, size in {**dict.fromkeys("abcd", 2), "e": 12}.items() for index in range(size)
    }
    held_out = {held_out_modules(projects, 0.1, seed=seed) for seed in range(20)}
    assert held_out == {frozenset({f"{name}/0", f"{name}/1"}) for name in "abcd"}
    # Of 20 modules one is less than any project: modules of all projects are drawn from.
    (one,) = held_out_modules(projects, 0.05, seed=1)
    assert one in projects


def test_projects_weigh_alike_in_the_loss() -> None:
    # Two runs of 3 decisions of a, one of 2 of b, one of 5 of c, of which one is held out.
    columns, projects = {"cost": [np.zeros(13, np.int64)]}, {"a/0": "a", "b/0": "b", "c/0": "c"}
    found = set()
    for seed in range(20):
        config = dataclasses.replace(CONFIG, holdout_fraction=0.25, project_balance=1.0, seed=seed)
        runs = (["a/0", "b/0", "a/0", "c/0"], [3, 2, 3, 5])
        training, _ = split_by_module(columns, np.zeros(13, np.int64), *runs, projects, config)
        assert training.weights is not None
        found.add(tuple(training.weights.round(4).tolist()))
    # Half of 8 decisions for each of a and b, half of 11 for each of a and c, half of 7 for each of b and c.
    expected = [[4 / 6] * 3 + [4 / 2] * 2 + [4 / 6] * 3, [5.5 / 6] * 6 + [5.5 / 5] * 5, [3.5 / 2] * 2 + [3.5 / 5] * 5]
    assert found == {tuple(np.array(weights, np.float32).round(4).tolist()) for weights in expected}


def write(path: Path, modules: int, advice: str = "i8", action: int = 1, shape: tuple[int, ...] = ()) -> Trace:
    """Module i has i + 1 decisions, in all of which the cost is i."""
    features = (TensorSpec("cost", np.dtype("i8"), shape), TensorSpec("other", np.dtype("i8"), ()))
    decision = TensorSpec("inlining_decision", np.dtype(advice), ())
    with TraceWriter(path) as writer:
        for index in range(modules):
            ones = np.ones(index + 1, np.int64)
            values = {"cost": np.full((index + 1, *shape), index), "other": ones}
            actions = (ones * action).astype(advice)
            reward = np.zeros(index + 1, np.float32)
            writer.add(TraceContext(f"m{index}", "p", "default", features, values, decision, actions, reward))
        writer.finish(dict.fromkeys(writer.keys, 1.0), {})
    return Trace(path)


def test_all_examples_of_a_module_are_training_or_held_out(tmp_path: Path) -> None:
    trace = write(tmp_path / "trace", 20)
    read: list[int] = []
    training, held_out = load_examples(trace, kind("other", "cost"), CONFIG, read.append)
    assert sum(read) == 20 * 21 / 2
    sides = [costs(part) for part in (training, held_out)]
    assert not sides[0] & sides[1]
    assert sides[0] | sides[1] == set(range(20))
    assert {f"m{index}" for index in sides[1]} == held_out_modules({f"m{i}": "p" for i in range(20)}, 0.1, CONFIG.seed)
    assert (training.num_modules, held_out.num_modules) == (18, 2)
    assert len(training) == sum(index + 1 for index in sides[0])


def test_a_long_trace_is_sampled(tmp_path: Path) -> None:
    trace = write(tmp_path / "trace", 60)
    training, held_out = load_examples(trace, kind("cost"), dataclasses.replace(CONFIG, max_decisions=400))
    assert 320 < len(training) + len(held_out) < 480
    sides = [costs(part) for part in (training, held_out)]
    assert not sides[0] & sides[1]


def test_a_recurrent_network_gets_whole_modules(tmp_path: Path) -> None:
    trace = write(tmp_path / "trace", 60)
    for max_decisions in (400, 10_000):
        config = dataclasses.replace(CONFIG, max_decisions=max_decisions)
        parts = load_examples(trace, kind("cost"), config, is_recurrent=True)
        modules = 0
        for part in parts:
            found = np.rint(100 * part.observations[RANKS][:, -1]).astype(int) - 1
            starts = np.flatnonzero(part.observations[FIRST])
            assert starts[0] == 0 and len(set(found[starts])) == len(starts)
            for module in np.split(found, starts[1:]):
                assert set(module) == {len(module) - 1}
            modules += len(starts)
        assert modules == 60 if max_decisions == 10_000 else 5 < modules < 35
    assert FIRST not in load_examples(trace, kind("cost"), CONFIG)[0].observations


def noisy_trace(path: Path) -> Trace:
    """40 modules of 100 decisions, all of them to inline, whatever the features of `QUANTILES` say."""
    features = tuple(TensorSpec(name, np.dtype("i8"), ()) for name in QUANTILES)
    decision = TensorSpec("inlining_decision", np.dtype("i8"), ())
    rng, ones = np.random.default_rng(5), np.ones(100, np.int64)
    with TraceWriter(path) as writer:
        for index in range(40):
            values = {"cost": rng.integers(-10, 10, 100), "noise": rng.integers(0, 10, 100)}
            reward = np.zeros(100, np.float32)
            writer.add(TraceContext(f"m{index}", "p", "default", features, values, decision, ones, reward))
        writer.finish(dict.fromkeys(writer.keys, 1.0), {})
    return Trace(path)


@pytest.mark.ci
def test_a_teacher_decides_in_place_of_the_trace(tmp_path: Path) -> None:
    """The teacher observes noise, too, which does not matter to it, so it can be learned without."""
    trace, teacher = noisy_trace(tmp_path / "trace"), BinaryPolicy(clone().weights, name="teacher")
    head = BinaryHead({"cost": QUANTILES["cost"]})
    parts = load_examples(trace, head, CONFIG, teacher=Teacher(teacher, Binary(), trace))
    for part in parts:
        assert part.labels is not None
        np.testing.assert_allclose(part.labels.sum(axis=1), 1.0, atol=1e-6)
        np.testing.assert_array_equal(part.labels.argmax(axis=1), part.actions)
        cost = np.rint(20 * part.observations[RANKS][:, 0]) - 11
        assert ((cost < 3) == part.actions).mean() > 0.97
    cloned = Cloner(head, "inlining_decision", NetworkConfig(fc_layer_params=(16,)), CONFIG).clone(*parts)
    assert cloned.best["accuracy"] > 0.97
    costs = np.arange(-10, 10)
    learned = BinaryPolicy(cloned.weights).logits({"cost": costs})
    taught = teacher.logits({"cost": costs, "noise": np.full(20, 5)})
    # As sure and as unsure as the teacher.
    np.testing.assert_allclose(probability_of_inlining(learned), probability_of_inlining(taught), atol=0.1)


def probability_of_inlining(logits: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(logits[:, 0] - logits[:, 1])))


def test_traces_that_cannot_be_cloned_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match="at least 2 modules"):
        load_examples(write(tmp_path / "one", 1), kind("cost"), CONFIG)
    with pytest.raises(PolicyError, match="expected a choice"):
        load_examples(write(tmp_path / "float", 2, advice="f4"), kind("cost"), CONFIG)
    with pytest.raises(PolicyError, match="expected decisions of 0 to 1, found 7"):
        load_examples(write(tmp_path / "many", 2, action=7), kind("cost"), CONFIG)
    with pytest.raises(PolicyError, match="expected the feature cost to be one integer"):
        load_examples(write(tmp_path / "wide", 2, shape=(3,)), kind("cost"), CONFIG)
    with pytest.raises(ProtocolError, match="lacks the features height"):
        load_examples(write(tmp_path / "lacking", 2), kind("cost", "height"), CONFIG)


@pytest.mark.parametrize(
    "wrong",
    [{"num_epochs": 0}, {"learning_rate": 0.0}, {"label_smoothing": 0.5}, {"holdout_fraction": 1.0}, {"patience": 0}],
)
def test_settings_out_of_range_are_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}: expected"):
        dataclasses.replace(CONFIG, **wrong)  # type: ignore[arg-type]
