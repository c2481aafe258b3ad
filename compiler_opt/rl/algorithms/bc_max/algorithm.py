"""BC-Max in the training loop: explore around several policies, keep the best of each module, clone it, repeat.

each module: every policy to imitate once; then the clone, greedily and sampling, and policies with random changes
store: the best trajectory of each module
clone the store's decisions, weighted by what they gain
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from compiler_opt import pretrained
from compiler_opt.collect.best_trajectories import BestTrajectories, BestTrajectory
from compiler_opt.collect.groups import CollectionPolicy, Group
from compiler_opt.collect.traces import default_policy
from compiler_opt.corpus.module import Module
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.plugin_features import among
from compiler_opt.policies.decisions import DEFAULT_BASE, Base, Decisions, OverridingPolicy
from compiler_opt.policies.policy import FlippingPolicy, Policy
from compiler_opt.policies.weights import ALWAYS_DEFAULT, NetworkConfig, NetworkWeights
from compiler_opt.rl.algorithm import Algorithm
from compiler_opt.rl.algorithms.bc_max import BCMaxConfig
from compiler_opt.rl.behavioral_cloning import Cloned, Cloner, Examples, held_out_modules, split_by_module
from compiler_opt.rl.training_run import TrainingRun
from compiler_opt.spaces.binary import Binary
from compiler_opt.spaces.heads import networks
from compiler_opt.spaces.heads.head import Head
from compiler_opt.spaces.learned_policy import LearnedPolicy

STORE_DIR = "best_trajectories"
"""The best trajectories of a run, in its folder."""

_DECISIONS = "decisions:"

IsTried: TypeAlias = Callable[[str], tuple[bool, bool]]


def policies_to_imitate(names: Sequence[str], run: TrainingRun) -> list[Policy]:
    """The policies of `BCMaxConfig.policies`, in order.

    Raises:
      ConfigError: decisions were found on top of a policy that is not among the others.
      PolicyError: a policy cannot be read, or does not suit the problem or the compiler.
    """
    problem, baselines = run.problem, run.problem.decision.action_space.baselines()
    default = default_policy(problem)
    found: dict[str, Policy] = {}
    learned: dict[str, LearnedPolicy] = {}
    for name in (name for name in names if not name.startswith(_DECISIONS)):
        if name == "default":
            found[name] = default
        elif name in baselines:
            found[name] = baselines[name]
        else:
            found[name] = learned[name] = problem.decision.load_policy(pretrained.folder(name), name=name)
            learned[name].check([spec.name for spec in run.compiler_features])
    bases: list[tuple[Base, Policy]] = [(Base(), default)]
    for each in learned.values() if problem.objective.is_size else ():
        bases.append((Base(each.weights, problem.decision.native_form(each.weights)), each))
    for name in (name for name in names if name.startswith(_DECISIONS)):
        decisions = Decisions.load(Path(name.removeprefix(_DECISIONS)))
        recorded = str(decisions.about.get("policy", DEFAULT_BASE))
        of_base = next((policy for base, policy in bases if base.is_named(recorded)), None)
        if of_base is None:
            raise ConfigError(
                f"bc_max.policies: {name}: changes decisions of the policy {recorded}, which is not listed; add it"
            )
        found[name] = OverridingPolicy(of_base, decisions, name=name)
    if among(run.head.features):
        for name, policy in found.items():
            if not (policy.is_default or name in learned or name.startswith(_DECISIONS)):
                raise ConfigError(
                    f"bc_max.policies: {name}: decides outside the compiler, where the features of our plugin are not "
                    "known; leave it out, or use a vocabulary without these features"
                )
    return [found[name] for name in names]


class _Exploration(CollectionPolicy):
    """Each policy to imitate once in a module; the other rollouts explore."""

    def __init__(self, run: TrainingRun, config: BCMaxConfig, imitated: Sequence[Policy], is_tried: IsTried):
        """`is_tried` says of a module whether it was compiled before, and whether it was since the last cloning."""
        self.settings = run.rollout_settings()
        self._num_rollouts = run.config.rollouts_per_module
        self._imitated, self._is_tried = imitated, is_tried
        self.explorers: list[Policy] = []
        self.clone: Policy | None = None
        is_binary = isinstance(run.problem.decision.action_space, Binary)
        if config.exploration and is_binary and not among(run.head.features):
            self.explorers = [
                FlippingPolicy(policy, probability=config.exploration, name=f"{policy.name}, changed")
                for name, policy in zip(config.policies, imitated, strict=True)
                # Decisions by call site are taken in the plugin only, which changes nothing at random.
                if not name.startswith(_DECISIONS)
            ]

    def policies(self, module: Module, rng: np.random.Generator) -> Sequence[Policy]:
        before, since_cloning = self._is_tried(module.name)
        chosen = [] if before else list(self._imitated)
        if self.clone is not None and not since_cloning:
            chosen.append(self.clone)
        for _ in range(self._num_rollouts - len(chosen) if self.explorers else 0):
            chosen.append(self.explorers[rng.integers(len(self.explorers))])
        # Where nothing can explore yet, the first policy to imitate keeps the module in the run.
        return chosen or [self._imitated[0]]


class TrajectoryCloner:
    """Clones trajectories, weighted by what they gain."""

    def __init__(self, head: Head, action_name: str, network: NetworkConfig, config: BCMaxConfig, seed: int):
        self._head, self._action_name, self._network = head, action_name, network
        self._config, self._seed = config, seed

    def clone(self, trajectories: Sequence[BestTrajectory]) -> Cloned:
        """Learns the decisions of trajectories, at least one of which has some, from the beginning."""
        trajectories = [each for each in trajectories if len(each)]
        cloner = Cloner(self._head, self._action_name, self._network, self._config.cloning(self._seed))
        return cloner.clone(*self._examples(trajectories))

    def _examples(self, trajectories: Sequence[BestTrajectory]) -> tuple[Examples, Examples]:
        """To learn from and to hold out; the same ones if all are of one module."""
        observed: dict[str, list[np.ndarray]] = {}
        for each in trajectories:
            for name, values in self._head.observe(each.features).items():
                observed.setdefault(name, []).append(values)
        actions = np.concatenate([self._head.actions(each.advice) for each in trajectories])
        lengths = [len(each) for each in trajectories]
        gains = np.repeat(self._weights([each.reward for each in trajectories]), lengths)
        names = [each.module for each in trajectories]
        projects = {each.module: each.project for each in trajectories}
        if len(projects) < 2:
            columns = {name: np.concatenate(parts) for name, parts in observed.items()}
            examples = Examples(columns, actions, len(projects), (gains / gains.mean()).astype(np.float32))
            return examples, examples
        config = self._config.cloning(self._seed)
        training, held_out = split_by_module(observed, actions, names, lengths, projects, config)
        apart = held_out_modules(projects, config.holdout_fraction, config.seed)
        learned = gains[np.repeat([name not in apart for name in names], lengths)]
        weights = learned if training.weights is None else learned * training.weights
        return dataclasses.replace(training, weights=(weights / weights.mean()).astype(np.float32)), held_out

    def _weights(self, rewards: Sequence[float]) -> np.ndarray:
        """Of each trajectory, `[N]`."""
        gains = np.maximum(rewards, 0.0)
        mean = gains.mean()
        result: np.ndarray = 1 + self._config.gain_weight * (gains / mean if mean > 0 else gains)
        return result


class BCMax(Algorithm):
    """Learns the best trajectories that several policies and exploration around them have found."""

    log_metrics = (
        ("improved", "improved modules", ".0f"),
        ("best_reward", "best of each module", "+.2%"),
        ("accuracy", "accuracy of the clone", ".1%"),
    )

    def __init__(self, run: TrainingRun, config: BCMaxConfig):
        """Raises ConfigError or PolicyError if a policy cannot be imitated."""
        self.description = f"BC-Max, imitating {', '.join(config.policies)}"
        self._run, self._config = run, config
        self._imitated = policies_to_imitate(config.policies, run)
        seed = run.config.seed
        self._cloner = TrajectoryCloner(run.head, run.action_name, run.network, config, seed)
        self._stores = [
            BestTrajectories(run.root_dir / STORE_DIR),
            *map(BestTrajectories, map(Path, config.stores)),
        ]
        self._start = run.warm_start_weights()
        self._actor = run.head.actor(run.action_name, run.network, seed)
        self._has_cloned = tf.Variable(False)
        self._num_iterations = 0
        self._cloned = ""  # fingerprint of the stores at the last cloning
        self._rewards: dict[str, float] = {}  # the best so far, by module
        self._num_clones = 0
        self._tried: dict[str, int] = {}  # clones before a module was compiled last

    def collection_policy(self) -> CollectionPolicy:
        run = self._run

        def is_tried(module: str) -> tuple[bool, bool]:
            return module in self._tried, self._tried.get(module) == self._num_clones

        exploration = _Exploration(run, self._config, self._imitated, is_tried)
        weights = self._weights()
        if weights is not None:
            sampling = run.problem.decision.policy(weights, temperature=self._config.temperature, name="clone, sampled")
            exploration.clone = run.problem.decision.policy(weights, name="clone")
            exploration.explorers.append(sampling)
        return exploration

    def learn(self, groups: Sequence[Group], rng: np.random.Generator, progress: float) -> dict[str, float]:
        del rng, progress
        improved = 0
        for group in groups:
            best = self._best_of(group)
            # An interrupted iteration is repeated, and may find what it found in the store: that counts again.
            self._stores[0].add(best)
            improved += best.reward > self._rewards.get(best.module, -math.inf)
            self._rewards[best.module] = max(best.reward, self._rewards.get(best.module, -math.inf))
        self._tried |= {group.module: self._num_clones for group in groups}
        self._num_iterations += 1
        metrics = {"improved": float(improved)}
        if self._num_iterations % self._config.clone_every == 0:
            metrics |= self._clone()
        return metrics

    def policy(self) -> NetworkWeights:
        """The clone of the best trajectories so far; without any, the policy to start from, or one for the default."""
        if self._cloned != self._fingerprint():
            self._clone()
        return self.policy_so_far()

    def policy_so_far(self) -> NetworkWeights:
        weights = self._weights()
        if weights is not None:
            return weights
        untrained = self._run.head.to_weights(self._actor)
        if self._run.problem.decision.policy(untrained).takes_margin:
            return dataclasses.replace(untrained, margin=ALWAYS_DEFAULT)
        return untrained

    def checkpointed(self) -> dict[str, Any]:
        return {"actor": self._actor, "has_cloned": self._has_cloned}

    def state(self) -> dict[str, Any]:
        return {
            "num_iterations": self._num_iterations,
            "cloned": self._cloned,
            "rewards": self._rewards,
            "num_clones": self._num_clones,
            "tried": self._tried,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._num_iterations, self._cloned = state["num_iterations"], state["cloned"]
        self._rewards = dict(state["rewards"])
        self._num_clones, self._tried = state["num_clones"], dict(state["tried"])

    def _weights(self) -> NetworkWeights | None:
        """The latest clone, or the policy to start from, if any."""
        return self._run.head.to_weights(self._actor) if self._has_cloned else self._start

    def _fingerprint(self) -> str:
        return " ".join(store.fingerprint() for store in self._stores)

    def _clone(self) -> dict[str, float]:
        """Clones all stores; keeps the policy if they have no decisions."""
        run = self._run
        best: dict[str, BestTrajectory] = {}
        for store in self._stores:
            for each in store.read(run.problem.name, run.head.compiler_features):
                if each.module not in best or each.reward > best[each.module].reward:
                    best[each.module] = each
        trajectories = [best[name] for name in sorted(best)]
        self._cloned = self._fingerprint()
        if not any(map(len, trajectories)):
            return {}
        cloned = self._cloner.clone(trajectories)
        networks.assign(self._actor, cloned.weights)
        self._has_cloned.assign(True)
        self._num_clones += 1
        first = self._config.policies[0]
        return {
            "best_reward": float(np.mean([each.reward for each in trajectories])),
            "trajectories": float(len(trajectories)),
            "of_first_policy": float(np.mean([each.policy == first for each in trajectories])),
            "accuracy": cloned.best["accuracy"],
            "loss": cloned.best["loss"],
        }

    def _best_of(self, group: Group) -> BestTrajectory:
        """The best rollout of a module; of equal ones the first."""
        rewards = group.rewards(self._run.problem)
        best = int(np.argmax(rewards))
        rollout, trajectory = group.rollouts[best], group.trajectories()[best]
        return BestTrajectory(
            problem=self._run.problem.name,
            compiler=".".join(map(str, self._run.toolchain.version)),
            module=group.module,
            project=group.project,
            policy=rollout.policy,
            reward=float(rewards[best]),
            features=trajectory.features(),
            advice=trajectory.advice,
        )
