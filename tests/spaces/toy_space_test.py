"""A new action space needs no change elsewhere: one of three actions without a mask, from cloning to decisions."""

from pathlib import Path

import numpy as np
import pytest

from compiler_opt.decisions.decision import Decision
from compiler_opt.errors import PolicyError
from compiler_opt.llvm.advisors import INLINING
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.weights import NetworkConfig
from compiler_opt.rl.behavioral_cloning import Cloner, Examples
from compiler_opt.rl.config import BehavioralCloningConfig
from compiler_opt.tensor_spec import TensorSpec
from tests.spaces.one_of_three import OneOfThree

_HEADER = Header(
    (TensorSpec("other", np.dtype("i8"), (1,)), TensorSpec("size", np.dtype("f4"), (1,))),
    TensorSpec("unroll_factor", np.dtype("i8"), (1,)),
)


UNROLLING = Decision("unrolling", INLINING, ("size", "unknown"), OneOfThree(), credit=lambda costs, sites: [])


def _examples(seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The compiler's features, and the right action by the size: 0, 1 or 2."""
    rng = np.random.default_rng(seed)
    size = rng.random((600, 1)).astype("f4")
    return {"other": rng.integers(0, 9, (600, 1)), "size": size}, (3 * size[:, 0]).astype(np.int64)


def test_it_is_cloned_and_decides(tmp_path: Path) -> None:
    assert UNROLLING.available_features(_HEADER.names) == ["size"]
    head = UNROLLING.head({"size": np.linspace(0, 1, 50)}, _HEADER.features)
    features, factors = _examples(1)
    observations = head.observe(features)
    assert observations["quantile_ranks"].shape == (600, 1)
    head.check_examples(_HEADER.features, _HEADER.advice)
    actions = head.actions(factors)
    with pytest.raises(PolicyError, match="expected decisions of 0 to 2, found 0 to 3"):
        head.actions(np.array([0, 3]))

    config = BehavioralCloningConfig(batch_size=50, num_epochs=15, learning_rate=1e-2)
    examples = Examples(observations, actions, num_modules=1)
    cloned = Cloner(head, "unroll_factor", NetworkConfig((16,)), config).clone(examples, examples)
    assert cloned.best["accuracy"] > 0.95 > 0.5 > cloned.best["majority_rate"]
    log_probs, entropy = head.evaluate_actions(cloned.weights, observations, actions)
    assert log_probs.mean() > -0.5 and (entropy <= np.log(3)).all()

    cloned.weights.save(tmp_path)
    policy = UNROLLING.load_policy(tmp_path)
    assert not (policy.runs_in_plugin or policy.runs_in_development_mode)
    decide = policy.start(_HEADER, seed=0)
    features, factors = _examples(2)
    rows = zip(features["other"], features["size"], strict=True)
    decided = np.array([decide(other.tobytes() + size.tobytes()) for other, size in rows])
    assert (decided == factors).mean() > 0.95
    assert UNROLLING.action_space.formats(cloned.weights) == ()
    with pytest.raises(PolicyError, match="unrolling: its policies have no native form"):
        UNROLLING.native_form(cloned.weights)
