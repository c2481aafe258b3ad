"""What a search expects of moves, from what similar ones have done."""

import pytest

from compiler_opt.policies.decisions import Site
from compiler_opt.search.moves import Move
from compiler_opt.search.planning import Expectations


def move(size_class: int, scale_bytes: float = 100.0) -> Move:
    return Move("call", ((Site("caller", 1, "callee", 0), 1),), (1, size_class, 0, 0, 1), scale_bytes)


def test_unknown_moves_are_worth_a_share_of_their_scale() -> None:
    expectations = Expectations()
    assert expectations.worth_bytes(move(2, 200.0)) == 2 * expectations.worth_bytes(move(2)) > 0


def test_what_saved_is_worth_more_and_what_only_added_is_worth_nothing() -> None:
    expectations = Expectations()
    unknown = expectations.worth_bytes(move(2))
    for _ in range(20):
        expectations.learn(move(2), 50.0)
        expectations.learn(move(6, 10_000.0), -100_000.0)
    assert expectations.worth_bytes(move(2)) > unknown
    assert expectations.worth_bytes(move(6, 10_000.0)) < 0


def test_what_saves_seldom_is_worth_trying_if_it_adds_little() -> None:
    expectations = Expectations()
    for saved_bytes in (60.0, *[-20.0] * 19):
        expectations.learn(move(2), saved_bytes)
    assert 0 < expectations.worth_bytes(move(2)) < Expectations().worth_bytes(move(2))


@pytest.mark.parametrize("size_class", [2, 6])
def test_they_are_the_same_when_they_are_read_again(size_class: int) -> None:
    expectations = Expectations()
    expectations.learn(move(2), 12.5)
    expectations.learn(move(6), -3000.0)
    again = Expectations.from_json(expectations.to_json())
    assert again.worth_bytes(move(size_class)) == expectations.worth_bytes(move(size_class))
    assert again.to_json() == expectations.to_json()
