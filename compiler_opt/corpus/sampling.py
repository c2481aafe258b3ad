"""Samplers: draw the modules of a training iteration; and how much the projects of a corpus count.

    sampler = make_sampler("size", corpus.modules, seed)
    modules = sampler.draw(position, 16)
    position += len(modules)

The draw depends on seed and position only, so a resumed run draws what an uninterrupted one would.
"""

import abc
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from compiler_opt.corpus.module import Module
from compiler_opt.errors import ConfigError

SAMPLERS = ("uniform", "project", "size", "decisions")


def check_sampling(kind: str) -> None:
    """Raises ConfigError if there is no sampler of that name."""
    if kind not in SAMPLERS:
        raise ConfigError(f"sampling: expected one of {', '.join(SAMPLERS)}; found {kind!r:.80}")


class ModuleSampler(abc.ABC):
    """Draws modules by seed and position, whatever the order of the modules given."""

    def __init__(self, modules: Sequence[Module], seed: int):
        self._modules = tuple(sorted(modules, key=lambda module: module.name))
        self._seed = seed

    @abc.abstractmethod
    def draw(self, position: int, count: int) -> list[Module]:
        """Draws `count` distinct modules (at most all) for an iteration; `position` modules were drawn before."""


class UniformSampler(ModuleSampler):
    """Draws without replacement, reshuffling in each epoch: `position` indexes the endless sequence of epochs."""

    def __init__(self, modules: Sequence[Module], seed: int):
        super().__init__(modules, seed)
        self._epoch, self._order = -1, np.arange(0)

    def draw(self, position: int, count: int) -> list[Module]:
        """The modules from `position` on, skipping duplicates, until there are `count`."""
        count = min(count, len(self._modules))
        drawn: dict[str, Module] = {}
        while len(drawn) < count:
            epoch, index = divmod(position, len(self._modules))
            if epoch != self._epoch:
                self._order = np.random.default_rng((self._seed, epoch)).permutation(len(self._modules))
                self._epoch = epoch
            module = self._modules[self._order[index]]
            drawn.setdefault(module.name, module)
            position += 1
        return list(drawn.values())


class ProjectSampler(ModuleSampler):
    """Draws from all projects equally often, whatever their numbers of modules; from each, its modules in turn.

    Every round visits all projects in a new order, and draws one module of each. A project's modules come without
    replacement, reshuffled when all were drawn.
    """

    def __init__(self, modules: Sequence[Module], seed: int):
        super().__init__(modules, seed)
        projects: dict[str, list[Module]] = {}
        for module in self._modules:
            projects.setdefault(module.project, []).append(module)
        self._projects = [projects[name] for name in sorted(projects)]

    def draw(self, position: int, count: int) -> list[Module]:
        count = min(count, len(self._modules))
        drawn: dict[str, Module] = {}
        while len(drawn) < count:
            turn, index = divmod(position, len(self._projects))
            project = int(self._permutation(0, turn, len(self._projects))[index])
            modules = self._projects[project]
            epoch, place = divmod(turn, len(modules))
            module = modules[self._permutation(1 + project, epoch, len(modules))[place]]
            drawn.setdefault(module.name, module)
            position += 1
        return list(drawn.values())

    def _permutation(self, stream: int, number: int, count: int) -> np.ndarray:
        return np.random.default_rng((self._seed, stream, number)).permutation(count)


class WeightedSampler(ModuleSampler):
    """Draws with probabilities proportional to weights, without replacement within an iteration."""

    def __init__(self, modules: Sequence[Module], seed: int, weight: Callable[[Module], float]):
        """Computes the weights, which are at least 0; modules of weight 0 are never drawn.

        Raises ConfigError if all weights are 0.
        """
        weights = {module.name: float(weight(module)) for module in modules}
        super().__init__([module for module in modules if weights[module.name] > 0], seed)
        if not self._modules:
            raise ConfigError(f"sampling: none of {len(weights)} modules has any weight; use 'uniform'")
        chances = np.array([weights[module.name] for module in self._modules])
        self._chances = chances / chances.sum()

    def draw(self, position: int, count: int) -> list[Module]:
        count = min(count, len(self._modules))
        rng = np.random.default_rng((self._seed, position))
        return [self._modules[index] for index in rng.choice(len(self._modules), count, replace=False, p=self._chances)]


def make_sampler(
    kind: str, modules: Sequence[Module], seed: int, count_decisions: Callable[[], Mapping[str, int]] | None = None
) -> ModuleSampler:
    """Makes a sampler by name.

    `uniform` draws all modules equally often, `project` all projects; `size` and `decisions` draw modules in proportion
    to the bytes of their bitcode or the number of their decisions.

    `count_decisions` returns the number of decisions by module name; a module that it lacks has none.

    Raises:
      ConfigError: there is no such sampler, or all weights are 0.
      CorpusError: a module's file is missing.
    """
    check_sampling(kind)
    if kind == "size":
        return WeightedSampler(modules, seed, Module.bitcode_bytes)
    if kind == "decisions":
        if count_decisions is None:
            raise ConfigError("sampling: 'decisions' needs the number of decisions per module")
        counts = count_decisions()
        return WeightedSampler(modules, seed, lambda module: counts.get(module.name, 0))
    return ProjectSampler(modules, seed) if kind == "project" else UniformSampler(modules, seed)


def project_weights(decisions: Mapping[str, int], balance: float) -> dict[str, float]:
    """The weight of each decision of a project, so that a few large projects do not decide alone.

    Args:
      decisions: by project, how many there are.
      balance: 0 to count all decisions alike, 1 to count all projects alike; between them, a project of n decisions
        counts n ** (1 - balance).

    Returns:
      weights by project, whose mean over all decisions is 1.
    """
    weights = {name: count**-balance for name, count in decisions.items() if count}
    total = sum(weights[name] * decisions[name] for name in weights)
    scale = sum(decisions.values()) / total if total else 1.0
    return {name: scale * weights.get(name, 1.0) for name in decisions}
