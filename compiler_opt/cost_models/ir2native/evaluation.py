"""How far predicted sizes are off: of functions, and of the sums of modules and projects.

Functions that are not in the object have no error; in the sums of modules, what is predicted for them counts against an
actual size that does not have them. N functions, M modules.
"""

import dataclasses

import numpy as np

from compiler_opt.cost_models.errors import median_error, relative_errors, shown
from compiler_opt.cost_models.ir2native.dataset import Dataset
from compiler_opt.evaluation.statistics import (
    MODULES,
    Estimate,
    compare,
    percentile_interval,
    to_json,
    without_interval,
)
from compiler_opt.report.table import Table

_RESAMPLES = 2_000


@dataclasses.dataclass(frozen=True)
class ProjectErrors:
    """The errors of one project.

    Attributes:
      project: its name.
      modules: how many it has.
      functions: how many have a size.
      vanished: how many functions of the IR are not in the objects.
      median_error: of its functions.
      p90_error: nine of ten functions' errors are not greater.
      bias: the sum over its modules, predicted over actual, less one.
      module_error: median of |bias| of its modules.
    """

    project: str
    modules: int
    functions: int
    vanished: int
    median_error: float
    p90_error: float
    bias: float
    module_error: float


@dataclasses.dataclass(frozen=True)
class Errors:
    """The errors of predictions for a dataset.

    Attributes:
      projects: of each project, by name.
      median_error: of all functions, with an interval over functions resampled within projects.
      mean_median_error: mean over projects of their median errors, with an interval over projects.
      bias: of the sum over all modules, with an interval over modules resampled within their projects.
      mean_bias: mean over projects of their biases, with an interval over projects.
      unseen_median_error: of functions whose symbol is not among those of the training; None if that is unknown, or
        there are none.
      unseen: how many these are.
    """

    projects: tuple[ProjectErrors, ...]
    median_error: Estimate
    mean_median_error: Estimate
    bias: Estimate
    mean_bias: Estimate
    unseen_median_error: float | None = None
    unseen: int = 0

    @property
    def worst(self) -> ProjectErrors:
        """The project with the greatest median error."""
        return max(self.projects, key=lambda project: project.median_error)

    def to_json(self) -> dict[str, object]:
        """All of it; unknown bounds of intervals are null."""
        values: dict[str, object] = to_json(self)
        return values


def measure(dataset: Dataset, predicted: np.ndarray, *, seed: int = 0, seen: np.ndarray | None = None) -> Errors:
    """The errors of `[N]` predicted sizes; `seen` are the hashes of the training's symbols."""
    actual = dataset.bytes().astype(np.float64)  # [N]
    module_of = dataset.module_of_function()
    has_size = actual > 0
    errors = relative_errors(predicted, actual)
    sums = np.bincount(module_of, weights=predicted, minlength=len(dataset.modules))  # [M]
    totals, projects = dataset.totals(), dataset.projects()
    by_function = projects[module_of] if len(dataset.modules) else np.zeros(0, np.str_)
    found = []
    for project in np.unique(by_function[has_size]):
        chosen, members = (by_function == project) & has_size, (projects == project) & (totals > 0)
        ratios = sums[members] / totals[members] - 1
        found.append(
            ProjectErrors(
                str(project),
                int((projects == project).sum()),
                int(chosen.sum()),
                int(((by_function == project) & ~has_size).sum()),
                float(np.median(errors[chosen])),
                float(np.quantile(errors[chosen], 0.9)),
                float(sums[members].sum() / totals[members].sum() - 1),
                float(np.median(np.abs(ratios))),
            )
        )
    rng = np.random.default_rng(seed)
    medians = np.array([project.median_error for project in found])
    biases = np.array([project.bias for project in found])
    draws = rng.integers(0, max(1, len(found)), (_RESAMPLES, len(found)))
    is_unseen = has_size & ~np.isin(dataset.symbol_hashes(), np.zeros(0, np.uint64) if seen is None else seen)
    total = compare(totals.tolist(), sums.tolist(), projects.tolist(), seed=seed).total
    return Errors(
        tuple(found),
        median_error(errors[has_size], by_function[has_size], rng) if found else without_interval(0.0),
        _mean(medians, draws),
        total,
        _mean(biases, draws),
        float(np.median(errors[is_unseen])) if seen is not None and is_unseen.any() else None,
        int(is_unseen.sum()) if seen is not None else 0,
    )


def table(errors: Errors) -> Table:
    """A row for each project, and one for all of them."""
    head = ["project", "modules", "functions", "vanished", "median error", "90% below", "bias of sum", "median module"]
    rows = [
        [
            project.project,
            str(project.modules),
            f"{project.functions:,}",
            str(project.vanished),
            f"{project.median_error:.1%}",
            f"{project.p90_error:.1%}",
            f"{project.bias:+.1%}",
            f"{project.module_error:.1%}",
        ]
        for project in errors.projects
    ]
    total = [
        "all",
        str(sum(project.modules for project in errors.projects)),
        f"{sum(project.functions for project in errors.projects):,}",
        str(sum(project.vanished for project in errors.projects)),
        f"{errors.median_error.value:.1%}",
        "",
        f"{errors.bias.value:+.1%}",
        "",
    ]
    return Table(head, rows, total)


def summary(errors: Errors) -> list[str]:
    """The figures over projects, with intervals, in lines."""
    worst, largest = errors.worst, max(errors.projects, key=lambda project: abs(project.bias))
    lines = [
        f"median error of functions: {shown(errors.median_error)}; mean over projects "
        f"{shown(errors.mean_median_error)}; worst project {worst.project}, {worst.median_error:.1%}",
        f"bias of module sums: {shown(errors.bias, '+', MODULES)}; mean over projects "
        f"{shown(errors.mean_bias, '+')}; largest {largest.project}, {largest.bias:+.1%}",
    ]
    if errors.unseen_median_error is not None:
        lines.append(
            f"median error of the {errors.unseen:,} functions whose symbol the training does not have: "
            f"{errors.unseen_median_error:.1%}"
        )
    return lines


def _mean(values: np.ndarray, draws: np.ndarray) -> Estimate:
    """The mean over projects, with its interval if there are several."""
    if len(values) < 2:
        return without_interval(float(values.sum()))
    return percentile_interval(float(values.mean()), values[draws].mean(axis=1))
