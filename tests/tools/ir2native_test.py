"""The commands that train and evaluate a model of native sizes, from a corpus to its table."""

import json
from pathlib import Path

import pytest

from compiler_opt.llvm.toolchain import probe
from tests import programs
from tests.cost_models.ir2native.samples import corpus_of

TRAIN, EVALUATE = "compiler_opt.tools.cost_model.train", "compiler_opt.tools.cost_model.evaluate"
QUICK = ("--model=ir2native", "--trees=5", "--epochs=2", "--folds=2", "--num_workers=1")


@pytest.mark.slow
def test_train_and_evaluate(clang_path: str, tmp_path: Path) -> None:
    corpus_of(tmp_path / "train", clang_path)
    other = corpus_of(tmp_path / "held", clang_path)
    description = tmp_path / "held/corpus_description.json"
    for project in ("one", "two"):
        (tmp_path / "held" / project).rename(tmp_path / "held" / f"other-{project}")
    description.write_text(description.read_text().replace('"one', '"other-one').replace('"two', '"other-two'))
    common = (f"--clang_path={clang_path}",)
    trained = programs.run(
        TRAIN,
        *common,
        *QUICK,
        f"--data_path={tmp_path}/train",
        f"--validation_path={tmp_path}/held",
        f"--output_dir={tmp_path}/out",
    )
    assert trained.returncode == 0, trained.stderr
    assert "(chosen)" in trained.stdout and "worst project" in trained.stdout
    assert "not compiled" in trained.stderr and "b.cpp.o" in trained.stderr
    validation = json.loads((tmp_path / "out/validation.json").read_text())
    assert set(validation) == {"linear", "trees", "network", "mean"}
    result = programs.run(
        EVALUATE,
        *common,
        f"--model_dir={tmp_path}/out/model",
        f"--data_path={tmp_path}/held",
        f"--output_dir={tmp_path}/errors",
        "--num_workers=1",
        "--json",
    )
    assert result.returncode == 0, result.stderr
    assert "other-one" in result.stderr and "bias of module sums" in result.stderr
    errors = json.loads((tmp_path / "errors/errors.json").read_text())
    assert json.loads(result.stdout) == errors
    assert {each["project"] for each in errors["projects"]} == {"other-one", "other-two"}
    rows = (tmp_path / "errors/functions.csv").read_text().splitlines()
    assert rows[0] == "module,function,bytes,predicted" and len(rows) == 61
    # Mistakes: one line each, which names the file.
    for flags, words in (
        ((f"--model_dir={tmp_path}/errors", f"--data_path={tmp_path}/held"), "model.json: no such file"),
        ((f"--model_dir={tmp_path}/out/model", f"--data_path={tmp_path}/none"), "corpus_description.json"),
    ):
        wrong = programs.run(EVALUATE, *common, *flags, f"--output_dir={tmp_path}/wrong")
        assert wrong.returncode == 2 and words in wrong.stderr and "Traceback" not in wrong.stderr
        assert not (tmp_path / "wrong").exists()
    same = programs.run(
        TRAIN,
        *common,
        "--model=ir2native",
        f"--data_path={tmp_path}/train",
        f"--validation_path={tmp_path}/train",
        f"--output_dir={tmp_path}/wrong",
    )
    assert same.returncode == 2 and "other projects" in same.stderr
    assert probe(clang_path).version[0] and other.modules
