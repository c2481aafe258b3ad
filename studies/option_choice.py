"""Chooses a set of options, and a menu of sets for functions, by what a screening has found.

Forward selection takes the option that gains most on top of those chosen, as long as it gains something and satisfies
the constraint; then backward steps drop what no longer pays. An option's last known gain is taken for its next
one until it would be chosen, so that few sets have to be measured. At the end, those that the constraint refused are
tried once more, on top of another set now, and pairs of options that gain nothing alone.
"""

import dataclasses
import functools
import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from compiler_opt.llvm.pass_options import parse_option

OptionSet = tuple[str, ...]

Gain = Callable[[OptionSet], float]
"""Relative change that a set makes; negative is smaller. Infinite if it cannot be used."""

Constraint = Callable[[OptionSet], str]
"""Why a set cannot be used; empty if it can."""


@dataclasses.dataclass(frozen=True)
class Step:
    """A step of the choice.

    Attributes:
      options: the set after it.
      what: what it did, e.g. `+ -disable-lsr=true`.
      gain: relative change that the set makes.
      refused: why the constraint refused it, so that the set is as before; empty if it was accepted.
    """

    options: OptionSet
    what: str
    gain: float
    refused: str = ""


def choose(
    ranked: Sequence[tuple[float, str]],
    gain: Gain,
    constraint: Constraint,
    *,
    at_least: float = 2e-4,
    start: OptionSet = (),
    pairs: int = 8,
) -> Iterator[Step]:
    """Chooses a set; yields each step.

    Args:
      ranked: options as `-NAME=VALUE`, each with what it gains alone.
      gain: measures a set.
      constraint: checks a set, once its gain would let it be chosen.
      at_least: what an option has to gain on top of a set.
      start: the set to begin with, unless the constraint refuses it; first, options are dropped that cost text.
      pairs: of so many options that remain, the best ones, all pairs are tried at the end.
    """
    chosen: OptionSet = ()
    best = 0.0
    if start:
        found = gain(start)
        reason = constraint(start)
        if not reason:
            chosen, best = start, found
        yield Step(chosen, f"start: {' '.join(start)}", found, reason)
        for step in _backward(chosen, best, gain, constraint, at_least):
            chosen, best = step.options, step.gain
            yield step
    waiting = [(estimate, option) for estimate, option in ranked if estimate < -at_least / 2 and option not in chosen]
    heapq.heapify(waiting)
    left: list[tuple[float, str]] = []
    refused: list[str] = []
    slow: dict[str, float] = {}  # by name, what a refused value gains; others are tried that gain at most half of it
    while waiting and waiting[0][0] < -at_least:
        _, option = heapq.heappop(waiting)
        extended = _extended(chosen, option)
        found = gain(extended) - best
        if found >= -at_least:
            left.append((found, option))
        elif waiting and found > waiting[0][0]:
            heapq.heappush(waiting, (found, option))
        elif found < slow.get(name := parse_option(option)[0], -math.inf) / 2:
            continue
        elif reason := constraint(extended):
            slow[name] = found
            refused.append(option)
            yield Step(chosen, f"+ {option}", best + found, reason)
        else:
            chosen, best = extended, best + found
            yield Step(chosen, f"+ {option}", best)
    for step in _backward(chosen, best, gain, constraint, at_least):
        chosen, best = step.options, step.gain
        yield step
    best_left = [option for _, option in sorted(left)[:pairs]]
    for added in [*((option,) for option in refused), *itertools.combinations(best_left, 2)]:
        if len({parse_option(option)[0] for option in added}) < len(added):
            continue
        extended = functools.reduce(_extended, added, chosen)
        found = gain(extended)
        if found < best - len(added) * at_least:
            reason = constraint(extended)
            if not reason:
                chosen, best = extended, found
            yield Step(chosen, f"+ {' '.join(added)}", found, reason)


def _extended(options: OptionSet, option: str) -> OptionSet:
    """A set with a further option, in place of another value of it."""
    name = parse_option(option)[0]
    return (*(each for each in options if parse_option(each)[0] != name), option)


def _backward(chosen: OptionSet, best: float, gain: Gain, constraint: Constraint, at_least: float) -> Iterator[Step]:
    """Drops options of a set, in their order, that cost text; those that change little may be what makes it fast."""
    for option in chosen:
        shorter = tuple(each for each in chosen if each != option)
        if (found := gain(shorter)) < best - at_least and not constraint(shorter):
            chosen, best = shorter, found
            yield Step(chosen, f"- {option}", best)


@dataclasses.dataclass(frozen=True)
class MenuEntry:
    """A set of a menu.

    Attributes:
      options: the set.
      gain: relative change of functions' bytes if each function has the best of this set and those before it.
    """

    options: str
    gain: float


def greedy_menu(
    plain: NDArray[np.float64],
    changes: Mapping[str, NDArray[np.float64]],
    projects: NDArray[np.int64],
    size: int = 8,
) -> list[MenuEntry]:
    """Sets such that choosing the best one for each function gains most; each adds most to those before it.

    Args:
      plain: `[F]` weighted plain bytes of functions.
      changes: by set, `[F]` changes of them.
      projects: `[F]` numbers of their projects, each of which counts the same.
      size: sets in the menu, as far as further ones gain anything. The first one is not a choice by function.
    """
    num_projects = int(projects.max()) + 1 if len(projects) else 0
    sums = np.bincount(projects, plain, num_projects)
    share = 1.0 / (np.maximum(sums, 1.0)[projects] * max(1, num_projects))  # of a byte in the mean of projects
    menu: list[MenuEntry] = []
    best: NDArray[np.float64] | None = None
    left = dict(changes)
    while left and len(menu) < size:
        totals = {
            name: float(((each if best is None else np.minimum(best, each)) * share).sum())
            for name, each in left.items()
        }
        name = min(totals, key=lambda each: (totals[each], each))
        if menu and totals[name] > menu[-1].gain - 1e-6:
            break
        chosen = left.pop(name)
        best = chosen if best is None else np.minimum(best, chosen)
        menu.append(MenuEntry(name, totals[name]))
    return menu
