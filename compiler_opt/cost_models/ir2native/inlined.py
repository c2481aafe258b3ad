"""The IR of a module right after inlining, as text, with what LLVM says about it.

*Right after inlining* is behind the `cgscc(...)` element of the pipeline of the module's `-O` level, in which LLVM
inlines and simplifies callers bottom-up. `opt` prints the pipeline; it is cut behind that element. Then

- `print<func-properties>` tells LLVM's own features of each function;
- `globalopt`, `globaldce` and `elim-avail-extern`, which come next in the pipeline, drop the functions of which nothing
  will be emitted, so that those that are left are, nearly, those of the object;
- a short canonicalisation brings what is left nearer to what the code generator sees, and `globaldce` drops what only
  the bodies that `elim-avail-extern` has dropped used (all of this is `CANONICAL`);
- `print<cost-model>` tells the target's code-size cost of each instruction.

All of it is one process of `opt`, with the limits and the sandbox of a compilation.
"""

import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from compiler_opt.corpus.command_lines.command_line import is_thinlto, opt_command, optimization_level
from compiler_opt.corpus.module import Module
from compiler_opt.cost_models.compiling import failure_of
from compiler_opt.errors import CorpusError, ProtocolError
from compiler_opt.llvm import processes
from compiler_opt.llvm.sandbox import Sandbox
from compiler_opt.llvm.toolchain import Toolchain

CANONICAL = (
    "deadargelim,globalopt,globaldce,elim-avail-extern,"
    "function(loop-simplify,lcssa,simplifycfg<bonus-inst-threshold=1;forward-switch-cond;switch-range-to-icmp;"
    "switch-to-lookup;no-keep-loops;hoist-common-insts;sink-common-insts>,instcombine<no-verify-fixpoint>),globaldce"
)
"""What follows the cut: passes of the rest of the pipeline, without its loop passes, and code generation's."""

MAX_TEXT_BYTES = 1 << 28
"""Of the IR's text, and of what opt prints about it."""

_FUNCTION = re.compile(r"Printing analysis results of CFA for function '(.*)':$")
_COST_FUNCTION = re.compile(r"Printing analysis 'Cost Model Analysis' for function '(.*)':$")
_COST = re.compile(
    r"Cost Model: Found an estimated cost of (\d{1,9}) for instruction: +(?:%\S+ = )?(?:tail |musttail |notail )?(\w+)"
)
_PROPERTY = re.compile(r"(\w+): (-?\d{1,18})$")


@dataclass(frozen=True)
class InlinedModule:
    """A module right after inlining.

    Attributes:
      text: its IR.
      properties: by function, LLVM's features (`print<func-properties>`).
      costs: by function, the target's code-size cost, in sum by opcode.
      cpu_s: CPU seconds of opt.
    """

    text: str
    properties: Mapping[str, Mapping[str, int]]
    costs: Mapping[str, Mapping[str, int]]
    cpu_s: float


class Inliner:
    """Runs modules up to and including inlining."""

    def __init__(self, toolchain: Toolchain, canonical: str = CANONICAL):
        """Raises ToolchainError if the toolchain has no `opt`."""
        self._opt = toolchain.tool("opt")
        self._canonical = canonical
        self._prefixes: dict[str, str] = {}

    def run(self, module: Module, scratch: Path, *, timeout_s: float = processes.DEFAULT_TIMEOUT_S) -> InlinedModule:
        """Optimises a module up to the cut.

        Raises:
          CompileError, CorpusError: opt fails, or the module's options are not such as can be used.
          ProtocolError: its output is not as expected.
          ToolchainError: it cannot be run.
        """
        options = module.options()
        if is_thinlto(options):
            raise CorpusError(f"{module.name}: modules of a ThinLTO link are not supported; leave them out")
        level = optimization_level(options)
        sandbox = None if module.trusted else Sandbox.for_folder(scratch)
        bitcode = module.bitcode_path
        if level not in self._prefixes:
            command = opt_command(self._opt, options, bitcode, os.devnull, trusted=module.trusted)
            result = processes.run(
                [*command, "-print-pipeline-passes", "-disable-output"], timeout_s=timeout_s, sandbox=sandbox
            )
            if not result.ok:
                raise failure_of(module, result, "opt")
            self._prefixes[level] = cut_pipeline(result.stdout.decode("utf-8", "replace"), level)
        passes = f"{self._prefixes[level]},print<func-properties>,{self._canonical},print<cost-model>"
        printed = ["-enable-detailed-function-properties", "-cost-kind=code-size", "-discard-value-names", "-S"]
        output = scratch / "inlined.ll"
        command = opt_command(self._opt, options, bitcode, output, printed, passes, trusted=module.trusted)
        with (
            os.fdopen(os.memfd_create("properties", os.MFD_CLOEXEC), "w+b") as said,
            processes.start(
                command, stderr=said, max_stderr_bytes=MAX_TEXT_BYTES, file_bytes=MAX_TEXT_BYTES, sandbox=sandbox
            ) as child,
        ):
            in_time = processes.wait_for_exit(child, time.monotonic() + timeout_s)
            if not in_time:
                child.kill()
            result = child.wait(timed_out=not in_time)
            if not result.ok:
                raise failure_of(module, result, "opt")
            said.seek(0)
            properties, costs = parse_said(said.read().decode("utf-8", "surrogateescape"))
        text = output.read_bytes().decode("utf-8", "surrogateescape")
        output.unlink()
        return InlinedModule(text, properties, costs, result.cpu_s)


def cut_pipeline(pipeline: str, level: str) -> str:
    """The passes up to and including inlining; raises CorpusError if there are none, as at -O0."""
    elements, depth, start = [], 0, 0
    text = pipeline.strip()
    for position, letter in enumerate(text):
        depth += (letter in "(<") - (letter in ")>")
        if letter == "," and depth == 0:
            elements.append(text[start:position])
            start = position + 1
    elements.append(text[start:])
    for index in range(len(elements) - 1, -1, -1):
        if elements[index].startswith("cgscc(") and re.search(r"\binline\b", elements[index]):
            return ",".join(elements[: index + 1])
    raise CorpusError(f"the pipeline of {level} does not inline, so there is no IR right after inlining")


def parse_said(text: str) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]]:
    """What opt prints: properties and costs by function; raises ProtocolError if there is something else instead."""
    properties: dict[str, dict[str, int]] = {}
    costs: dict[str, Counter[str]] = defaultdict(Counter)
    current: dict[str, int] = {}
    cost: Counter[str] = Counter()
    for line in text.split("\n"):
        if line.startswith("Cost Model: "):
            if match := _COST.match(line):
                cost[match[2]] += int(match[1])
        elif match := _FUNCTION.match(line):
            current = properties.setdefault(match[1], {})
        elif match := _COST_FUNCTION.match(line):
            cost = costs[match[1]]
        elif match := _PROPERTY.match(line):
            current[match[1]] = int(match[2])
    if text.strip() and not properties and not costs:
        raise ProtocolError(f"opt: expected properties of functions, found {text[:80]!r}")
    return properties, {name: dict(by_opcode) for name, by_opcode in costs.items()}
