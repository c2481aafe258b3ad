"""Samplers: draw the modules of a training iteration.

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

SAMPLERS = ("uniform", "size", "decisions")


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
    """Makes a sampler by name: `uniform`, or weighted by `size` (bytes of bitcode) or `decisions` (their number).

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
    return UniformSampler(modules, seed)
