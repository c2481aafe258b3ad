"""Runs of a comparison: complete ones are not repeated, failures are recorded, and other settings are refused."""

import dataclasses
import json
from pathlib import Path

import pytest

from compiler_opt.errors import ConfigError
from compiler_opt.evaluation.comparison import COMPLETE, FAILED, UNFINISHED
from compiler_opt.rl.comparison import PlannedRun, by_content, check, execute, result


def _planned(folder: Path, *flags: str) -> PlannedRun:
    return PlannedRun("ppo", 3, folder, flags, {"train_eval.num_modules": "4"})


def test_a_run_that_fails_says_why(tmp_path: Path) -> None:
    """A real process, which finds no corpus."""
    run = _planned(tmp_path, f"--data_path={tmp_path / 'none'}", f"--vocab_path={tmp_path}")
    assert result(run).state == UNFINISHED
    failed = execute(run, timeout_s=300)
    assert (failed.algorithm, failed.seed, failed.state) == ("ppo", 3, FAILED)
    assert failed.reason.startswith("exit status 2: ") and "corpus_description.json" in failed.reason
    assert "error: " in run.log.read_text()
    assert result(run) == failed
    check([run])


def test_a_run_out_of_time_has_failed(tmp_path: Path) -> None:
    failed = execute(_planned(tmp_path, "--data_path=x"), timeout_s=0.01)
    assert failed.state == FAILED and "minutes; running the same command again resumes it" in failed.reason


def test_a_complete_run_is_not_repeated(tmp_path: Path) -> None:
    run = _planned(tmp_path, "--no_such_flag")
    run.record.parent.mkdir()
    run.record.write_text(json.dumps({"settings": dict(run.settings), "state": COMPLETE, "reason": ""}))
    run.root_dir.mkdir()
    (run.root_dir / "history.jsonl").write_text('{"iteration": 1, "compiles": 8, "validation_mean": -0.5}\n')
    done = execute(run, timeout_s=300)
    assert (done.state, done.compiles, done.last) == (COMPLETE, 8, -0.5)
    assert not run.log.exists()


def test_another_program_gets_its_folder_and_seed(tmp_path: Path) -> None:
    run = PlannedRun("search", 3, tmp_path, ["--x=1"], {}, program="json.tool")
    assert "unrecognized arguments" in execute(run, timeout_s=300).reason
    usage = run.log.read_text()
    assert f"--output_dir={run.root_dir} --seed=3 --x=1" in usage


def test_files_are_described_by_their_content(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name / "inner").mkdir(parents=True)
        (tmp_path / name / "inner" / "file").write_text("text")
    one, other = (by_content(str(tmp_path / name)) for name in ("one", "other"))
    assert one == other
    (tmp_path / "other" / "inner" / "file").write_text("TEXT")
    assert by_content(str(tmp_path / "other")) != one
    (tmp_path / "other" / "inner" / "file").write_text("text")
    (tmp_path / "other" / "inner" / "file").rename(tmp_path / "other" / "inner" / "renamed")
    assert by_content(str(tmp_path / "other")) != one
    files = [tmp_path / "one" / "inner" / "file", tmp_path / "other" / "inner" / "renamed"]
    assert len({by_content(str(files[0])), by_content(f"decisions:{files[1]}")}) == 1
    for name in ("", "never", "pretrained:some", str(tmp_path / "none")):
        assert by_content(name) == name


def test_runs_with_other_settings_or_damaged_records_are_refused(tmp_path: Path) -> None:
    run = _planned(tmp_path)
    run.record.parent.mkdir()
    run.record.write_text(json.dumps({"settings": dict(run.settings)}))
    check([run])
    other = dataclasses.replace(run, settings={"train_eval.num_modules": "5"})
    with pytest.raises(ConfigError, match=r"whose train_eval.num_modules was '4', and is '5' now"):
        check([other])
    run.record.write_text("{")
    with pytest.raises(ConfigError, match=r"seed-3.json: expected JSON.*remove it"):
        check([run])
