"""What the algorithms that learn from sampled decisions share: how these are collected, and their batch.

Legend: N decisions of an iteration.
"""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from compiler_opt.collect.advantages import Advantages
from compiler_opt.collect.groups import CollectionPolicy, Group, RepeatedPolicy
from compiler_opt.collect.trajectory import Trajectory
from compiler_opt.corpus.sampling import project_weights
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.weights import NetworkConfig, NetworkWeights
from compiler_opt.rl.training_run import TrainingRun
from compiler_opt.spaces.heads import networks
from compiler_opt.spaces.heads.head import Head

_OBSERVATION = "observation "
"""Begins the names of columns that are observations."""
_BYTES_AT_A_TIME = 1 << 24


@dataclasses.dataclass(frozen=True)
class Batch:
    """N decisions of an iteration, those of each rollout in order.

    Attributes:
      observations: by name `[N, ...]`, see `Head.observe`; for recurrent networks also `networks.FIRST`.
      actions: `[N]`, see `Head.actions`.
      log_probs: `[N]` float32, of the actions under the policy that sampled them.
      advantages: `[N]` float32.
      returns: `[N]` float32, targets of the value network.
      weights: `[N]` float32, how much each decision counts in the loss; 1 in the mean.
      is_last: `[N]` bool, whether it is the last decision of its rollout.
    """

    observations: Mapping[str, np.ndarray]
    actions: np.ndarray
    log_probs: np.ndarray
    advantages: np.ndarray
    returns: np.ndarray
    weights: np.ndarray
    is_last: np.ndarray

    @classmethod
    def empty(cls, head: Head, network: NetworkConfig | None = None) -> "Batch":
        """No decisions, in the types and shapes of a head, for a network; a feed-forward one by default."""
        observations = {
            name: np.empty((0, *spec.shape), spec.dtype.as_numpy_dtype)
            for name, spec in head.observation_spec().items()
        }
        actions, nothing = np.empty(0, head.action_spec("action").dtype.as_numpy_dtype), np.empty(0, np.float32)
        if network is not None and network.lstm_units:
            observations[networks.FIRST] = nothing
        return cls(observations, actions, nothing, nothing, nothing, nothing, np.empty(0, bool))

    @classmethod
    def from_rows(cls, rows: Mapping[str, np.ndarray]) -> "Batch":
        """What `rows` returned."""
        observed = {name: values for name, values in rows.items() if name.startswith(_OBSERVATION)}
        others = {name: values for name, values in rows.items() if name not in observed}
        return cls({name.removeprefix(_OBSERVATION): values for name, values in observed.items()}, **others)

    def rows(self) -> dict[str, np.ndarray]:
        """All columns by name, for a `Replay`."""
        columns = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        observations = columns.pop("observations")
        return {**{_OBSERVATION + name: values for name, values in observations.items()}, **columns}

    def __len__(self) -> int:
        return len(self.actions)

    def take(self, indices: np.ndarray) -> "Batch":
        return Batch.from_rows({name: values[indices] for name, values in self.rows().items()})

    def sample(self, count: int, rng: np.random.Generator) -> "Batch":
        """At most `count` of the decisions, drawn without replacement."""
        return self if len(self) <= count else self.take(rng.choice(len(self), count, replace=False))

    def sample_rollouts(self, count: int, rng: np.random.Generator) -> "Batch":
        """At most `count` of the decisions, of whole rollouts in random order; the first one may lack its beginning."""
        if len(self) <= count:
            return self
        [lasts] = np.nonzero(self.is_last)
        rollouts = np.split(np.arange(len(self)), lasts[:-1] + 1)
        return self.take(np.concatenate([rollouts[index] for index in rng.permutation(len(rollouts))])[-count:])


