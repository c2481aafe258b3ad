"""The family of rules: what each parameter does, what is never chosen, and that the compiler's own is among them."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_opt.collect.rollout import rollout
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.rule import RulePolicy
from compiler_opt.problems import problem as problems
from compiler_opt.problems.regalloc_eviction import signature
from compiler_opt.problems.regalloc_eviction.default_eviction import default_choices
from compiler_opt.problems.regalloc_eviction.eviction_rule import EvictionRule
from tests.small_corpus import make_busy_corpus

_RULE = EvictionRule()
_PLACES = 4
_ITSELF = _PLACES - 1
_NAN = float("nan")


def _choose(parameters: dict[str, float], **columns: list[float]) -> int:
    """Of one decision between live ranges that weigh 0.25, 0.5, 1 and 0.75, the last of which looks for a register."""
    features = {
        **dict.fromkeys(_RULE.features, [0.0] * _PLACES),
        "mask": [1.0] * _PLACES,
        "use_def_density": [0.25, 0.5, 1.0, 0.75],
        "liverange_size": [0.5] * _PLACES,
        **columns,
    }
    values = _RULE.values({**_RULE.named(_RULE.start()), **parameters})
    arrays = {name: np.array([[column]], np.float32) for name, column in features.items()}
    return int(_RULE.choose(values, arrays)[0])


@pytest.mark.parametrize(
    ("expected", "parameters", "columns"),
    [
        # As LLVM's own: the lightest that is lighter than the interval itself; hints first.
        (0, {}, {}),
        (1, {}, {"mask": [0, 1, 1, 1]}),
        (_ITSELF, {}, {"mask": [0, 0, 1, 1]}),
        (1, {}, {"nr_broken_hints": [1, 0, 0, 0]}),
        (1, {}, {"is_hint": [0, 1, 0, 0]}),
        (2, {}, {"mask": [0, 0, 1, 0]}),
        # Length: the whole of what it costs, no longer the density.
        (1, {"length": 1.0}, {"liverange_size": [1.0, 0.1, 0.5, 0.5]}),
        (_ITSELF, {"length": 1.0}, {"liverange_size": [1.0, 1.0, 1.0, 0.1]}),
        # How readily anything is evicted at all.
        (_ITSELF, {"eager": -2.0}, {}),
        (2, {"eager": 1.0}, {"mask": [0, 0, 1, 1]}),
        # What may be dearer, or cheaper, than its weight says.
        (1, {"local": 2.0}, {"is_local": [1, 0, 0, 0]}),
        (1, {"rematerializable": -2.0}, {"nr_rematerializable": [0, 1, 0, 0]}),
        (1, {"stage": 1.0}, {"max_stage": [2, 0, 0, 0]}),
        (1, {"broken_hints": -2.0}, {"nr_broken_hints": [0, 1, 0, 0]}),
        # What is free is taken whatever the parameters are.
        (2, {"eager": -9.0}, {"is_free": [0, 0, 1, 0]}),
    ],
)
def test_a_parameter(expected: int, parameters: dict[str, float], columns: dict[str, list[float]]) -> None:
    assert _choose(parameters, **columns) == expected


def test_where_weights_are_lost_the_default_is_followed() -> None:
    columns = {"use_def_density": [0.0, 0.0, _NAN, 0.0], signature.PLUGIN_DEFAULT: [1.0]}
    assert _choose({"eager": -9.0}, **columns) == 1


_numbers = st.lists(st.floats(0, 1, width=32), min_size=_PLACES, max_size=_PLACES)


@settings(max_examples=60)
@given(
    st.lists(st.floats(-3, 3), min_size=len(_RULE.parameters), max_size=len(_RULE.parameters)),
    st.lists(st.booleans(), min_size=_PLACES, max_size=_PLACES).filter(any),
    st.fixed_dictionaries(dict.fromkeys(signature.FEATURES, _numbers)),
)
def test_what_is_chosen_is_legal(values: list[float], mask: list[bool], columns: dict[str, list[float]]) -> None:
    features = {name: np.array([[column]], np.float32) for name, column in columns.items()}
    features[signature.MASK] = np.array([[mask]], np.int64)
    features[signature.PLUGIN_DEFAULT] = np.array([[mask.index(True)]], np.int64)
    [chosen] = _RULE.choose(np.array(values), features)
    assert mask[chosen]


def test_real_decisions(toolchain: Toolchain, tmp_path: Path) -> None:
    """With the parameters that it starts from it mostly decides as the compiler does; with others it does not."""
    problem = problems.load("regalloc_eviction")
    chosen: dict[str, list[np.ndarray]] = {"start": [], "other": []}
    for module in make_busy_corpus(tmp_path, str(toolchain.clang)).modules:
        policies = {"start": _RULE.start(), "other": _RULE.start() + 2 * _RULE.scale()}
        for name, values in policies.items():
            result = rollout(module, RulePolicy(_RULE, values), problem, toolchain, scratch=tmp_path)
            assert result.failure is None
            if result.trajectory is None:
                continue
            features = result.trajectory.features()
            chosen[name].append(result.trajectory.advice == default_choices(features))
    agreement = {name: np.concatenate(parts).mean() for name, parts in chosen.items()}
    assert agreement["start"] > 0.9
    assert agreement["other"] < agreement["start"]
