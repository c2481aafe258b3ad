"""The comparison of cost models as a table, as rows of a CSV file, and as JSON."""

import collections
import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compiler_opt.evaluation.statistics import Estimate
from compiler_opt.measure.wall_time import WallTimes
from compiler_opt.report.formatting import aligned, count_text
from studies.ranking.costs import CYCLE_ESTIMATE, LEARNED_RUNTIME, MEASURED, Costs, Model
from studies.ranking.statistics import Agreement, Truth, agreement

WALL_TIME = "wall time"
ALL = "all"
_DASH = "\N{EN DASH}"
MIN_BUILDS = 2
"""Of a program, which can then be ordered."""


@dataclasses.dataclass(frozen=True)
class RankedProgram:
    """The builds of a program, and what each model says of each of them.

    Attributes:
      name: path of the program in the folder of a variant.
      costs: by variant, the base first.
      wall: times of the same variants; None if they were not measured.
      left_out: why a variant is not among them.
    """

    name: str
    costs: Mapping[str, Costs]
    wall: Mapping[str, WallTimes] | None
    left_out: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Models against one truth. Legend: P programs, M models.

    Attributes:
      truth_name: what was measured.
      variants: which are compared: `all`, or e.g. `inline-*`, and the base.
      programs: `[P]` those with at least two such builds.
      models: `[M]`
      truths: `[P]`
      agreement: of the models with the truths.
    """

    truth_name: str
    variants: str
    programs: Sequence[str]
    models: Sequence[Model]
    truths: Sequence[Truth]
    agreement: Agreement

    @property
    def num_pairs(self) -> int:
        """Pairs of builds of the same program."""
        return sum(math.comb(len(truth.values), 2) for truth in self.truths)

    @property
    def num_decided(self) -> int:
        """Of these, that differ."""
        return sum(truth.num_decided for truth in self.truths)


def compare_all(programs: Sequence[RankedProgram], models: Sequence[Model]) -> list[Comparison]:
    """Compares the models with wall time, if it was measured, and with callgrind's cycle estimate.

    All variants are compared with each other; and so are those whose names are the same up to the first dash, if there
    are several such groups.
    """
    estimate = Model(CYCLE_ESTIMATE, MEASURED)
    others = [model for model in models if model != estimate]
    comparisons = []
    for variants, found in {ALL: programs, **_groups(programs)}.items():
        found = [program for program in found if len(program.costs) >= MIN_BUILDS]
        if found and all(program.wall is not None for program in found):
            truths = [_wall_time(program) for program in found]
            comparisons.append(_compare(WALL_TIME, variants, found, models, truths))
        if found:
            truths = [Truth.exact([costs.by_model[estimate] for costs in program.costs.values()]) for program in found]
            comparisons.append(_compare(CYCLE_ESTIMATE, variants, found, others, truths))
    return comparisons


def _groups(programs: Sequence[RankedProgram]) -> dict[str, list[RankedProgram]]:
    """The programs with the variants of each group, and the base; nothing unless there are several groups."""
    names = {variant for program in programs for variant in list(program.costs)[1:]}
    sizes = collections.Counter(variant.split("-", 1)[0] for variant in names)
    groups = sorted(group for group, size in sizes.items() if size > 1)
    if len(groups) < 2:
        return {}
    return {f"{group}-*": [_of_group(program, group) for program in programs] for group in groups}


def _of_group(program: RankedProgram, group: str) -> RankedProgram:
    base = next(iter(program.costs))
    costs = {name: each for name, each in program.costs.items() if name == base or name.split("-", 1)[0] == group}
    wall = None if program.wall is None else {name: program.wall[name] for name in costs}
    return dataclasses.replace(program, costs=costs, wall=wall)


def _compare(
    truth_name: str,
    variants: str,
    programs: Sequence[RankedProgram],
    models: Sequence[Model],
    truths: Sequence[Truth],
) -> Comparison:
    costs = [
        np.array([[costs.by_model[model] for costs in program.costs.values()] for model in models])
        for program in programs
    ]
    names = [program.name for program in programs]
    return Comparison(truth_name, variants, names, models, truths, agreement(costs, truths))


def _wall_time(program: RankedProgram) -> Truth:
    assert program.wall is not None
    ratios = [times.ratio for times in program.wall.values()]
    values, low, high = (np.array([getattr(ratio, name) for ratio in ratios]) for name in ("value", "low", "high"))
    return Truth(values, low, high)


def lines(comparison: Comparison) -> list[str]:
    """A table for the terminal."""
    of = "programs" if np.isfinite(comparison.agreement.by_program).all(axis=2).any(axis=1).sum() > 1 else "builds"
    builds = sum(len(truth.values) for truth in comparison.truths)
    heading = (
        f"{comparison.variants} variants against {comparison.truth_name}: "
        f"{count_text(len(comparison.programs), 'program')}, {builds} builds; "
        f"{comparison.num_decided} of {comparison.num_pairs} pairs are decided; 95% intervals over {of}"
    )
    head = ["model", "counts", "Kendall's tau", "pairwise accuracy"]
    found = comparison.agreement
    with_network = comparison.models[-1].name == LEARNED_RUNTIME
    if with_network:
        head.append(f"accuracy of {comparison.models[-1]} minus this")
    rows = [head]
    for number, model in enumerate(comparison.models):
        row = [model.name, model.counts, _number(found.tau[number]), _percent(found.accuracy[number])]
        if with_network:
            row.append(_percent(found.accuracy_differences[number], sign="+"))
        rows.append(row)
    rules = [1, *(n for n, (one, other) in enumerate(itertools.pairwise(rows[1:]), 2) if one[1] != other[1])]
    return [heading, *aligned(rows, 2, rules)]


def _number(estimate: Estimate) -> str:
    if math.isnan(estimate.value):
        return _DASH
    return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"


def _percent(estimate: Estimate, sign: str = "") -> str:
    if math.isnan(estimate.value):
        return _DASH
    return f"{estimate.value:{sign}.0%} ({estimate.low:{sign}.0%} to {estimate.high:{sign}.0%})"


def csv_rows(programs: Sequence[RankedProgram]) -> list[dict[str, Any]]:
    """A row for each build."""
    rows = []
    for program in programs:
        for variant, costs in program.costs.items():
            wall = (program.wall or {}).get(variant)
            rows.append(
                {
                    "program": program.name,
                    "variant": variant,
                    "wall seconds": "" if wall is None else wall.seconds.value,
                    "wall time of the base's": "" if wall is None else wall.ratio.value,
                    "at least": "" if wall is None else wall.ratio.low,
                    "at most": "" if wall is None else wall.ratio.high,
                    **{str(model): cost for model, cost in costs.by_model.items()},
                    "part of instructions with a cost": costs.instructions_with_cost,
                    "part of matched instructions with measured counts": costs.counts_measured,
                }
            )
    return rows


def to_json(programs: Sequence[RankedProgram], comparisons: Sequence[Comparison], about: Mapping[str, Any]) -> Any:
    """All figures; null where nothing can be said."""
    return {
        **about,
        "programs": [
            {
                "program": program.name,
                "variants": list(program.costs),
                "left_out": dict(program.left_out),
            }
            for program in programs
        ],
        "comparisons": [_comparison_json(comparison) for comparison in comparisons],
    }


def _comparison_json(comparison: Comparison) -> Any:
    found = comparison.agreement
    models = []
    for number, model in enumerate(comparison.models):
        models.append(
            {
                "model": model.name,
                "counts": model.counts,
                "tau": _estimate_json(found.tau[number]),
                "accuracy": _estimate_json(found.accuracy[number]),
                "tau_of_last_minus_this": _estimate_json(found.tau_differences[number]),
                "accuracy_of_last_minus_this": _estimate_json(found.accuracy_differences[number]),
                "by_program": {
                    name: {"tau": _finite(tau), "accuracy": _finite(accuracy)}
                    for name, (tau, accuracy) in zip(
                        comparison.programs, found.by_program[:, :, number].tolist(), strict=True
                    )
                },
            }
        )
    return {
        "truth": comparison.truth_name,
        "variants": comparison.variants,
        "num_pairs": comparison.num_pairs,
        "num_decided": comparison.num_decided,
        "models": models,
    }


def _estimate_json(estimate: Estimate) -> dict[str, float | None]:
    return {name: _finite(value) for name, value in dataclasses.asdict(estimate).items()}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
