"""The terms of both scores of `regalloc_score`, and how well the scores agree."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

# Legend: [N functions, 6 kinds of instructions that D weighs], [N, 5 costs that R weighs].
_D_WEIGHTS = np.array([0.2, 4.0, 1.0, 5.0, 0.2, 1.0])
_COPIES, _MEMORY, _REMATERIALISATIONS = slice(0, 1), slice(1, 4), slice(4, 6)
R_KINDS = ("copies", "reloads", "folded_reloads", "spills", "folded_spills")
_R_WEIGHTS = {"R": np.array([0.2, 4.0, 4.0, 1.0, 1.0]), "R5": np.array([0.2, 4.0, 4.0, 1.0, 5.0])}


class Costs(NamedTuple):
    """The terms of both scores, of one function or stacked."""

    definition: np.ndarray
    remarks: np.ndarray

    def d(self, part: slice = slice(0, 6)) -> np.ndarray:
        return self.definition[..., part] @ _D_WEIGHTS[part]

    def r(self, name: str, part: slice = slice(0, 5)) -> np.ndarray:
        return self.remarks[..., part] @ _R_WEIGHTS[name][part]

    def __sub__(self, other: "Costs") -> "Costs":
        return Costs(self.definition - other.definition, self.remarks - other.remarks)

    def of(self, chosen: np.ndarray) -> "Costs":
        return Costs(self.definition[chosen], self.remarks[chosen])


def stack(costs: Iterable[Costs]) -> Costs:
    """Stacks the costs of functions."""
    return Costs(*map(np.stack, zip(*costs, strict=True)))


def print_levels(costs: Costs) -> None:
    """Prints how well the scores of one compilation agree, and the terms of D."""
    d = costs.d()
    for name in _R_WEIGHTS:
        r = costs.r(name)
        print(f"levels, {name}: Spearman {_spearman(d, r):.3f}; error over D: {spread(np.abs(r - d) / d, '.1%')}")
    added = costs.r("R5", slice(1, 5))
    parts = {
        "loads and stores that R5 sees": added,
        "other loads and stores": costs.d(_MEMORY) - added,
        "copies": costs.d(_COPIES),
        "rematerialisations": costs.d(_REMATERIALISATIONS),
    }
    for name, values in parts.items():
        print(f"  share of D, {name}: {spread(values / d, '.1%')}")
    agree = np.isclose(costs.definition[:, 0], costs.remarks[:, 0], rtol=1e-5, atol=0).sum()
    print(f"  copies agree in {agree} functions; R is 0 for {np.count_nonzero(r == 0)}")


def print_changes(title: str, before: Costs, after: Costs, failures: int) -> None:
    """Prints how well the changes between two policies agree; rows of both are the same functions."""
    total_before = before.d().sum()
    # Remarks have seven digits; smaller differences are no change.
    rounding = 1e-6 * np.maximum(np.maximum(before.r("R5"), after.r("R5")), 1.0)
    changes = after - before
    d = changes.d()
    changed = np.any([np.abs(change) > rounding for change in (d, *map(changes.r, _R_WEIGHTS))], axis=0)
    print(f"changes, {title}: {changed.sum()} of {len(d)} functions; {failures} compilations failed")
    if changed.sum() < 3:
        return
    before, after, changes = before.of(changed), after.of(changed), changes.of(changed)
    d, rounding = d[changed], rounding[changed]
    print(f"  D: mean change {np.abs(d).mean():.4g}, in total {d.sum() / total_before:+.3%}")
    for name in _R_WEIGHTS:
        r = changes.r(name)
        errors, moved = np.abs(r - d), np.abs(d) > rounding
        same_sign, large = _sign(d, rounding) == _sign(r, rounding), np.abs(d) > 0.01 * before.d()
        print(f"  {name}: {_correlations(d, r)}; same sign {same_sign.mean():.1%}")
        print(f"    same sign where D changes by over 1%: {same_sign[large].mean():.1%} of {large.sum()}")
        print(f"    both changes as shares of D before: {_correlations(d / before.d(), r / before.d())}")
        some = before.r(name) > 0
        own_share = r[some] / before.r(name)[some]
        print(f"    each as a share of its own score before: {_correlations((d / before.d())[some], own_share)}")
        print(f"    mean error {errors.mean():.4g}; in total {r.sum() / total_before:+.3%} of D")
        print(f"    error over D's change: {spread(errors[moved] / np.abs(d[moved]), '.2%')}")
        print(f"    error of (D before + R's change) over D: {spread(errors / after.d(), '.3%')}")
        parts = {
            "loads and stores": changes.r(name, slice(1, 5)) - changes.d(_MEMORY),
            "copies": changes.r(name, slice(0, 1)) - changes.d(_COPIES),
            "rematerialisations": changes.d(_REMATERIALISATIONS),
        }
        shares = (f"{part} {np.abs(values).sum() / errors.sum():.0%}" for part, values in parts.items())
        print(f"    parts of the error, over its sum: {', '.join(shares)}")


def _correlations(a: np.ndarray, b: np.ndarray) -> str:
    return f"Pearson {_pearson(a, b):.4f}, Spearman {_spearman(a, b):.4f}"


def _sign(change: np.ndarray, rounding: np.ndarray) -> np.ndarray:
    return np.where(np.abs(change) > rounding, np.sign(change), 0)


def spread(values: np.ndarray, form: str) -> str:
    """Mean, median and quartiles."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"mean {values.mean():{form}}, median {middle:{form}}, half within {low:{form}} and {high:{form}}"


def _pearson(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a, b)[0, 1])


def _spearman(a: np.ndarray, b: np.ndarray) -> float:
    return _pearson(_ranks(a), _ranks(b))


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0; equal values share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts + 1) / 2)[inverse]
