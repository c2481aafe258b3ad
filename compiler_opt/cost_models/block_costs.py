"""What a basic block costs each time that it runs, by the cost model that a user names.

    costs = block_costs.load("llvm-mca", toolchain)      # or instructions, RegAllocScore, the folder of a model, or
                                                         # MODULE:COSTS, a `BlockCosts` of your own
    costs(blocks)                                        # [N], of one execution of each

A block that cannot be decoded, or that llvm-mca refuses, costs nothing.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from compiler_opt.cost_models.throughput.blocks import Block
from compiler_opt.cost_models.throughput.instructions import Decoder, Instruction
from compiler_opt.cost_models.throughput.mca import Labeller, label_all
from compiler_opt.errors import ConfigError
from compiler_opt.files import size_and_sha256
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.problem import imported

INSTRUCTIONS, REGALLOC_SCORE, MCA = "instructions", "RegAllocScore", "llvm-mca"
NAMES = (INSTRUCTIONS, REGALLOC_SCORE, MCA)
"""The models that need no training."""

_MAX_KNOWN = 1 << 20
"""Blocks whose costs are remembered."""

_COPY, _LOAD, _STORE, _CHEAP, _EXPENSIVE = 0.2, 4.0, 1.0, 0.2, 1.0
_MOVES = frozenset(
    prefix + name for name in ("MOVAPS", "MOVAPD", "MOVUPS", "MOVUPD", "MOVDQA", "MOVDQU") for prefix in ("", "V")
) | {"MOV"}
_ZEROING = frozenset(("XOR", "XORPS", "XORPD", "PXOR", "VXORPS", "VXORPD", "VPXOR", "VPXORD", "VPXORQ"))
_SETTING = frozenset(("PCMPEQD", "VPCMPEQD"))
_FRAME = ("", "RSP")
"""Bases of addresses that are known without a computation: none, or that of the program counter, and the stack."""


class BlockCosts:
    """A cost model of blocks, which remembers what it has said.

    Attributes:
      name: all that its costs depend on, in words.
      sees_annotations: whether they depend on what was measured of a block.
    """

    def __init__(self, name: str, costs: Callable[[Sequence[Block]], np.ndarray], *, sees_annotations: bool = False):
        """Takes the model's costs `[N]` of N blocks, NaN where it has none."""
        self.name = name
        self.sees_annotations = sees_annotations
        self._costs = costs
        self._known: dict[tuple[bytes, tuple[float, ...]], float] = {}

    def __call__(self, blocks: Sequence[Block]) -> np.ndarray:
        """Costs of one execution of each block, `[N]`; 0 where the model has none."""
        keys = [self._key(block) for block in blocks]
        new = {key: block for key, block in zip(keys, blocks, strict=True) if key not in self._known}
        if len(self._known) + len(new) > _MAX_KNOWN:
            self._known.clear()
            new = dict(zip(keys, blocks, strict=True))
        if new:
            self._known.update(zip(new, np.nan_to_num(self._costs(list(new.values()))).tolist(), strict=True))
        return np.array([self._known[key] for key in keys], np.float64)

    def _key(self, block: Block) -> tuple[bytes, tuple[float, ...]]:
        # Not a number is unequal to itself.
        known = self.sees_annotations and all(map(math.isfinite, block.annotations))
        return block.code, block.annotations if known else ()


def load(name: str, toolchain: Toolchain, cpu: str = "skylake") -> BlockCosts:
    """The cost model of that name.

    Args:
      name: of `NAMES`, or the folder of a model of `cost_model train`, which needs TensorFlow, or `MODULE:ATTRIBUTE`
        of a `BlockCosts` in any package, which runs that package's code.
      toolchain: whose llvm-mca is used.
      cpu: the processor that llvm-mca simulates.

    Raises:
      ConfigError: there is no such model, or llvm-mca knows no such processor.
      MissingPackageError: a package is not installed.
      PolicyError: the folder's model is damaged.
      ToolchainError: llvm-mca or llvm-mc is missing.
    """
    if name == MCA:
        labeller = Labeller(toolchain, cpu)
        labeller.check()
        return BlockCosts(labeller.source, lambda blocks: _by_mca(blocks, labeller))
    if name in NAMES:
        cost = {INSTRUCTIONS: _number, REGALLOC_SCORE: regalloc_cost}[name]
        decoder = Decoder()
        return BlockCosts(name, lambda blocks: np.array([cost(decoder.decode(block.code) or ()) for block in blocks]))
    if Path(name).is_dir():
        return _learned(Path(name))
    expected = f"one of {', '.join(NAMES)}, the folder of a model of blocks, or MODULE:COSTS of your own"
    if ":" not in name:
        raise ConfigError(f"--cost_model: expected {expected}, found {name}")
    return imported(name, BlockCosts, f"--cost_model: {name}", expected)


def _learned(folder: Path) -> BlockCosts:
    from compiler_opt.cost_models.throughput.model import WEIGHTS_FILE, ThroughputModel

    decoder = Decoder()
    model = ThroughputModel.load(folder)
    content = size_and_sha256(folder / WEIGHTS_FILE)[1]
    name = f"{model.description.kind} network of {model.description.label_source}, {content[:16]}"
    return BlockCosts(name, lambda blocks: model.predict(blocks, decoder), sees_annotations=True)


def _by_mca(blocks: Sequence[Block], labeller: Labeller) -> np.ndarray:
    labels = label_all([block.code for block in blocks], labeller)
    return np.array([math.nan if label is None else label for label in labels])


def _number(instructions: Sequence[Instruction]) -> float:
    return float(len(instructions))


def regalloc_cost(instructions: Iterable[Instruction]) -> float:
    """What LLVM's RegAllocScore (`RegAllocScore.cpp`) says of a block, as far as its machine code tells.

    The first that applies: a copy of a register 0.2, a constant 0.2, a constant of 64 bits or an address in the frame
    or relative to the program counter 1, a load and store 5, a load 4, a store 1. LLVM looks before prologues are made,
    so pushes and pops of registers count nothing, but callee-saved registers that are stored in another way do. Loads
    from constant memory are loads here, and copies between kinds of registers are not told from conversions.
    """
    return math.fsum(map(_regalloc_cost, instructions))


def _regalloc_cost(instruction: Instruction) -> float:
    name = instruction.mnemonic
    if not instruction.has_memory_operand:
        if name in _MOVES:
            if not instruction.num_immediates:
                return _COPY
            return _EXPENSIVE if instruction.form == "MOV_R64_IMM64" else _CHEAP
        # Of a register with itself: zero, which needs no read of it, or all bits set.
        is_constant = (name in _ZEROING and not instruction.reads) or (name in _SETTING and len(instruction.reads) <= 1)
        return _CHEAP if is_constant else 0.0
    (memory,) = instruction.memory
    if name == "LEA":
        return _EXPENSIVE if memory.base in _FRAME and not memory.index else 0.0
    return _LOAD * memory.is_read + _STORE * memory.is_written
