"""Inputs and tables of the benchmark of real programs; `python -m benchmarks.size_at_speed` fetches and runs them."""

import bz2
import json
import lzma
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from benchmarks import debian_programs, program_inputs
from benchmarks.debian_programs import DebianProgram
from benchmarks.size_at_speed_report import Build, Record, report
from compiler_opt.corpus.builds.database import read_database
from compiler_opt.corpus.ready_made import manifest
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.measure.wall_time import Median
from compiler_opt.report.formatting import MINUS

_ROOT = Path(__file__).parents[2]
_SIZE = 3000
_PROGRAMS = debian_programs.load(Path(debian_programs.__file__).with_name("size_at_speed.yaml"))


def test_inputs_are_the_same_in_every_process() -> None:
    script = (
        "import hashlib, json\nfrom benchmarks.program_inputs import KINDS, content\n"
        f"print(json.dumps({{k: hashlib.sha256(content(k, {_SIZE})).hexdigest() for k in KINDS}}))"
    )
    found = [
        json.loads(
            subprocess.check_output(
                [sys.executable, "-c", script],
                cwd=_ROOT,
                env={**os.environ, "PYTHONPATH": str(_ROOT), "PYTHONHASHSEED": seed},
            )
        )
        for seed in ("1", "2")
    ]
    assert found[0] == found[1]
    assert len(set(found[0].values())) == len(program_inputs.KINDS)


def test_compressed_inputs_have_the_plain_ones() -> None:
    plain = program_inputs.content("prose", _SIZE)
    assert bz2.decompress(program_inputs.content("prose", _SIZE, "bz2")) == plain
    assert lzma.decompress(program_inputs.content("prose", _SIZE, "xz")) == plain
    member = program_inputs.content("prose", _SIZE, "lz")
    checksum, size, member_size = (
        int.from_bytes(member[a:b], "little") for a, b in ((-20, -16), (-16, -8), (-8, None))
    )
    assert (checksum, size, member_size) == (zlib.crc32(plain), len(plain), len(member))
    head = bytes([3 + 9 * (0 + 5 * 2)]) + (1 << member[5]).to_bytes(4, "little") + b"\xff" * 8
    assert lzma.decompress(head + member[6:-20], lzma.FORMAT_ALONE) == plain


@pytest.mark.parametrize("name", _PROGRAMS)
def test_the_measuring_input_is_another_one(name: str) -> None:
    training, measuring = (
        debian_programs.input_names(lines) for lines in (_PROGRAMS[name].training, _PROGRAMS[name].measuring)
    )
    assert training and measuring
    for kind, size, compression in [*training, *measuring]:
        assert program_inputs.content(kind, min(size, _SIZE), compression)
    # All kinds that are measured are trained on, and no input is.
    assert {kind for kind, _, _ in measuring} <= {kind for kind, _, _ in training}
    assert {(kind, size) for kind, size, _ in measuring}.isdisjoint((kind, size) for kind, size, _ in training)


def test_no_program_is_of_a_project_for_training() -> None:
    training = {project for splits in manifest.load().sets.values() for project in splits.get("train", ())}
    packages = {program.package for program in _PROGRAMS.values()}
    assert training.isdisjoint(packages | set(_PROGRAMS))
    assert min(sum(program.language == each for program in _PROGRAMS.values()) for each in ("c", "c++")) >= 3


def test_a_program_without_cmake_is_configured(toolchain: Toolchain, tmp_path: Path) -> None:
    source = tmp_path / "package" / "sum-1"
    (source / "debian").mkdir(parents=True)
    program = DebianProgram(
        "sum",
        "c++",
        "sum",
        training=["{program} {prose/10} '{log/200:name}'"],
        measuring=[],
        sources=["lib/a.c", "b.cc"],
        flags=["-DA=1"],
        libraries=["-lm"],
        generated={"config.h": "#define B 1\n"},
    )
    database, link = program.configure(source.parent, tmp_path / "build", toolchain)
    commands = read_database(Path(database.partition("=")[2])).commands
    assert [each.output.name for each in commands] == ["lib-a.c.o", "b.cc.o"]
    assert [Path(each.words[0]) for each in commands] == [toolchain.clang, toolchain.tool("clang++")]
    assert link == f"--link_command={toolchain.tool('clang++')} lib-a.c.o b.cc.o -o sum -lm"
    assert (tmp_path / "build" / "config.h").read_text() == "#define B 1\n"
    inputs = tmp_path / "inputs"
    [command] = program.commands(program.training, inputs)
    assert command == f"./linked/sum {inputs}/prose-10/input '{inputs}/log-200/name'"
    assert (inputs / "log-200" / "name").read_bytes() == program_inputs.content("log", 200)


def _build(change: float) -> Build:
    size = round(1000 * (1 + change))
    return Build(size, size, size, size, Median(1, 1, 1), Median(1 + change, 0.9, 1.1))


def test_a_table_names_each_program_once() -> None:
    tables = report(
        [
            Record("one", "1-2", "c", "the last 5% for size", 0.1, _build(0), _build(-0.02), _build(-0.04)),
            Record("two", "1-2", "c++", "", 0.1, _build(0), _build(0.01), _build(0)),
        ]
    )
    cells = [line.split() for table in tables for line in table.lines()]
    assert cells[2][:4] == ["one", "(c)", "profile", f"{MINUS}2.00%"]
    assert cells[3] == ["optimised", *[f"{MINUS}4.00%"] * 5, f"{MINUS}10.00%", "to", "+10.00%", "960"]
    assert cells[4][:4] == ["two", "(c++)", "profile", "+1.00%"]
    assert cells[5][:4] == ["nothing", "is", "kept", "0.00%"]
    assert sum("one" in line for line in cells) == 1
    # (-0.04 + 0) / 2, and an interval only where there are two.
    first = next(number for number, line in enumerate(cells) if line[:2] == ["2,", "all"])
    assert [line[0] for line in cells[first + 1 : first + 4]] == ["(95%)", "optimised", "(95%)"]
    assert cells[first + 2][1:] == [f"{MINUS}2.00%"] * 5
    assert cells[-1] == ["worst", "optimised", *["0.00%", "two"] * 5]
