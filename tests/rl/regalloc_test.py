"""Register allocation from the command line, at smoke size: trace, vocabulary, cloning, training, evaluation."""

import json
from pathlib import Path

import numpy as np
import pytest

from compiler_opt import problem as problems
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.model_card import ModelCard
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.masked_categorical import MaskedCategorical
from tests import programs
from tests.small_corpus import make_busy_corpus

_ROOT = Path(__file__).parents[2]

_OUTPUTS = {"regalloc_eviction": 1, "regalloc_priority": 2}
"""A candidate's score; a number's mean and deviation."""


def run(program: str, *arguments: str, status: int = 0) -> str:
    """Standard output, or the errors of a run that is expected to fail."""
    result = programs.run(f"compiler_opt/{program}.py", *arguments)
    assert result.returncode == status, result.stderr
    return result.stderr if status else result.stdout


pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize(
        ("clang_path", "problem"),
        [(clang, problem) for clang in ("clang-22", "clang-19") for problem in _OUTPUTS],
        indirect=True,
    ),
]


@pytest.fixture(scope="module")
def problem(request: pytest.FixtureRequest) -> problems.Problem:
    return problems.load(request.param)


@pytest.fixture(scope="module")
def place(problem: problems.Problem, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all steps' outputs."""
    place = tmp_path_factory.mktemp(problem.name)
    corpus, clang = place / "corpus", f"--clang_path={toolchain.clang}"
    corpus.mkdir()
    make_busy_corpus(corpus, str(toolchain.clang))
    task, data, gin = f"--compile_task={problem.name}", f"--data_path={corpus}", f"gin_configs/{problem.name}"
    run("tools/generate_default_trace", task, data, clang, f"--output_path={place / 'trace'}", "--num_workers=1")
    run("tools/generate_vocab", f"--input={place / 'trace'}", f"--output_dir={place / 'vocabulary'}")
    run(
        "rl/train_bc",
        f"--output_dir={place / 'warm_start'}",
        f"--data_path={place / 'trace'}",
        f"--vocab_path={place / 'vocabulary'}",
        f"--gin_files={gin}/behavioral_cloning_nn_agent.gin",
        "--gin_bindings=train_eval.num_epochs=4",
        "--gin_bindings=train_eval.batch_size=8",
    )
    run(
        "rl/train_locally",
        task,
        data,
        clang,
        f"--output_dir={place / 'training'}",
        f"--warmstart_policy_dir={place / 'warm_start' / 'policy'}",
        f"--gin_files={gin}/ppo_nn_agent.gin",
        "--gin_bindings=train_eval.num_iterations=2",
        "--gin_bindings=train_eval.num_modules=3",
        "--gin_bindings=train_eval.rollouts_per_module=3",
        "--num_workers=1",
    )
    policy = f"--policy_path={place / 'training' / 'policy'}"
    table = run("tools/evaluate", task, data, clang, policy, f"--output_dir={place / 'evaluation'}")
    (place / "table.txt").write_text(table)
    return place


@pytest.mark.ci
def test_each_step_leaves_what_it_should(problem: problems.Problem, place: Path, toolchain: Toolchain) -> None:
    about = json.loads((place / "trace.meta.json").read_text())
    assert (about["problem"], about["toolchain"]) == (problem.name, toolchain.identity())
    assert about["num_decisions"] >= 90
    assert {path.stem for path in (place / "vocabulary").iterdir()} == set(problem.decision.feature_names)
    weights = NetworkWeights.load(place / "training" / "policy")
    assert weights.features == problem.decision.feature_names
    assert [len(bias) for bias in weights.biases] == [64, 64, _OUTPUTS[problem.name]]
    card = ModelCard.load(place / "training" / "policy")
    assert card is not None
    assert card.problem == problem.name
    history = [json.loads(line) for line in (place / "training" / "history.jsonl").read_text().splitlines()]
    assert [entry["iteration"] for entry in history] == [1, 2]
    assert all(np.isfinite(entry["loss"]) for entry in history)
    assert history[0]["failures"] == 0


def test_the_evaluation_speaks_of_the_score(problem: problems.Problem, place: Path) -> None:
    table = (place / "table.txt").read_text()
    assert "weighted spills, reloads and copies" in table
    assert "together" in table
    summary = json.loads((place / "evaluation" / "summary.json").read_text())
    assert summary["problem"] == problem.name
    assert list(summary["totals"]) == ["policy", *problem.decision.action_space.baselines()]
    assert {project["project"] for project in summary["projects"]} == {"loops", "mixed"}
    page = (place / "evaluation" / "report.html").read_text()
    assert "The score is" in page
    assert "$" not in page.replace("$HOME", "")


def _train(
    algorithm: str, place: Path, problem: problems.Problem, toolchain: Toolchain, *more: str, status: int
) -> str:
    """Trains by another algorithm, with eviction's settings, into a folder of its name."""
    return run(
        "rl/train_locally",
        f"--compile_task={problem.name}",
        f"--data_path={place / 'corpus'}",
        f"--clang_path={toolchain.clang}",
        f"--output_dir={place / algorithm}",
        f"--gin_files=gin_configs/regalloc_eviction/{algorithm}_nn_agent.gin",
        *_gin(f"command.compile_task='{problem.name}'"),
        "--num_workers=1",
        *more,
        status=status,
    )


def _of_a_rule(place: Path, problem: problems.Problem, toolchain: Toolchain, iterations: int, status: int) -> str:
    bindings = (f"train_eval.num_iterations={iterations}", "train_eval.num_modules=16", "es.cloning_epochs=3")
    more = [f"--vocab_path={place / 'vocabulary'}", *_gin(*bindings)]
    return _train("es_of_a_rule", place, problem, toolchain, *more, status=status)


def _gin(*bindings: str) -> list[str]:
    return [f"--gin_bindings={binding}" for binding in bindings]


def test_a_rule_is_found_and_cloned(problem: problems.Problem, place: Path, toolchain: Toolchain) -> None:
    if problem.decision.rule is None:
        error = _of_a_rule(place, problem, toolchain, 1, status=2)
        assert "es.parameters: expected 'network' for regalloc_priority, which has no rule" in error
        return
    for iterations in (1, 2):
        # The second time, it resumes from its parameters.
        _of_a_rule(place, problem, toolchain, iterations, status=0)
    history = [json.loads(line) for line in (place / "es_of_a_rule" / "history.jsonl").read_text().splitlines()]
    assert [entry["iteration"] for entry in history] == [1, 2]
    assert all(entry["failures"] == 0 and entry["max_z"] > 0 for entry in history)
    lengths = [entry["rule/length"] for entry in history]
    assert 0 != lengths[0] != lengths[1]
    weights = NetworkWeights.load(place / "es_of_a_rule" / "policy")
    assert [len(bias) for bias in weights.biases] == [64, 64, 1]
    card = ModelCard.load(place / "es_of_a_rule" / "policy")
    assert card is not None and "evolution strategies" in (card.algorithm or "")
    assert set(weights.metadata["rule"]) == {parameter.name for parameter in problem.decision.rule.parameters}


def test_a_policy_for_another_problem_is_refused(problem: problems.Problem, place: Path, toolchain: Toolchain) -> None:
    error = run(
        "tools/evaluate",
        f"--data_path={place / 'corpus'}",
        f"--clang_path={toolchain.clang}",
        f"--policy_path={place / 'training' / 'policy'}",
        f"--output_dir={place / 'refused'}",
        status=2,
    )
    if isinstance(problem.decision.action_space, MaskedCategorical):
        assert "it is for another problem than this (see --compile_task)" in error
    else:
        assert "needs features that this compiler does not send: li_size, stage, weight" in error
    assert "Traceback" not in error
