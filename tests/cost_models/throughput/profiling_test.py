"""Blocks of programs that run, with counts that follow from their source."""

import math
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.array_files import save_arrays
from compiler_opt.cost_models.throughput.address_map import FLAGS, PlacedBlock, read_program
from compiler_opt.cost_models.throughput.blocks import Block, to_arrays
from compiler_opt.cost_models.throughput.instructions import Decoder
from compiler_opt.cost_models.throughput.profiling import (
    MEASURED,
    MIN_SAMPLES,
    Profiler,
    ProgramProfile,
    Sampling,
    runtime_blocks,
)
from compiler_opt.errors import BenchmarkError, ProtocolError
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.measure.benchmark import Benchmark
from compiler_opt.measure.callgrind import Counts
from compiler_opt.measure.sampling import Samples, build_id
from tests.measure.running import PROGRAM, built

OPTIONS = ("-fbasic-block-address-map", *FLAGS[1:], "-Wl,--build-id")


@pytest.fixture(name="newer", scope="module")
def newer_fixture() -> Toolchain:
    """The toolchain of `built`."""
    return probe("/usr/bin/clang-22")


def placed(address: int, size: int) -> PlacedBlock:
    return PlacedBlock(Block(bytes([0x90]) * size, "m", "f", address, 1.0), address, address - 0x1000)


def test_counts_misses_and_times_of_a_block() -> None:
    blocks = [placed(0x1010, 4), placed(0x1014, 2), placed(0x1020, 3)]
    instructions = {
        0x1010: Counts(10, l1_misses=3, ll_misses=1, instruction_misses=1),
        0x1012: Counts(10, l1_misses=2, mispredicts=5),
        0x1014: Counts(5),
        0x1016: Counts(99, l1_misses=99),  # between the blocks
    }
    samples = Samples({0x10: 30, 0x13: 10, 0x14: MIN_SAMPLES - 1, 0x16: 99}, 5, 50_000)
    first, second, third = runtime_blocks(blocks, instructions, {(0x1012, 0x1010): 5}, samples, runs=2)
    assert (first.count, second.count, third.count) == (10, 5, 0)
    # One instruction miss, 2 + 2 data misses, one of the last level; half of the mispredictions lead back to it.
    assert first.annotations == pytest.approx((0.1, 0.4, 0.1, 0.25))
    assert first.labels == {MEASURED: (30 + 10) * 50_000 / (10 * 2)}
    assert second.annotations == (0, 0, 0, 0.5) and second.labels == {}
    assert all(map(math.isnan, third.annotations)) and third.labels == {}


def test_blocks_lie_where_the_symbols_say(tmp_path: Path, newer: Toolchain) -> None:
    for options in ((), ("-no-pie",)):
        program = built(tmp_path, PROGRAM, *OPTIONS, *options)
        content = program.read_bytes()
        blocks = read_program(program, newer, "mine/bench")
        assert {each.block.function for each in blocks} == {"main", "hot", "cold"}
        assert [each.address for each in blocks] == sorted({each.address for each in blocks})
        for each in blocks:
            assert content[each.offset : each.offset + each.size] == each.block.code
            assert each.block.module == "mine/bench"


@pytest.mark.ci
def test_counts_are_those_of_the_source(tmp_path: Path, newer: Toolchain) -> None:
    program = built(tmp_path, PROGRAM, *OPTIONS)
    profiler, benchmark = Profiler(tmp_path / "out", newer, Decoder()), Benchmark.of(["./bench 1000"])
    profile = profiler.profile(program, "mine/bench", benchmark, tmp_path, Sampling(0))
    counts: dict[str, list[float]] = {"main": [], "hot": [], "cold": []}
    for block in profile.blocks:
        counts[block.function].append(block.count)
        assert block.labels == {} and np.isfinite(block.annotations).all()
    # `hot` is entered and left 1,000 times, and its loop runs 20 times each time, perhaps unrolled.
    assert max(counts["hot"]) in {1000 * 20 / factor for factor in (1, 2, 4, 5, 10, 20)}
    assert counts["hot"].count(1000) >= 1 and counts["cold"] == [1]
    assert profile.num_refused == 0 and 0 < profile.instructions_in_blocks < 1
    # The second time, nothing runs: the result is kept.
    program.chmod(0o644)
    assert profiler.profile(program, "mine/bench", benchmark, tmp_path, Sampling(0)) == profile


