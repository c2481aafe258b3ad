"""Costs of a profiled program: their sum changes as what the program executes, whatever is inlined where."""

import itertools
from collections.abc import Sequence

import pytest

from compiler_opt.cost_models.profiled_costs import InlinedCall, ProfiledCosts, ProfiledModule

_CALL = 2.0
"""What a call costs its caller."""
_INNER, _SHARED, _INNER_INLINED, _SHARED_INLINED = 10.0, 7.0, 8.0, 6.0
"""One call of each shared function, without calls; and inlined."""

_CALLERS = ((100, 0), (50, 1), (30, 0))
"""Of `shared`: how often each calls it, for each call of itself, and in which module it is."""


class _Program:
    """Local functions `caller0`..., in two modules, call `shared`, which calls `inner` three times; both emit both."""

    def __init__(self, nested: Sequence[bool], inlined: Sequence[bool]):
        """Whether `inner` is inlined into `shared`, in each module; and `shared` into each caller."""
        self.nested, self.inlined = nested, inlined
        self.modules = [self._module(number) for number in (0, 1)]

    def _body(self, module: int, cost: float) -> float:
        """One execution of the body of `shared`, in a module's copy of it or in a caller there."""
        return cost + 3 * (_INNER_INLINED if self.nested[module] else _CALL)

    def _module(self, number: int) -> ProfiledModule:
        all_calls = float(sum(count for count, _ in _CALLERS))
        costs: dict[str, float] = {}
        calls: dict[str, float] = {}
        done = [InlinedCall("shared", "inner", 3 * all_calls)] if self.nested[number] else []
        left = all_calls
        for index, (count, home) in enumerate(_CALLERS):
            if home != number:
                continue
            name = f"caller{index}"
            calls[name] = 1.0
            costs[name] = 5 + count * (self._body(number, _SHARED_INLINED) if self.inlined[index] else _CALL)
            if self.inlined[index]:
                done.append(InlinedCall(name, "shared", count))
                left -= count
        own = [self.inlined[index] for index, (_, home) in enumerate(_CALLERS) if home == number]
        if not all(own):
            costs["shared"], calls["shared"] = self._body(number, _SHARED), left
        if not self.nested[number]:
            costs["inner"], calls["inner"] = _INNER, 3 * all_calls
        shared = frozenset(costs.keys() & {"shared", "inner"})
        return ProfiledModule(frozenset(costs), shared, costs, calls, done)

    def executed(self) -> float:
        """What the linked program executes: its shared functions are those of the first module that emits them."""
        shared_home = next((n for n in (0, 1) if "shared" in self.modules[n].functions), None)
        total, inner_calls = 0.0, 0.0
        for index, (count, home) in enumerate(_CALLERS):
            total += self.modules[home].call_costs[f"caller{index}"]
            body = home if self.inlined[index] else shared_home
            assert body is not None
            if body == shared_home and not self.inlined[index]:
                total += count * self.modules[body].call_costs["shared"]
            inner_calls += 0 if self.nested[body] else 3 * count
        return total + _INNER * inner_calls

    def weighted(self, costs: ProfiledCosts) -> float:
        """The sum of the functions' costs, shared ones in the first module that emits them."""
        seen: set[str] = set()
        total = 0.0
        for module in self.modules:
            found = costs.of(module)
            assert found.keys() <= module.functions
            total += sum(cost for name, cost in found.items() if name not in seen)
            seen |= module.shared
        return total


_BASES = [(False, False, False), (True, False, False), (True, True, True)]


def _changes(base: tuple[bool, ...], nested: bool, inlined: Sequence[bool]) -> tuple[float, float]:
    """From a base in which nothing is inlined into `shared`: of the sum, and of what is executed."""
    start = _Program((False, False), base)
    costs = ProfiledCosts(start.modules, _Program((False, False), (False, False, False)).modules)
    # All modules decide alike in a shared function.
    program = _Program((nested, nested), inlined)
    return program.weighted(costs) - start.weighted(costs), program.executed() - start.executed()


@pytest.mark.parametrize("base", _BASES)
@pytest.mark.parametrize("inlined", list(itertools.product((False, True), repeat=3)))
def test_the_sum_changes_as_what_the_program_executes(base: tuple[bool, ...], inlined: tuple[bool, ...]) -> None:
    found, executed = _changes(base, False, inlined)
    assert found == pytest.approx(executed)


@pytest.mark.parametrize("base", _BASES)
@pytest.mark.parametrize("inlined", [(False, False, False), (True, False, False), (False, False, True), (True,) * 3])
def test_a_shared_function_that_is_changed_and_inlined(base: tuple[bool, ...], inlined: tuple[bool, ...]) -> None:
    """In the module whose copy is kept, or everywhere."""
    found, executed = _changes(base, True, inlined)
    assert found == pytest.approx(executed)


def test_a_shared_function_that_is_changed_and_inlined_elsewhere() -> None:
    """Then the change counts twice, for the calls that are inlined in another module than the copy that is kept."""
    found, executed = _changes(_BASES[0], True, (False, True, False))
    body = 3 * (_INNER_INLINED - _CALL - _INNER)
    assert found == pytest.approx(executed + 50 * body)


def test_a_function_of_one_module_costs_what_it_executes() -> None:
    module = ProfiledModule(frozenset(("f", "g")), frozenset(), {"f": 3.0, "g": 0.5}, {"f": 4.0, "g": 0.0}, [])
    assert ProfiledCosts([module], [module]).of(module) == {"f": 12.0, "g": 0.0}


def test_what_is_saved_by_code_that_is_in_no_function_is_lost() -> None:
    """The caller is gone, and nothing has its code: it was not reachable."""
    shared = ProfiledModule(frozenset({"g"}), frozenset({"g"}), {"g": 10.0}, {"g": 5.0}, [])
    gone = ProfiledModule(frozenset(), frozenset(), {}, {}, [InlinedCall("f", "g", 5.0)])
    assert ProfiledCosts([shared], []).of(gone) == {}


@pytest.mark.parametrize("parts", [("f.resume",), ("f.destroy", "f.resume")])
def test_what_a_coroutine_saves_is_credited_to_its_part_that_runs_most(parts: tuple[str, ...]) -> None:
    """Nobody calls the coroutine itself any more."""
    shared = ProfiledModule(frozenset({"g"}), frozenset({"g"}), {"g": 10.0}, {"g": 5.0}, [])
    module = ProfiledModule(frozenset(parts), frozenset(), {}, {}, [InlinedCall("f", "g", 5.0)])
    assert ProfiledCosts([shared], []).of(module) == {"f.resume": -50.0}
