"""Where mispredicted branches went."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_opt.measure.callgrind import Counts, run_profiled
from compiler_opt.measure.mispredictions import mispredicted_entries
from tests.measure.running import built


def test_a_conditional_branch_is_mispredicted_towards_its_rare_way() -> None:
    instructions = {0x10: Counts(100, mispredicts=10), 0x12: Counts(90), 0x20: Counts(10)}
    assert mispredicted_entries(instructions, {(0x10, 0x20): 10}) == {0x20: 9, 0x12: 1}
    # It never falls through, or is never taken.
    assert mispredicted_entries({0x10: Counts(7, mispredicts=2)}, {(0x10, 0x20): 7}) == {0x20: 2}
    never_taken = {0x10: Counts(7, mispredicts=2), 0x30: Counts(7)}
    assert mispredicted_entries(never_taken, {}) == mispredicted_entries(never_taken, {(0x10, 0x20): 0}) == {0x30: 2}


def test_an_indirect_branch_is_mispredicted_where_its_target_changes() -> None:
    instructions = {0x10: Counts(100, mispredicts=40, indirect_mispredicts=40), 0x12: Counts(100)}
    jumps = {(0x10, 0x20): 50, (0x10, 0x30): 25, (0x10, 0x40): 25}
    weights = (50 * 50, 25 * 75, 25 * 75)
    assert mispredicted_entries(instructions, jumps) == pytest.approx(
        {target: 40 * weight / sum(weights) for target, weight in zip((0x20, 0x30, 0x40), weights, strict=True)}
    )
    # What was never jumped to does not count.
    assert mispredicted_entries(instructions, {(0x10, 0x20): 100, (0x10, 0x30): 0}) == {0x20: 40}
    # Into other object files only.
    assert mispredicted_entries(instructions, {}) == {}


_branches = st.tuples(st.integers(0, 99), st.integers(0, 99), st.booleans())


@given(st.dictionaries(st.integers(0, 50), _branches, max_size=8))
def test_none_is_lost(branches: dict[int, tuple[int, int, bool]]) -> None:
    """Each branch's ways are known here: 100 is taken, 51 is what follows the last one."""
    instructions, jumps = {51: Counts(1)}, {}
    for address, (taken, mispredicted, is_indirect) in branches.items():
        executed = max(1, taken) if is_indirect else taken + 3
        mispredicts = min(executed, mispredicted)
        instructions[address] = Counts(
            executed, mispredicts=mispredicts, indirect_mispredicts=mispredicts if is_indirect else 0
        )
        jumps[address, 100] = executed if is_indirect else taken
    entries = mispredicted_entries(instructions, jumps)
    assert sum(entries.values()) == pytest.approx(sum(counts.mispredicts for counts in instructions.values()))
    assert all(entered >= 0 for entered in entries.values())


RANDOM = """
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) int rare(int x) { return x * 3; }
int main(int argc, char **argv) {
  unsigned state = 1;
  int sum = 0;
  for (int i = atoi(argv[1]); i; i--) {
    state = state * 1103515245 + 12345;
    if (state >> 28 == 0) sum = rare(sum); else sum ^= state;
  }
  printf("%d\\n", sum);
}
"""
"""Calls `rare` once in 16 iterations, without a pattern."""


def test_those_of_a_real_program_lead_to_the_rare_way(tmp_path: Path) -> None:
    program = built(tmp_path, RANDOM)
    profile = run_profiled([str(program), "16000"], scratch=tmp_path, by_instruction=True).profile
    assert profile is not None
    instructions, jumps = profile.of_object(os.path.realpath(program))
    entries = mispredicted_entries(instructions, jumps)
    address, entered = max(entries.items(), key=lambda item: item[1])
    assert 500 < entered <= 1.2 * instructions[address].instructions
    assert 700 < instructions[address].instructions < 1300  # 16,000 / 16: the block that calls `rare`
    within = sum(counts.mispredicts for counts in instructions.values())
    assert sum(entries.values()) == pytest.approx(within, rel=0.02)
