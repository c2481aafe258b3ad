"""What basic blocks do when a program runs: how often each runs, its misses and mispredictions, and its time.

Counts and misses are simulated by callgrind, so the same run gives the same; the time is measured by samples of perf.
A block's count is that of its first instruction. Its time per execution is

    samples in the block x period / (count x runs that were sampled)

A sample falls on the instruction that was about to complete. After a mispredicted branch, that is the first one of the
block where the branch went, so mispredictions are counted there. With `n` samples the time's standard error is about
one part in `sqrt(n)` from chance alone; blocks with less than `MIN_SAMPLES` have no measured time.
"""

import dataclasses
import math
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from compiler_opt.array_files import load_arrays, pack_arrays
from compiler_opt.cost_models.throughput.address_map import PlacedBlock, read_program
from compiler_opt.cost_models.throughput.blocks import ANNOTATIONS, MAX_FILE_BYTES, Block, from_arrays, to_arrays
from compiler_opt.cost_models.throughput.extraction import MAX_BLOCK_BYTES
from compiler_opt.cost_models.throughput.instructions import Decoder
from compiler_opt.errors import ProtocolError
from compiler_opt.files import size_and_sha256
from compiler_opt.kept_results import kept, key_of
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.measure import sampling
from compiler_opt.measure.benchmark import Benchmark
from compiler_opt.measure.callgrind import Counts
from compiler_opt.measure.mispredictions import mispredicted_entries
from compiler_opt.measure.sampling import Samples

MEASURED = "measured ns"
"""The source of labels that are measured times: nanoseconds per execution on the machine that ran the program."""

MIN_SAMPLES = 20
"""For a measured time: with fewer, it would be off by more than 22% (one standard error)."""

MAX_SAMPLED_RUNS = 1000

_PARTS = "parts"
_VERSION = "2"
"""Renew when profiles have other contents."""


