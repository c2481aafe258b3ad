"""The command: replaying its trace gives the objects of `clang -Oz`."""

import contextlib
import csv
import json
import os
import signal
from pathlib import Path

import numpy as np
import psutil
import pytest

from compiler_opt import problem as problems
from compiler_opt.collect.rollout import rollout
from compiler_opt.corpus.description import Corpus
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.policy import ReplayPolicy
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.rl.trace_files import Trace, TraceBatch
from tests import programs
from tests.small_corpus import make_small_corpus

_INLINING = problems.load("inlining")


_PROGRAM = "compiler_opt/tools/generate_default_trace.py"


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit status, stdout, stderr."""
    result = programs.run(_PROGRAM, "--num_workers=2", *arguments)
    return result.returncode, result.stdout, result.stderr


@pytest.fixture(scope="module")
def corpus(clang_path: str, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_small_corpus(tmp_path_factory.mktemp("corpus"), clang_path)


@pytest.fixture(scope="module")
def policy_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Never inlines."""
    path = tmp_path_factory.mktemp("policy")
    bias = np.array([1, 0], np.float32)
    NetworkWeights(("callsite_cost",), (np.zeros(1),), (np.zeros((3, 2), np.float32),), (bias,)).save(path)
    return path


@pytest.fixture(scope="module")
def output(corpus: Corpus, toolchain: Toolchain, policy_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("output")
    status, out, errors = run(
        f"--data_path={corpus.root}",
        f"--output_path={path / 'trace'}",
        f"--clang_path={toolchain.clang}",
        "--compile_task=inlining",
        "--gin_files=gin_configs/inlining/common.gin",
        "--gin_bindings=rollout.timeout_s=100",
        # The additional output does not change the code.
        "--gin_bindings=problem_config.flags_to_add=['-funique-basic-block-section-names']",
        "--gin_bindings=problem_config.flags_to_replace={'-tune-cpu': 'x86-64'}",
        f"--policy_path={policy_path}",
        f"--output_performance_path={path / 'performance.csv'}",
        f"--explicit_temps_dir={path / 'temps'}",
    )
    assert status == 0, errors
    assert "3 modules" in out
    assert errors == ""
    return path


def of_module(batch: TraceBatch, module: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    start = int(batch.lengths[: batch.modules.index(module)].sum())
    part = slice(start, start + int(batch.lengths[batch.modules.index(module)]))
    return {name: values[part] for name, values in batch.features.items()}, batch.action[part]


@pytest.mark.ci
def test_replaying_a_trace_gives_the_plain_object_and_the_same_features(
    output: Path, corpus: Corpus, toolchain: Toolchain, tmp_path: Path
) -> None:
    (batch,) = Trace(output / "trace").batches()
    assert sorted(batch.modules) == ["plain/list.c.o", "shapes/area.cpp.o", "shapes/edge.cpp.o"]
    assert set(_INLINING.decision.feature_names) <= set(batch.features)
    assert "inlining_default" not in batch.features
    for module in batch.modules:
        features, action = of_module(batch, module)
        objects = tmp_path / "plain.o", tmp_path / "replayed.o"
        rollout(corpus.by_name[module], None, _INLINING, toolchain, scratch=tmp_path, keep_object=objects[0])
        replayed = rollout(
            corpus.by_name[module],
            ReplayPolicy(action),
            _INLINING,
            toolchain,
            scratch=tmp_path,
            keep_object=objects[1],
        ).trajectory
        assert replayed is not None
        assert objects[0].read_bytes() == objects[1].read_bytes()
        for name, values in features.items():
            np.testing.assert_array_equal(values, replayed.features()[name].reshape(-1), err_msg=f"{module} {name}")


def test_explicit_temps(output: Path, corpus: Corpus, toolchain: Toolchain) -> None:
    """Of each module under the default and under the policy; the objects are those that were measured."""
    for module in corpus.modules:
        folders = sorted(path.name for path in (output / "temps" / module.name).iterdir())
        assert folders == ["default-0", "policy-0"]
        for folder in folders:
            place = output / "temps" / module.name / folder
            assert f" {toolchain.clang} " in f" {(place / 'command.txt').read_text()} "
            assert (place / "module.o").read_bytes().startswith(b"\x7fELF")


def test_the_description_of_the_trace(output: Path, toolchain: Toolchain) -> None:
    about = json.loads((output / "trace.meta.json").read_text())
    assert about["toolchain"] == toolchain.identity()
    assert about["problem"] == "inlining"
    assert about["corpus"]["projects"] == ["plain", "shapes"]
    assert about["problem_config"] == {
        "flags_to_add": ["-funique-basic-block-section-names"],
        "flags_to_delete": [],
        "flags_to_replace": {"-tune-cpu": "x86-64"},
    }
    assert (about["num_modules"], about["num_contexts"], about["failed_modules"]) == (4, 3, [])


@pytest.mark.ci
def test_the_decisions_of_a_policy_are_recorded(
    corpus: Corpus, toolchain: Toolchain, policy_path: Path, tmp_path: Path
) -> None:
    status, _, errors = run(
        f"--data_path={corpus.root}",
        f"--output_path={tmp_path / 'trace'}",
        f"--clang_path={toolchain.clang}",
        f"--policy_path={policy_path}",
        "--record_policy",
    )
    assert status == 0, errors
    trace = Trace(tmp_path / "trace")
    assert sum(len(batch) for batch in trace.batches()) > 3
    assert not any(batch.action.any() for batch in trace.batches())
    assert trace.about["recorded_policy"] == NetworkWeights.load(policy_path).checksum()


def test_the_comparison_with_a_policy(output: Path, corpus: Corpus, toolchain: Toolchain, tmp_path: Path) -> None:
    with (output / "performance.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["module"] for row in rows] == sorted(corpus.by_name)
    assert {row["identifier"] for row in rows} == {"default"}
    measurements = {
        module.name: rollout(module, None, _INLINING, toolchain, scratch=tmp_path).measurement
        for module in corpus.projects()["shapes"]
    }
    context = _INLINING.objective.project_context(measurements.values())
    for row in rows:
        if row["module"] in measurements:
            assert float(row["default_score"]) == _INLINING.score(measurements[row["module"]], context)
    (data,) = (row for row in rows if row["module"] == "plain/data.c.o")
    assert data["default_score"] == data["policy_score"]
    assert any(row["default_score"] != row["policy_score"] for row in rows)


def test_no_other_files_are_written(output: Path) -> None:
    assert sorted(path.name for path in output.iterdir()) == ["performance.csv", "temps", "trace", "trace.meta.json"]


def test_traces_are_reproducible_and_name_failures(
    output: Path, corpus: Corpus, toolchain: Toolchain, tmp_path: Path
) -> None:
    """One module has a forbidden option; the others are unchanged."""
    root = make_small_corpus(tmp_path, str(toolchain.clang)).root
    (root / "plain" / "data.c.o.cmd").write_bytes(b"-cc1\0-load\0evil.so\0")
    trace = tmp_path / "output" / "trace"
    status, out, errors = run(
        f"--data_path={root}", f"--output_path={trace}", f"--clang_path={toolchain.clang}", "--num_workers=1"
    )
    assert status == 0, errors
    assert "1 modules failed" in out
    assert trace.read_bytes() == (output / "trace").read_bytes()
    (line,) = trace.with_name("trace.failures.log").read_text().splitlines()
    assert line.startswith("plain/data.c.o: ")


@pytest.mark.parametrize("clang_path", ["clang-22"], indirect=True)
def test_an_interrupted_run_leaves_nothing(corpus: Corpus, clang_path: str, tmp_path: Path) -> None:
    names = [f"{index}.o" for index in range(400)]
    module = corpus.by_name["shapes/area.cpp.o"]
    for name in names:
        (tmp_path / f"{name}.bc").hardlink_to(module.bitcode_path)
        (tmp_path / f"{name}.cmd").hardlink_to(module.command_path)
    (tmp_path / "corpus_description.json").write_text(json.dumps({"modules": names, "has_thinlto": False}))
    output = tmp_path / "output"
    arguments = (f"--data_path={tmp_path}", f"--output_path={output / 'trace'}", f"--clang_path={clang_path}")
    with programs.start(_PROGRAM, "--num_workers=2", *arguments) as program:
        children = _descendants(program.pid)
        while not any(child.name().startswith("clang") for child in children):
            assert not program.wait(0.01), program.stderr()
            children = _descendants(program.pid)
        os.killpg(program.pid, signal.SIGINT)
        result = program.result(timeout_s=60)
    assert result.returncode == 130, result.stderr
    assert result.stderr.splitlines()[-1] == "interrupted"
    assert not output.exists()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert alive == []


def _descendants(pid: int) -> list[psutil.Process]:
    """Its descendants that still exist."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.name()  # which psutil keeps
            found.append(child)
    return found
