"""A build of a program that has run: its blocks and calls, and what callgrind has counted in them.

A program may have several functions of one name, such as static functions of different modules. So a function is known
by its name and by how many of this name come before it in the program, which is the same in another build that was
linked from the same modules in the same order.
"""

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import iced_x86
import numpy as np

from compiler_opt.array_files import load_arrays, pack_arrays
from compiler_opt.cost_models.throughput.address_map import PlacedBlock, read_program
from compiler_opt.cost_models.throughput.blocks import MAX_FILE_BYTES, Block, from_arrays, to_arrays
from compiler_opt.cost_models.throughput.instructions import Decoder
from compiler_opt.cost_models.throughput.profiling import runtime_blocks
from compiler_opt.errors import ProtocolError
from compiler_opt.files import size_and_sha256
from compiler_opt.kept_results import kept, key_of
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.measure.benchmark import Benchmark, Reference
from compiler_opt.measure.callgrind import CACHES, Counts
from compiler_opt.measure.sampling import NO_SAMPLES

_PARTS = "parts"
_VERSION = "2"
"""Renew when what is kept has other contents."""

FunctionName = tuple[str, int]
"""Symbol of a function, and the number of functions of this symbol before it."""


@dataclasses.dataclass(frozen=True)
class Build:
    """A build that has run. Legend: N blocks, F functions, E direct calls.

    Attributes:
      blocks: `[N]`, all of them in the order of their addresses, with counts and annotations. The targets of relative
        branches are zero in their code, which is empty if the bytes are no sequence of whole instructions.
      functions: `[N]` number of the function of each block; ascending.
      calls: `[E, 2]` a block, and the number of the function that it calls or, at its end, jumps to.
      total: of the run, with libraries.
    """

    blocks: tuple[Block, ...]
    functions: np.ndarray
    calls: np.ndarray
    total: Counts

    @property
    def counts(self) -> np.ndarray:
        """`[N]` how often each block ran."""
        return np.array([block.count for block in self.blocks], np.float64)

    @property
    def annotations(self) -> np.ndarray:
        """`[N, A]` events per execution of each block; NaN for those that did not run."""
        return np.array([block.annotations for block in self.blocks], np.float64)

    @property
    def entries(self) -> np.ndarray:
        """`[F]` the first block of each function."""
        return np.flatnonzero(np.diff(self.functions, prepend=-1))

    def names(self) -> list[FunctionName]:
        """`[F]` the name of each function."""
        seen: dict[str, int] = {}
        names = []
        for entry in self.entries.tolist():
            symbol = self.blocks[entry].function
            names.append((symbol, seen.get(symbol, 0)))
            seen[symbol] = seen.get(symbol, 0) + 1
        return names


class BuildProfiler:
    """Profiles builds under callgrind, and keeps the results in `FOLDER/parts` for a later run."""

    def __init__(self, folder: Path, toolchain: Toolchain, decoder: Decoder):
        """Starts nothing; the folder must belong to this process alone."""
        self._folder = folder
        self._toolchain = toolchain
        self._decoder = decoder

    def profile(
        self, folder: Path, program: str, benchmark: Benchmark, base: Path, reference: Callable[[], Reference]
    ) -> Build:
        """Runs a benchmark's commands in a build's folder.

        Args:
          folder: of the build.
          program: its path in the folder; it is linked from objects with an address map.
          benchmark: its commands.
          base: the program of the base build, whose output is the reference.
          reference: called unless the result was kept.

        Raises:
          BenchmarkError: a command fails, runs for too long, or prints something else than the base build.
          ProtocolError: the program has no address map, or its profile cannot be read.
          ToolchainError: valgrind or llvm-readobj is missing.
        """
        path = folder / program
        digest = file_digest(path)
        setting = (_VERSION, digest, file_digest(base), benchmark.commands, CACHES, self._toolchain.identity())

        def make() -> Build:
            placed = read_program(path, self._toolchain, program)
            expected = reference()
            # Natively first: callgrind is slow, and would not show everything that fails.
            benchmark.wall_s(folder, expected)
            profile = benchmark.measure(folder, expected, by_instruction=True)
            if file_digest(path) != digest:
                raise ProtocolError(f"{path}: changed while it was profiled; profile it again")
            place = os.path.realpath(path)
            instructions, jumps = profile.of_object(place)
            if not instructions:
                raise ProtocolError(f"{path}: expected a run of this program, found none in the commands' profile")
            blocks = runtime_blocks(placed, instructions, jumps, NO_SAMPLES, 1)
            return _build(placed, blocks, profile.total, self._decoder)

        return kept(self._folder / _PARTS / f"{key_of(repr(setting))}.npz", _load, _pack, make)


def file_digest(path: Path) -> str:
    """SHA-256 of a program; raises ProtocolError if it cannot be read."""
    try:
        return size_and_sha256(path)[1]
    except OSError as error:
        raise ProtocolError(f"{path}: cannot be read: {error.strerror}; build it again") from None


def _build(placed: Sequence[PlacedBlock], blocks: Sequence[Block], total: Counts, decoder: Decoder) -> Build:
    functions = function_numbers(blocks)
    by_address: dict[int, int] = {}
    for number, each in zip(functions.tolist(), placed, strict=True):
        if number == len(by_address):
            by_address[each.address] = number
    calls = [
        (row, by_address[target])
        for row, each in enumerate(placed)
        for target in direct_targets(each.block.code, each.address)
        # A jump to where its own function begins is a loop.
        if by_address.get(target, functions[row]) != functions[row]
    ]
    canonical = [dataclasses.replace(block, code=decoder.canonical(block.code) or b"") for block in blocks]
    return Build(tuple(canonical), functions, np.array(calls, np.int64).reshape(-1, 2), total)


def direct_targets(code: bytes, address: int) -> list[int]:
    """Addresses to which a block at this address transfers control by direct calls and unconditional jumps."""
    kinds = (iced_x86.FlowControl.CALL, iced_x86.FlowControl.UNCONDITIONAL_BRANCH)
    return [
        instruction.near_branch_target
        for instruction in iced_x86.Decoder(64, code, ip=address)
        if instruction.flow_control in kinds and instruction.op0_kind == iced_x86.OpKind.NEAR_BRANCH64
    ]


def function_numbers(blocks: Sequence[Block]) -> np.ndarray:
    """`[N]`, ascending: a function ends where the name changes, or the number of a block comes again."""
    numbers = []
    function, seen = "", set[int]()
    number = -1
    for block in blocks:
        if number < 0 or block.function != function or block.block_id in seen:
            number += 1
            function, seen = block.function, set()
        seen.add(block.block_id)
        numbers.append(number)
    return np.array(numbers, np.int64)


def _pack(build: Build) -> bytes:
    arrays = {
        **to_arrays(build.blocks),
        "functions": build.functions,
        "calls": build.calls,
        "total": np.array(dataclasses.astuple(build.total), np.int64),
    }
    return pack_arrays(arrays, compressed=True)


def _load(path: Path) -> Build:
    arrays = load_arrays(path, MAX_FILE_BYTES)
    blocks, functions, calls = tuple(from_arrays(arrays)), arrays["functions"], arrays["calls"]
    if functions.tolist() != function_numbers(blocks).tolist() or calls.shape[1:] != (2,):
        raise ValueError("its functions or calls are not such as were written")
    return Build(blocks, functions, calls, Counts(*arrays["total"].tolist()))
