"""Makes a policy that ships out of trainings that differ in their seeds.

    candidates = gather(training_dirs)                          # each training's policy, and the mean of all
    choice = choose(candidates, validation, problem=problem, toolchain=toolchain, settings=settings)
    choice = with_best_margin(choice, validation, MARGINS, problem=problem, toolchain=toolchain, settings=settings)
    folder = release(output_dir, name, choice)
    write_logs(training_dirs, docs / name)

The mean of networks is one network, see `export.average`. Chosen is the candidate with the best mean over projects of
the change of linked text, by a validation corpus on which no result is reported; the mean of networks, which errs less
in single decisions, already if it keeps `KEPT_GAIN` of the best gain.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from compiler_opt.checked_values import Json
from compiler_opt.collect.policy_folder import MAX_POLICIES
from compiler_opt.collect.rollout import Rollout
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import ConfigError, CorpusError
from compiler_opt.evaluation.evaluate import EvaluationSettings, evaluate
from compiler_opt.evaluation.history import HISTORY_FILE, read_entries
from compiler_opt.evaluation.margins import CHOSEN_ON, choose_margin, keeps_gain
from compiler_opt.evaluation.results import Evaluation
from compiler_opt.export.average import average_policies
from compiler_opt.export.formats import evaluation_results
from compiler_opt.files import write_atomically
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.pretrained_index import PretrainedIndex
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.problem import AnyProblem
from compiler_opt.report.table import Cell, Change, Table
from compiler_opt.rl.config import POLICY_DIR
from compiler_opt.rl.unfinished_policy import finished_policy

MEAN = "mean"
"""The name of the candidate that is the mean of all."""

MAX_LOGGED_ITERATIONS = 200
"""The iterations of a training that its published log keeps."""

_OF_ONE = ("seed", "minutes", "iterations", "iteration", "compiles")
"""Metadata that the trainings of a mean differ in."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """The result of `choose`.

    Attributes:
      name: of the chosen candidate.
      weights: its network.
      changes: of each candidate the change of linked text of all projects together, and the mean over projects.
      evaluation: of all candidates.
      corpus: the name of the validation corpus.
    """

    name: str
    weights: NetworkWeights
    changes: Mapping[str, tuple[float, float]]
    evaluation: Evaluation
    corpus: str

    def table(self) -> Table:
        """A row for each candidate."""
        rows: list[list[Cell]] = [
            [name, Change(total), Change(mean), "chosen" if name == self.name else ""]
            for name, (total, mean) in self.changes.items()
        ]
        return Table(["candidate", "linked together", "mean of projects", ""], rows)


def gather(training_dirs: Sequence[Path]) -> dict[str, NetworkWeights]:
    """The policies of trainings by the names of their folders and, of several, their mean.

    Raises:
      PolicyError: a training is not finished or has no intact policy, or the policies have no mean.
      ConfigError: two folders have the same name, or they are too many.
    """
    found: dict[str, NetworkWeights] = {}
    for directory in training_dirs:
        name = directory.resolve().name
        if name in found or name == MEAN:
            raise ConfigError(f"{directory}: expected folders of different names, other than {MEAN}; rename one")
        found[name] = finished_policy(directory / POLICY_DIR)
    if len(found) >= MAX_POLICIES:
        raise ConfigError(f"expected at most {MAX_POLICIES - 1} trainings, found {len(found)}; leave some out")
    if len(found) < 2:
        return found
    mean = average_policies([directory / POLICY_DIR for directory in training_dirs])
    trainings = {name: _facts_of_one(weights) for name, weights in found.items()}
    mean = dataclasses.replace(mean, metadata={**mean.metadata, "trainings": trainings})
    return {**found, MEAN: mean}


def choose(
    candidates: Mapping[str, NetworkWeights],
    corpus: Corpus,
    *,
    problem: AnyProblem,
    toolchain: Toolchain,
    settings: EvaluationSettings,
    on_rollout: Callable[[Rollout], None] = lambda rollout: None,
) -> Choice:
    """Chooses the candidate under which the projects of a validation corpus get smallest, in the mean of projects.

    The candidate `MEAN` is chosen if it keeps `KEPT_GAIN` of the best gain; of others that are equal, the first.

    Raises:
      CorpusError: most modules fail, or no project can be linked.
      PolicyError: a policy is for another problem, or does not fit the compiler.
    """
    first, *others = (problem.decision.policy(weights, name=name) for name, weights in candidates.items())
    evaluation = evaluate(
        corpus, first, others, problem=problem, toolchain=toolchain, settings=settings, on_rollout=on_rollout
    )
    changes = {name: (total.linked_change, _mean_change(evaluation, name)) for name, total in evaluation.totals.items()}
    best = min(changes, key=lambda name: changes[name][1])
    if MEAN in changes and keeps_gain(changes[MEAN][1], changes[best][1]):
        best = MEAN
    return Choice(best, candidates[best], changes, evaluation, corpus.root.resolve().name)


def with_best_margin(
    choice: Choice,
    corpus: Corpus,
    margins: Sequence[float],
    *,
    problem: AnyProblem,
    toolchain: Toolchain,
    settings: EvaluationSettings,
    on_rollout: Callable[[Rollout], None] = lambda rollout: None,
) -> Choice:
    """The choice with the margin, out of these, that the same corpus chooses, see `evaluation.margins`.

    Raises:
      ConfigError: too many margins, none, or one twice.
      PolicyError: a margin is out of range, or the policy can have none.
      CorpusError: most modules fail, or no project can be linked under all margins.
    """
    policy = problem.decision.policy(choice.weights, name=choice.name)
    found = choose_margin(
        corpus,
        policy,
        problem=problem,
        toolchain=toolchain,
        margins=margins,
        settings=settings,
        on_rollout=on_rollout,
    )
    change = found.changes[found.margin]
    weights = choice.weights.with_margin(found.margin)
    weights = dataclasses.replace(weights, metadata={**weights.metadata, CHOSEN_ON: choice.corpus})
    changes = {**choice.changes, choice.name: (change.total, change.mean)}
    return dataclasses.replace(choice, weights=weights, changes=changes)


def release(output_dir: Path, name: str, choice: Choice) -> Path:
    """Writes the chosen policy, and what validation says of it, into a folder of policies; returns its own folder.

    Raises:
      ConfigError: the name is not suitable for a folder.
      OutputError: something cannot be written.
    """
    total, mean = choice.changes[choice.name]
    result = {
        "corpus": f"{choice.corpus}, on which it was chosen out of {', '.join(choice.changes)}",
        "compiler": (choice.weights.metadata.get("toolchain") or {}).get("version_text", ""),
        "modules": len(choice.evaluation.modules),
        "linked text against the default": f"{total:+.2%}",
        "mean of the projects' linked text": f"{mean:+.2%}",
        "measured at": choice.evaluation.started_at,
    }
    return PretrainedIndex(output_dir).add(name, choice.weights, choice.weights.card().with_results([result]))


def add_results(output_dir: Path, name: str, evaluation: Path) -> Path:
    """Adds the results of an evaluation of a released policy to its model card, in place of earlier ones of its corpus.

    Raises:
      PolicyError: there is no such policy, or it was changed.
      ConfigError: the evaluation is of another policy.
      OutputError: the card cannot be written.
    """
    folder = PretrainedIndex(output_dir).path(name)
    weights = NetworkWeights.load(folder)
    new = evaluation_results(evaluation, weights.checksum())
    corpora = [result["corpus"] for result in new]
    card = PretrainedIndex(output_dir).card(name)
    kept = [result for result in card.results if result.get("corpus") not in corpora]
    return PretrainedIndex(output_dir).add(name, weights, card.with_results([*kept, *new]))


def write_logs(training_dirs: Sequence[Path], folder: Path) -> list[Path]:
    """Writes the history of each training, thinned to `MAX_LOGGED_ITERATIONS`, as `NAME.jsonl`; returns the paths.

    Raises:
      ConfigError: a training has no history.
      OutputError: a file cannot be written.
    """
    paths = []
    for directory in training_dirs:
        entries, _ = read_entries(directory / HISTORY_FILE)
        if not entries:
            raise ConfigError(f"{directory / HISTORY_FILE}: expected the history of a training, found none")
        places = np.linspace(0, len(entries) - 1, min(len(entries), MAX_LOGGED_ITERATIONS)).round().astype(int)
        lines = [json.dumps(_rounded(entries[place])) + "\n" for place in places]
        path = folder / f"{directory.resolve().name}.jsonl"
        write_atomically(path, "".join(lines).encode())
        paths.append(path)
    return paths


def _mean_change(evaluation: Evaluation, policy: str) -> float:
    changes = [project.linked_change(policy) for project in evaluation.projects]
    linked = [change for change in changes if change is not None]
    if not linked:
        raise CorpusError("no project of the validation corpus could be linked; give a corpus of other projects")
    return sum(linked) / len(linked)


def _facts_of_one(weights: NetworkWeights) -> dict[str, Json]:
    return {key: weights.metadata[key] for key in _OF_ONE if key in weights.metadata}


def _rounded(value: Json) -> Json:
    """A value of a history with numbers of five digits."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    return {key: _rounded(item) for key, item in value.items()} if isinstance(value, dict) else value
