"""Classes of types, constants and addresses in textual IR, as far as they decide how an instruction is encoded."""

import re

from compiler_opt.cost_models.ir2native.ir_text import split_operands

_TYPE = re.compile(r"(?:^|[\s(])(void|ptr|i\d+|float|double|half|bfloat|x86_fp80|fp128|[<{\[]|%[\w$.\"]+(?=[ ,]|$))")
_INTEGER = re.compile(r"-?\d+$")
_VALUE = re.compile(r"%(\d+)")
_BITS = (1, 8, 16, 32, 64)
_SCALARS = {"ptr": "i64", "float": "f32", "double": "f64", "half": "f16", "bfloat": "f16", "void": "void"}
_BYTES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "f32": 4, "f64": 8, "f16": 2}


def type_class(text: str) -> str:
    """The class of the first type in a text: `i32`, `i64` (also pointers), `f64`, `vec`, `agg`, `wide`, ..., `none`."""
    match = _TYPE.search(text)
    if match is None:
        return "none"
    name = match[1]
    if name in _SCALARS:
        return _SCALARS[name]
    if name[0] == "i":
        bits = int(name[1:])
        return next((f"i{size}" for size in _BITS if bits <= size), "wide")
    if name == "<":
        return "agg" if text[match.start(1) + 1 :].startswith("{") else "vec"
    return "agg" if name[0] in "{[%" else "x87"


def type_bytes(kind: str) -> int:
    """The bytes of a scalar of this class; 0 if it is none."""
    return _BYTES.get(kind, 0)


def constant_class(text: str) -> str:
    """`zero`, `one`, `imm8`, `imm32`, `imm64`, `fp`, `null`, `undef`, `glob`, `expr`; `reg` for a value."""
    if text.startswith("%"):
        return "reg"
    if _INTEGER.match(text):
        return integer_class(int(text[:20]))
    if text in ("null", "false", "zeroinitializer", "0.000000e+00"):
        return "zero"
    if text == "true":
        return "one"
    if text in ("undef", "poison"):
        return "undef"
    if text.startswith("@"):
        return "glob"
    if text[:1].isdigit() or text.startswith(("-", "0x")):
        return "fp"
    return "expr"


def integer_class(value: int) -> str:
    """How large an immediate is: `zero`, `one` (also -1), `imm8`, `imm32` or `imm64`."""
    if value == 0:
        return "zero"
    if abs(value) == 1:
        return "one"
    if -128 <= value < 128:
        return "imm8"
    return "imm32" if -(1 << 31) <= value < 1 << 31 else "imm64"


def last_word(operand: str) -> str:
    """The value of an operand, after its type and attributes: `ptr noundef %3` is `%3`; constant expressions whole."""
    if operand.endswith(")"):
        # `ptr getelementptr inbounds (i8, ptr @g, i64 8)`
        return operand.partition(" ")[2] if not operand.startswith(("getelementptr", "blockaddress")) else operand
    return operand.rpartition(" ")[2]


def used_values(text: str) -> list[int]:
    """The numbers of the values and labels that a text names."""
    return [int(number) for number in _VALUE.findall(text)]


def gep_class(rest: str) -> str:
    """How the address of a `getelementptr` is formed, from what follows the opcode.

    `zero`, `d8` or `d32` (a constant offset), `s1` (an index that an address can scale, by 1, 2, 4 or 8), `s1d` (the
    same with an offset), `mul` (an index that must be multiplied), and `far` (several indices).
    """
    parts = split_operands(rest)
    if len(parts) < 3:
        return "d8"
    indices = [last_word(part) for part in parts[2:]]
    variable = [index.startswith("%") for index in indices]
    kind = type_class(parts[0])
    size = type_bytes(kind)
    if not any(variable):
        if size and len(indices) == 1 and _INTEGER.match(indices[0]):
            offset = int(indices[0][:18]) * size
            return "zero" if offset == 0 else "d8" if -128 <= offset < 128 else "d32"
        return "dx"
    if sum(variable) > 1:
        return "far"
    if size:
        return "s1"
    # An array of scalars after a zero index, or of structures.
    element = parts[0].rpartition(" x ")[2].rstrip("]")
    if variable[-1] and len(indices) == 2 and type_bytes(type_class(element)):
        return "s1" if indices[0] == "0" else "far"
    return "mul"
