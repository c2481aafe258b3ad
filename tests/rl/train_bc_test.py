"""From a trace to a policy by the two commands, as a user starts them; and their errors for mistakes."""

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.tensorflow_loading import load_tensorflow

load_tensorflow()

import tensorflow as tf  # noqa: E402

from compiler_opt.collect.traces import TraceContext  # noqa: E402
from compiler_opt.decisions.inlining import FEATURES  # noqa: E402
from compiler_opt.policies.vocabulary import load_vocabulary  # noqa: E402
from compiler_opt.policies.weights import NetworkWeights  # noqa: E402
from compiler_opt.rl.trace_files import TraceWriter  # noqa: E402
from compiler_opt.spaces.binary import BinaryPolicy  # noqa: E402
from compiler_opt.tensor_spec import TensorSpec  # noqa: E402
from tests.inlining_networks import never_inline  # noqa: E402
from tests.programs import run, start  # noqa: E402

_ROOT = Path(__file__).parents[2]
_GIN = "--gin_files=gin_configs/inlining/behavioral_cloning_nn_agent.gin"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 modules that inline what costs less than its threshold."""
    path = tmp_path_factory.mktemp("trace") / "trace"
    features = tuple(TensorSpec(name, np.dtype("i8"), ()) for name in FEATURES)
    advice = TensorSpec("inlining_decision", np.dtype("i8"), ())
    rng = np.random.default_rng(0)
    with TraceWriter(path) as writer:
        for index in range(30):
            values = {name: rng.integers(0, 50, 200) for name in FEATURES}
            action = (values["cost_estimate"] < values["threshold"]).astype(np.int64)
            reward = np.zeros(200, np.float32)
            writer.add(TraceContext(f"m{index}", "p", "default", features, values, advice, action, reward))
        writer.finish(dict.fromkeys(writer.keys, 100.0), {"problem": "inlining", "toolchain": {"version": "22.1.0"}})
    return path


@pytest.fixture(scope="module")
def vocabulary(trace: Path) -> Path:
    path = trace.parent / "vocabulary"
    result = run("compiler_opt/tools/generate_vocab.py", f"--input={trace}", f"--output_dir={path}")
    assert result.returncode == 0, result.stderr
    assert "38 features, 64 quantiles each, from 6000 decisions of 30 contexts" in result.stdout
    return path


def test_the_vocabulary_has_every_feature(vocabulary: Path) -> None:
    quantiles = load_vocabulary(vocabulary, FEATURES)
    np.testing.assert_allclose(quantiles["threshold"], np.linspace(-0.5, 49.5, 64), atol=1.5)


@pytest.fixture(scope="module")
def cloned(trace: Path) -> "tuple[Path, subprocess.CompletedProcess[str]]":
    """The folder of a policy cloned from two traces as other tools write them, with the vocabulary that ships."""
    place = trace.parent / "others"
    place.mkdir()
    records = list(tf.data.TFRecordDataset(str(trace)).as_numpy_iterator())
    for name, part in (("one", records[:10]), ("two", records[10:])):
        with tf.io.TFRecordWriter(str(place / name)) as file:
            for record in part:
                example = tf.train.SequenceExample.FromString(record)
                example.ClearField("context")
                file.write(example.SerializeToString())
    result = run(
        "compiler_opt/rl/train_bc.py",
        f"--output_dir={place / 'run'}",
        f"--data_path={place / 'one'}",
        f"--data_path={place / 'two'}",
        "--gin_files=compiler_opt/rl/inlining/gin_configs/behavioral_cloning_nn_agent.gin",
        "--gin_bindings=train_eval.batch_size=128",
        "--gin_bindings=train_eval.num_epochs=8",
    )
    assert result.returncode == 0, result.stderr
    return place / "run", result


@pytest.mark.ci
def test_traces_of_other_tools_are_cloned_with_the_vocabulary_that_ships(
    cloned: "tuple[Path, subprocess.CompletedProcess[str]]",
) -> None:
    """Without description and without names of modules. That vocabulary has few costs below 50."""
    root, result = cloned
    assert result.stderr.count("one: has no one.meta.json: its contexts are numbered, and taken for one project") == 1
    assert "5400 decisions of 27 modules; 3 modules held out" in result.stdout
    weights = NetworkWeights.load(root / "saved_policy")
    assert weights.features == FEATURES
    assert weights.metadata["problem"] == "inlining"
    assert weights.metadata["accuracy"] > weights.metadata["majority_rate"] + 0.1


@pytest.mark.slow
def test_a_policy_is_trained_in_place_of_an_earlier_one(
    trace: Path, vocabulary: Path, cloned: "tuple[Path, subprocess.CompletedProcess[str]]", tmp_path: Path
) -> None:
    shutil.copytree(cloned[0], tmp_path, dirs_exist_ok=True, symlinks=True)
    result = run(
        "compiler_opt/rl/train_bc.py",
        f"--output_dir={tmp_path}",
        f"--data_path={trace}",
        f"--vocab_path={vocabulary}",
        _GIN,
        "--gin_bindings=network.fc_layer_params=(32,)",
        "--gin_bindings=train_eval.batch_size=128",
        "--gin_bindings=train_eval.num_epochs=8",
        "--quiet",
    )
    assert result.returncode == 0, result.stderr
    assert re.fullmatch(f"{tmp_path}/.*: accuracy .* on held-out modules, .* majority class\n", result.stdout)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["history.jsonl", "policy", "saved_policy", "summaries"]
    entries = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [entry["iteration"] for entry in entries] == list(range(1, len(entries) + 1))
    assert list((tmp_path / "summaries").glob("events.*"))

    policy = BinaryPolicy(NetworkWeights.load(tmp_path / "policy"))
    assert policy.weights.features == FEATURES
    assert [kernel.shape for kernel in policy.weights.kernels] == [(3 * len(FEATURES), 32), (32, 2)]
    metadata = policy.weights.metadata
    assert metadata["accuracy"] > metadata["majority_rate"] + 0.3
    assert metadata["toolchain"] == {"version": "22.1.0"}
    rng = np.random.default_rng(9)
    features = {name: rng.integers(0, 50, 1000) for name in FEATURES}
    logits = policy.logits(features)
    agree = (logits[:, 1] > logits[:, 0]) == (features["cost_estimate"] < features["threshold"])
    assert agree.mean() > 0.9


@pytest.mark.slow
def test_interrupted_it_leaves_the_best_policy_so_far_but_replaces_none_that_is_finished(
    trace: Path, vocabulary: Path, tmp_path: Path
) -> None:
    epochs = ("--gin_bindings=train_eval.num_epochs=1000", "--gin_bindings=train_eval.patience=1000")
    command = (f"--output_dir={tmp_path}", f"--data_path={trace}", f"--vocab_path={vocabulary}", _GIN)

    def interrupt() -> list[str]:
        with start("compiler_opt/rl/train_bc.py", *command, *epochs) as program:
            while "epoch 3 of 1000: " not in program.stdout():
                assert not program.wait(0.05), program.stderr()
            os.killpg(program.pid, signal.SIGINT)
            result = program.result()
        assert result.returncode == 130 and re.search(r"at most \d+ .* left$", result.stdout, re.MULTILINE)
        return result.stderr.splitlines()

    told = interrupt()[-1]
    found = re.fullmatch(
        rf"interrupted: the policy in {tmp_path / 'saved_policy'} is the best so far, after (\d+) of 1000 epochs; "
        "the same command starts again from the first epoch",
        told.replace("/policy", "/saved_policy"),
    )
    assert found is not None, told
    weights = NetworkWeights.load(tmp_path / "saved_policy")
    assert weights.metadata["unfinished"] == f"{found[1]} of 1000 epochs" and int(found[1]) >= 2
    assert weights.metadata["accuracy"] > weights.metadata["majority_rate"]

    assert run("compiler_opt/rl/train_bc.py", *command, "--gin_bindings=train_eval.num_epochs=1").returncode == 0
    finished = NetworkWeights.load(tmp_path / "policy")
    assert "unfinished" not in finished.metadata
    assert f"the policy in {tmp_path / 'policy'} is that of an earlier cloning; " in interrupt()[-1]
    assert NetworkWeights.load(tmp_path / "policy").checksum() == finished.checksum()


@pytest.mark.slow
def test_a_teacher_is_cloned_in_place_of_the_trace(trace: Path, vocabulary: Path, tmp_path: Path) -> None:
    teacher = never_inline(tmp_path / "teacher")
    result = run(
        "compiler_opt/rl/train_bc.py",
        f"--output_dir={tmp_path / 'run'}",
        f"--data_path={trace}",
        f"--vocab_path={vocabulary}",
        f"--teacher={teacher}",
        _GIN,
        "--gin_bindings=train_eval.num_epochs=2",
    )
    assert result.returncode == 0, result.stderr
    weights = NetworkWeights.load(tmp_path / "run" / "policy")
    assert weights.metadata["accuracy"] == 1
    assert weights.metadata["teacher"] == NetworkWeights.load(teacher).checksum()
    features = {name: np.random.default_rng(9).integers(0, 50, 1000) for name in FEATURES}
    logits = BinaryPolicy(weights).logits(features)
    assert (logits[:, 1] < logits[:, 0]).all()


def test_a_teacher_needs_its_features(trace: Path, vocabulary: Path, tmp_path: Path) -> None:
    flags = (f"--output_dir={tmp_path / 'run'}", f"--data_path={trace}", f"--vocab_path={vocabulary}")
    result = run("compiler_opt/rl/train_bc.py", *flags, "--teacher=pretrained:inlining-Oz-plugin", _GIN)
    assert result.returncode == 2
    assert f"observes features that {trace} does not have: caller_linkage, callee_linkage" in result.stderr
    assert not (tmp_path / "run").exists()


def test_the_folder_of_another_run_is_left_alone(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "history.jsonl").write_text("{}\n")
    result = run("compiler_opt/rl/train_bc.py", f"--output_dir={tmp_path}", f"--data_path={trace}")
    assert result.returncode == 2
    assert "holds a run of train_locally" in result.stderr
    assert (tmp_path / "history.jsonl").read_text() == "{}\n"


def test_settings_for_another_problem_than_the_trace_are_refused(trace: Path, tmp_path: Path) -> None:
    gin = "--gin_files=compiler_opt/rl/regalloc/gin_configs/behavioral_cloning_nn_agent.gin"
    result = run("compiler_opt/rl/train_bc.py", f"--output_dir={tmp_path}", f"--data_path={trace}", gin)
    assert result.returncode == 2
    assert "the trace is for inlining: the gin settings are for regalloc_eviction" in result.stderr
