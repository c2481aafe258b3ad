"""Which functions of a program made another build of it cheaper or more expensive, when many of them differ at once.

    attribution = Attribution(profile_of_base, metric, is_own=lambda file: file.startswith("/home/me/build/"))
    attribution.changes(profile_of_other_build)     # by symbol: what this function's code costs more than before

Own counts do not tell: what a call costs moves from the callee to the caller when the call is inlined. So the code of
a function in the other build is charged with its own counts and, for each call that it makes, with what a call of that
function has cost in the base build. Minus what the calls of it have cost in the base build, this is its change:

    value(f)  = (own(f) + sum over g of calls(f, g) value(g)) / calls of f                  in the base build
    change(f) =  own(f) + sum over g of calls(f, g) value(g) - calls of f * value(f)        in the other build

Recursion needs no special case: the values solve a linear system. Changes of all functions add up to that of the
program (a telescoping sum, as in Kakade and Langford 2002), as far as its own functions are concerned. A call of a
library function has the same value in both builds, so what changes inside of libraries, such as the number of
instructions of a `strcmp` that crosses a page, is charged to nobody.

Code that was inlined is part of the function that it was inlined into.
"""

import collections
from collections.abc import Callable, Mapping

import numpy as np

from compiler_opt.measure.callgrind import Counts, Function, Profile

MAX_FUNCTIONS = 2000
"""Of one linear system; less costly functions count as if they belonged to a library."""

Metric = Callable[[Counts], int]
"""What counts: instructions, or estimated cycles."""

METRICS: Mapping[str, Metric] = {
    "instructions": lambda counts: counts.instructions,
    "cycles": lambda counts: counts.cycles,
}
"""What can be made less, by name; cycles are callgrind's estimate."""


class Attribution:
    """What calls of each function have cost in a base build."""

    def __init__(self, base: Profile, metric: Metric, is_own: Callable[[str], bool]):
        """Solves for the values.

        Args:
          base: the profile of the base build.
          metric: what counts.
          is_own: whether an object file, by its path, is part of the program, and not of a library.
        """
        self._metric, self._is_own = metric, is_own
        self._values = self._solved(base, {})

    def changes(self, profile: Profile) -> dict[str, float]:
        """What each of the program's functions costs more (or less) in another build, by symbol.

        What a function costs that the base build did not call is charged to its callers.
        """
        own, calls = self._by_symbol(profile)
        values = self._solved(profile, self._values)
        called = _calls_of(calls)
        changes = {symbol: own[symbol] - called[symbol] * values.get(symbol, 0.0) for symbol in own}
        for (caller, callee), times in calls.items():
            if caller in changes:
                changes[caller] += times * values.get(callee, 0.0)
        return changes

    def _solved(self, profile: Profile, known: Mapping[str, float]) -> dict[str, float]:
        """The values of all functions that are called: the known ones, and what follows from them for the others."""
        own, calls = self._by_symbol(profile)
        values = {**self._inclusive_values(profile), **known}
        called = _calls_of(calls)
        unknown = sorted((f for f in own if called[f] and f not in known), key=lambda f: (-own[f], f))[:MAX_FUNCTIONS]
        numbers = {symbol: number for number, symbol in enumerate(unknown)}
        matrix, right = np.eye(len(numbers)), np.array([own[symbol] / called[symbol] for symbol in numbers])
        for (caller, callee), times in calls.items():
            if caller in numbers:
                share = times / called[caller]
                if callee in numbers:
                    matrix[numbers[caller], numbers[callee]] -= share
                else:
                    right[numbers[caller]] += share * values.get(callee, 0.0)
        try:
            solved = np.linalg.solve(matrix, right)
        except np.linalg.LinAlgError:
            # Exceptions and `longjmp` may leave counts that contradict each other.
            solved = np.linalg.lstsq(matrix, right, rcond=None)[0]
        values.update(zip(numbers, solved.tolist(), strict=True))
        return values

    def own(self, profile: Profile) -> dict[str, Counts]:
        """Own counts of each function of the program, by symbol."""
        own: dict[str, Counts] = {}
        for function, counts in profile.functions.items():
            if self._is_own(function.object):
                own[function.symbol] = own.get(function.symbol, Counts()) + counts
        return own

    def own_cost(self, profile: Profile) -> int:
        """The cost of all functions of the program, without the libraries."""
        return sum(map(self._metric, self.own(profile).values()))

    def _by_symbol(self, profile: Profile) -> tuple[collections.Counter[str], collections.Counter[tuple[str, str]]]:
        """Own cost of the program's functions, and calls of all functions."""
        own = collections.Counter({symbol: self._metric(counts) for symbol, counts in self.own(profile).items()})
        calls: collections.Counter[tuple[str, str]] = collections.Counter()
        for (caller, callee), each in profile.calls.items():
            calls[self._name(caller), self._name(callee)] += each.number
        return own, calls

    def _inclusive_values(self, profile: Profile) -> dict[str, float]:
        """The mean inclusive cost of a call of each function; too much for those that are recursive."""
        number: collections.Counter[str] = collections.Counter()
        cost: collections.Counter[str] = collections.Counter()
        for (_, callee), calls in profile.calls.items():
            number[self._name(callee)] += calls.number
            cost[self._name(callee)] += self._metric(calls.inclusive)
        return {name: cost[name] / times for name, times in number.items() if times}

    def _name(self, function: Function) -> str:
        return function.symbol if self._is_own(function.object) else f"{function.object}\0{function.symbol}"


def _calls_of(calls: Mapping[tuple[str, str], int]) -> collections.Counter[str]:
    """How often each function is called."""
    called: collections.Counter[str] = collections.Counter()
    for (_, callee), times in calls.items():
        called[callee] += times
    return called
