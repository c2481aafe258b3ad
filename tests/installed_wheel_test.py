"""A wheel made of an sdist, installed into a fresh environment, works in a folder outside of the checkout.

Its dependencies are those of the environment at hand, linked into the fresh one; they are not resolved anew.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from compiler_opt.commands import VERBS, summary
from compiler_opt.policies.pretrained_index import ENVIRONMENT
from compiler_opt.policies.weights import NetworkWeights
from tests.linked_environment import make_linked_environment
from tests.packaging_test import RUNNING, copy_project, gin_files, locked
from tests.small_corpus import SOURCES, make_small_corpus

CLANG = "clang-22"

HELP = """
import os, sys
from compiler_opt.__main__ import main
from compiler_opt.commands import VERBS
from compiler_opt.tools import shared_flags  # which most import

for verb in VERBS:
    print(flush=True)
    if child := os.fork():
        print(f"status of {verb}: {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}", flush=True)
    else:
        sys.argv[1:] = [*verb.split(), "--help"]
        sys.exit(main())
"""
"""A fork for each verb, since two of them may define the same flag."""

GIN = """
import compiler_opt
from compiler_opt.tools import gin_files, gin_settings

print(compiler_opt.__file__, *gin_files.names())
one, *others = (
    gin_settings.read(gin_settings.of_training(), [name], [])
    for name in ("inlining/ppo", "inlining/ppo_nn_agent", "gin_configs/inlining/ppo_nn_agent.gin")
)
assert one["train_eval"].num_modules == 16 and one["network"].fc_layer_params == (64, 64)
assert others == [one, one]
"""


class Installation(NamedTuple):
    """The environment's folder, and a working folder."""

    environment: Path
    place: Path

    def run(self, program: str, *arguments: str) -> str:
        """Runs a program of the environment in the working folder; returns what it prints."""
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", ENVIRONMENT)}
        return check_output([str(self.environment / "bin" / program), *arguments], self.place, kept)


def check_output(command: Sequence[str], cwd: Path, environment: dict[str, str] | None = None) -> str:
    result = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module", name="installed")
def installed_fixture(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    folder = tmp_path_factory.mktemp("installed")
    copy_project(folder / "project")
    for name in ("built", "place"):
        (folder / name).mkdir()
    code = f"from setuptools import build_meta; build_meta.build_sdist({str(folder / 'built')!r})"
    check_output([sys.executable, "-c", code], folder / "project")
    shutil.rmtree(folder / "project")
    [sdist] = (folder / "built").iterdir()
    environment = folder / "environment"
    python = make_linked_environment(environment, locked(f"python{RUNNING}"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    alone = ["--no-index", "--no-deps"]
    check_output([*pip, "wheel", *alone, "--no-build-isolation", "-w", "wheels", str(sdist)], folder)
    [wheel] = (folder / "wheels").iterdir()
    check_output([*pip, "--python", str(python), "install", *alone, str(wheel)], folder)
    return Installation(environment, folder / "place")


@pytest.fixture(scope="module", name="corpus")
def corpus_fixture(installed: Installation) -> Path:
    """A corpus in the working folder."""
    corpus = installed.place / "corpus"
    corpus.mkdir()
    make_small_corpus(corpus, CLANG)
    return corpus


@pytest.mark.ci
def test_gin_files_are_found_by_name(installed: Installation) -> None:
    imported, *names = installed.run("python", "-c", GIN).split()
    assert Path(imported).is_relative_to(installed.environment)
    assert names == gin_files()


@pytest.mark.slow
def test_every_verb_has_help(installed: Installation) -> None:
    printed = installed.run("python", "-c", HELP)
    for verb in VERBS:
        assert f"{summary(verb)}\n" in printed and f"compiler_opt {verb}:\n  --" in printed
        assert f"status of {verb}: 0\n" in printed


@pytest.mark.slow
def test_policies_are_deployed_and_evaluated(installed: Installation, corpus: Path) -> None:
    clang = f"--clang_path={CLANG}"
    assert "Ready: inlining policies can be trained and evaluated" in installed.run("compiler_opt", "doctor", clang)
    assert "policy pretrained:" in installed.run("compiler_opt", "deploy", clang, "--output_dir=prefix")
    (installed.place / "a.c").write_text("int one(void) { return 1; }\n")
    installed.run("../../place/prefix/bin/mlgo-clang", "-Oz", "-c", "a.c")
    assert (installed.place / "a.o").is_file()
    flags = (clang, f"--data_path={corpus.name}", "--output_dir=results", "--num_workers=2")
    assert "report: results/report.html" in installed.run("compiler_opt", "evaluate", *flags)


@pytest.mark.slow
def test_a_policy_is_trained(installed: Installation, corpus: Path) -> None:
    """The steps of docs/training.md, with its gin files."""
    gin, clang = "--gin_files=gin_configs/inlining", (f"--clang_path={CLANG}", "--num_workers=2")
    data = f"--data_path={corpus.name}"
    installed.run("compiler_opt", "generate_default_trace", data, "--output_path=trace", *clang)
    installed.run("compiler_opt", "generate_vocab", "--input=trace", "--output_dir=vocabulary", f"{gin}/common.gin")
    installed.run(
        "compiler_opt",
        "train_bc",
        "--data_path=trace",
        "--vocab_path=vocabulary",
        "--output_dir=warm_start",
        f"{gin}/behavioral_cloning_nn_agent.gin",
        "--gin_bindings=train_eval.num_epochs=1",
    )
    installed.run(
        "compiler_opt",
        "train_locally",
        data,
        *clang,
        "--output_dir=training",
        "--warmstart_policy_dir=warm_start/policy",
        f"{gin}/ppo_nn_agent.gin",
        "--gin_bindings=train_eval.num_iterations=1",
        "--gin_bindings=train_eval.num_modules=2",
        "--gin_bindings=train_eval.rollouts_per_module=2",
    )
    weights = NetworkWeights.load(installed.place / "training" / "policy")
    assert weights.metadata["iterations"] == 1
    assert [len(bias) for bias in weights.biases[:-1]] == [64, 64]


@pytest.mark.slow
def test_a_program_is_optimized(installed: Installation) -> None:
    build = installed.place / "build"
    build.mkdir()
    (build / "x.cpp").write_text(SOURCES["shapes/area.cpp"])
    command = [CLANG, "-Oz", "-c", "x.cpp", "-o", "x.o"]
    (build / "list.json").write_text(json.dumps([{"directory": str(build), "file": "x.cpp", "arguments": command}]))
    printed = installed.run(
        "compiler_opt",
        "optimize",
        f"--clang_path={CLANG}",
        "--compile_commands=build/list.json",
        "--link_command=ar rc x.a x.o",
        "--output_dir=optimized",
        "--minutes=0.02",
    )
    assert "report: optimized/report/report.html" in printed
