"""Profiles a program as a user does, with samples that were recorded elsewhere."""

import re
from pathlib import Path

import pytest

from compiler_opt.cost_models.throughput.address_map import FLAGS, read_program
from compiler_opt.cost_models.throughput.blocks import load_blocks
from compiler_opt.llvm.toolchain import probe
from compiler_opt.measure.sampling import build_id
from tests import programs
from tests.measure.running import PROGRAM, built

CLANG = "/usr/bin/clang-22"


@pytest.mark.slow
def test_profiles_a_program_and_continues(tmp_path: Path) -> None:
    program = built(tmp_path / "mine", PROGRAM, "-fbasic-block-address-map", *FLAGS[1:], "-Wl,--build-id")
    hot = next(each for each in read_program(program, probe(CLANG)) if each.block.function == "hot")
    lines = [f" 7 PERF_RECORD_MMAP2 7/7: [0x10000(0x10000) @ 0 <{build_id(program)}>]: r-xp /elsewhere/bench"]
    lines += [f" 7 50000 {0x10000 + hot.offset:x}"] * 40
    (tmp_path / "bench.txt").write_text("\n".join(lines) + "\n")
    arguments = (
        f"--clang_path={CLANG}",
        f"--program_dir={tmp_path}",
        "--benchmark=mine/bench 100",
        "--benchmark=mine/bench 300",
        f"--perf_script={tmp_path / 'bench.txt'}",
        "--perf_script_runs=2",
        f"--output_dir={tmp_path / 'out'}",
    )
    result = programs.run("compiler_opt.tools.cost_model.profile", *arguments)
    assert result.returncode == 0, result.stderr
    assert re.search(
        r"^mine/bench: \d+ blocks ran, 1 with a measured time \(2 runs\); 0 not decoded, 0 re", result.stdout
    )
    blocks = load_blocks(tmp_path / "out/profiled.npz")
    assert {block.module for block in blocks} == {"mine/bench"}
    (measured,) = [block for block in blocks if "measured ns" in block.labels]
    # Both commands call `hot`: 100 + 300 times. 40 samples of 50 microseconds are of two runs of both.
    assert (measured.function, measured.count) == ("hot", 400)
    assert measured.labels["measured ns"] == 40 * 50_000 / (400 * 2)
    assert all(any(source.startswith("llvm-mca 22") for source in block.labels) for block in blocks)
    (tmp_path / "out/profiled.npz").unlink()
    program.chmod(0o644)  # It does not run again.
    again = programs.run("compiler_opt.tools.cost_model.profile", *arguments)
    assert (again.returncode, again.stdout) == (0, result.stdout)
    assert load_blocks(tmp_path / "out/profiled.npz") == blocks
