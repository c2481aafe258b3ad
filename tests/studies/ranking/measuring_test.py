"""Which variants are compared, and wall times that are kept."""

from pathlib import Path

import pytest

from compiler_opt.cost_models.throughput.address_map import FLAGS
from compiler_opt.cost_models.throughput.instructions import Decoder
from compiler_opt.errors import BenchmarkError, ConfigError
from compiler_opt.llvm.toolchain import probe
from compiler_opt.measure.benchmark import Benchmark
from studies.ranking.builds import BuildProfiler
from studies.ranking.measuring import BuildMeasurer, variants_with
from tests.measure.running import PROGRAM, built


def test_variants(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="expected a folder default with the base builds, found none; name another by"
    ):
        variants_with(tmp_path, "default", ["p/bench"])
    for variant in ("default", "b", "a", "objects"):
        (tmp_path / variant / "p").mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "default/p/bench").touch()
    with pytest.raises(ConfigError, match="expected folders beside default with p/bench, found none; put each"):
        variants_with(tmp_path, "default", ["p/bench"])
    (tmp_path / "b/p/bench").touch()
    (tmp_path / "a/p/other").touch()
    assert variants_with(tmp_path, "default", ["p/bench", "p/other"]) == ["a", "b"]
    assert variants_with(tmp_path, "default", ["p/bench"]) == ["b"]
    assert variants_with(tmp_path, "default", ["p/bench"], ["objects", "b"]) == ["objects", "b"]
    for given in (["b", "b"], ["default"]):
        with pytest.raises(ConfigError, match=r"--variant=\w+: is there twice; the base, default, is always there"):
            variants_with(tmp_path, "default", ["p/bench"], given)
    for missing in ("c", "b/p", "file"):
        with pytest.raises(ConfigError, match=f"--variant={missing}: expected a folder in .*, found none"):
            variants_with(tmp_path, "default", ["p/bench"], [missing])


@pytest.mark.slow
def test_wall_times_are_kept(tmp_path: Path) -> None:
    options = ("-fbasic-block-address-map", *FLAGS[1:])
    programs = [
        built(tmp_path / "builds" / name, PROGRAM, *options, level) for name, level in (("a", "-O1"), ("b", "-O0"))
    ]
    out, benchmark = tmp_path / "out", Benchmark.of(["./bench 1000"])
    profiler = BuildProfiler(out, probe("/usr/bin/clang-22"), Decoder())
    measurer = BuildMeasurer(out, profiler, tmp_path / "builds", "a", rounds=6)
    steps: list[int] = []
    found = measurer.measure("bench", benchmark, ["b", "c"], lambda: steps.append(1))
    assert len(steps) == 3 + 6
    assert list(found.builds) == ["a", "b"] and list(found.left_out) == ["c"]
    assert found.wall is not None and list(found.wall) == ["a", "b"]
    assert found.wall["a"].ratio.value == 1
    for program in programs:
        program.chmod(0o644)
    assert measurer.measure("bench", benchmark, ["b"]).wall == found.wall
    # A damaged file is measured again, for which the programs must run.
    (kept,) = (out / "parts").glob("*.json")
    kept.write_text(kept.read_text().replace("1.0", "2.0"))
    with pytest.raises(BenchmarkError, match="expected a program, found none"):
        measurer.measure("bench", benchmark, ["b"])
