"""The features of each function of a module right after inlining, by name.

They are counts, so that those of a function are the sums over its instructions, besides a few facts about the function:

- `prop.*`: LLVM's function properties, right at the cut;
- `cost.*`: the target's code-size cost, in sum and by opcode;
- `op.*`: opcodes;
- tokens of `instructions.py` as `tok.*`;
- `live.*`: estimates of live values (`pressure.py`);
- `fn.*`: linkage, attributes, parameters, frame, and the module's code model.
"""

import re
from collections import Counter
from collections.abc import Mapping

from compiler_opt.cost_models.ir2native import operands
from compiler_opt.cost_models.ir2native.inlined import InlinedModule
from compiler_opt.cost_models.ir2native.instructions import FunctionTokens
from compiler_opt.cost_models.ir2native.ir_text import Function, ModuleText, parse_module
from compiler_opt.cost_models.ir2native.pressure import pressure

VERSION = 1
"""Of the features: whoever changes one adds one, and datasets and models of other versions are refused."""

_LINKAGES = ("internal", "private", "linkonce_odr", "weak_odr", "linkonce", "weak")
_ATTRIBUTES = (
    "minsize",
    "optsize",
    "nounwind",
    "noreturn",
    "uwtable",
    "sspstrong",
    "ssp",
    "cold",
    "naked",
    "norecurse",
    "noredzone",
    "nonlazybind",
    '"frame-pointer"="all"',
    '"frame-pointer"="non-leaf"',
)
_COUNT = re.compile(r"i(?:32|64) (\d+)")
_ARRAY = re.compile(r"\[(\d+) x ")


def module_features(inlined: InlinedModule) -> dict[str, Mapping[str, float]]:
    """By symbol of each function that the module defines, its features that are not zero."""
    module = parse_module(inlined.text)
    return {function.name: function_features(function, module, inlined) for function in module.functions}


def function_features(function: Function, module: ModuleText, inlined: InlinedModule) -> Mapping[str, float]:
    """The features of one function that are not zero."""
    tokens = FunctionTokens(function, module.local_names)
    found: dict[str, float] = {f"tok.{name}": float(count) for name, count in tokens.counts.items()}
    opcodes = Counter(line[1] for block in function.blocks for line in block.lines)
    found.update((f"op.{opcode}", float(count)) for opcode, count in opcodes.items())
    found["op"] = float(sum(opcodes.values()))
    found["blocks"] = float(len(function.blocks))
    found.update(pressure(function, tokens.weightless))
    for name, value in inlined.properties.get(function.name, {}).items():
        found[f"prop.{name}"] = float(value)
    costs = inlined.costs.get(function.name, {})
    found["cost"] = float(sum(costs.values()))
    found.update((f"cost.{opcode}", float(cost)) for opcode, cost in costs.items())
    found.update(_about(function, module))
    return {name: value for name, value in found.items() if value}


def _about(function: Function, module: ModuleText) -> dict[str, float]:
    words = set(function.header.split())
    found: dict[str, float] = {"fn": 1.0}
    for linkage in _LINKAGES:
        found[f"fn.{linkage}"] = float(linkage in words)
    for attribute in _ATTRIBUTES:
        found[f"fn.{attribute}"] = float(any(each.partition("(")[0] == attribute for each in function.attributes))
    found["fn.comdat"] = float(any(word.startswith("comdat") for word in words))
    found["fn.personality"] = float("personality" in words)
    found["fn.vararg"] = float("..." in function.parameters)
    kinds = [operands.type_class(parameter) for parameter in function.parameters if parameter != "..."]
    found["fn.parameters"] = float(len(kinds))
    found["fn.parameters.int"] = float(sum(kind[0] == "i" for kind in kinds))
    found["fn.parameters.float"] = float(sum(kind in ("f32", "f64") for kind in kinds))
    found["fn.parameters.stack"] = max(0.0, found["fn.parameters.int"] - 6)
    found["fn.parameters.byval"] = float(sum("byval(" in parameter for parameter in function.parameters))
    found["fn.sret"] = float(any("sret(" in parameter for parameter in function.parameters))
    allocated = [line for block in function.blocks for line in block.lines if line[1] == "alloca"]
    sizes = [_allocated_bytes(rest) for _, _, rest in allocated]
    found["fn.frame_bytes"] = float(min(sum(sizes), 1 << 20))
    found["fn.frame_over128"] = float(sum(sizes) > 128)
    found["fn.frame_aligned"] = float(any("align 32" in rest or "align 64" in rest for _, _, rest in allocated))
    found["fn.frame_array"] = float(sum(rest.startswith("[") for _, _, rest in allocated))
    found["fn.is_pic"] = float(module.flags.get("PIC Level", 0) > 0 and module.flags.get("PIE Level", 0) == 0)
    found["fn.is_pie"] = float(module.flags.get("PIE Level", 0) > 0)
    found["fn.avx"] = float(any("+avx" in each for each in function.attributes if each.startswith('"target-features"')))
    return found


def _allocated_bytes(rest: str) -> int:
    """About the bytes of a stack slot; structures count as 24."""
    size = 1
    for length in _ARRAY.findall(rest):
        size *= min(int(length[:9]), 1 << 20)
    element = rest.rpartition(" x ")[2] if rest.startswith("[") else rest
    return min(size * (operands.type_bytes(operands.type_class(element)) or 24), 1 << 24)
