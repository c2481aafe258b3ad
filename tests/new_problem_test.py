"""A problem of one's own works as `docs/new_problem.md` says, outside of this package."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from compiler_opt import problem as problems
from compiler_opt.errors import ConfigError, PolicyError
from tests import programs
from tests.small_corpus import make_small_corpus

PAGE = (programs.ROOT / "docs/new_problem.md").read_text()


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
    [commands] = re.findall(r"```shell\n(.*?)```", PAGE, re.S)
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
    [entry_point] = re.findall(r"`(few_functions = [^`]*)`", PAGE)
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
