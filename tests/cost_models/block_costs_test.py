"""Costs of blocks by name: from their machine code, by llvm-mca, and by a trained network."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.cost_models import block_costs
from compiler_opt.cost_models.block_costs import BlockCosts, regalloc_cost
from compiler_opt.cost_models.throughput.blocks import Block
from compiler_opt.cost_models.throughput.instructions import Decoder
from compiler_opt.cost_models.throughput.mca import Labeller
from compiler_opt.errors import ConfigError, PolicyError, ToolchainError
from compiler_opt.llvm.toolchain import Toolchain
from tests.cost_models.throughput.training_test import make

ADD, LOAD, NO_CODE = bytes.fromhex("4801c8"), bytes.fromhex("488b07"), b"\x06"


def block(code: bytes, misses: float = float("nan")) -> Block:
    return Block(code, "m.o", "f", 0, 1.0, annotations=(0.0, misses, 0.0, 0.0))


@pytest.mark.parametrize(
    ("code", "assembly", "cost"),
    [
        ("4889c8", "mov rax, rcx", 0.2),
        ("0f28c1", "movaps xmm0, xmm1", 0.2),
        ("31c0", "xor eax, eax", 0.2),
        ("31c8", "xor eax, ecx", 0),
        ("660fefc0", "pxor xmm0, xmm0", 0.2),
        ("660f76c0", "pcmpeqd xmm0, xmm0", 0.2),
        ("660f76c1", "pcmpeqd xmm0, xmm1", 0),
        ("b801000000", "mov eax, 1", 0.2),
        ("48b80102030405060708", "movabs rax, 0x807060504030201", 1),
        ("488d0500000000", "lea rax, [rip]", 1),
        ("488d442408", "lea rax, [rsp + 8]", 1),
        ("488d0411", "lea rax, [rcx + rdx]", 0),
        ("8b442408", "mov eax, [rsp + 8]", 4),
        ("03442408", "add eax, [rsp + 8]", 4),
        ("89442408", "mov [rsp + 8], eax", 1),
        ("c744240801000000", "mov [rsp + 8], 1", 1),
        ("01442408", "add [rsp + 8], eax", 5),
        ("50", "push rax", 0),
        ("e800000000", "call", 0),
        ("0f1f4000", "nop [rax]", 0),
        ("01c8", "add eax, ecx", 0),
    ],
)
def test_weights_of_the_regalloc_score(code: str, assembly: str, cost: float) -> None:
    decoded = Decoder().decode(2 * bytes.fromhex(code))
    assert decoded is not None and len(decoded) == 2
    assert regalloc_cost(decoded) == pytest.approx(2 * cost), assembly


def test_models_without_training(toolchain: Toolchain) -> None:
    blocks = [block(ADD), block(LOAD + ADD), block(NO_CODE)]
    assert block_costs.load("instructions", toolchain)(blocks).tolist() == [1, 2, 0]
    assert block_costs.load("RegAllocScore", toolchain)(blocks).tolist() == [0, 4, 0]
    mca = block_costs.load("llvm-mca", toolchain)
    assert mca.name == Labeller(toolchain).source
    assert mca(blocks).tolist() == [*Labeller(toolchain).label([ADD, LOAD + ADD]), 0]


@pytest.mark.ci
def test_a_network_sees_annotations(toolchain: Toolchain, tmp_path: Path) -> None:
    model, _ = make("graph", number=20)
    model.save(tmp_path / "model", {})
    costs = block_costs.load(str(tmp_path / "model"), toolchain)
    assert costs.name.startswith("graph network of test, ")
    blocks = [block(ADD), block(ADD, misses=3), block(NO_CODE)]
    expected = model.predict(blocks, Decoder())
    assert costs(blocks) == pytest.approx(np.nan_to_num(expected), rel=1e-4)
    assert expected[0] != expected[1]
    (tmp_path / "model" / "weights.npz").write_bytes(b"")
    with pytest.raises(PolicyError, match=r"weights\.npz: damaged"):
        block_costs.load(str(tmp_path / "model"), toolchain)


def test_what_is_known_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[bytes]] = []

    def code_bytes(blocks: Sequence[Block]) -> np.ndarray:
        asked.append([each.code for each in blocks])
        return np.array([np.nan if each.code == NO_CODE else len(each.code) for each in blocks])

    costs = BlockCosts("bytes", code_bytes)
    assert costs([block(ADD), block(NO_CODE), block(ADD, misses=1)]).tolist() == [3, 0, 3]
    assert costs([block(ADD), block(LOAD + ADD)]).tolist() == [3, 6]
    assert asked == [[ADD, NO_CODE], [LOAD + ADD]]
    assert costs([]).tolist() == []
    monkeypatch.setattr(block_costs, "_MAX_KNOWN", 3)
    assert costs([block(ADD), block(LOAD)]).tolist() == [3, 3]
    assert asked[2:] == [[ADD, LOAD]]


def test_unknown_models_are_named(toolchain: Toolchain) -> None:
    with pytest.raises(ConfigError, match="--cost_model: expected one of instructions, RegAllocScore, llvm-mca"):
        block_costs.load("cycles", toolchain)
    with pytest.raises(ToolchainError, match="llvm-mca cannot simulate 8086"):
        block_costs.load("llvm-mca", toolchain, cpu="8086")
