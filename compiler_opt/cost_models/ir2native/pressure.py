"""Estimates how many values are alive at a time, from the order of the instructions: registers, saves and spills.

A value lives from its definition to its last use in the order of the blocks; what is alive where a loop begins, and is
used in it, lives to the loop's end. V values, N instructions.
"""

import re
from collections.abc import Mapping

import numpy as np

from compiler_opt.cost_models.ir2native import operands
from compiler_opt.cost_models.ir2native.ir_text import Function

_LABEL = re.compile(r"label %(\d+)")
_PHI = re.compile(r"\[ ([^,\[\]]+), %(\d+) \]")
_MAX_LOOPS = 400
_REGISTERS = (5, 8, 13)
"""Numbers of live values above which another kind of register is taken; the differences beyond them are features."""


def pressure(function: Function, weightless: set[int]) -> Mapping[str, float]:
    """The features of one function; `weightless` are values that need no register."""
    lines = [line for block in function.blocks for line in block.lines]
    ends: dict[int, int] = {}
    starts: dict[int, int] = {}
    position = 0
    for block in function.blocks:
        starts[block.label] = position
        position += len(block.lines)
        ends[block.label] = position - 1
    number_of: dict[int, int] = {}
    begin: list[int] = []
    is_float: list[bool] = []
    for parameter, text in enumerate(function.parameters):
        if text != "...":
            number_of[parameter] = len(begin)
            begin.append(-1)
            is_float.append(operands.type_class(text) in ("f32", "f64", "f16", "vec"))
    calls: list[int] = []
    for index, (result, opcode, rest) in enumerate(lines):
        if result >= 0 and result not in weightless:
            number_of[result] = len(begin)
            begin.append(index)
            kind = rest.rpartition(" to ")[2] if " to " in rest else rest
            is_float.append(
                opcode not in ("fcmp", "icmp") and operands.type_class(kind) in ("f32", "f64", "f16", "vec")
            )
        is_call = opcode.endswith("call") or opcode == "invoke"
        if is_call and "@llvm." not in rest and "asm " not in rest:
            calls.append(index)
    last = list(begin)
    back: list[tuple[int, int]] = []
    uses = [0] * len(begin)
    for index, (_, opcode, rest) in enumerate(lines):
        if opcode == "phi":
            for value, label in _PHI.findall(rest):
                if value[1:].isdigit() and value.startswith("%") and int(value[1:]) in number_of:
                    used = number_of[int(value[1:])]
                    last[used] = max(last[used], ends.get(int(label), index))
                    uses[used] += 1
            continue
        for value in operands.used_values(rest):
            if value in number_of:
                used = number_of[value]
                last[used] = max(last[used], index)
                uses[used] += 1
        if "label %" in rest:
            back += [
                (starts[int(label)], index)
                for label in _LABEL.findall(rest)
                if starts.get(int(label), index + 1) <= index
            ]
    first, final = np.array(begin, np.int64), np.array(last, np.int64)  # [V]
    for start, end in sorted(back, key=lambda loop: loop[1])[:_MAX_LOOPS]:
        final[(first < start) & (final >= start) & (final < end)] = end
    floats = np.array(is_float, bool)
    found: dict[str, float] = {"live.values": len(first), "live.calls": len(calls), "live.loops": len(back)}
    call_positions = np.array(calls, np.int64)
    use_counts = np.array(uses, np.float64)
    for name, chosen in (("int", ~floats), ("float", floats)):
        since, until = first[chosen], final[chosen]
        alive = _alive(since, until, len(lines))  # [N]
        crossed = np.searchsorted(call_positions, until) - np.searchsorted(call_positions, since, side="right")
        crosses = crossed > 0
        across = _alive(since[crosses], until[crosses], len(lines))[call_positions] if len(calls) else np.zeros(0)
        most = float(across.max()) if len(across) else 0.0
        found[f"live.{name}.max"] = float(alive.max()) if len(alive) else 0.0
        found[f"live.{name}.mean"] = float(alive.mean()) if len(alive) else 0.0
        found[f"live.{name}.across"] = most
        found[f"live.{name}.saved"] = min(most, 6.0)
        found[f"live.{name}.crossing"] = float(crosses.sum())
        found[f"live.{name}.crossing_uses"] = float(use_counts[chosen][crosses].sum())
        found[f"live.{name}.spilled_across"] = max(most - 6.0, 0.0)
        for limit in _REGISTERS:
            found[f"live.{name}.over{limit}"] = float(np.maximum(alive - limit, 0).sum())
    return found


def _alive(since: np.ndarray, until: np.ndarray, num_instructions: int) -> np.ndarray:
    """`[N]`: how many values are alive behind each instruction, by `[V]` definitions and last uses."""
    change = np.zeros(num_instructions + 2, np.int64)
    np.add.at(change, since + 1, 1)
    np.add.at(change, until + 1, -1)
    # A value that is defined by instruction i and last used by j is alive behind i, ..., j - 1.
    return np.cumsum(change)[1 : num_instructions + 1]
