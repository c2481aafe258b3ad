"""Which modules an iteration of training learns from.

    sampler = make_sampler("size", corpus.modules, seed)
    modules = sampler.draw(position, 16)
    position += len(modules)

What is drawn depends on seed and position only, so that an interrupted run goes on as if it had not been.
"""

import abc
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from compiler_opt.corpus.module import Module
from compiler_opt.errors import ConfigError

SAMPLERS = ("uniform", "size", "decisions")


def check_sampling(kind: str) -> None:
    """Raises ConfigError when there is no sampler of that name."""
    if kind not in SAMPLERS:
        raise ConfigError(f"sampling: expected one of {', '.join(SAMPLERS)}; found {kind!r:.80}")


class ModuleSampler(abc.ABC):
    """Draws modules, the same ones for the same seed and position; in whatever order the modules are given."""

    def __init__(self, modules: Sequence[Module], seed: int):
        self._modules = tuple(sorted(modules, key=lambda module: module.name))
        self._seed = seed

    @abc.abstractmethod
    def draw(self, position: int, count: int) -> list[Module]:
        """The modules of one iteration.

        Args:
          position: how many have been drawn before.
          count: how many to draw; fewer come when there are not so many.

        Returns:
          modules, none of them twice.
        """


class UniformSampler(ModuleSampler):
    """Draws without replacement until all have been drawn, then anew: positions are those of an endless sequence."""

    def __init__(self, modules: Sequence[Module], seed: int):
        super().__init__(modules, seed)
        self._epoch, self._order = -1, np.arange(0)

    def draw(self, position: int, count: int) -> list[Module]:
        """The modules at `position` to `position + count - 1`, or beyond where one would come twice."""
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
    """Draws modules with chances in proportion to their weights, each iteration anew; those of no weight never."""

    def __init__(self, modules: Sequence[Module], seed: int, weight: Callable[[Module], float]):
        """Weighs the modules.

        Args:
          modules: to draw from.
          seed: of what is drawn.
          weight: of a module, at least 0.

        Raises:
          ConfigError: no module has any weight.
        """
        weights = {module.name: float(weight(module)) for module in modules}
        super().__init__([module for module in modules if weights[module.name] > 0], seed)
        if not self._modules:
            raise ConfigError(f"sampling: none of {len(weights)} modules has any weight; draw uniformly")
        chances = np.array([weights[module.name] for module in self._modules])
        self._chances = chances / chances.sum()

    def draw(self, position: int, count: int) -> list[Module]:
        count = min(count, len(self._modules))
        rng = np.random.default_rng((self._seed, position))
        return [self._modules[index] for index in rng.choice(len(self._modules), count, replace=False, p=self._chances)]


def make_sampler(
    kind: str, modules: Sequence[Module], seed: int, count_decisions: Callable[[], Mapping[str, int]] | None = None
) -> ModuleSampler:
    """The sampler of that name.

    Args:
      kind: `uniform`: each as often as any other; `size`: in proportion to the bytes of its bitcode; `decisions`: to
        the number of decisions in it.
      modules: to draw from.
      seed: of what is drawn.
      count_decisions: for `decisions`, tells the number by module; those that it does not know have none.

    Raises:
      ConfigError: there is no such sampler, or no module has any weight.
      CorpusError: a module is missing.
    """
    check_sampling(kind)
    if kind == "size":
        return WeightedSampler(modules, seed, Module.bitcode_bytes)
    if kind == "decisions":
        if count_decisions is None:
            raise ConfigError("sampling: 'decisions' has to know how many there are in a module")
        counts = count_decisions()
        return WeightedSampler(modules, seed, lambda module: counts.get(module.name, 0))
    return UniformSampler(modules, seed)
