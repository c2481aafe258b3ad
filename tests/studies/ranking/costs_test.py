"""Costs of blocks from their machine code, and sums over builds."""

from collections.abc import Sequence

import numpy as np
import pytest

from compiler_opt.cost_models.throughput.blocks import Block
from compiler_opt.cost_models.throughput.instructions import Decoder
from studies.ranking import costs
from studies.ranking.builds import Build
from studies.ranking.costs import MATCHED, MEASURED, OWN, CostModels, Model, models
from tests.cost_models.samples import block
from tests.studies.ranking.samples import build

LOAD_AND_RETURN = bytes.fromhex("8b07c3")


def costs_of(base: Build, other: Build, predict: costs.Predict | None = None) -> dict[str, float]:
    cycles = {b"\x90": 0.25, LOAD_AND_RETURN: 2.0}
    found = CostModels(Decoder(), cycles, predict).costs(base, other)
    assert list(found.by_model) == models(learned=predict is not None)
    return {str(model): cost for model, cost in found.by_model.items()}


def test_sums_over_blocks() -> None:
    base = build([block("f", 0, 10), block("f", 1, 30, 2, misses=0.5, code=LOAD_AND_RETURN)])
    found = costs_of(base, base)
    assert found["instructions (measured)"] == 1000
    for counts in (OWN, MATCHED):
        assert found[f"instructions ({counts})"] == 10 * 1 + 30 * 2
        assert found[f"RegAllocScore ({counts})"] == 30 * 4
        assert found[f"llvm-mca ({counts})"] == 10 * 0.25 + 30 * 2
        assert found[f"llvm-mca + penalties ({counts})"] == 10 * 0.25 + 30 * (2 + 0.5 * 10)
    # One call of `f`, with the compiler's frequencies 1 and 2.
    assert found["instructions (estimated)"] == 1 * 1 + 2 * 2
    assert found["RegAllocScore (estimated)"] == 2 * 4
    assert found["llvm-mca (estimated)"] == 1 * 0.25 + 2 * 2
    assert "llvm-mca + penalties (estimated)" not in found


def test_misses_of_blocks_without_a_counterpart_stay() -> None:
    base = build([block("f", 0, 10, misses=1), block("g", 0, 20, misses=2)])
    other = build([block("f", 0, 10), block("new", 0, 5, misses=9)])
    # Both nops cost 0.25; `f` has its misses, those of `g` stay, and those of `new` are not known.
    assert costs_of(base, other)["llvm-mca + penalties (own)"] == 15 * 0.25 + 10 * 10 + 20 * 20


def data_misses(blocks: Sequence[Block]) -> np.ndarray:
    """What a network might predict; 100 without annotations."""
    return np.array([each.annotations[1] if np.isfinite(each.annotations[1]) else 100.0 for each in blocks])


def test_a_network_sees_annotations_of_the_base_or_none() -> None:
    seen: list[Block] = []

    def predict(blocks: Sequence[Block]) -> np.ndarray:
        seen.extend(blocks)
        return data_misses(blocks)

    base = build([block("f", 0, 10, misses=0.5), block("f", 1, 20, 2, misses=3), block("g", 0, 0)])
    found = costs_of(base, base, predict)
    assert found["learned (own)"] == (10 + 20) * 100
    assert found["learned + runtime (own)"] == 10 * 0.5 + 20 * 3
    # Each once: hidden, and with two kinds of annotations; `g` does not run.
    assert len(seen) == 3


def test_a_network_takes_other_blocks_for_average_ones() -> None:
    base = build([block("f", 0, 10, misses=1), block("g", 0, 20, misses=2), block("g", 1, 0)])
    other = build([block("f", 0, 10), block("new", 0, 5, misses=9)])
    average = (10 * 1 + 20 * 2) / (10 + 20)
    assert costs_of(base, other, data_misses)["learned + runtime (own)"] == pytest.approx(10 * 1 + 5 * average)


def test_blocks_without_a_cost_cost_nothing_anywhere() -> None:
    refused = b"\x90\x90\x90"
    base = build([block("f", 0, 10), block("f", 1, 30, 3, code=refused), block("f", 2, 7, code=b"")])
    found = CostModels(Decoder(), {b"\x90": 0.25}).costs(base, base)
    assert found.by_model[Model("instructions", OWN)] == 10
    assert found.instructions_with_cost == 10 / 1000
    assert found.by_model[Model("cycle estimate", MEASURED)] == 1000
