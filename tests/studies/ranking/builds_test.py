"""Builds of a small program that run, with counts and calls that follow from its source."""

from pathlib import Path

import pytest

from compiler_opt.cost_models.throughput.address_map import FLAGS
from compiler_opt.cost_models.throughput.instructions import Decoder
from compiler_opt.errors import BenchmarkError, ProtocolError
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.measure.benchmark import Benchmark
from studies.ranking.builds import Build, BuildProfiler, direct_targets
from studies.ranking.stale_profile_matching import match_profile
from tests.measure.running import PROGRAM, built

OPTIONS = ("-fbasic-block-address-map", *FLAGS[1:])
BENCHMARK = Benchmark.of(["./bench 1000"])


@pytest.fixture(name="newer", scope="module")
def newer_fixture() -> Toolchain:
    """The toolchain of `built`."""
    return probe("/usr/bin/clang-22")


def profiled(place: Path, newer: Toolchain, variant: str, base: str = "base") -> Build:
    profiler = BuildProfiler(place / "out", newer, Decoder())
    return profiler.profile(
        place / variant, "bench", BENCHMARK, place / base / "bench", lambda: BENCHMARK.reference(place / base)
    )


def test_direct_calls_and_jumps_lead_to_addresses() -> None:
    # call +0x10; call *%rax; call *(%rip); je +1; jmp -2
    code = bytes.fromhex("e810000000ffd0ff15000000007401ebfe")
    assert direct_targets(code, 0x1000) == [0x1000 + 5 + 0x10, 0x1000 + 5 + 2 + 6 + 2]


@pytest.mark.slow
def test_counts_and_calls_are_those_of_the_source(tmp_path: Path, newer: Toolchain) -> None:
    program = built(tmp_path / "base", PROGRAM, *OPTIONS)
    found = profiled(tmp_path, newer, "base")
    names = [name for name, _ in found.names()]
    assert sorted(names) == ["cold", "hot", "main"]
    entries = dict(zip(names, found.counts[found.entries].tolist(), strict=True))
    assert entries == {"main": 1, "hot": 1000, "cold": 1}
    called = {
        (found.blocks[row].function, names[number]): found.blocks[row].count for row, number in found.calls.tolist()
    }
    assert called == {("main", "hot"): 1000, ("main", "cold"): 1}
    assert found.total.instructions > 1000 * 20
    # What is kept needs no other run.
    program.chmod(0o644)
    again = profiled(tmp_path, newer, "base")
    # Equal, but for what is NaN.
    assert repr(again.blocks) == repr(found.blocks) and again.total == found.total
    assert again.calls.tolist() == found.calls.tolist()
    (kept,) = (tmp_path / "out/parts").iterdir()
    kept.write_bytes(kept.read_bytes()[:100])
    program.chmod(0o755)
    assert profiled(tmp_path, newer, "base").total == found.total


@pytest.mark.slow
def test_another_register_allocator_runs_what_was_carried(tmp_path: Path, newer: Toolchain) -> None:
    built(tmp_path / "base", PROGRAM, *OPTIONS)
    built(tmp_path / "basic", PROGRAM, *OPTIONS, "-mllvm", "-regalloc=basic")
    base, basic = profiled(tmp_path, newer, "base"), profiled(tmp_path, newer, "basic")
    assert match_profile(base, basic).counts == pytest.approx(basic.counts)


@pytest.mark.ci
def test_refuses_what_cannot_be_compared(tmp_path: Path, newer: Toolchain) -> None:
    built(tmp_path / "base", PROGRAM, *OPTIONS)
    built(tmp_path / "other", PROGRAM.replace("77", "78"), *OPTIONS)
    with pytest.raises(BenchmarkError, match=r"bench 1000: expected to print '1000 .*', found '1000 .*', in line 1"):
        profiled(tmp_path, newer, "other")
    built(tmp_path / "fails", PROGRAM.replace("n < 0", "n > 0"), *OPTIONS)
    with pytest.raises(BenchmarkError, match="expected exit status 0, found: exit status 3"):
        profiled(tmp_path, newer, "fails")
    built(tmp_path / "plain", PROGRAM)
    with pytest.raises(ProtocolError, match="plain/bench: expected an address map of its blocks; compile it with"):
        profiled(tmp_path, newer, "plain")
    with pytest.raises(ProtocolError, match="no/bench: cannot be read: No such file or directory; build it again"):
        profiled(tmp_path, newer, "no")
