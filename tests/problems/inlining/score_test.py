"""The COMDAT-weighted score, by arithmetic that can be followed, and against what the linker really keeps."""

import pytest

from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.problems.inlining.score import comdat_copies, function_weights, weighted_text_bytes

ONE = ObjectSizes(
    text_bytes=100,
    comdats={"shared": 40, "mine": 10},
    functions={"shared": 30, "shared_alias": 30, "mine": 10, "main": 50},
    function_comdats={"shared": "shared", "shared_alias": "shared", "mine": "mine"},
)
OTHER = ObjectSizes(
    text_bytes=60, comdats={"shared": 40}, functions={"shared": 30}, function_comdats={"shared": "shared"}
)
PLAIN_C = ObjectSizes(text_bytes=70, comdats={}, functions={"f": 70}, function_comdats={})


def test_copies_are_objects_that_emit_the_group() -> None:
    assert comdat_copies([ONE, OTHER, PLAIN_C]) == {"shared": 2, "mine": 1}
    assert comdat_copies([]) == {}


def test_a_shared_group_costs_its_share() -> None:
    copies = comdat_copies([ONE, OTHER, PLAIN_C])
    assert weighted_text_bytes(ONE, copies) == pytest.approx(100 - 40 + 40 / 2)
    assert weighted_text_bytes(OTHER, copies) == pytest.approx(60 - 40 + 40 / 2)
    assert weighted_text_bytes(PLAIN_C, copies) == 70


def test_the_sum_over_a_project_counts_each_group_once() -> None:
    project = [ONE, OTHER, PLAIN_C]
    total = sum(weighted_text_bytes(sizes, comdat_copies(project)) for sizes in project)
    assert total == pytest.approx((100 + 60 + 70) - 40)  # One of the two copies of 40 bytes is folded.


def test_a_group_that_the_default_emits_nowhere_counts_in_full() -> None:
    assert weighted_text_bytes(ONE, {}) == 100
    assert weighted_text_bytes(ONE, {"shared": 4}) == pytest.approx(100 - 40 * 3 / 4)


def test_functions_weigh_as_their_group() -> None:
    assert function_weights(ONE, {"shared": 4, "mine": 1}) == {
        "shared": 1 / 4,
        "shared_alias": 1 / 4,
        "mine": 1,
        "main": 1,
    }
    assert function_weights(PLAIN_C, {"shared": 4}) == {"f": 1}
