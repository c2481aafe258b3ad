"""The command, from flags to files, and its messages for mistakes."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.corpus.command_lines.problem_config import ProblemConfig
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import format_options
from compiler_opt.files import default_cache_dir
from compiler_opt.pass_options.sets import OptionSets, shipped
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.rl.unfinished_policy import save_unfinished_policy
from tests import programs
from tests.small_corpus import make_small_corpus


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return programs.run("compiler_opt.tools.evaluate", *arguments)


@pytest.fixture(scope="module")
def corpus(clang_path: str, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_small_corpus(tmp_path_factory.mktemp("corpus"), clang_path)


@pytest.fixture
def policy_path(tmp_path: Path) -> Path:
    """A policy that inlines cheap callees."""
    return save_policy(tmp_path / "policy", "callsite_cost")


def save_policy(path: Path, feature: str) -> Path:
    kernel = np.array([[0, -1], [0, 0], [0, 0]], np.float32)
    weights = NetworkWeights((feature,), (np.arange(-100.0, 101.0),), (kernel,), (np.array([0, 0.55], np.float32),))
    weights.save(path)
    return path


def test_files_and_table(corpus: Corpus, clang_path: str, policy_path: Path, tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text('{"iteration": 1, "compiles": 8, "reward_mean": 0.01}\n')
    output = tmp_path / "output"
    result = run(
        f"--data_path={corpus.root}",
        f"--policy_path={policy_path}",
        f"--output_dir={output}",
        f"--clang_path={clang_path}",
        "--num_workers=2",
        "--baselines=never",
        f"--training_log={tmp_path}",
        f"--explicit_temps_dir={tmp_path / 'temps'}",
        "--json",
    )
    assert result.returncode == 0, result.stderr
    kept = {path.name for path in (tmp_path / "temps" / "plain" / "list.c.o").iterdir()}
    # Both ways without a policy are by the compiler alone; both ways with it by the policy.
    assert sorted(name.split("-")[0] for name in kept) == ["compiler", "compiler", "never", "policy", "policy"]
    assert sorted(path.name for path in output.iterdir()) == [
        "modules.csv",
        "projects.csv",
        "report.html",
        "summary.json",
    ]
    lines = result.stderr.splitlines()
    assert lines[0].split()[-3:] == ["both", "code", "objects"]
    assert lines[-1] == f"report: {output / 'report.html'}"
    assert result.stdout == (output / "summary.json").read_text()
    summary = json.loads(result.stdout)
    assert list(summary["totals"]) == ["options", "policy", "policy+options", "never"]
    assert "-Oz (4 modules)" in summary["provenance"].values()
    major = int(clang_path.rpartition("-")[2])
    shipped_options = " ".join(shipped(major).options("Oz", "x86_64"))
    assert summary["provenance"]["Options"] == f"{shipped_options} (4 modules)"
    assert "<h2>Training</h2>" in (output / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("clang_path", ["clang-22"], indirect=True)
def test_options_of_a_file_alone(corpus: Corpus, clang_path: str, tmp_path: Path) -> None:
    file = tmp_path / "options.json"
    arguments = [
        f"--data_path={corpus.root}",
        "--policy_path=none",
        f"--output_dir={tmp_path / 'output'}",
        f"--clang_path={clang_path}",
        "--num_workers=1",
    ]
    OptionSets({"Oz": ("-no-such-option", "-inline-threshold=-100")}).save(file)
    result = run(*arguments, f"--options={file}")
    assert result.returncode == 0, result.stderr
    assert "warning: --options: -no-such-option is left out at -Oz: the compiler has no such option" in result.stderr
    summary = json.loads((tmp_path / "output/summary.json").read_text())
    assert (summary["policy"], list(summary["totals"])) == (None, ["options"])
    assert summary["provenance"]["Options"] == "-inline-threshold=-100 (4 modules)"
    assert summary["totals"]["options"]["objects"]["ties"] < 4
    menus = {"x86_64": {"Oz": (("-disable-lsr=true",), ("-disable-machine-cse=true",))}}
    OptionSets({"Oz": ("-inline-threshold=-100",)}, menus=menus).save(file)
    result = run(*arguments, f"--options={file}", "--option_trials=1")
    assert result.returncode == 0, result.stderr
    tried = json.loads((tmp_path / "output/summary.json").read_text())
    assert tried["provenance"]["Options"] == "-inline-threshold=-100, and trials of 1 set by function (4 modules)"
    OptionSets({"O2": ("-inline-threshold=-100",)}).save(file)
    result = run(*arguments, f"--options={file}", "--option_trials=1")
    assert "warning: --option_trials: no sets to try" in result.stderr
    for options, reason in ((file, "expected options to evaluate"), ("none", "expected options"), ("x", "x: no such")):
        result = run(*arguments, f"--options={options}")
        assert (result.returncode, result.stdout) == (2, "")
        assert reason in result.stderr.splitlines()[-1] and result.stderr.splitlines()[-1].startswith("error: ")


@pytest.mark.slow
@pytest.mark.parametrize("clang_path", ["clang-22"], indirect=True)
def test_flags_come_from_gin_or_from_the_policys_training(
    corpus: Corpus, clang_path: str, policy_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an oddly named module and an unlisted option; once from a URL."""
    name = os.fsdecode(b"ar\xe9\na.o")
    module = corpus.by_name["shapes/area.cpp.o"]
    root = tmp_path / "odd"
    root.mkdir()
    (root / f"{name}.bc").hardlink_to(module.bitcode_path)
    (root / f"{name}.cmd").write_bytes(format_options([*module.options(), "-fno-temp-file"]))
    (root / "corpus_description.json").write_text(json.dumps({"modules": [name], "has_thinlto": False}))
    trained = ProblemConfig(flags_to_delete=("-Oz",), flags_to_add=("-O2", "-mllvm", "-inline-threshold=0"))
    weights = NetworkWeights.load(policy_path)
    dataclasses.replace(weights, metadata=trained.to_json()).save(tmp_path / "trained")
    arguments = [
        f"--data_path={root}",
        f"--policy_path={tmp_path / 'trained'}",
        f"--output_dir={tmp_path / 'output'}",
        f"--clang_path={clang_path}",
        "--num_workers=1",
        "--baselines=",
        "--module_filter=^ar",
        "--options=none",
    ]
    # Fetched files get a cache of their own; plugins come from the usual one.
    cache = default_cache_dir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    default_cache_dir().mkdir(parents=True)
    for path in cache.glob("[!r]*"):
        (default_cache_dir() / path.name).symlink_to(path)
    found = {}
    for case, extra in {
        "trained": (),
        "given": (f"--data_path=file://{root}", "--gin_bindings=problem_config.flags_to_replace={'-Oz': '-O1'}"),
    }.items():
        result = run(*arguments, *extra, "--trust_corpus")
        assert result.returncode == 0, result.stderr
        summary = json.loads((tmp_path / "output/summary.json").read_text())
        assert summary["totals"]["policy"]["num_failures"] == 0
        found[case] = (summary["provenance"]["Optimisation"], summary["provenance"]["Changed flags"])
    assert found["trained"][0] == "-O2 (1 modules)"
    assert "-inline-threshold=0" in found["trained"][1]
    assert found["given"] == ("-O1 (1 modules)", "replace -Oz -O1")


