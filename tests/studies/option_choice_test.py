import itertools
import math
from collections.abc import Mapping

import numpy as np
import pytest

from studies.option_choice import OptionSet, Step, choose, greedy_menu


class Effects:
    """Sizes by a table: what each option changes, and what pairs change besides."""

    def __init__(self, alone: Mapping[str, float], together: Mapping[frozenset[str], float] | None = None):
        self.alone, self.together = alone, together or {}
        self.num_measured = 0

    def gain(self, options: OptionSet) -> float:
        self.num_measured += 1
        pairs = (frozenset(pair) for pair in itertools.combinations(options, 2))
        return math.fsum(self.alone[each] for each in options) + math.fsum(self.together.get(p, 0.0) for p in pairs)

    def ranked(self) -> list[tuple[float, str]]:
        return [(self.gain((option,)), option) for option in self.alone]


def chosen(effects: Effects, refused: frozenset[str] = frozenset(), pairs: int = 8) -> tuple[set[str], list[Step]]:
    def constraint(options: OptionSet) -> str:
        return f"slow: {' '.join(sorted(refused & set(options)))}" if refused & set(options) else ""

    steps = list(choose(effects.ranked(), effects.gain, constraint, pairs=pairs))
    return set(steps[-1].options), steps


def test_what_gains_is_chosen_and_what_does_not_is_not() -> None:
    options, steps = chosen(Effects({"-a=1": -0.02, "-b": -0.01, "-c": 0.01, "-d": -0.0001}))
    assert options == {"-a=1", "-b"}
    assert steps[-1].gain == pytest.approx(-0.03)


def test_an_option_that_adds_nothing_to_another_is_left_out() -> None:
    same = Effects({"-a": -0.02, "-b": -0.019}, {frozenset(["-a", "-b"]): 0.019})
    assert chosen(same)[0] == {"-a"}


def test_an_option_that_a_later_one_makes_harmful_is_dropped() -> None:
    effects = Effects({"-a": -0.02, "-b": -0.015, "-c": -0.014}, {frozenset(["-a", "-c"]): 0.009})
    effects.together = {**effects.together, frozenset(["-a", "-b"]): 0.013}
    options, steps = chosen(effects)
    assert options == {"-b", "-c"}
    assert any(step.what == "- -a" for step in steps)


def test_an_option_that_later_ones_make_useless_stays_since_it_may_be_what_makes_the_set_fast() -> None:
    overlaps = {frozenset(["-a", "-b"]): 0.0101, frozenset(["-a", "-c"]): 0.01}
    assert chosen(Effects({"-a": -0.02, "-b": -0.015, "-c": -0.014}, overlaps))[0] == {"-a", "-b", "-c"}


def test_of_an_option_only_one_value_is_chosen() -> None:
    options, _ = chosen(Effects({"-a=1": -0.02, "-a=2": -0.03, "-b": -0.001}))
    assert options == {"-a=2", "-b"}


def test_what_the_constraint_refuses_is_reported_and_left_out() -> None:
    options, steps = chosen(Effects({"-a": -0.02, "-b": -0.01}), frozenset(["-a"]))
    assert options == {"-b"}
    assert [step.refused for step in steps] == ["slow: -a", "", "slow: -a"]


def test_a_pair_that_pays_only_together_is_found() -> None:
    effects = Effects({"-a": -0.02, "-b": -0.00015, "-c": -0.00015}, {frozenset(["-b", "-c"]): -0.01})
    ranked = [*effects.ranked(), (-0.001, "-d")]  # d gains nothing beside a
    effects.alone = {**effects.alone, "-d": 0.0}
    steps = list(choose(ranked, effects.gain, lambda _: ""))
    assert set(steps[-1].options) == {"-a"}
    together = Effects({"-a": -0.02, "-b": -0.003, "-c": -0.003})
    together.together = {
        frozenset(["-a", "-b"]): 0.003,
        frozenset(["-a", "-c"]): 0.003,
        frozenset(["-b", "-c"]): -0.01,
    }
    assert chosen(together)[0] == {"-a", "-b", "-c"}
    assert chosen(together, pairs=0)[0] == {"-a"}


def test_the_start_loses_what_does_not_pay() -> None:
    effects = Effects({"-a": -0.02, "-b": 0.001, "-c": -0.01})
    steps = list(choose(effects.ranked(), effects.gain, lambda _: "", start=("-a", "-b")))
    assert [step.what for step in steps] == ["start: -a -b", "- -b", "+ -c"]
    assert steps[-1].options == ("-a", "-c")


def test_a_start_that_the_constraint_refuses_is_not_begun_with() -> None:
    effects = Effects({"-a": -0.02, "-b": -0.01})
    steps = list(choose(effects.ranked(), effects.gain, lambda each: "slow" * ("-a" in each), start=("-a", "-b")))
    assert [step.refused for step in steps] == ["slow", "slow", "", "slow"]
    assert steps[-1].options == ("-b",)


def test_what_was_refused_is_tried_on_the_final_set() -> None:
    effects = Effects({"-a": -0.02, "-b": -0.01, "-c": -0.005})
    slow = {"-a": 0.02, "-b": -0.03, "-c": 0.02}  # instructions

    def constraint(options: OptionSet) -> str:
        return "slow" if math.fsum(slow[each] for each in options) > 0 else ""

    steps = list(choose(effects.ranked(), effects.gain, constraint))
    assert [step.what for step in steps] == ["+ -a", "+ -b", "+ -c", "+ -a"]
    assert [step.refused for step in steps] == ["slow", "", "", "slow"]
    slow["-c"] = -0.01
    assert set(list(choose(effects.ranked(), effects.gain, constraint))[-1].options) == {"-a", "-b", "-c"}


def test_of_an_option_that_was_refused_milder_values_are_tried() -> None:
    effects = Effects({"-a=1": -0.02, "-a=2": -0.019, "-a=3": -0.005})
    tried: list[OptionSet] = []

    def constraint(options: OptionSet) -> str:
        tried.append(options)
        return "" if options == ("-a=3",) else "slow"

    steps = list(choose(effects.ranked(), effects.gain, constraint))
    assert tried[:2] == [("-a=1",), ("-a=3",)]
    assert [step.options for step in steps if not step.refused] == [("-a=3",)]


def test_few_sets_are_measured() -> None:
    effects = Effects({f"-o{number}": -0.0005 * number for number in range(100)})
    chosen(effects, pairs=0)
    # One for each option alone; then one for each that is chosen, and one for each backward step.
    assert effects.num_measured < 100 + 100 + 100 * 100 / 2 + 1


def test_the_menu_takes_for_each_function_the_best() -> None:
    plain = np.array([100.0, 100.0, 200.0])
    changes = {
        "constant": np.array([-10.0, -10.0, -10.0]),
        "first": np.array([-50.0, 90.0, 90.0]),
        "third": np.array([90.0, 90.0, -15.0]),
        "useless": np.array([-5.0, -5.0, 0.0]),
    }
    menu = greedy_menu(plain, changes, np.array([0, 0, 1]))
    assert [each.options for each in menu] == ["constant", "first", "third"]
    assert menu[0].gain == pytest.approx((-20 / 200 - 10 / 200) / 2)
    assert menu[-1].gain == pytest.approx((-60 / 200 - 15 / 200) / 2)
    assert greedy_menu(plain, changes, np.array([0, 0, 1]), size=2) == menu[:2]
