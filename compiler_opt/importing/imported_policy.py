"""Makes a policy's folder of a foreign model, after comparing their decisions."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from compiler_opt import problem as problems
from compiler_opt.errors import PolicyError
from compiler_opt.export.release_model import EMBEDDED_MODELS
from compiler_opt.export.saved_model import save_policy
from compiler_opt.importing.graph import Model
from compiler_opt.importing.recognition import policy_network
from compiler_opt.importing.saved_model import SAVED_MODEL_FILE, read_saved_model
from compiler_opt.importing.tflite import TFLITE_SUFFIX, read_tflite
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.problem import AnyProblem
from compiler_opt.spaces.binary import Binary, BinaryPolicy

_TIE = 1e-4
"""Logits that differ by less than this share of their size are equal up to the order of the sums in float32."""


@dataclasses.dataclass(frozen=True)
class ImportedPolicy:
    """A policy that another program trained.

    Attributes:
      model: it, as it came.
      weights: it, as ours.
      problem: what it decides.
    """

    model: Model
    weights: NetworkWeights
    problem: AnyProblem


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Decisions of a policy before and after its import.

    Attributes:
      num_observations: how many were compared.
      num_ones: on how many the decision was 1.
      num_ties: on how many the decisions differ because both logits are equal up to rounding.
    """

    num_observations: int
    num_ones: int
    num_ties: int


def read_policy(source: Path) -> ImportedPolicy:
    """Reads the policy in a folder with a SavedModel, or in a TFLite file; runs nothing of it.

    Raises:
      PolicyError: there is none, it is damaged, or it is no greedy policy for inlining of quantile ranks and dense
        layers; the message names what was found.
    """
    if source.suffix == TFLITE_SUFFIX:
        model = read_tflite(source)
    elif (source / SAVED_MODEL_FILE).is_file():
        model = read_saved_model(source)
    else:
        raise PolicyError(
            f"{source}: expected a folder with {SAVED_MODEL_FILE}, or a file *{TFLITE_SUFFIX}; found neither"
        )
    problem = _problem(model)
    weights = policy_network(model, problem.decision.feature_names)
    metadata = {
        "problem": problem.name,
        "method": f"imported from google/ml-compiler-opt, {model.form}",
        "imported_sha256": model.sha256,
    }
    return ImportedPolicy(model, dataclasses.replace(weights, metadata=metadata), problem)


def compare(policy: ImportedPolicy, observations: Mapping[str, np.ndarray]) -> Comparison:
    """Compares the decisions of the model, by evaluating its graph, with those of the imported policy.

    The evaluation is independent of the network that was recognised: it also computes the shapes, types and axes that
    recognition skips. Nothing else in the model's file runs, nor does its own runtime (see `graph.py`).

    Args:
      policy: as `read_policy` returns it.
      observations: features by name, `[T]` int64 each.

    Raises:
      PolicyError: an observation lacks a feature, or decisions differ where the logits do.
    """
    if missing := [name for name in policy.weights.features if name not in observations]:
        raise PolicyError(f"{policy.model.origin}: observes {', '.join(missing)}, which the trace does not have")
    expected = policy.model.decisions(observations)
    logits = BinaryPolicy(policy.weights).logits(observations)
    found = logits.argmax(axis=1)
    differing = np.flatnonzero(found != expected)
    size = np.abs(logits[differing]).max(axis=1, initial=1.0)
    is_tie = np.abs(logits[differing, 1] - logits[differing, 0]) < _TIE * size
    if not is_tie.all():
        first = differing[~is_tie][0]
        raise PolicyError(
            f"{policy.model.origin}: its decisions are not those of the imported network on {(~is_tie).sum()} of "
            f"{len(expected)} observations, first on number {first + 1}: expected {expected[first]}, found "
            f"{found[first]} (logits {logits[first].tolist()}); please report this, with the policy"
        )
    return Comparison(len(expected), int(expected.sum()), len(differing))


def made_up_observations(weights: NetworkWeights, count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Observations `[count]` int64 by name that reach all of a policy's quantiles, and values beside and beyond them.

    The features are drawn independently, so that combinations are unlike those of real code.
    """
    rng = np.random.default_rng(seed)
    observations = {}
    for name, quantiles in zip(weights.features, weights.quantiles, strict=True):
        # Rounded down or up, one less or one more; beyond the ends, by a tenth of the range.
        values = np.floor(rng.choice(quantiles, count)) + rng.integers(-1, 3, count)
        margin = 1 + (quantiles[-1] - quantiles[0]) // 10
        is_beyond = rng.random(count) < 0.05
        values[is_beyond] = rng.choice([quantiles[0] - margin, quantiles[-1] + margin], int(is_beyond.sum()))
        observations[name] = np.clip(values, -(2.0**62), 2.0**62).astype(np.int64)
    return observations


def save_imported(policy: ImportedPolicy, output: Path) -> None:
    """Writes the policy's folder in all forms, see `export.saved_model`.

    Raises:
      PolicyError: the network is larger than our evaluator allows.
      OutputError: the folder cannot be written.
    """
    save_policy(output, policy.weights, Binary(), policy.model.advice)


def _problem(model: Model) -> AnyProblem:
    """The problem that a model decides, by the name of its output."""
    decides = {embedded.advice.name: name for name, embedded in EMBEDDED_MODELS.items()}
    problem = problems.load("inlining")
    if decides.get(model.advice) != problem.decision.advisor.problem:
        what = f", which is {decides[model.advice]}" if model.advice in decides else ""
        raise PolicyError(
            f"{model.origin}: decides {model.advice!r}{what}; expected {EMBEDDED_MODELS['inlining'].advice.name!r}: "
            "only policies for inlining can be imported"
        )
    return problem
