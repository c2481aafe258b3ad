"""What the functions of an object cost: over their blocks, how often each runs times what it costs.

Without a profile, a block runs as often per call of its function as the compiler estimates, so the costs of functions
are those of one call. With a profile of programs that ran (`cost_model profile`), it runs as often as there; what has
not run costs nothing. The compiler numbers blocks before it allocates registers, so a function keeps the numbers and
estimated frequencies of its blocks whatever the allocator does to it. A function that has others, because it was
compiled in another way, runs as the compiler estimates, times the factor by which it was off where it was measured;
each execution of a block has the events of the function's average execution.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from compiler_opt.cost_models.throughput.address_map import read_placed
from compiler_opt.cost_models.throughput.blocks import MIN_ALIKE, UNKNOWN, Block, is_close, load_blocks
from compiler_opt.errors import CorpusError
from compiler_opt.files import size_and_sha256
from compiler_opt.llvm.profile import largest_count
from compiler_opt.llvm.toolchain import Toolchain

_FAR_MORE = 2.0


@dataclasses.dataclass(frozen=True)
class ObjectCode:
    """The blocks of an object. Legend: N blocks, F functions.

    Attributes:
      functions: `[F]` symbols; local functions of the same name, which are rare in an object, count as one.
      numbers: `[N]` number of each block's function.
      block_ids: `[N]` the compiler's number of each block in its function.
      frequencies: `[N]` how often each runs per call, as the compiler estimates.
      codes: `[N]` their bytes.
      calls: `[F]` how often each function was called in the profile that the object was compiled with; 0 without one.
    """

    functions: tuple[str, ...]
    numbers: np.ndarray
    block_ids: np.ndarray
    frequencies: np.ndarray
    codes: tuple[bytes, ...]
    calls: np.ndarray

    @classmethod
    def read(cls, path: Path, toolchain: Toolchain) -> "ObjectCode":
        """Reads an x86-64 object that was compiled with an address map of its blocks.

        Raises:
          ProtocolError: it is no such object, is damaged, or has no map.
          ToolchainError: llvm-readobj is not installed.
        """
        placed = read_placed(path, toolchain)
        blocks = [each.block for each in placed]
        numbers: dict[str, int] = {}
        return cls(
            numbers=np.array([numbers.setdefault(block.function, len(numbers)) for block in blocks], np.int32),
            functions=tuple(numbers),
            block_ids=np.array([block.block_id for block in blocks], np.int32),
            frequencies=np.array([block.frequency for block in blocks], np.float32),
            codes=tuple(block.code for block in blocks),
            calls=np.array(list({each.block.function: each.entry_count for each in placed}.values()), np.float64),
        )


@dataclasses.dataclass(frozen=True)
class _MeasuredFunction:
    """What was measured of a function, by the numbers of its blocks."""

    blocks: Mapping[int, Block]
    factor: float
    """Executions for each one that the compiler estimates."""
    usual: tuple[float, ...]
    """Events of the average execution of a block; NaN if unknown."""


class BlockProfile:
    """How often the blocks of programs ran, and their misses.

    Attributes:
      identity: which profile this is.
    """

    def __init__(self, blocks: Iterable[Block], identity: str = "blocks"):
        """Takes blocks with counts. Those of one function in several programs are added up."""
        self.identity = identity
        found: defaultdict[str, dict[int, Block]] = defaultdict(dict)
        for block in blocks:
            if block.count > 0:
                of_function = found[block.function]
                before = of_function.get(block.block_id)
                of_function[block.block_id] = block if before is None else _added(before, block)
        self._functions = {name: _measured(blocks) for name, blocks in found.items()}

    @classmethod
    def load(cls, path: Path) -> "BlockProfile":
        """Reads a file of `cost_model profile`.

        Raises:
          CorpusError: there is none, it is damaged, or no block in it has a count.
        """
        profile = cls(load_blocks(path), f"blocks {size_and_sha256(path)[1][:16]}")
        if not len(profile):
            raise CorpusError(
                f"{path}: expected blocks of programs that ran, found none; make it with `cost_model profile`"
            )
        return profile

    def __len__(self) -> int:
        """The number of functions that ran."""
        return len(self._functions)

    def executions(self, code: ObjectCode) -> tuple[np.ndarray, list[tuple[float, ...]]]:
        """How often each block of an object would run, `[N]`, and its events per execution, NaN if unknown."""
        counts = np.zeros(len(code.codes))
        annotations = [UNKNOWN] * len(code.codes)
        order = np.argsort(code.numbers, kind="stable")
        ends = np.cumsum(np.bincount(code.numbers, minlength=len(code.functions)))
        for name, rows in zip(code.functions, np.split(order, ends[:-1]), strict=True):
            measured = self._functions.get(name)
            if measured is None:
                continue
            alike = {
                row: block
                for row, block_id in zip(rows.tolist(), code.block_ids[rows].tolist(), strict=True)
                if (block := measured.blocks.get(block_id)) is not None
                and is_close(code.frequencies[row], block.frequency)
            }
            if len(alike) >= MIN_ALIKE * len(measured.blocks):
                # Blocks that did not run are not in the profile.
                for row, block in alike.items():
                    counts[row] = block.count
                    annotations[row] = block.annotations
            else:
                counts[rows] = code.frequencies[rows] * measured.factor
                for row in rows.tolist():
                    annotations[row] = measured.usual
        return counts, annotations


class CompiledProfile:
    """LLVM's profile of programs that ran, which objects are compiled with.

    The compiler keeps it while it inlines: a copy of a body gets the share of its call, and what remains of the
    function the rest. So the objects themselves say how often their blocks would run, whatever was inlined.

    Attributes:
      path: the file that llvm-profdata wrote.
      identity: which profile this is.
    """

    def __init__(self, path: Path, toolchain: Toolchain):
        """Reads the file.

        Raises:
          CorpusError: it is no profile, see `profile.largest_count`.
          ToolchainError: llvm-profdata is not installed.
        """
        self.path = path.resolve()
        self._largest = largest_count(path, toolchain)
        self.identity = f"profile {size_and_sha256(path)[1][:16]}"

    def executions(self, code: ObjectCode) -> tuple[np.ndarray, list[tuple[float, ...]]]:
        """How often each block of an object runs in these programs, `[N]`; their events are unknown."""
        return code.calls[code.numbers] * self.frequencies(code), [UNKNOWN] * len(code.codes)

    def frequencies(self, code: ObjectCode) -> np.ndarray:
        """How often each block runs for each call of its function, `[N]`.

        Where a block would run far more often than any did in the profile, the function's frequencies are wrong (LLVM
        takes some loops without a likely exit to run for ever): its blocks count once for each call.
        """
        is_wrong = np.zeros(len(code.functions), bool)
        counts = code.calls[code.numbers] * code.frequencies
        is_wrong[code.numbers[counts > _FAR_MORE * self._largest]] = True
        return np.where(is_wrong[code.numbers], 1.0, code.frequencies)


def costs_by_function(
    code: ObjectCode,
    costs: Callable[[Sequence[Block]], np.ndarray],
    profile: BlockProfile | CompiledProfile | None = None,
) -> dict[str, float]:
    """The cost of each function: of one call or, with a profile, of all that it runs there.

    Args:
      code: of the object.
      costs: of one execution of each block, such as `block_costs.BlockCosts`.
      profile: of programs that the object is part of, or None.
    """
    counts, annotations = code.frequencies.astype(np.float64), [UNKNOWN] * len(code.codes)
    if profile is not None:
        counts, annotations = profile.executions(code)
    return _summed(code, counts, annotations, costs)


def costs_of_calls(
    code: ObjectCode, costs: Callable[[Sequence[Block]], np.ndarray], profile: CompiledProfile
) -> dict[str, float]:
    """The cost of one call of each function, without what it calls, by the frequencies of the profile."""
    return _summed(code, profile.frequencies(code), [UNKNOWN] * len(code.codes), costs)


def _summed(
    code: ObjectCode,
    counts: np.ndarray,
    annotations: Sequence[tuple[float, ...]],
    costs: Callable[[Sequence[Block]], np.ndarray],
) -> dict[str, float]:
    """By function, the sum of its blocks' costs times `counts`, `[N]`."""
    rows = np.flatnonzero(counts > 0)
    blocks = [Block(code.codes[row], "", "", 0, 0.0, annotations=annotations[row]) for row in rows.tolist()]
    values = counts[rows] * costs(blocks)
    totals = np.bincount(code.numbers[rows], values, minlength=len(code.functions))
    return dict(zip(code.functions, totals.tolist(), strict=True))


def _added(one: Block, other: Block) -> Block:
    """What two programs did in a block; in blocks of different frequency, the one that ran more often."""
    if not is_close(one.frequency, other.frequency):
        return max(one, other, key=lambda block: block.count)
    count = one.count + other.count
    annotations = [
        (mine * one.count + theirs * other.count) / count
        for mine, theirs in zip(one.annotations, other.annotations, strict=True)
    ]
    return dataclasses.replace(one, count=count, annotations=tuple(annotations))


def _measured(blocks: Mapping[int, Block]) -> _MeasuredFunction:
    executed = sum(block.count * len(block.code) for block in blocks.values())
    estimated = sum(block.frequency * len(block.code) for block in blocks.values())
    counts = np.array([block.count for block in blocks.values()], np.float64)
    events = counts @ np.array([block.annotations for block in blocks.values()]) / counts.sum()
    return _MeasuredFunction(blocks, executed / estimated if estimated > 0 else 0.0, tuple(events.tolist()))