@pytest.mark.parametrize("clang_path", ["clang-22"], indirect=True)
def test_a_policy_that_was_trained_with_forbidden_flags(
    corpus: Corpus, clang_path: str, policy_path: Path, tmp_path: Path
) -> None:
    """Trusting a corpus does not include trusting a policy."""
    trained = ProblemConfig(flags_to_add=("-load", "x.so"))
    dataclasses.replace(NetworkWeights.load(policy_path), metadata=trained.to_json()).save(tmp_path / "trained")
    result = run(
        f"--data_path={corpus.root}",
        f"--policy_path={tmp_path / 'trained'}",
        f"--output_dir={tmp_path / 'output'}",
        f"--clang_path={clang_path}",
        "--trust_corpus",
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert "trained: was trained with flags that cannot be used: problem_config.flags_to_add: '-load'" in result.stderr


@pytest.mark.slow
def test_a_model_that_is_built_into_the_compiler(corpus: Corpus, clang_path: str, tmp_path: Path) -> None:
    """The compiler accepts `release` without a channel, and then inlines nothing."""
    arguments = [f"--data_path={corpus.root}", "--policy_path=embedded", f"--output_dir={tmp_path / 'output'}"]
    arguments.append("--options=none")
    clang = tmp_path / "clang"
    clang.write_text(
        "#!/bin/bash\n"
        'if [[ "$*" != *interactive* ]]; then for word; do\n'
        "  [ $word = -enable-ml-inliner=release ] && word=-inline-threshold=-100000\n"
        '  words+=("$word")\n'
        'done; set -- "${words[@]}"; fi\n'
        f'exec {clang_path} "$@"\n'
    )
    clang.chmod(0o755)
    result = run(*arguments, f"--clang_path={clang}", "--num_workers=2", "--baselines=")
    assert result.returncode == 0, result.stderr
    summary = json.loads((tmp_path / "output/summary.json").read_text())
    assert summary["provenance"]["Policy"] == "the model that is built into the compiler"
    totals = summary["totals"]
    assert list(totals) == ["embedded"]
    assert totals["embedded"]["objects"]["total"]["value"] != 0
    assert totals["embedded"]["num_failures"] == 0


def test_a_policy_for_other_features_is_refused(corpus: Corpus, clang_path: str, tmp_path: Path) -> None:
    policy = save_policy(tmp_path / "policy", "number_of_moons")
    result = run(
        f"--data_path={corpus.root}",
        f"--policy_path={policy}",
        f"--output_dir={tmp_path}",
        f"--clang_path={clang_path}",
    )
    assert result.returncode == 2
    assert "number_of_moons" in result.stderr and "warning: " not in result.stderr
    save_unfinished_policy(tmp_path, NetworkWeights.load(policy), "3 of 10 iterations")
    result = run(f"--data_path={corpus.root}", f"--policy_path={policy}", f"--output_dir={tmp_path}")
    warning, error = result.stderr.splitlines()
    assert warning.startswith(f"warning: {policy}: the policy so far of an unfinished run (3 of 10 iterations); ")
    assert "number_of_moons" in error


@pytest.mark.ci
def test_starts_without_tensorflow() -> None:
    code = "import sys, compiler_opt.tools.evaluate; sys.exit('tensorflow' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