@dataclasses.dataclass(frozen=True)
class ProgramProfile:
    """The blocks of a program that ran.

    Attributes:
      blocks: with counts and annotations; those with enough samples have a label from `MEASURED`.
      num_refused: blocks that ran, but are no sequence of whole instructions or are too long.
      instructions_in_blocks: the part of all executed instructions that is in blocks of the program.
      samples_in_blocks: the part of all samples that is in blocks of the program; 0 without samples.
      runs: how often the commands ran while they were sampled.
    """

    blocks: tuple[Block, ...]
    num_refused: int
    instructions_in_blocks: float
    samples_in_blocks: float
    runs: int


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How the time is measured.

    Attributes:
      seconds: the commands run again and again until they have been sampled for so long; 0 measures no time.
      script: a file with the output of `perf script`, from the same program and commands; None samples here.
      script_runs: of the commands, that this file has the samples of.
    """

    seconds: float = 5.0
    script: Path | None = None
    script_runs: int = 1


class Profiler:
    """Profiles programs, and keeps the results in `FOLDER/parts` for a later run."""

    def __init__(self, folder: Path, toolchain: Toolchain, decoder: Decoder):
        """Starts nothing; the folder must belong to this process alone."""
        self._folder = folder
        self._toolchain = toolchain
        self._decoder = decoder

    def profile(
        self, program: Path, module: str, benchmark: Benchmark, folder: Path, how: Sampling = Sampling()
    ) -> ProgramProfile:
        """Runs a benchmark's commands in a folder and profiles a program that they run.

        Args:
          program: linked from objects with an address map.
          module: of its blocks.
          benchmark: its commands.
          folder: where they run.
          how: measures the time.

        Raises:
          BenchmarkError: a command fails, runs for too long, or is not deterministic.
          ProtocolError: the program has no address map or build id, or a profile cannot be read.
          ToolchainError: valgrind, perf or llvm-readobj is missing.
        """
        path = self._path(program, benchmark, how, module)
        return kept(path, _load, _pack, lambda: self._profile(program, module, benchmark, folder, how))

    def _profile(self, program: Path, module: str, benchmark: Benchmark, folder: Path, how: Sampling) -> ProgramProfile:
        identity = sampling.build_id(program)
        placed = read_program(program, self._toolchain, module)
        samples, runs = sampling.NO_SAMPLES, how.script_runs
        if how.script is not None:
            samples = sampling.read_script(how.script, program)
        reference = benchmark.reference(folder)
        if how.script is None and how.seconds:
            runs = min(MAX_SAMPLED_RUNS, math.ceil(how.seconds / reference.wall_s))
            samples = benchmark.samples(folder, reference, program, rounds=runs)
        profile = benchmark.measure(folder, reference, by_instruction=True)
        if sampling.build_id(program) != identity:
            raise ProtocolError(f"{program}: changed while it was profiled; profile it again")
        place = os.path.realpath(program)
        instructions, jumps = profile.of_object(place)
        if not instructions:
            raise ProtocolError(f"{program}: expected a run of this program, found none in the commands' profile")
        blocks = [block for block in runtime_blocks(placed, instructions, jumps, samples, runs) if block.count > 0]
        whole = self._canonical(blocks)
        return ProgramProfile(
            tuple(whole),
            len(blocks) - len(whole),
            _part_within(placed, {address: counts.instructions for address, counts in instructions.items()}, 0)
            / profile.total.instructions,
            _part_within(placed, samples.offsets, 1) / max(1, sum(samples.offsets.values()) + samples.elsewhere),
            runs,
        )

    def _canonical(self, blocks: Sequence[Block]) -> list[Block]:
        codes = [self._decoder.canonical(each.code) if len(each.code) <= MAX_BLOCK_BYTES else None for each in blocks]
        return [
            dataclasses.replace(block, code=code) for block, code in zip(blocks, codes, strict=True) if code is not None
        ]

    def _path(self, program: Path, benchmark: Benchmark, how: Sampling, module: str) -> Path:
        """Where the result is kept: its name says all that it depends on."""
        try:
            files = [size_and_sha256(path) for path in (program, how.script) if path is not None]
        except OSError as error:
            raise ProtocolError(f"{error.filename}: cannot be read: {error.strerror}") from None
        setting = (_VERSION, files, benchmark.commands, how.seconds, how.script_runs, module)
        return self._folder / _PARTS / f"{key_of(repr((setting, self._toolchain.identity())))}.npz"


def runtime_blocks(
    placed: Sequence[PlacedBlock],
    instructions: Mapping[int, Counts],
    jumps: Mapping[tuple[int, int], int],
    samples: Samples,
    runs: int,
) -> list[Block]:
    """All blocks with what is known of their execution.

    Args:
      placed: in the order of their addresses.
      instructions: own counts by address, of one run of the commands.
      jumps: how often each was taken in this run, by the addresses of the instruction and of its target.
      samples: by offset in the file.
      runs: of the commands, that were sampled.

    Returns:
      The blocks, in order; annotations and label are of those only that ran.
    """
    events = np.zeros((len(placed), len(ANNOTATIONS)))
    for number, counts in zip(_blocks_at(placed, instructions, 0).tolist(), instructions.values(), strict=True):
        if number >= 0:
            events[number, :-1] += _misses(counts)
    entries = mispredicted_entries(instructions, jumps)
    for number, entered in zip(_blocks_at(placed, entries, 0).tolist(), entries.values(), strict=True):
        if number >= 0:
            events[number, -1] += entered
    num_samples = np.zeros(len(placed))
    number_of = _blocks_at(placed, samples.offsets, 1)
    np.add.at(num_samples, number_of[number_of >= 0], np.array(list(samples.offsets.values()))[number_of >= 0])
    blocks = []
    for each, total, sampled in zip(placed, events, num_samples.tolist(), strict=True):
        count = instructions.get(each.address, Counts()).instructions
        block = dataclasses.replace(each.block, count=float(count))
        if count:
            measured = {MEASURED: sampled * samples.period_ns / (count * runs)} if sampled >= MIN_SAMPLES else {}
            block = dataclasses.replace(
                block, annotations=tuple((total / count).astype(np.float32).tolist()), labels=measured
            )
        blocks.append(block)
    return blocks


def _misses(counts: Counts) -> tuple[int, ...]:
    """In the order of `ANNOTATIONS`, but the last of them."""
    return counts.instruction_misses, counts.l1_misses - counts.instruction_misses, counts.ll_misses


def _blocks_at(placed: Sequence[PlacedBlock], where: Collection[int], kind: int) -> np.ndarray:
    """`[P]`: the number of the block at each place, an address (kind 0) or an offset in the file (1); -1 for none."""
    places = np.fromiter(where, np.uint64, len(where))
    starts = np.array([(each.address, each.offset)[kind] for each in placed], np.uint64)
    order = np.argsort(starts, kind="stable")
    ends = starts + np.array([each.size for each in placed], np.uint64)
    position = np.searchsorted(starts[order], places, side="right") - 1
    number = order[np.maximum(position, 0)]
    return np.where((position >= 0) & (places < ends[number]), number, -1)


def _part_within(placed: Sequence[PlacedBlock], numbers: Mapping[int, int], kind: int) -> int:
    """The sum of the numbers whose place is in a block."""
    within = _blocks_at(placed, numbers, kind) >= 0
    return int(np.array(list(numbers.values()), np.int64)[within].sum())


def _pack(result: ProgramProfile) -> bytes:
    figures = [result.num_refused, result.instructions_in_blocks, result.samples_in_blocks, result.runs]
    return pack_arrays({**to_arrays(result.blocks), "figures": np.array(figures, np.float64)})


def _load(path: Path) -> ProgramProfile:
    arrays = load_arrays(path, MAX_FILE_BYTES)
    num_refused, in_blocks, samples_in_blocks, runs = arrays["figures"].tolist()
    return ProgramProfile(tuple(from_arrays(arrays)), int(num_refused), in_blocks, samples_in_blocks, int(runs))
