"""Chooses a policy's margin on a validation corpus, and writes it into the policy's folder.

    choice = choose_margin(validation, policy, problem=problem, toolchain=toolchain)
    write_margin(policy_dir, choice.margin, chosen_on=validation.root.name)

See `NetworkWeights.margin`. The corpus must be none of those that report results: a margin that is chosen on a corpus
looks better there than elsewhere.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from compiler_opt import problem as problems
from compiler_opt.collect.policy_folder import MAX_POLICIES
from compiler_opt.collect.rollout import Rollout
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import ConfigError, CorpusError, OutputError
from compiler_opt.evaluation.evaluate import EvaluationSettings, evaluate
from compiler_opt.evaluation.results import DEFAULT, Evaluation
from compiler_opt.evaluation.statistics import relative_change
from compiler_opt.files import replaced_folder
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.problem import Problem
from compiler_opt.report.formatting import change_text
from compiler_opt.report.table import Cell, Change, Table
from compiler_opt.spaces.learned_policy import LearnedPolicy
from compiler_opt.spaces.native import NATIVE_FILE

MARGINS = (0.0, 0.25, 0.5, 1.0, 2.0)
"""Tried by default."""

KEPT_GAIN = 0.95
"""The part of the best gain that a more careful choice has to keep."""

CHOSEN_ON = "margin_chosen_on"
"""The key, in a policy's metadata, of the corpus on which its margin was chosen."""


@dataclasses.dataclass(frozen=True)
class LinkedChange:
    """A policy's change of linked text under one margin, over the projects that were linked under all margins.

    Attributes:
      total: of all projects together.
      mean: of the projects.
    """

    total: float
    mean: float


@dataclasses.dataclass(frozen=True)
class MarginChoice:
    """The result of `choose_margin`.

    Attributes:
      margin: the chosen one.
      changes: by margin.
      evaluation: of all margins; the policies are named by `policy_name`.
    """

    margin: float
    changes: Mapping[float, LinkedChange]
    evaluation: Evaluation

    def table(self) -> Table:
        """A row for each margin."""
        rows: list[list[Cell]] = [
            [f"{margin:g}", Change(change.total), Change(change.mean), "chosen" if margin == self.margin else ""]
            for margin, change in self.changes.items()
        ]
        return Table(["margin", "linked together", "mean of projects", ""], rows)

    def summary(self) -> str:
        """The choice in a line."""
        chosen = self.changes[self.margin]
        return (
            f"margin {self.margin:g}: {change_text(chosen.total)} linked text together, {change_text(chosen.mean)} in "
            "the mean of projects"
        )


def policy_name(margin: float) -> str:
    """The name of the policy under a margin in an evaluation."""
    return f"margin {margin:g}"


def choose_margin(
    corpus: Corpus,
    policy: LearnedPolicy,
    *,
    problem: Problem,
    toolchain: Toolchain,
    margins: Sequence[float] = MARGINS,
    settings: EvaluationSettings = EvaluationSettings(),
    on_rollout: Callable[[Rollout], None] = lambda rollout: None,
) -> MarginChoice:
    """Evaluates a policy under several margins, and chooses by `best_margin`.

    `corpus` is for validation; `margins` are at least one and at most `MAX_POLICIES`.

    Raises:
      ConfigError: too many margins, none, or one twice.
      PolicyError: a margin is out of range, or the policy can have none.
      CorpusError: most modules fail, or no project can be linked.
    """
    ordered = sorted(margins)
    if len(set(map(policy_name, ordered))) != len(ordered) or not 1 <= len(ordered) <= MAX_POLICIES:
        found = ", ".join(f"{margin:g}" for margin in ordered) or "none"
        raise ConfigError(f"--margins: expected 1 to {MAX_POLICIES} different margins, found {found}")
    first, *others = (
        problem.decision.policy(policy.weights.with_margin(margin), name=policy_name(margin), origin=policy.origin)
        for margin in ordered
    )
    evaluation = evaluate(
        corpus, first, others, problem=problem, toolchain=toolchain, settings=settings, on_rollout=on_rollout
    )
    changes = linked_changes(evaluation, ordered)
    return MarginChoice(best_margin(changes), changes, evaluation)


def linked_changes(evaluation: Evaluation, margins: Sequence[float]) -> dict[float, LinkedChange]:
    """The changes of linked text by margin; raises CorpusError if no project was linked under all margins."""
    names = (DEFAULT, *map(policy_name, margins))
    linked = [project.linked_bytes for project in evaluation.projects if set(names) <= set(project.linked_bytes)]
    if not linked:
        raise CorpusError("no project could be linked under all margins; give a corpus of other projects")
    default = [sizes[DEFAULT] for sizes in linked]
    changes = {}
    for margin in margins:
        sizes = [each[policy_name(margin)] for each in linked]
        by_project = [relative_change(before, after) for before, after in zip(default, sizes, strict=True)]
        changes[margin] = LinkedChange(relative_change(sum(default), sum(sizes)), sum(by_project) / len(by_project))
    return changes


def best_margin(changes: Mapping[float, LinkedChange]) -> float:
    """The largest margin, which is the most careful, that keeps `KEPT_GAIN` of what the best one gains.

    The best has the best mean over projects, out of those under which all projects together are not bigger than under
    the smallest margin: many small projects must not pay for a large one. Its gain is kept in the mean and together.
    """
    allowed = [change for change in changes.values() if change.total <= changes[min(changes)].total]
    best = min(allowed, key=lambda change: change.mean)
    return max(
        margin
        for margin, change in changes.items()
        if keeps_gain(change.mean, best.mean) and keeps_gain(change.total, best.total)
    )


def keeps_gain(change: float, best: float) -> bool:
    """Whether a relative change of size keeps `KEPT_GAIN` of the gain of the best one."""
    return change <= best + (1 - KEPT_GAIN) * abs(best)


def write_margin(directory: Path, margin: float, *, chosen_on: str = "") -> NetworkWeights:
    """Gives the policy in a folder a margin, all or nothing, and returns its weights.

    The SavedModel and the TFLite model, which need TensorFlow to be made, are left out of the folder unless the policy
    had the same margin before. The model card loses its results, which were measured with another margin.

    Args:
      directory: the policy's folder.
      margin: see `NetworkWeights`.
      chosen_on: name of the corpus on which it was chosen, for the model card.

    Raises:
      PolicyError: there is no intact policy, or it cannot have this margin.
      OutputError: the folder cannot be written.
    """
    before = NetworkWeights.load(directory)
    if before.margin == margin:
        return before
    metadata = {key: value for key, value in before.metadata.items() if key != CHOSEN_ON}
    metadata |= {CHOSEN_ON: chosen_on} if chosen_on else {}
    weights = dataclasses.replace(before.with_margin(margin), metadata=metadata)
    problem = problems.recorded(metadata, str(directory))
    problem.decision.policy(weights, origin=str(directory))
    formats = problem.decision.action_space.formats(weights)
    try:
        with replaced_folder(directory) as partial:
            if "native" in formats:
                (partial / NATIVE_FILE).write_bytes(problem.decision.native_form(weights))
            weights.save(partial)
            weights.card().save(partial)
    except OSError as error:
        raise OutputError(f"{directory}: the policy cannot be written: {error.strerror or error}") from error
    return weights