def test_files_of_earlier_versions_are_found(tmp_path: Path) -> None:
    (tmp_path / "bench").write_bytes(b"program")
    compiler = Toolchain(Path("clang"), (22, 1, 0), "clang version 22.1.0", "x86_64-pc-linux-gnu", {}, {}, False, None)
    arrays = {**to_arrays([]), "figures": np.array([3, 0.5, 0.25, 2.0])}
    save_arrays(tmp_path / "out/parts/a669f023418d51179ceb40a4ed4caf0a.npz", arrays)
    profiler, benchmark = Profiler(tmp_path / "out", compiler, Decoder()), Benchmark.of(["./bench 10"])
    found = profiler.profile(tmp_path / "bench", "mine/bench", benchmark, tmp_path, Sampling(0))
    assert found == ProgramProfile((), 3, 0.5, 0.25, 2)


@pytest.mark.ci
def test_samples_of_elsewhere_become_times(tmp_path: Path, newer: Toolchain) -> None:
    program = built(tmp_path, PROGRAM, *OPTIONS)
    cold = next(each for each in read_program(program, newer) if each.block.function == "cold")
    lines = [f" 7 PERF_RECORD_MMAP2 7/7: [0x10000(0x10000) @ 0 <{build_id(program)}>]: r-xp /elsewhere/bench"]
    lines += [f" 7 50000 {0x10000 + cold.offset:x}"] * 30
    (tmp_path / "bench.txt").write_text("\n".join(lines) + "\n")
    profiler, benchmark = Profiler(tmp_path / "out", newer, Decoder()), Benchmark.of(["./bench 10"])
    how = Sampling(0, tmp_path / "bench.txt", script_runs=3)
    blocks = profiler.profile(program, "m", benchmark, tmp_path, how).blocks
    # 30 samples of 50 microseconds, in 3 runs that execute it once.
    assert [block.labels for block in blocks if block.labels] == [{MEASURED: 30 * 50_000 / 3}]
    other = built(tmp_path, PROGRAM.replace("77", "78"), *OPTIONS, name="other")
    with pytest.raises(ProtocolError, match=f"expected samples of the program with the build id {build_id(other)}, "):
        profiler.profile(other, "m", Benchmark.of(["./other 10"]), tmp_path, how)


@pytest.mark.ci
def test_refuses_programs_that_cannot_be_profiled(tmp_path: Path, newer: Toolchain) -> None:
    profiler = Profiler(tmp_path / "out", newer, Decoder())
    bench = built(tmp_path, PROGRAM, *OPTIONS)

    def profile(program: Path, *lines: str, timeout_s: float = 60.0) -> None:
        profiler.profile(program, "m", Benchmark.of(lines, timeout_s), tmp_path, Sampling(0))

    with pytest.raises(BenchmarkError, match="expected exit status 0, found: exit status 3"):
        profile(bench, "./bench -1")
    with pytest.raises(BenchmarkError, match=r"still runs after 0\.3 s"):
        profile(bench, "./bench 1 hang", timeout_s=0.3)
    clock = '#include <stdio.h>\n#include <time.h>\nint main() { printf("%ld", clock()); }\n'
    with pytest.raises(BenchmarkError, match="is not deterministic"):
        profile(built(tmp_path, clock, *OPTIONS, name="clock"), "./clock")
    with pytest.raises(ProtocolError, match="expected an address map of its blocks; compile it with -fbasic-block"):
        profile(built(tmp_path, PROGRAM, "-Wl,--build-id", name="plain"), "./plain 1")
    with pytest.raises(ProtocolError, match="bench: expected a run of this program, found none"):
        profile(bench, "true")
    with pytest.raises(ProtocolError, match="no: cannot be read: No such file"):
        profile(tmp_path / "no", "./no")
