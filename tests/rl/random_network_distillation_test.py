"""Random network distillation: what was seen is no longer new, and decisions are rewarded for what comes after them."""

import dataclasses

import numpy as np
import pytest

from compiler_opt.collect.advantages import AdvantagesConfig
from compiler_opt.errors import ConfigError
from compiler_opt.rl.config import RandomNetworkDistillationConfig, check_bonus
from compiler_opt.tensorflow_loading import load_tensorflow

load_tensorflow()

from compiler_opt.rl.random_network_distillation import RandomNetworkDistillation, discounted_later  # noqa: E402
from compiler_opt.rl.sampled_decisions import Batch  # noqa: E402
from compiler_opt.spaces.heads.head import Head  # noqa: E402
from tests.rl.algorithms import toy_decisions  # noqa: E402

_CONFIG = RandomNetworkDistillationConfig(weight=0.5, learning_rate=5e-3)


def _batch(head: Head, count: int, seed: int, shift: int = 0) -> Batch:
    """Decisions in rollouts of four; without a shift, `b` is at most -2, and with one above it."""
    features = toy_decisions.features(head, np.random.default_rng(seed), count)
    features["b"] = np.minimum(features["b"], -2) + shift
    observations = head.observe(features)
    nothing = np.zeros(count, "f4")
    return Batch(observations, nothing, nothing, nothing, nothing, nothing + 1, np.arange(count) % 4 == 3)


@pytest.mark.parametrize("kind", toy_decisions.HEADS)
def test_what_was_seen_is_no_longer_new(kind: str) -> None:
    head = toy_decisions.HEADS[kind]()
    distillation, rng = RandomNetworkDistillation(head, _CONFIG, 1), np.random.default_rng(1)
    found = [distillation.with_bonus(_batch(head, 2000, seed), rng)[1]["novelty"] for seed in range(8)]
    assert found[0] == pytest.approx(1)
    assert found[-1] < 0.2
    # Neither seen nor like it.
    assert distillation.with_bonus(_batch(head, 2000, 9, shift=10), rng)[1]["novelty"] > 1.5 * found[-1]


def test_a_decision_is_rewarded_for_what_comes_after_it_in_its_rollout() -> None:
    later = discounted_later(np.array([5.0, 1.0, 3.0, 7.0, 2.0]), [False, False, True, False, True], 0.5)
    np.testing.assert_allclose(later, [(1 + 0.5 * 3) / 1.5, 3, np.nan, 2, np.nan])
    head = toy_decisions.binary_head()
    distillation, rng = RandomNetworkDistillation(head, _CONFIG, 1), np.random.default_rng(1)
    for seed in range(8):
        distillation.with_bonus(_batch(head, 2000, seed), rng)
    known, new = _batch(head, 400, 9), _batch(head, 400, 10, shift=10)
    # Only the third decision of each rollout leads to something new.
    is_new = known.is_last[:, np.newaxis]
    observations = {
        name: np.where(is_new, new.observations[name], values) for name, values in known.observations.items()
    }
    batch = dataclasses.replace(known, observations=observations, advantages=np.full(400, 2.0, "f4"))
    rewarded, _ = distillation.with_bonus(batch, rng)
    by_place = (rewarded.advantages - 2).reshape(-1, 4).mean(0)
    assert by_place.argmax() == 2 and (np.diff(by_place[:3]) > 0).all()
    assert by_place[3] == 0
    assert by_place.sum() == pytest.approx(0, abs=1e-5)


def test_without_decisions_there_is_nothing_to_learn() -> None:
    head = toy_decisions.binary_head()
    batch, metrics = RandomNetworkDistillation(head, _CONFIG, 1).with_bonus(Batch.empty(head), np.random.default_rng(1))
    assert len(batch) == 0 and metrics == {}


def test_value_networks_and_odd_numbers_are_refused() -> None:
    check_bonus(_CONFIG, AdvantagesConfig().build())
    check_bonus(RandomNetworkDistillationConfig(), AdvantagesConfig("moving_average").build())
    with pytest.raises(ConfigError, match=r"expected 0 with advantages\.kind = 'moving_average'"):
        check_bonus(_CONFIG, AdvantagesConfig("moving_average").build())
    with pytest.raises(ValueError, match="discount: expected at least 0 and less than 1, found 1"):
        RandomNetworkDistillationConfig(discount=1)
