"""Fits a model to the functions of projects, and calibrates it by cross-validation over these projects."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from compiler_opt.cost_models.ir2native.calibration import calibration_factor, folds, project_sums
from compiler_opt.cost_models.ir2native.dataset import Dataset
from compiler_opt.cost_models.ir2native.linear import fit_linear, is_additive, predict_linear
from compiler_opt.cost_models.ir2native.model import KINDS, Ir2NativeModel, Stages, second_stage_inputs
from compiler_opt.cost_models.ir2native.network import FeedForwardNetwork, NetworkSettings
from compiler_opt.cost_models.trees import BoostedTrees, TreeSettings
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.toolchain import Toolchain

MIN_FUNCTIONS = 20
"""With fewer, nothing is fitted."""


@dataclasses.dataclass(frozen=True)
class TrainingSettings:
    """Settings of a training.

    Attributes:
      trees, network: of the corrections.
      min_functions: a feature must not be zero in so many functions, or it is left out.
      min_share: for trees and network, must not be zero in so many functions, as a share.
      project_exponent: a project of n functions counts n to this power: 1, every function alike; 0, every project.
      folds: of the cross-validation by which models are calibrated.
      seed: of all that is random.
    """

    trees: TreeSettings = TreeSettings()
    network: NetworkSettings = NetworkSettings()
    min_functions: int = 10
    min_share: float = 0.02
    project_exponent: float = 0.5
    folds: int = 5
    seed: int = 0


def train(
    dataset: Dataset,
    toolchain: Toolchain,
    settings: TrainingSettings,
    about: Mapping[str, Any],
    echo: Callable[[str], object] = lambda line: None,
) -> Ir2NativeModel:
    """Fits all kinds of models; `chosen` is the mean of trees and network.

    Args:
      dataset: the functions to fit to.
      toolchain: with which they were compiled.
      settings: of the fit.
      about: what the model is to record.
      echo: is called with a line for each step.

    Raises:
      ConfigError: there are too few functions or projects.
      MissingPackageError: TensorFlow is not installed.
    """
    actual = dataset.bytes()
    has_size = actual > 0
    if has_size.sum() < MIN_FUNCTIONS:
        raise ConfigError(f"training: expected at least {MIN_FUNCTIONS} functions with a size, found {has_size.sum()}")
    module_projects = dataset.projects()
    projects = module_projects[dataset.module_of_function()]  # [N]
    columns = dataset.columns(settings.min_functions)
    x, additive = dataset.matrix(columns), is_additive(columns)  # [N, D], [D]
    weights = row_weights(dataset.symbols(), actual, projects, settings.project_exponent)
    parts = folds(list(module_projects), settings.folds, settings.seed)
    if len(parts) < 2:
        raise ConfigError("training: expected at least two projects, by which to calibrate; found one")
    held: dict[str, np.ndarray] = {kind: np.zeros(len(x)) for kind in KINDS}
    for number, part in enumerate(parts):
        echo(f"fold {number + 1} of {len(parts)}: without {', '.join(sorted(part))}")
        is_held = np.isin(projects, sorted(part))
        chosen = has_size & ~is_held
        stages = _fit(x[chosen], additive, actual[chosen], weights[chosen], settings)
        found = stages.predict(x[is_held])
        for kind in KINDS:
            held[kind][is_held] = found[kind]
    names, totals = project_sums(dataset.totals(), module_projects)
    factors = {}
    for kind in KINDS:
        predicted_names, predicted = project_sums(held[kind], projects)
        by_name = dict(zip(predicted_names, predicted.tolist(), strict=True))
        factors[kind] = calibration_factor(np.array([by_name.get(name, 0.0) for name in names]), totals)
    echo(
        f"all {len(set(module_projects.tolist()))} projects, {int(has_size.sum()):,} functions, {len(columns)} features"
    )
    stages = _fit(x[has_size], additive, actual[has_size], weights[has_size], settings)
    return Ir2NativeModel(
        tuple(columns),
        stages,
        factors,
        "mean",
        toolchain.identity(),
        {
            **about,
            "settings": dataclasses.asdict(settings),
            "cross_validation": _cross_validated(held, factors, actual, float(totals.sum())),
        },
        np.unique(dataset.symbol_hashes()),
    )


def row_weights(symbols: list[str], actual: np.ndarray, projects: np.ndarray, exponent: float) -> np.ndarray:
    """`[N]`: how much each function counts; copies in several modules of a project count as one function."""
    keys = [f"{project}\0{symbol}\0{size}" for project, symbol, size in zip(projects, symbols, actual, strict=True)]
    _, index, copies = np.unique(keys, return_inverse=True, return_counts=True)
    weights = np.where(actual > 0, 1.0 / copies[index], 0.0)
    _, project_of = np.unique(projects, return_inverse=True)
    totals = np.bincount(project_of, weights=weights)
    return weights * np.maximum(totals, 1.0)[project_of] ** (exponent - 1.0)


def _fit(
    x: np.ndarray, additive: np.ndarray, actual: np.ndarray, weights: np.ndarray, settings: TrainingSettings
) -> Stages:
    coefficients = np.zeros(x.shape[1])
    coefficients[additive] = fit_linear(x[:, additive], actual, weights)
    linear = predict_linear(coefficients, x)
    frequent = np.flatnonzero((x != 0).mean(axis=0) >= settings.min_share)  # [C]
    inputs, target = second_stage_inputs(x[:, frequent], linear), np.log(actual / linear)
    trees = BoostedTrees.fit(inputs, target, weights / weights.mean(), settings.trees, seed=settings.seed)
    network = FeedForwardNetwork.fit(inputs, target, weights, settings.network, seed=settings.seed)
    return Stages(coefficients, frequent, trees, network)


def _cross_validated(
    held: Mapping[str, np.ndarray], factors: Mapping[str, float], actual: np.ndarray, total: float
) -> dict[str, dict[str, float]]:
    """By kind, errors with each function predicted by the models that were not fitted to its project, calibrated."""
    has_size = actual > 0
    found = {}
    for kind, uncorrected in held.items():
        predicted = uncorrected * factors[kind]
        errors = np.abs(predicted[has_size] - actual[has_size]) / actual[has_size]
        found[kind] = {"median_error": float(np.median(errors)), "bias": float(predicted.sum() / total - 1)}
    return found
