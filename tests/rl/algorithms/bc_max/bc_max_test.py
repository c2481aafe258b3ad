"""BC-Max learns the best of two policies, neither of which is right everywhere."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from compiler_opt import problem as problems
from compiler_opt.collect.best_trajectories import BestTrajectories, BestTrajectory
from compiler_opt.errors import ConfigError
from compiler_opt.rl.algorithm import AlgorithmConfigs
from compiler_opt.rl.algorithms.bc_max import ALGORITHM, BCMaxConfig
from compiler_opt.rl.config import TrainingConfig
from compiler_opt.tensorflow_loading import load_tensorflow

load_tensorflow()

from compiler_opt.rl.algorithms.bc_max.algorithm import TrajectoryCloner, policies_to_imitate  # noqa: E402
from compiler_opt.spaces.heads.head import Head  # noqa: E402
from tests.rl.algorithms.toy_decisions import NETWORK, binary_head, features, quality  # noqa: E402

_CONFIG = BCMaxConfig(num_epochs=12, minibatch_size=64, learning_rate=1e-2, gain_weight=0.5)


def _explored(head: Head, policy: str, module: int) -> BestTrajectory:
    """40 decisions of one of two policies: `rare` is right in a third of the modules, `other` in the others."""
    values = features(head, np.random.default_rng(module), 40)
    right = (values["b"] > 0).astype(np.int64)
    is_right = (policy == "rare") == (module % 3 == 0)
    return BestTrajectory(
        problem="toy",
        compiler="1",
        module=f"m{module}",
        project=f"p{module % 5}",
        policy=policy,
        reward=0.1 if is_right else -0.1,
        features=values,
        advice=right if is_right else 1 - right,
    )


def _cloner(config: BCMaxConfig = _CONFIG) -> TrajectoryCloner:
    return TrajectoryCloner(binary_head(), "decision", NETWORK, config, seed=1)


def _stored(folder: Path, policies: tuple[str, ...], modules: int = 50) -> list[BestTrajectory]:
    store = BestTrajectories(folder)
    for policy in policies:
        for module in range(modules):
            store.add(_explored(binary_head(), policy, module))
    return list(store.read("toy", binary_head().compiler_features))


def test_the_best_of_each_module_is_learned(tmp_path: Path) -> None:
    head, cloner = binary_head(), _cloner()
    alone = _cloner(dataclasses.replace(_CONFIG, gain_weight=0.0)).clone(_stored(tmp_path / "rare", ("rare",)))
    assert quality(head, alone.weights) < 0.5
    trajectories = _stored(tmp_path / "both", ("rare", "other"))
    assert {each.policy for each in trajectories} == {"rare", "other"} and len(trajectories) == 50
    cloned = cloner.clone(trajectories)
    assert quality(head, cloned.weights) > 0.95 and cloned.best["accuracy"] > 0.95
    for one, same in zip(cloned.weights.kernels, _cloner().clone(trajectories).weights.kernels, strict=True):
        np.testing.assert_array_equal(one, same)


def test_modules_that_gain_more_count_more() -> None:
    cloner = _cloner(dataclasses.replace(_CONFIG, gain_weight=2.0, project_balance=0.0, holdout_fraction=0.01))
    gains = {"m0": 0.3, "m1": 0.1, "m2": -0.5, "m3": 0.0}
    found = [
        dataclasses.replace(_explored(binary_head(), "rare", 0), module=name, project="p", reward=gain)
        for name, gain in gains.items()
    ]
    # The mean gain is 0.1.
    expected = {"m0": 7.0, "m1": 3.0, "m2": 1.0, "m3": 1.0}
    training, held_out = cloner._examples(found)
    assert (training.num_modules, held_out.num_modules) == (3, 1) and training.weights is not None
    ratios = np.array(sorted(set(training.weights.tolist())))
    kept = [sorted({value for name, value in expected.items() if name != apart}) for apart in expected]
    assert any(
        len(values) == len(ratios) and np.allclose(ratios / ratios[0], np.array(values) / values[0]) for values in kept
    )
    assert training.weights.mean() == pytest.approx(1.0)


def test_one_module_is_enough() -> None:
    cloner = _cloner(dataclasses.replace(_CONFIG, num_epochs=40, minibatch_size=8))
    assert cloner.clone([_explored(binary_head(), "rare", 0)]).best["accuracy"] > 0.9


def test_what_cannot_be_imitated_is_refused(tmp_path: Path) -> None:
    def context(**config: Any) -> Any:
        head = SimpleNamespace(features=("callee_users",))
        settings = TrainingConfig(**{"counts_copies": False, **config})
        return cast(Any, SimpleNamespace(problem=problems.load("inlining"), head=head, config=settings))

    with pytest.raises(ConfigError, match="counts_copies: expected False for bc_max"):
        ALGORITHM.build(context(counts_copies=True), AlgorithmConfigs())
    names = [policy.name for policy in policies_to_imitate(["never", "default"], context())]
    assert names == ["never", "default"]
    from compiler_opt.policies.decisions import Decisions, Site

    about = {"problem": "inlining", "llvm": "22.1.0", "policy": "0123abcd-99"}
    Decisions({Site("f", 1, "g", 0): 1}, about).save(tmp_path / "found")
    with pytest.raises(ConfigError, match="changes decisions of the policy 0123abcd-99, which is not listed"):
        policies_to_imitate(["default", f"decisions:{tmp_path / 'found'}"], context())
    of_plugin = context()
    of_plugin.head.features = ("callee_users", "callee_linkage")
    assert [policy.name for policy in policies_to_imitate(["default"], of_plugin)] == ["default"]
    with pytest.raises(ConfigError, match=r"bc_max.policies: never: decides outside the compiler"):
        policies_to_imitate(["default", "never"], of_plugin)
    with pytest.raises(ValueError, match="expected 1 to 16 different ones"):
        BCMaxConfig(policies=("default", "default"))
