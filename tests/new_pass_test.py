"""A pass of one's own works as `docs/new_pass.md` says."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from compiler_opt.llvm.object_file import read_object_sizes
from compiler_opt.llvm.options_plugin import FunctionOptions, environment, options_plugin
from compiler_opt.llvm.plugin import load_option
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.pass_options.sets import OptionSets
from tests import programs
from tests.small_corpus import make_corpus

PAGE = (programs.ROOT / "docs/new_pass.md").read_text()
MAIN = """
#include <stdio.h>
struct state { long all[112]; };
void count_middle(struct state *, int), count_far(struct state *, int), count_all(struct state *, int);
long next(void) { static unsigned long x = 1; return x = x * 25214903917 + 11; }
int main(void) {
  struct state s = {{0}};
  count_middle(&s, 9); count_far(&s, 8); count_all(&s, 7);
  for (int i = 0; i < 112; i++) printf("%ld ", s.all[i]);
}
"""


def _block(language: str) -> str:
    [text] = re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)
    return str(text)


@pytest.fixture
def pass_folder(tmp_path: Path) -> Path:
    """A folder with the files that the page shows for a pass."""
    for language, name in (("cpp", "rebase.cpp"), ("json", "rebase.json"), ("c", "state.c")):
        (tmp_path / name).write_text(_block(language))
    (tmp_path / "main.c").write_text(MAIN)
    (tmp_path / "corpus").mkdir()
    return tmp_path


def _shell(line: str, folder: Path, variables: Mapping[str, str] = {}) -> str:
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert not done.returncode and not done.stderr, done.stderr
    return done.stdout


def _sizes_with_each_set(toolchain: Toolchain, folder: Path) -> list[dict[str, int]]:
    """The bytes of the functions of `state.c`, with each set of the menu in all of them."""
    sets = OptionSets.load(folder / "rebase.json")
    menu = sets.menu("Oz", "x86_64")
    sizes = []
    for number in range(len(menu)):
        options = FunctionOptions(menu, default=number, plugin=folder / "rebase.so")
        command = f"{toolchain.clang} -Oz {load_option(options_plugin(toolchain))} -c state.c -o constant.o"
        _shell(command, folder, environment(options, folder))
        sizes.append(dict(read_object_sizes(folder / "constant.o").functions))
    return sizes


def _run_with_passes(toolchain: Toolchain, folder: Path, name: str) -> str:
    """What a compilation prints that is to run a pass beside the plugin."""
    options = FunctionOptions(((), (f"-passes={name}",)), default=1, plugin=folder / "rebase.so")
    command = [str(toolchain.clang), "-Oz", load_option(options_plugin(toolchain)), "-c", "state.c", "-o", "other.o"]
    variables = {**os.environ, **environment(options, folder)}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    return done.stderr


@pytest.mark.slow
@pytest.mark.both_compilers
def test_the_commands_of_the_page_choose_by_function_for_a_pass(toolchain: Toolchain, pass_folder: Path) -> None:
    folder, version = pass_folder, str(toolchain.version[0])
    make_corpus(folder / "corpus", str(toolchain.clang), {"states/state.c": _block("c")})
    places = {"PREFIX": "prefix", "CORPUS": "corpus", "REPORT": "report"}
    for line in _block("shell").replace("\\\n", " ").strip().splitlines():
        line = re.sub(r"\$([A-Z]+)", lambda name: str(folder / places[name[1]]), line).replace("-22", f"-{version}")
        program, verb, *arguments = line.split()
        if program != "compiler_opt":
            _shell(line, folder)
            continue
        result = programs.run(f"compiler_opt.tools.{verb}", *arguments, cwd=folder)
        assert result.returncode == 0, result.stderr

    rows = re.findall(r"^\| `?(\w+)`? \|((?: \d+ \|){4})$", PAGE, re.M)
    table = {name: [int(cell) for cell in cells.split("|")[:-1]] for name, cells in rows}
    sizes = [*_sizes_with_each_set(toolchain, folder), read_object_sizes(folder / "state.o").functions]
    assert {name: [each[name] for each in sizes] for name in sizes[0]} | {
        "together": [sum(each.values()) for each in sizes]
    } == table
    assert table["together"][-1] < min(table["together"][:-1])
    evaluated = json.loads((folder / "report/summary.json").read_text())["totals"]["options"]
    saved = evaluated["default_linked_bytes"] - evaluated["linked_bytes"]
    assert evaluated["num_failures"] == 0 and saved == table["together"][0] - table["together"][-1]
    # LLVM's own passes, some of which write files, are none of the plugin's.
    assert not _run_with_passes(toolchain, folder, "rebase")
    assert "dot-cfg is a pass of LLVM's own, not of the plugin" in _run_with_passes(toolchain, folder, "dot-cfg")
    # The prefix may be moved without what it was made of.
    chosen = (folder / "state.o").read_bytes()
    (folder / "rebase.so").unlink()
    (folder / "prefix").rename(folder / "moved")
    _shell("moved/bin/mlgo-clang -Oz -c state.c", folder)
    assert (folder / "state.o").read_bytes() == chosen
    # Nothing that the program does has changed.
    printed = [
        _shell(f"{toolchain.clang} -Oz main.c {state} -o main && ./main", folder) for state in ("state.c", "state.o")
    ]
    assert printed[0] == printed[1]
