"""Comparisons of programs and groups of variants, with costs that are given."""

import dataclasses
import json
from collections.abc import Mapping

from compiler_opt.measure.wall_time import Median, WallTimes
from studies.ranking.costs import CYCLE_ESTIMATE, MEASURED, OWN, Costs, Model, models
from studies.ranking.report import RankedProgram, compare_all, csv_rows, lines, to_json

MODELS = [Model(CYCLE_ESTIMATE, MEASURED), Model("llvm-mca", OWN)]


def program(
    name: str, costs: Mapping[str, tuple[float, float]], wall: Mapping[str, float] | None = None
) -> RankedProgram:
    """A program with a cycle estimate and a cost by llvm-mca of each variant, and wall times that are 0.1 uncertain."""
    by_variant = {variant: Costs(dict(zip(MODELS, each, strict=True)), 0.5, 1.0) for variant, each in costs.items()}
    times = None
    if wall is not None:
        medians = {variant: Median(value, value - 0.1, value + 0.1) for variant, value in wall.items()}
        times = {variant: WallTimes(each, each) for variant, each in medians.items()}
    return RankedProgram(name, by_variant, times, {"broken": "why"})


def test_against_wall_time_and_the_cycle_estimate() -> None:
    costs = {"default": (10.0, 3.0), "x": (11.0, 2.0), "y": (12.0, 4.0)}
    found = compare_all([program("p", costs, {"default": 1.0, "x": 1.05, "y": 1.5})], MODELS)
    assert [(each.truth_name, each.variants, each.num_decided, each.num_pairs) for each in found] == [
        ("wall time", "all", 2, 3),
        ("cycle estimate", "all", 3, 3),
    ]
    # llvm-mca has the pair (default, x) the wrong way round, which wall time does not decide.
    assert [each.value for each in found[0].agreement.accuracy] == [1, 1]
    assert found[1].models == MODELS[1:] and found[1].agreement.accuracy[0].value == 2 / 3
    text = lines(found[1])
    assert text[0].startswith("all variants against cycle estimate: 1 program, 3 builds; 3 of 3 pairs are decided; 95%")
    assert text[3].split()[:4] == ["llvm-mca", "own", "0.33", "(-1.00"]


def test_groups_are_named_up_to_the_dash() -> None:
    costs = {
        "default": (1.0, 1.0),
        "a-1": (2.0, 2.0),
        "a-2": (3.0, 3.0),
        "b-1": (4.0, 5.0),
        "b-2": (5.0, 4.0),
        "c": (6.0, 6.0),
    }
    found = compare_all([program("p", costs), program("q", costs)], MODELS)
    assert [(each.variants, each.num_pairs) for each in found] == [("all", 30), ("a-*", 6), ("b-*", 6)]
    assert [each.agreement.accuracy[0].value for each in found[1:]] == [1, 2 / 3]
    only = {name: each for name, each in costs.items() if not name.startswith("b")}
    assert [each.variants for each in compare_all([program("p", only)], MODELS)] == ["all"]


def test_a_program_with_one_build_is_not_compared() -> None:
    one, two = {"default": (1.0, 1.0)}, {"default": (1.0, 1.0), "x": (1.0, 2.0)}
    assert compare_all([program("p", one)], MODELS) == []
    (found,) = compare_all([program("p", one), program("q", two)], MODELS)
    assert found.programs == ["q"] and found.num_decided == 0
    assert "\N{EN DASH}" in lines(found)[3]


def test_files() -> None:
    ranked = program("p", {"default": (1.0, 1.0), "x": (1.0, 2.0)}, {"default": 1.0, "x": 2.0})
    rows = csv_rows([ranked, dataclasses.replace(ranked, wall=None)])
    assert rows[1]["variant"] == "x" and rows[1]["at most"] == 2.1 and rows[1]["llvm-mca (own)"] == 2
    assert rows[2]["wall seconds"] == ""
    content = json.loads(
        json.dumps(to_json([ranked], compare_all([ranked], MODELS), {"base": "default"}), allow_nan=False)
    )
    assert content["programs"] == [{"program": "p", "variants": ["default", "x"], "left_out": {"broken": "why"}}]
    wall, estimate = content["comparisons"]
    assert wall["models"][1]["by_program"] == {"p": {"tau": 1, "accuracy": 1}}
    assert estimate["models"][0]["accuracy"] == {"value": None, "low": None, "high": None}


def test_rows_are_in_order() -> None:
    names = [str(model) for model in models(learned=True)]
    assert names[:3] == ["instructions (measured)", "cycle estimate (measured)", "instructions (own)"]
    assert names[-5] == "learned + runtime (matched)" and names[-1] == "learned (estimated)"
    assert len(names) == 2 + 2 * 6 + 4
    assert len(models(learned=False)) == 2 + 2 * 4 + 3
