"""A problem is added as `docs/new_problem.md` says: one folder and one gin file."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests import programs
from tests.small_corpus import make_small_corpus


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this package, with what the page shows in it."""
    tree = tmp_path_factory.mktemp("tree")
    for folder in ("compiler_opt", "gin_configs"):
        shutil.copytree(programs.ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    python, gin, commands = re.findall(
        r"```(?:python)?\n(.*?)```", (programs.ROOT / "docs/new_problem.md").read_text(), re.S
    )
    for path, content in (
        ("compiler_opt/problems/few_functions/__init__.py", python),
        ("gin_configs/few_functions/ppo_nn_agent.gin", gin),
        ("commands", commands),
    ):
        (tree / path).parent.mkdir(exist_ok=True)
        (tree / path).write_text(content)
    return tree


def test_the_commands_of_the_page_train_a_policy_for_it(tree: Path, tmp_path: Path) -> None:
    clang = shutil.which("clang-22")
    assert clang is not None
    (tmp_path / "corpus").mkdir()
    make_small_corpus(tmp_path / "corpus", clang)
    places = {"CORPUS": "corpus", "TRACE": "trace", "VOCAB": "vocabulary", "OUTPUT": "training", "REPORT": "report"}
    text = (tree / "commands").read_text().replace("\\\n", " ")
    for name, place in places.items():
        text = text.replace(f"${name}", str(tmp_path / place))
    more = {"generate_vocab": [], "train_locally": ["--gin_bindings=train_eval.num_iterations=2"]}
    for line in text.strip().splitlines():
        program, *arguments = line.split()[1:]
        stem = Path(program).stem
        options = [] if stem == "generate_vocab" else [f"--clang_path={clang}", "--num_workers=2"]
        result = programs.run(program, *arguments, *options, *more.get(stem, []), tree=tree)
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
    assert [entry["iteration"] for entry in history] == [1, 2]
