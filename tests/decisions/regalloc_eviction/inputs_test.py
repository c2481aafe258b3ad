"""Comparisons of candidates, by visible arithmetic."""

import numpy as np

from compiler_opt.decisions.regalloc_eviction import signature
from compiler_opt.decisions.regalloc_eviction.inputs import RELATIVE, EvictionInputs

_INPUTS = EvictionInputs()
_INF, _NAN = np.inf, np.nan


def features(mask: list[int], weight: list[float], broken_hints: list[float]) -> dict[str, np.ndarray]:
    """One decision, as the compiler sends it."""
    empty = np.zeros((1, 1, len(mask)), np.float32)
    sent = dict.fromkeys(signature.FEATURES, empty)
    sent[signature.MASK] = np.array([[mask]])
    sent["use_def_density"] = np.array([[weight]], np.float32)
    sent["nr_broken_hints"] = np.array([[broken_hints]], np.float32)
    sent[signature.PROGRESS] = np.array([[0.25]], np.float32)
    return sent


def compared(mask: list[int], weight: list[float], broken_hints: list[float]) -> dict[str, list[float]]:
    values = _INPUTS.values(features(mask, weight, broken_hints))
    assert values.shape == (1, len(mask), len(_INPUTS.names))
    assert values.dtype == np.float32
    assert np.isfinite(values).all()
    return {name: values[0, :, _INPUTS.names.index(name)].tolist() for name in (*RELATIVE, signature.PROGRESS)}


def test_candidates_are_compared_with_each_other_and_with_the_interval_itself() -> None:
    found = compared([1, 1, 0, 1, 1], [0.25, 0.125, 0.0625, 1.0, 0.5], [0, 1, 0, 0, 0])
    assert found == {
        "place": [0, 1, 2, 3, 4],
        "is_itself": [0, 0, 0, 0, 1],
        # The lightest that breaks no hint.
        "is_default": [1, 0, 0, 0, 0],
        # The third is not legal.
        "is_lighter": [1, 1, 0, 0, 0],
        "weight_over_itself": [0.5, 0.25, 0.125, 2.0, 1.0],
        # First the two that break no hint, by weight: 0.25 and 1.0; then the one that breaks a hint. The third is not
        # legal, so its rank does not matter.
        "rank": [0, 2, 0, 1, 0],
        "nr_lighter": [2] * 5,
        "nr_legal": [4] * 5,
        "progress": [0.25] * 5,
    }


def test_features_of_the_interval_itself_and_ranks() -> None:
    sent = features([1, 1, 0, 1, 1], [0.25, 0.125, 0.0625, 1.0, 0.5], [0] * 5)
    values = {name: _INPUTS.values(sent)[0, :, index].tolist() for index, name in enumerate(_INPUTS.names)}
    assert values["own_use_def_density"] == [0.5] * 5
    # The third is not legal: it is smaller than none, but is itself compared with the others.
    assert values["less_use_def_density"] == [1, 0, 0, 3, 2]
    assert values["less_liverange_size"] == [0] * 5


def test_many_decisions_give_the_same_as_one_by_one() -> None:
    rng = np.random.default_rng(0)
    shape = (2500, 1, 7)
    sent: dict[str, np.ndarray] = {name: rng.integers(0, 4, shape).astype(np.float32) for name in signature.FEATURES}
    sent |= {signature.MASK: rng.integers(0, 2, shape), signature.PROGRESS: rng.random((2500, 1), np.float32)}
    together = _INPUTS.values(sent)
    for index in (0, 1023, 1024, 2499):
        alone = _INPUTS.values({name: values[index : index + 1] for name, values in sent.items()})
        np.testing.assert_array_equal(together[index : index + 1], alone)


def test_an_interval_that_must_get_a_register_is_heavier_than_all() -> None:
    found = compared([1, 1, 0], [1.0, 0.5, 0.0], [0, 0, 0])
    assert found["is_lighter"] == [1, 1, 0]
    assert found["weight_over_itself"] == [0, 0, 0]


def test_nan_is_an_infinite_weight() -> None:
    sent = features([1, 1, 1], [_NAN, 0.0, 0.0], [0, 0, 0])
    weight = _INPUTS.values(sent)[0, :, _INPUTS.names.index("use_def_density")]
    assert weight.tolist() == [np.finfo(np.float32).max, 0, 0]
    assert compared([1, 1, 1], [_NAN, 0.0, 0.0], [0, 0, 0])["rank"] == [1, 0, 0]
    assert compared([1, 1, 1], [_INF, 0.0, _NAN], [0, 0, 0])["is_lighter"] == [0, 1, 0]


def test_the_mask_gives_the_legal_candidates() -> None:
    assert _INPUTS.legal(features([1, 0, 1], [0] * 3, [0] * 3)).tolist() == [[True, False, True]]