class DecisionSampler:
    """Collects rollouts that sample their decisions, and makes a batch of them."""

    def __init__(self, run: TrainingRun, advantages: Advantages, project_balance: float):
        """`project_balance`: 0 to count all decisions alike, 1 all projects alike, see `project_weights`."""
        self._run = run
        self._advantages = advantages
        self._balance = project_balance

    def collection_policy(self, weights: NetworkWeights, temperature: float) -> CollectionPolicy:
        """Rollouts under a network that samples, as many of each module as the settings say."""
        run = self._run
        policy = run.problem.decision.policy(weights, temperature=temperature)
        settings = run.rollout_settings(record_call_sites=True)
        return RepeatedPolicy(
            policy, run.config.rollouts_per_module, settings, min_decided=self._advantages.min_rollouts
        )

    def batch(self, groups: Sequence[Group], rng: np.random.Generator, max_decisions: int | None = None) -> Batch:
        """The decisions of the groups, of which there is at least one; at most so many, drawn without replacement.

        For a recurrent network, whole rollouts are drawn; the last one may lack its end.

        Only these are encoded, but all of them define the scale of advantages.
        """
        with self._run.stopwatch.measure("credit"):
            return self._batch(groups, rng, max_decisions)

    def _batch(self, groups: Sequence[Group], rng: np.random.Generator, max_decisions: int | None) -> Batch:
        problem, head = self._run.problem, self._run.head
        trajectories = [trajectory for group in groups for trajectory in group.trajectories()]
        is_recurrent = self._run.network.lstm_units > 0
        draw = _drawn_beginnings if is_recurrent else _drawn_rows
        rows_of = iter(draw([len(trajectory) for trajectory in trajectories], rng, max_decisions))
        observed, is_first = _Observed(head), []
        actions, log_probs, values, returns, weights, is_last = [], [], [], [], [], []
        by_project = self._project_weights(groups)
        for group, group_advantages in zip(groups, self._advantages(groups, problem), strict=True):
            rewards = group.rewards(problem)
            for trajectory, advantage, reward in zip(group.trajectories(), group_advantages, rewards, strict=True):
                rows = next(rows_of)
                if not len(rows):
                    continue
                observed.add(trajectory, rows)
                if is_recurrent:
                    is_first.append((rows == 0).astype(np.float32))
                sampled = trajectory.sampled_actions
                actions.append((head.actions(trajectory.advice) if sampled is None else sampled)[rows])
                assert trajectory.log_probs is not None
                log_probs.append(trajectory.log_probs[rows])
                advantage = advantage[rows]
                values.append(advantage)
                returns.append(advantage if self._advantages.uses_value_network else np.full_like(advantage, reward))
                weights.append(np.full_like(advantage, by_project[group.project]))
                is_last.append(rows == rows[-1])
        columns = (actions, log_probs, values, returns, weights, is_last)
        observations = observed.take()
        if is_recurrent:
            observations[networks.FIRST] = np.concatenate(is_first)
        return Batch(observations, *(np.concatenate(parts) for parts in columns))

    def _project_weights(self, groups: Sequence[Group]) -> dict[str, float]:
        decisions: Counter[str] = Counter()
        for group in groups:
            decisions[group.project] += sum(map(len, group.trajectories()))
        return project_weights(decisions, self._balance)


class _Observed:
    """The observations of decisions that are added; encoded many at a time, which is faster."""

    def __init__(self, head: Head):
        self._head = head
        self._encoded: defaultdict[str, list[np.ndarray]] = defaultdict(list)
        self._header: Header | None = None
        self._records: list[np.ndarray] = []  # `[N, bytes]` uint8
        self._num_bytes = 0

    def add(self, trajectory: Trajectory, rows: np.ndarray) -> None:
        """Adds some of the decisions of a trajectory."""
        if trajectory.header != self._header or self._num_bytes > _BYTES_AT_A_TIME:
            self._encode()
            self._header = trajectory.header
        records = np.frombuffer(trajectory.observations, np.uint8).reshape(len(trajectory), -1)
        self._records.append(records if len(rows) == len(records) else records[rows])
        self._num_bytes += self._records[-1].nbytes

    def take(self) -> dict[str, np.ndarray]:
        """All of them, see `Head.observe`."""
        self._encode()
        return {name: np.concatenate(parts) for name, parts in self._encoded.items()}

    def _encode(self) -> None:
        if self._header is not None and self._records:
            features = self._header.decode(np.concatenate(self._records).data)
            for name, values in self._head.observe(features).items():
                self._encoded[name].append(values)
        self._records, self._num_bytes = [], 0


def _drawn_rows(lengths: Sequence[int], rng: np.random.Generator, max_rows: int | None) -> list[np.ndarray]:
    """Ascending indices of rows in each of several arrays of these lengths: all, or `max_rows` drawn at random."""
    total = sum(lengths)
    if max_rows is None or total <= max_rows:
        return [np.arange(length) for length in lengths]
    is_drawn = np.zeros(total, bool)
    is_drawn[rng.choice(total, max_rows, replace=False, shuffle=False)] = True
    return [np.flatnonzero(part) for part in np.split(is_drawn, np.cumsum(lengths)[:-1])]


def _drawn_beginnings(lengths: Sequence[int], rng: np.random.Generator, max_rows: int | None) -> list[np.ndarray]:
    """As `_drawn_rows`, but whole arrays in random order until there are `max_rows`; the last one may lack its end."""
    kept = np.array(lengths, np.int64)
    if max_rows is not None and kept.sum() > max_rows:
        order = rng.permutation(len(kept))
        before = np.cumsum(kept[order]) - kept[order]
        kept[order] = np.minimum(kept[order], np.maximum(0, max_rows - before))
    return [np.arange(length) for length in kept]
