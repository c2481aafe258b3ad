"""Permutation importance: how much a policy's decisions depend on each of its network's inputs.

Legend: D decisions that are kept of a project, N decisions of a repeat, R repeats.

An input's column is shuffled over many decisions (for problems with candidates, over all legal candidates of many
decisions), and the policy decides again (Breiman, "Random Forests", 2001; here its own decisions before are the
reference, not labels). Inputs that say the same cover for each other: each of them then appears less important than
they are together.
"""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from compiler_opt.collect.traces import TraceContext
from compiler_opt.errors import PolicyError, ProtocolError
from compiler_opt.evaluation.statistics import Estimate, percentile_interval
from compiler_opt.report.table import Table
from compiler_opt.spaces.learned_policy import LearnedPolicy, NetworkInputs


@dataclasses.dataclass(frozen=True)
class Importance:
    """How decisions change when one input of the network is shuffled, as means over decisions.

    Intervals hold 95% of the repeats; each draws other decisions of the same projects, and shuffles them otherwise.

    Attributes:
      feature: the input's name.
      changed: the share of the decisions that change, 0 to 1.
      log_prob_change: by how much the log probability (for continuous actions, density) of the decision changes, up or
        down, under the policy that samples at temperature 1.
    """

    feature: str
    changed: Estimate
    log_prob_change: Estimate


@dataclasses.dataclass(frozen=True)
class _Kept:
    """Decisions of one project: `keys` `[D]` are random, and the decisions with the smallest are kept."""

    keys: np.ndarray
    values: Mapping[str, np.ndarray]
    action: np.ndarray

    def at(self, places: np.ndarray) -> "_Kept":
        return _Kept(
            self.keys[places], {name: values[places] for name, values in self.values.items()}, self.action[places]
        )


class DecisionSample:
    """Uniform samples of the decisions of each project, in bounded memory.

    sample = DecisionSample(policy, 1000, seed=0)
    for ...:
        sample.add(project, features, default)
    importances = permutation_importance(policy, sample, 10_000, repeats=20, seed=0)
    """

    def __init__(self, policy: LearnedPolicy, decisions_per_project: int, *, seed: int):
        """`decisions_per_project` is D.

        Raises:
          PolicyError: the policy is recurrent.
        """
        if policy.weights.is_recurrent:
            raise PolicyError(
                f"{policy.origin}: has a recurrent layer (LSTM), so its decisions depend on earlier ones, which are "
                "not in a sample; expected a policy that was trained with network.lstm_units = 0"
            )
        self._policy = policy
        self._limit = decisions_per_project
        self._rng = np.random.default_rng(seed)
        self._projects: dict[str, _Kept] = {}
        self.num_seen = 0

    def add(self, project: str, features: Mapping[str, np.ndarray], default: np.ndarray) -> None:
        """Adds T decisions: `[T, ...]` by name, as the compiler sends them, and the compiler's own decisions `[T]`.

        Raises:
          PolicyError: a feature that the policy needs is missing.
        """
        self._policy.check(features)
        self.num_seen += len(default)
        # A copy, so that what is not kept is freed.
        added = _Kept(
            self._rng.random(len(default)),
            {name: features[name] for name in self._policy.used_features(tuple(features))},
            default,
        ).at(np.arange(len(default)))
        kept = self._projects.get(project)
        if kept is not None:
            added = _Kept(
                np.concatenate([kept.keys, added.keys]),
                {name: np.concatenate([values, added.values[name]]) for name, values in kept.values.items()},
                np.concatenate([kept.action, added.action]),
            )
        if len(added.keys) > self._limit:
            added = added.at(np.argpartition(added.keys, self._limit)[: self._limit])
        self._projects[project] = added

    def add_context(self, context: TraceContext) -> None:
        """Adds the decisions of a context of a default trace."""
        self.add(context.project, context.values, context.action)

    def projects(self) -> dict[str, tuple[NetworkInputs, np.ndarray]]:
        """What the network observes in the kept decisions of each project, and the compiler's own decisions.

        Raises:
          ProtocolError: there are no decisions.
        """
        found = {
            name: (self._policy.network_inputs(kept.values), kept.action)
            for name, kept in sorted(self._projects.items())
            if len(kept.keys)
        }
        if not found:
            raise ProtocolError("feature importance: found no decisions; give a corpus or trace that has some")
        return found


def permutation_importance(
    policy: LearnedPolicy,
    sample: DecisionSample,
    num_decisions: int,
    *,
    repeats: int,
    seed: int,
    on_repeat: Callable[[], object] = lambda: None,
) -> list[Importance]:
    """The importance of each input of a policy's network, that of the largest share of changed decisions first.

    Each repeat draws the same number of decisions of each project, with replacement, so all projects count the same.

    Args:
      policy: decides greedily, with its margin.
      sample: of the decisions.
      num_decisions: N, rounded up to a multiple of the number of projects.
      repeats: R.
      seed: of draws and shuffles.
      on_repeat: called after each repeat.

    Raises:
      ProtocolError: the sample is empty.
      PolicyError: policies of this action space cannot be evaluated on many decisions.
    """
    projects = list(sample.projects().values())
    per_project = -(-num_decisions // len(projects))
    names = policy.weights.features
    # [R, F, 2]
    results = np.empty((repeats, len(names), 2))
    for repeat in range(repeats):
        rng = np.random.default_rng((seed, repeat))
        drawn = [rng.integers(0, len(default), per_project) for _, default in projects]
        parts = [inputs.take(indices) for (inputs, _), indices in zip(projects, drawn, strict=True)]
        ranks = np.concatenate([part.ranks for part in parts])
        decisions = np.concatenate([part.decisions + number * per_project for number, part in enumerate(parts)])
        default = np.concatenate([default[indices] for (_, default), indices in zip(projects, drawn, strict=True)])
        before = policy.greedy_decisions(NetworkInputs(ranks, decisions), default)
        log_probs = before.log_probs(before.actions)
        for column in range(len(names)):
            shuffled = ranks.copy()
            shuffled[:, column] = rng.permutation(ranks[:, column])
            after = policy.greedy_decisions(NetworkInputs(shuffled, decisions), default)
            results[repeat, column, 0] = np.mean(after.advice != before.advice)
            results[repeat, column, 1] = np.mean(np.abs(after.log_probs(before.actions) - log_probs))
        on_repeat()
    found = [
        Importance(name, *(percentile_interval(float(each.mean()), each) for each in results[:, column].T))
        for column, name in enumerate(names)
    ]
    return sorted(found, key=lambda each: (-each.changed.value, -each.log_prob_change.value, each.feature))


def table(importances: list[Importance]) -> Table:
    """Importances in the order given."""
    return Table(
        ("feature", "decisions changed", "95% of repeats", "log probability", "95% of repeats"),
        [
            (
                each.feature,
                f"{each.changed.value:.2%}",
                f"{each.changed.low:.2%} to {each.changed.high:.2%}",
                f"{each.log_prob_change.value:.4f}",
                f"{each.log_prob_change.low:.4f} to {each.log_prob_change.high:.4f}",
            )
            for each in importances
        ],
    )


def csv_rows(importances: list[Importance]) -> list[dict[str, str | float]]:
    """A row for each feature, in the order given."""
    return [
        {
            "feature": each.feature,
            "changed": each.changed.value,
            "changed_low": each.changed.low,
            "changed_high": each.changed.high,
            "log_prob_change": each.log_prob_change.value,
            "log_prob_change_low": each.log_prob_change.low,
            "log_prob_change_high": each.log_prob_change.high,
        }
        for each in importances
    ]
