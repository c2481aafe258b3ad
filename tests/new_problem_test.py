"""A problem and a pass of one's own work as `docs/new_problem.md` says, outside of this package."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from compiler_opt import problem as problems
from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.llvm.object_file import read_object_sizes
from compiler_opt.llvm.options_plugin import FunctionOptions, environment, options_plugin
from compiler_opt.llvm.plugin import load_option
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.pass_options.sets import OptionSets
from tests import programs
from tests.small_corpus import make_corpus, make_small_corpus

PAGE = (programs.ROOT / "docs/new_problem.md").read_text()
_, PROBLEM_EXAMPLE, PASS_EXAMPLE = PAGE.split("\n## Example: ")
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


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH with what the page shows."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "my_problems").mkdir()
    [python] = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    [gin] = re.findall(r"```\n(train_eval.*?)```", PAGE, re.S)
    (folder / "my_problems" / "few_functions.py").write_text(python)
    (folder / "my_problems" / "few_functions.gin").write_text(gin)
    return folder


@pytest.mark.slow
def test_the_commands_of_the_page_train_a_policy_for_it(package: Path, tmp_path: Path) -> None:
    clang = shutil.which("clang-22")
    assert clang is not None
    (tmp_path / "corpus").mkdir()
    make_small_corpus(tmp_path / "corpus", clang)
    [commands] = re.findall(r"```shell\n(.*?)```", PROBLEM_EXAMPLE, re.S)
    places = {"CORPUS": "corpus", "TRACE": "trace", "VOCAB": "vocabulary", "OUTPUT": "training", "REPORT": "report"}
    task, *lines = commands.replace("\\\n", " ").strip().splitlines()
    variables = {name: str(tmp_path / place) for name, place in places.items()} | {"TASK": task.partition("=")[2]}
    for line in lines:
        for name, value in variables.items():
            line = line.replace(f"${name}", value)
        verb, *arguments = line.split()[1:]
        options = [] if verb == "generate_vocab" else [f"--clang_path={clang}", "--num_workers=2"]
        result = programs.run(
            *(f"compiler_opt.tools.{verb}", *arguments, *options),
            cwd=package,
            environment={"PYTHONPATH": f"{programs.ROOT}:{package}"},
        )
        assert result.returncode == 0, result.stderr
    card = json.loads((tmp_path / "training/policy/model_card.json").read_text())
    assert card["problem"] == "few_functions"
    assert card["layers"] == [16, 2]
    summary = json.loads((tmp_path / "report/summary.json").read_text())
    [policy, *_] = summary["totals"].values()
    assert summary["problem"] == "few_functions"
    assert policy["num_failures"] == 0
    assert [project["project"] for project in summary["projects"]] == ["shapes", "plain"]
    history = [json.loads(line) for line in (tmp_path / "training/history.jsonl").read_text().splitlines()]
    assert [entry["iteration"] for entry in history] == [1, 2, 3, 4, 5]


def test_an_installed_package_offers_its_problem_by_name(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [entry_point] = re.findall(r"^(few_functions = .*)$", PAGE, re.M)
    metadata = package / "my_problems-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my_problems\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{problems.ENTRY_POINTS}]\n{entry_point.replace(chr(34), '')}\n")
    monkeypatch.syspath_prepend(str(package))
    assert "few_functions" in problems.names()
    assert problems.load("few_functions") is problems.load("my_problems.few_functions:PROBLEM")
    assert problems.recorded({"problem": "few_functions"}, "p").objective.score_name == "functions"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("unheard_of", "unknown problem 'unheard_of'; expected one of inlining, regalloc_eviction, regalloc_priority"),
        ("no.such.module:PROBLEM", "cannot be imported"),
        ("json:PROBLEM", "cannot be imported"),
        ("json:dumps", "expected an instance of Problem, found function"),
        (":PROBLEM", "cannot be imported"),
    ],
)
def test_what_is_no_problem(name: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        problems.load(name)
    assert message in str(caught.value)


def test_a_policy_does_not_choose_what_is_imported() -> None:
    assert "antigravity" not in sys.modules
    with pytest.raises(PolicyError, match="is for the problem 'antigravity:fly'; expected one of inlining"):
        problems.recorded({"problem": "antigravity:fly"}, "policy")
    assert "antigravity" not in sys.modules


def _block(language: str) -> str:
    [text] = re.findall(rf"```{language}\n(.*?)```", PASS_EXAMPLE, re.S)
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

    rows = re.findall(r"^\| `?(\w+)`? \|((?: \d+ \|){4})$", PASS_EXAMPLE, re.M)
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
