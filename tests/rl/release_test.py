"""From trainings to a policy that ships: the choice on a validation corpus, the files, and mistakes."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.policies.pretrained_index import ENVIRONMENT, PretrainedIndex
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.rl.release import MEAN, gather, write_logs
from tests import programs
from tests.small_corpus import SOURCES, make_corpus, make_small_corpus

CLANG = "clang-22"


def network(bias: float, seed: int) -> NetworkWeights:
    """Prefers inlining by `bias`, whatever the call site."""
    rng = np.random.default_rng(seed)
    kernels = (rng.normal(0, 0.01, (3, 4)).astype(np.float32), rng.normal(0, 0.01, (4, 2)).astype(np.float32))
    biases = (np.zeros(4, np.float32), np.array([0, bias], np.float32))
    metadata = {"problem": "inlining", "seed": seed, "method": "ppo", "corpus": {"name": "train", "num_modules": 7}}
    return NetworkWeights(("callsite_cost",), (np.arange(9.0),), kernels, biases, metadata)


def save_training(directory: Path, weights: NetworkWeights, iterations: int = 500) -> Path:
    weights.save(directory / "policy")
    entries = [{"iteration": i, "compiles": 8 * i, "reward_mean": i / 7} for i in range(1, iterations + 1)]
    (directory / "history.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return directory


def release(*flags: str) -> list[str]:
    result = programs.run("compiler_opt.tools.policy.release", *flags)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.mark.slow
def test_the_best_of_validation_is_released_and_evaluated(tmp_path: Path) -> None:
    """The one that always inlines, the one that never does, and their mean, which does on balance."""
    (tmp_path / "validation").mkdir()
    make_small_corpus(tmp_path / "validation", CLANG)
    always = save_training(tmp_path / "always", network(+3, 1))
    never = save_training(tmp_path / "never", network(-2, 2))
    pretrained_dir, logs = tmp_path / "pretrained", tmp_path / "logs"
    common = ("--name=inlining-Oz", f"--output_dir={pretrained_dir}", f"--history_dir={logs}")
    data = (
        f"--training_dirs={always},{never}",
        f"--data_path={tmp_path / 'validation'}",
        f"--clang_path={CLANG}",
        "--margins=0,100",
    )
    lines = release(*common, *data)
    rows = [line.split() for line in lines if line.startswith(("always", "never", MEAN))]
    assert [row[0] for row in rows] == ["always", "never", MEAN]
    assert rows[0][1:3] == rows[2][1:3] != rows[1][1:3], "the mean decides as the surer one"
    [chosen] = [row[0] for row in rows if row[-1] == "chosen"]
    assert chosen == MEAN, "it is as good as the best"

    assert "margin: 0" in lines or "margin: 100" in lines, "100 is the default's decisions"
    weights = gather([always, never])[MEAN]
    weights = weights.with_margin(100 if "margin: 100" in lines else 0)
    folder = PretrainedIndex(pretrained_dir).path("inlining-Oz")
    assert NetworkWeights.load(folder).checksum() == weights.checksum()
    card = PretrainedIndex(pretrained_dir).card("inlining-Oz")
    assert [result["corpus"] for result in card.results] == [
        "validation, on which it was chosen out of always, never, mean"
    ]
    assert {name: facts["seed"] for name, facts in card.training["trainings"].items()} == {"always": 1, "never": 2}
    logged = [json.loads(line) for line in (logs / "inlining-Oz" / "always.jsonl").read_text().splitlines()]
    assert len(logged) == 200
    assert logged[0] == {"iteration": 1, "compiles": 8, "reward_mean": 0.14286}
    assert logged[-1] == {"iteration": 500, "compiles": 4000, "reward_mean": 71.429}

    check_that_results_complete_the_card(tmp_path, common, folder)


def check_that_results_complete_the_card(place: Path, common: tuple[str, ...], folder: Path) -> None:
    evaluation = programs.run(
        "compiler_opt.tools.evaluate",
        f"--data_path={place / 'validation'}",
        f"--output_dir={place / 'results'}",
        f"--clang_path={CLANG}",
        "--baselines=never",
        environment={"COMPILER_OPT_PRETRAINED": str(place / "pretrained")},
    )
    assert evaluation.returncode == 0, evaluation.stderr
    facts = json.loads((place / "results" / "summary.json").read_text())["provenance"]
    assert facts["Policy"] == "pretrained:inlining-Oz"
    for _ in range(2):  # The second time, the results take the place of the first.
        release(*common, f"--evaluation={place / 'results'}")
        _, result = PretrainedIndex(place / "pretrained").card("inlining-Oz").results
        assert result["linked text by project"].startswith("shapes ")
    assert "linked text by project" in (folder / "MODEL_CARD.md").read_text()


@pytest.mark.slow
def test_the_script_trains_and_releases(tmp_path: Path) -> None:
    """In a copy of this project, with two seeds of some seconds."""
    project, corpora = tmp_path / "project", tmp_path / "corpora"
    for name in ("compiler_opt", "gin_configs"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(programs.ROOT / name, project / name, ignore=ignored, symlinks=True)
    (project / "docs" / "pretrained").mkdir(parents=True)
    script = shutil.copy(programs.ROOT / "docs" / "pretrained" / "train.sh", project / "docs" / "pretrained")
    for name in ("train", "validation"):
        (corpora / name).mkdir(parents=True)
        make_corpus(corpora / name, CLANG, {f"{name}_{path}": source for path, source in SOURCES.items()})
    environment = {
        **os.environ,
        "PYTHON": sys.executable,
        "SEEDS": "1 2",
        "FLIP_MINUTES": "0.02",
        "PPO_MINUTES": "0.02",
    }
    environment.pop(ENVIRONMENT, None)
    for name in ("inlining-Oz-plugin", "inlining-Oz-portable"):
        command = ["bash", script, name, str(corpora), str(tmp_path / "runs"), f"--clang_path={CLANG}"]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        assert "chosen" in result.stdout
        folder = PretrainedIndex(project / "compiler_opt" / "pretrained").path(name)
        features = set(NetworkWeights.load(folder).features)
        assert ("callee_linkage" in features) == name.endswith("plugin")
        logs = {path.name for path in (project / "docs" / "pretrained" / name).iterdir()}
        assert logs == {"seed-1.jsonl", "seed-2.jsonl"}
    assert subprocess.run(["bash", script, "inlining", "a", "b"], capture_output=True, check=False).returncode == 2


def test_the_mean_records_the_seeds(tmp_path: Path) -> None:
    folders = [save_training(tmp_path / f"seed-{seed}", network(seed, seed)) for seed in (1, 2, 4)]
    mean = gather(folders)[MEAN]
    assert mean.biases[-1][1] == pytest.approx((1 + 2 + 4) / 3)
    assert mean.metadata["trainings"] == {f"seed-{seed}": {"seed": seed} for seed in (1, 2, 4)}
    assert "seed-4 seed 4" in mean.card().to_markdown()
    assert list(gather(folders[:1])) == ["seed-1"]


def test_trainings_that_have_no_mean(tmp_path: Path) -> None:
    one = save_training(tmp_path / "one", network(1, 1))
    other = dataclasses.replace(network(1, 2), quantiles=(np.arange(10.0),))
    with pytest.raises(PolicyError, match="mean of policies: their vocabularies differ"):
        gather([one, save_training(tmp_path / "other", other)])
    with pytest.raises(ConfigError, match=r"one: expected folders of different names, other than mean; rename one"):
        gather([one, one])
    (one / "history.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"history.jsonl: expected the history of a training, found none"):
        write_logs([one], tmp_path / "logs")


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--training_dirs=a",),
        ("--policy_path=a",),
        ("--training_dirs=a", "--data_path=b", "--evaluation=c"),
        ("--data_path=b",),
    ],
)
def test_neither_trainings_nor_an_evaluation(flags: tuple[str, ...], tmp_path: Path) -> None:
    result = programs.run("compiler_opt.tools.policy.release", "--name=x", f"--output_dir={tmp_path}", *flags)
    assert result.returncode == 2
    assert result.stderr == (
        "error: expected --training_dirs or --policy_path, with --data_path (to release a policy), or --evaluation "
        "alone\n"
    )


def test_the_output_folder_must_be_given(tmp_path: Path) -> None:
    """Else it would be this package's, which an upgrade replaces."""
    flags = ("--name=x", f"--training_dirs={tmp_path}", f"--data_path={tmp_path}")
    result = programs.run("compiler_opt.tools.policy.release", *flags)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ") and "--output_dir" in result.stderr
