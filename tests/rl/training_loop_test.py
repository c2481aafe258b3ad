"""Training on a real corpus, killed at any moment and resumed."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import psutil
import pytest

from compiler_opt.decisions.inlining import FEATURES
from compiler_opt.errors import ConfigError
from compiler_opt.policies.model_card import ModelCard
from compiler_opt.policies.vocabulary import save_vocabulary
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.rl.algorithm import Algorithm
from compiler_opt.rl.config import TrainingConfig
from compiler_opt.rl.training_run import TrainingRun
from compiler_opt.spaces.binary import BinaryPolicy
from compiler_opt.tensorflow_loading import load_tensorflow
from tests import programs
from tests.small_corpus import make_small_corpus


class _Run:
    """A training run as a user starts it."""

    def __init__(self, directory: Path, clang: str, num_iterations: int):
        self.root_dir, self.temporary = directory / "run", directory / "tmp"
        self.temporary.mkdir()
        corpus = directory / "corpus"
        corpus.mkdir()
        make_small_corpus(corpus, clang)
        save_vocabulary(directory / "vocabulary", {name: np.arange(-5.0, 60.0) for name in FEATURES})
        settings = [f"num_iterations={num_iterations}", "num_modules=3", "rollouts_per_module=3"]
        self._command = [
            "compiler_opt/rl/train_locally.py",
            f"--output_dir={self.root_dir}",
            f"--data_path={corpus}",
            f"--clang_path={clang}",
            f"--vocab_path={directory / 'vocabulary'}",
            "--num_workers=2",
            "--gin_files=gin_configs/inlining/ppo_nn_agent.gin",
            *(f"--gin_bindings=train_eval.{setting}" for setting in settings),
        ]

    def start(self, *more: str) -> "contextlib.AbstractContextManager[programs.Program]":
        return programs.start(*self._command, *more, environment={"TMPDIR": str(self.temporary)})

    def finish(self, *more: str, status: int = 0) -> str:
        """Standard error."""
        with self.start(*more) as program:
            result = program.result(timeout_s=1000)
        assert result.returncode == status, result.stderr
        return result.stderr

    def kill_after(self, seconds: float) -> None:
        """Kills the run unless it ends before. No process of it may be alive afterwards."""
        with self.start() as program:
            if program.wait(seconds):
                assert program.result().returncode == 0
                return
            family = psutil.Process(program.pid).children(recursive=True)
            os.kill(program.pid, signal.SIGKILL)
            program.result(timeout_s=20)
            _, alive = psutil.wait_procs(family, timeout=20)
            assert alive == []

    def history(self) -> list[dict[str, float]]:
        return [json.loads(line) for line in (self.root_dir / "history.jsonl").read_text().splitlines()]

    def check_complete(self, num_iterations: int) -> None:
        history = self.history()
        assert [entry["iteration"] for entry in history] == list(range(1, num_iterations + 1))
        # One of the four modules has nothing to decide, and is never drawn.
        assert (np.diff([0, *(entry["compiles"] for entry in history)]) == 9).all()
        assert all(np.diff([entry["elapsed_s"] for entry in history]) > 0)
        assert all(entry["failures"] == 0 for entry in history)
        assert NetworkWeights.load(self.root_dir / "policy").metadata["iterations"] == num_iterations
        card = ModelCard.load(self.root_dir / "policy")
        assert card is not None and card.corpus is not None
        assert list(card.corpus["targets"].values()) == [4]
        about = {name: value for name, value in card.corpus.items() if name != "targets"}
        assert about == {"name": "corpus", "num_modules": 4, "projects": ["plain", "shapes"]}
        assert "PPO" in (card.algorithm or "")
        # Half-written checkpoints and policies are hidden or partial; scratch directories are in the temporary folder.
        assert [path for path in self.root_dir.rglob("*") if ".partial" in path.name] == []
        assert [path.name for path in self.temporary.iterdir()] == []
        assert list((self.root_dir / "summaries").iterdir())


def test_an_algorithm_that_needs_its_latest_rollouts_cannot_collect_ahead() -> None:
    run = SimpleNamespace(config=TrainingConfig(max_staleness=1, algorithm="es"))
    algorithm = SimpleNamespace(off_policy=False)
    load_tensorflow()
    from compiler_opt.rl.training_loop import train

    with pytest.raises(ConfigError, match=r"expected 0 with the algorithm es.*found 1"):
        train(cast(TrainingRun, run), cast(Algorithm, algorithm))


@pytest.mark.parametrize(("num_workers", "expected"), [(1, 100), (100, 100), (256, 256), (1000, 1000)])
def test_an_iteration_keeps_every_worker_busy(num_workers: int, expected: int) -> None:
    config = TrainingConfig(num_modules=100, rollouts_per_module=4, rollouts_per_worker=4)
    assert config.modules_per_iteration(num_workers) == expected


_CLASSICAL = ("--gin_bindings=advantages.kind='moving_average'", "--gin_bindings=ppo.value_pred_loss_coef=0.5")
_SAMPLING = ("--gin_bindings=train_eval.sampling='decisions'",)
_AHEAD = "--gin_bindings=train_eval.max_staleness=1"
_FLAGS = ("--gin_bindings=problem_config.flags_to_add=['-mllvm', '-unroll-count=1']",)


@pytest.mark.slow
@pytest.mark.parametrize("clang_path", ["clang-19", "clang-22"], indirect=True)
def test_a_run_and_more_of_it(clang_path: str, tmp_path: Path) -> None:
    """A finished run stays as it is, continues if more iterations are wanted, and not under another vocabulary.

    By one of the compilers, iterations are collected ahead, and the profile says where the time went.
    """
    run = _Run(tmp_path, clang_path, 2)
    options = (*_CLASSICAL, *_SAMPLING, *_FLAGS) if "19" in clang_path else (_AHEAD,)
    with run.start(*options, "--profile", "--niceness=1") as program:
        result = program.result(timeout_s=1000)
    assert result.returncode == 0, result.stderr
    run.check_complete(2)
    before = run.history()
    if "22" in clang_path:
        assert [entry["staleness"] for entry in before] == [0, 1]
    assert "compile" in result.stdout and "gradient steps" in result.stdout
    assert "<svg" in (run.root_dir / "profile.svg").read_text()
    if "22" in clang_path:
        _check_policy_decides_as_its_weights(run.root_dir / "policy")
        network = run.root_dir / "policy" / "network.npz"
        written_ns = network.stat().st_mtime_ns
        run.finish(*options)
        assert (run.history(), network.stat().st_mtime_ns) == (before, written_ns)
    temps = tmp_path / "temps"
    run.finish("--gin_bindings=train_eval.num_iterations=3", f"--explicit_temps_dir={temps}", *options)
    assert run.history()[:2] == before
    run.check_complete(3)
    # The compilations of the third iteration.
    assert len(list(temps.rglob("command.txt"))) == len(list(temps.rglob("module.o"))) == 9
    recorded = NetworkWeights.load(run.root_dir / "policy").metadata.get("problem_config", {})
    assert recorded.get("flags_to_add", []) == (["-mllvm", "-unroll-count=1"] if _FLAGS[0] in options else [])
    assert (run.root_dir / "decisions.json").exists() == (_SAMPLING[0] in options)
    shutil.rmtree(tmp_path / "vocabulary")
    save_vocabulary(tmp_path / "vocabulary", {name: np.arange(-5.0, 61.0) for name in FEATURES})
    errors = run.finish(*options, status=2)
    assert "another vocabulary" in errors.splitlines()[-1]


def _check_policy_decides_as_its_weights(path: Path) -> None:
    from compiler_opt.tensorflow_loading import load_tensorflow

    load_tensorflow()
    import tensorflow as tf

    policy = BinaryPolicy(NetworkWeights.load(path))
    rng = np.random.default_rng(0)
    features = {name: rng.integers(-5, 60, 50) for name in FEATURES}
    logits = policy.logits(features)
    saved = tf.saved_model.load(str(path)).signatures["action"]
    inputs = saved.structured_input_signature[1]
    # Some names end with others.
    ends = {key: [name for name in FEATURES if key.endswith(name)] for key in inputs}
    names = {key: max(found, key=len) for key, found in ends.items() if found}
    assert len(set(names.values())) == len(FEATURES)
    for index in range(50):
        arguments = {key: tf.zeros(spec.shape, spec.dtype) for key, spec in inputs.items() if key not in names}
        arguments |= {key: tf.constant([features[name][index]], tf.int64) for key, name in names.items()}
        decided = int(next(iter(saved(**arguments).values())).numpy()[0])
        if abs(logits[index, 1] - logits[index, 0]) > 1e-5:
            assert decided == int(logits[index].argmax())


@pytest.mark.slow
def test_interrupted_it_decides_as_if_it_had_not_been(tmp_path: Path) -> None:
    """A run in two sessions gives the policy of a run in one: when it was killed, and its files are damaged."""
    policies, rewards = [], []
    for name in ("at once", "interrupted"):
        (tmp_path / name).mkdir()
        run = _Run(tmp_path / name, "clang-22", 3)
        if name == "interrupted":
            with run.start() as program:
                while not (run.root_dir / "checkpoints" / "000002").is_dir():
                    assert not program.wait(0.01)
                os.kill(program.pid, signal.SIGKILL)
                program.result(timeout_s=20)
            newest = max((run.root_dir / "checkpoints").iterdir())
            (newest / "state.json").write_bytes(b"")
            (run.root_dir / "baseline.json").write_bytes(b"{")
            with (run.root_dir / "history.jsonl").open("ab") as file:
                file.write(b"\xff\n")
            errors = run.finish("--gin_bindings=train_eval.compile_timeout_s=61.0")
            for damaged in (newest, run.root_dir / "baseline.json", run.root_dir / "history.jsonl"):
                assert f"kept as {damaged.name}.damaged" in errors
            assert "continued with another train_eval.compile_timeout_s: was '60.0', is '61.0'" in errors
        else:
            run.finish()
        policies.append(NetworkWeights.load(run.root_dir / "policy"))
        rewards.append([entry["reward_mean"] for entry in run.history()])
    np.testing.assert_allclose(rewards[0], rewards[1], rtol=1e-6)
    for one, two in zip(policies[0].kernels, policies[1].kernels, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)


@pytest.mark.ci
@pytest.mark.parametrize("options", [(), pytest.param((_AHEAD,), marks=pytest.mark.slow)])
def test_interrupted_it_leaves_the_policy_so_far_and_says_how_far_it_is(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    """The policy is the one that a run of as many iterations gives; resumed, the run becomes such a one."""
    run = _Run(tmp_path, "clang-22", 1000)
    with run.start(*options) as program:
        while not (run.root_dir / "checkpoints" / "000002").is_dir():
            assert not program.wait(0.01), program.stderr()
        # As Ctrl-C does.
        os.killpg(program.pid, signal.SIGINT)
        result = program.result(timeout_s=60)
    assert result.returncode == 130, result.stderr
    lines = result.stderr.splitlines()
    assert any("0 of 1,000 iterations done; the others, of 9 compilations each, may take " in line for line in lines)
    logged = [re.search(r"iteration (\d+): .* so far, about [\dhmins. ]+ left$", line) for line in lines]
    numbers = [int(found[1]) for found in logged if found]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) >= 2
    told = re.fullmatch(
        rf"interrupted: (\d+) of 1,000 iterations; the policy is in {run.root_dir / 'policy'}; the last iteration's "
        r"rollouts(?:, which explore,)? are ([\d.]+)% (better|worse) than the default.*; the same command resumes",
        lines[-1],
    )
    assert told is not None, lines[-1]
    reward = run.history()[int(told[1]) - 1]["reward_mean"]
    assert (told[2], told[3]) == (f"{abs(100 * reward):.2f}", "better" if reward > 0 else "worse")
    so_far = NetworkWeights.load(run.root_dir / "saved_policy")
    # It may have been interrupted between policy and checkpoint.
    done = so_far.metadata["iterations"]
    assert (
        so_far.metadata["unfinished"] == f"{done} of 1,000 iterations" and 2 <= int(told[1]) <= done <= int(told[1]) + 1
    )
    if not options:
        run.finish(f"--gin_bindings=train_eval.num_iterations={done}")
        run.check_complete(done)
        finished = NetworkWeights.load(run.root_dir / "policy")
        assert finished.checksum() == so_far.checksum() and "unfinished" not in finished.metadata
        assert (run.root_dir / "policy" / "saved_model.pb").is_file()


def _kill_and_resume(run: _Run, kills: int, num_iterations: int, longest_s: float) -> None:
    rng = np.random.default_rng(kills)
    for _ in range(kills):
        run.kill_after(rng.uniform(0.5, longest_s))
    run.finish()
    run.check_complete(num_iterations)


@pytest.mark.slow
def test_killed_thrice_it_finishes(tmp_path: Path) -> None:
    _kill_and_resume(_Run(tmp_path, "clang-22", 12), 3, 12, longest_s=14)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_at_twenty_random_moments_it_finishes(tmp_path: Path) -> None:
    _kill_and_resume(_Run(tmp_path, "clang-19", 60), 20, 60, longest_s=20)


@pytest.mark.slow
def test_a_folder_that_is_moved_away_ends_the_run_and_moved_back_resumes_it(tmp_path: Path) -> None:
    run, elsewhere = _Run(tmp_path, "clang-22", 25), tmp_path / "elsewhere"
    with run.start() as program:
        deadline_s = time.monotonic() + 300
        while not (run.root_dir / "history.jsonl").exists() or not run.history():
            assert not program.wait(0.05) and time.monotonic() < deadline_s
        run.root_dir.rename(elsewhere)
        result = program.result(timeout_s=300)
    assert result.returncode == 2 and f"error: {run.root_dir}: was moved or removed" in result.stderr, result.stderr
    assert "Traceback" not in result.stderr and not (run.root_dir / "history.jsonl").exists()
    if run.root_dir.exists():
        shutil.rmtree(run.root_dir)
    elsewhere.rename(run.root_dir)
    run.finish()
    run.check_complete(25)


@pytest.mark.slow
def test_a_full_disk_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    """A real full disk: a small file system of its own."""
    run = _Run(tmp_path, "clang-22", 1)
    run.finish()
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3000k", "tmpfs", small], check=True)
    try:
        subprocess.run(["cp", "-r", *run.root_dir.iterdir(), small], check=True)
        run.root_dir = small
        (small / "filler").write_bytes(bytes(max(0, _free_bytes(small) - 100_000)))
        errors = run.finish(f"--output_dir={small}", "--gin_bindings=train_eval.num_iterations=4", status=2)
        assert "error: " in errors.splitlines()[-1]
        assert "cannot be written" in errors.splitlines()[-1]
        (small / "filler").unlink()
        run.finish(f"--output_dir={small}", "--gin_bindings=train_eval.num_iterations=2")
        assert run.history()[-1]["iteration"] >= 2
    finally:
        subprocess.run(["umount", small], check=True)


def _free_bytes(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize
