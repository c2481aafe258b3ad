"""Labels of many blocks at once, compared with one process for each block."""

import dataclasses
import json
import subprocess
from pathlib import Path

import pytest

from compiler_opt.cost_models.throughput.mca import Labeller, disassemble, label_all
from compiler_opt.errors import ConfigError, ToolchainError
from compiler_opt.llvm.toolchain import Toolchain

CODES = [
    bytes.fromhex(text)
    for text in (
        "90",
        "4803074889c7",  # add (%rdi), %rax; mov %rax, %rdi
        "f20f590500000000f20f58c8",  # mulsd, addsd
        "e80000000085c07500",  # call, test, jne
        "f0480fb10f",  # lock cmpxchg
        "f348ab",  # rep stos
        "5dc3",
    )
]
NOT_DECODABLE = bytes.fromhex("06")
HALF_AN_INSTRUCTION = bytes.fromhex("90480f")


def alone(code: bytes, toolchain: Toolchain, folder: Path) -> float:
    """By one llvm-mc and one llvm-mca."""
    (folder / "x.hex").write_text(" ".join(map(hex, code)))
    mc = [str(toolchain.tool("llvm-mc")), "--disassemble", "--triple=x86_64-unknown-linux-gnu", "x.hex"]
    text = subprocess.run(mc, cwd=folder, capture_output=True, text=True, check=True).stdout
    (folder / "x.s").write_text(text)
    mca = [str(toolchain.tool("llvm-mca")), "-mcpu=skylake", "-mtriple=x86_64-unknown-linux-gnu", "--json"]
    mca += ["--iterations=20", "--call-latency=1", "x.s"]
    output = subprocess.run(mca, cwd=folder, capture_output=True, text=True, check=True).stdout
    return float(json.loads(output)["CodeRegions"][0]["SummaryView"]["TotalCycles"] / 20)


@pytest.mark.both_compilers
def test_a_batch_gives_what_one_process_for_each_block_gives(toolchain: Toolchain, tmp_path: Path) -> None:
    labeller = Labeller(toolchain)
    labeller.check()
    assert label_all(CODES, labeller) == [alone(code, toolchain, tmp_path) for code in CODES]
    assert labeller.source == f"llvm-mca {'.'.join(map(str, toolchain.version))} skylake"


def test_bytes_that_are_no_instructions_get_no_label(toolchain: Toolchain) -> None:
    labeller = Labeller(toolchain)
    good = labeller.label(CODES)
    for place in (0, 3, len(CODES)):
        for bad in (NOT_DECODABLE, HALF_AN_INSTRUCTION):
            assert labeller.label([*CODES[:place], bad, *CODES[place:]]) == [*good[:place], None, *good[place:]]


def test_a_line_that_kills_a_batch_costs_only_its_own_label(toolchain: Toolchain, tmp_path: Path) -> None:
    labeller = Labeller(toolchain)
    texts = [text or "" for text in disassemble(CODES, toolchain, tmp_path)]
    good = labeller._cycles(texts, tmp_path)
    assert good == labeller.label(CODES)
    for place in (0, 3, len(CODES)):
        mixed = [*texts[:place], "\tno_such_instruction\t%rax\n", *texts[place:]]
        assert labeller._cycles(mixed, tmp_path) == [*good[:place], None, *good[place:]]


def test_a_call_costs_what_it_costs_here(toolchain: Toolchain) -> None:
    # By default llvm-mca gives a call 100 cycles, which 20 runs of the block would share.
    (call,) = Labeller(toolchain).label([bytes.fromhex("e800000000")])
    assert call is not None and call < 4


def test_the_users_mistakes(toolchain: Toolchain) -> None:
    with pytest.raises(ConfigError, match="--cpu=native: labels would depend on this machine"):
        Labeller(toolchain, "native").check()
    with pytest.raises(ToolchainError, match="llvm-mca cannot simulate x987"):
        Labeller(toolchain, "x987").check()
    tools = {name: path for name, path in toolchain.tools.items() if name != "llvm-mca"}
    with pytest.raises(ToolchainError, match=r"llvm-mca: not found beside .* install the package llvm-\d+"):
        Labeller(dataclasses.replace(toolchain, tools=tools)).check()
