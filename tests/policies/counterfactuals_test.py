"""Departing once: from the right decision, of the right function, and else not at all."""

import json

import numpy as np
import pytest

from compiler_opt.errors import ProtocolError
from compiler_opt.llvm.interactive import FollowsContexts
from compiler_opt.llvm.training_log import parse_header
from compiler_opt.policies.counterfactuals import Counterfactual, CounterfactualPolicy
from compiler_opt.policies.policy import ConstantPolicy, Decider, FeaturePolicy

_SPEC = {"name": "default", "port": 0, "type": "int64_t", "shape": [1]}
_HEADER = parse_header(json.dumps({"features": [_SPEC], "advice": {**_SPEC, "name": "advice"}}).encode())


def decider(counterfactuals: dict[str, Counterfactual]) -> Decider:
    return CounterfactualPolicy(FeaturePolicy("default"), counterfactuals).start(_HEADER, 0)


def observation(default: int) -> bytes:
    return np.int64(default).tobytes()


def test_each_function_departs_once_and_decides_as_before_elsewhere() -> None:
    deciding = decider({"f": Counterfactual(1, 7), "g": Counterfactual(0, 8), "h": Counterfactual(5, 9)})
    assert isinstance(deciding, FollowsContexts)
    advice = {}
    for function, count in (("f", 3), ("g", 2), ("h", 2), ("other", 2)):
        deciding.enter(function)
        advice[function] = [deciding(observation(index + 1)) for index in range(count)]
    # The policy itself says 1, 2, 3, ...; the sixth decision of h is never asked for.
    assert advice == {"f": [1, 7, 3], "g": [8, 2], "h": [1, 2], "other": [1, 2]}


def test_a_function_that_comes_again_goes_on_where_it_was() -> None:
    deciding = decider({"f": Counterfactual(1, 7)})
    assert isinstance(deciding, FollowsContexts)
    advice = []
    for function in ("f", "g", "f"):
        deciding.enter(function)
        advice.append(deciding(observation(1)))
    assert advice == [1, 1, 7]


def test_without_the_names_of_functions_it_cannot_work() -> None:
    with pytest.raises(ProtocolError, match="without the name of its function"):
        decider({})(observation(1))


def test_it_needs_what_the_other_policy_needs() -> None:
    default = ConstantPolicy(1)
    default.needs_default = True
    assert CounterfactualPolicy(default, {}).needs_default
    assert not CounterfactualPolicy(ConstantPolicy(1), {}).needs_default
