"""A policy that inlines all calls makes targets larger: clang's own decisions take its place there, or everywhere."""

import dataclasses
import subprocess
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.decisions.inlining import FEATURES
from compiler_opt.llvm.toolchain import probe
from compiler_opt.optimize.cmake_program import CMakeProgram
from compiler_opt.optimize.fallback import FALLBACK
from compiler_opt.optimize.optimization import OptimizeSettings
from compiler_opt.optimize.pipeline import optimize
from compiler_opt.optimize.size import ReusedPolicy, SmallText
from compiler_opt.optimize.state import STATE_NAME
from compiler_opt.pass_options.sets import OptionSets
from compiler_opt.policies.weights import NetworkWeights
from tests.deploy.sources import MAIN, SWITCH
from tests.small_project import configure

_CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(two LANGUAGES C)
add_executable(large large.c)
add_executable(other other.c)
"""
_BODY = "  x = (x * 31u) ^ (x >> 5) ^ (x << 3);\n" * 17
_LARGE = f"""
static unsigned step(unsigned x) {{ {_BODY} return x; }}
int main(int argc, char **argv) {{ return step(argc) + step(argc + 1) + step(argc * 5); }}
"""
_OTHER = """
static unsigned twice(unsigned x) { return x + x; }
int main(int argc, char **argv) { return twice(argc) + twice(argc * 7); }
"""


@pytest.mark.ci
@pytest.mark.parametrize("everywhere", [pytest.param(False, marks=pytest.mark.slow), True])
def test_no_target_is_larger(tmp_path: Path, everywhere: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "CMakeLists.txt").write_text(_CMAKE)
    (source / "large.c").write_text(_LARGE)
    (source / "other.c").write_text(_OTHER)
    always = NetworkWeights.keeping_default(FEATURES[0])
    always = dataclasses.replace(always, biases=(np.array([0, 1], np.float32),), margin=0.0)
    always.save(tmp_path / "policy")
    settings, objective = (
        OptimizeSettings(tmp_path / "out", jobs=2),
        SmallText(reused=ReusedPolicy.find(tmp_path / "policy")),
    )
    if everywhere:
        # As if clang's own decisions could not be replayed.
        monkeypatch.setattr("compiler_opt.optimize.fallback.PoolCompiler.compile", lambda self, requests: {})
    lines: list[str] = []
    program = CMakeProgram(configure(source, tmp_path / "build"), 2)
    result = optimize(program, probe("clang-22"), settings, objective, lines.append)
    assert [(target.name, target.change <= 0) for target in result.main] == [("large", True), ("other", True)]
    told = [line for line in lines if line.startswith("larger than with plain clang: large;")]
    assert len(told) == 1 + everywhere
    assert (tmp_path / "out" / FALLBACK / "policy").is_dir() == everywhere
    (note,) = (note for note in result.notes if note.startswith("Larger with the policy than without: large."))
    assert note.endswith("are kept everywhere." if everywhere else "are kept in all that is linked with them.")

    # It stays so where it is not started over, as if the end had been interrupted.
    state = tmp_path / "out" / STATE_NAME
    state.write_text(state.read_text().replace('"finished": true', '"finished": false'))
    del lines[:]
    again = optimize(program, probe("clang-22"), settings, objective, lines.append)
    assert again.main == result.main and again.notes == result.notes
    assert [line.partition(":")[0] for line in lines if line.endswith("done before")] == [
        "build-bitcode",
        "corpus",
        "trace",
        "deployment",
        "build-default",
        "build-optimized",
    ]


@pytest.mark.slow
def test_options_that_make_a_target_larger_are_dropped(tmp_path: Path) -> None:
    """Clang's own decisions do not help; without the options, the policy decides again."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "CMakeLists.txt").write_text(_CMAKE)
    (source / "large.c").write_text(SWITCH + MAIN)
    (source / "other.c").write_text(_OTHER)
    NetworkWeights.keeping_default(FEATURES[0]).save(tmp_path / "policy")
    options = OptionSets({"Oz": ("-enable-tail-merge=false",)})
    settings = OptimizeSettings(tmp_path / "out", pass_options=options, jobs=2)
    objective = SmallText(reused=ReusedPolicy.find(tmp_path / "policy"))
    lines: list[str] = []
    program = CMakeProgram(configure(source, tmp_path / "build"), 2)
    result = optimize(program, probe("clang-22"), settings, objective, lines.append)
    assert "options of LLVM's passes: -enable-tail-merge=false (2 modules)" in lines
    assert len([line for line in lines if line.startswith("larger than with plain clang: large;")]) == 2
    assert [target.change for target in result.main] == [0, 0]
    (note,) = (note for note in result.notes if note.startswith("Larger with the policy than without: large."))
    assert note.endswith("are kept in all that is linked with them, and no options of LLVM are set.")
    info = subprocess.check_output([tmp_path / "out" / "deployed" / "bin" / "mlgo-clang", "--mlgo-info"], text=True)
    assert "tail-merge" not in info and not (tmp_path / "out" / FALLBACK / "policy").exists()
