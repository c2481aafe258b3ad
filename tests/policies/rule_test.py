"""Rules with parameters: features, advice, and errors."""

from collections.abc import Mapping

import numpy as np
import pytest

from compiler_opt.errors import PolicyError
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.rule import Rule, RuleParameter, RulePolicy
from compiler_opt.tensor_spec import TensorSpec


class _Weighed(Rule):
    features = ("costs",)
    optional = ("bonus",)
    parameters = (RuleParameter("power", 1.0, 0.5), RuleParameter("bonus", 0.0, 2.0))

    def choose(self, values: np.ndarray, features: Mapping[str, np.ndarray]) -> np.ndarray:
        costs = features["costs"].reshape(len(features["costs"]), -1) ** values[0]
        if "bonus" in features:
            costs = costs - values[1] * features["bonus"].reshape(costs.shape)
        result: np.ndarray = costs.argmin(axis=1)
        return result


def _header(*names: str) -> Header:
    features = tuple(TensorSpec(name, np.dtype(np.float32), (1, 3)) for name in names)
    return Header(features, TensorSpec("choice", np.dtype(np.int64), (1,)))


def _bytes(*columns: list[float]) -> bytes:
    return b"".join(np.array(column, np.float32).tobytes() for column in columns)


def test_it_decides_by_its_parameters() -> None:
    rule = _Weighed()
    observation = _bytes([3.0, 2.0, 4.0])
    assert RulePolicy(rule, rule.start()).start(_header("costs"), 0)(observation) == 1
    assert RulePolicy(rule, [-1.0, 0.0]).start(_header("costs"), 0)(observation) == 2


def test_an_optional_feature_is_used_if_sent() -> None:
    decider = RulePolicy(_Weighed(), [1.0, 5.0]).start(_header("costs", "bonus"), 0)
    assert decider(_bytes([3.0, 2.0, 4.0], [1.0, 0.0, 0.0])) == 0


def test_a_missing_feature_is_named() -> None:
    with pytest.raises(PolicyError, match="does not send the features costs"):
        RulePolicy(_Weighed(), [1.0, 0.0]).start(_header("bonus"), 0)


def test_parameters_have_names() -> None:
    rule = _Weighed()
    assert rule.named(np.array([2.0, 3.0])) == {"power": 2.0, "bonus": 3.0}
    assert rule.values({"bonus": 3.0, "power": 2.0}).tolist() == [2.0, 3.0]
    with pytest.raises(PolicyError, match="they differ in bonus"):
        rule.values({"power": 2.0})
