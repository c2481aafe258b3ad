"""make_corpus, combine_training_corpus and corpus_stats, one after the other, as a user runs them."""

import csv
import json
import subprocess
from pathlib import Path

import pytest

from tests import programs

ROOT = Path(__file__).parents[2]

SOURCE = "static int f(int x) { return x; } int g(int x) { return f(x) + f(x + 1); }"


def run(tool: str, *arguments: str) -> str:
    result = programs.run(f"compiler_opt.tools.{tool}", *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(name="place")
def place_fixture(tmp_path: Path) -> Path:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / "x.c").write_text(SOURCE.replace("f(", f"{name}("))
        command = ["clang-22", "-Oz", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c", "x.c"]
        subprocess.run([*command, "-o", f"{name}/{name}.c.bc"], cwd=tmp_path, check=True)
    (tmp_path / "one" / "text.bc").write_text("no bitcode")
    return tmp_path


@pytest.mark.ci
def test_from_loose_bitcode_to_numbers(place: Path) -> None:
    for name in ("one", "two"):
        said = run(
            "make_corpus", f"--input_dir={place / name}", f"--output_dir={place}/all/{name}", "--default_args=-cc1 -Oz"
        )
        assert f"all/{name}: 1 modules of {2 if name == 'one' else 1} files" in said
        assert ("left out: " in said and "text.bc: expected LLVM bitcode" in said) == (name == "one")
    said = run("combine_training_corpus", f"--root_dir={place / 'all'}")
    assert "  one: 1 modules\n  two: 1 modules\n" in said and "all: 2 modules of 2 corpora" in said
    output = place / "numbers"
    said = run("corpus_stats", f"--data_path={place / 'all'}", f"--output_dir={output}", "--decisions")
    lines = [line.split() for line in said.splitlines()]
    assert ["one", "C", "1", "2"] in [words[:4] for words in lines]
    assert ["together", "2", "4"] in [words[:3] for words in lines]
    assert "levels: -Oz 2" in said and "copies: none" in said
    numbers = json.loads((output / "statistics.json").read_text())
    assert numbers["totals"]["call_sites"] == numbers["totals"]["decisions"] == 4
    with (output / "modules.csv").open() as file:
        assert [row["name"] for row in csv.DictReader(file)] == ["one/one.c", "two/two.c"]
    for name in ("modules.svg", "projects.svg"):
        assert "<svg" in (output / name).read_text()
