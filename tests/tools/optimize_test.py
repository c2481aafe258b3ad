"""An optimisation that is killed and resumed, a nightly build that reuses its policy, and mistakes of users."""

import csv
import dataclasses
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.decisions.inlining import FEATURES
from compiler_opt.llvm.object_file import read_parts
from compiler_opt.policies.decisions import Decisions
from compiler_opt.policies.pretrained_index import ENVIRONMENT, PretrainedIndex
from compiler_opt.policies.weights import NetworkWeights
from tests import programs
from tests.real_observations import weights_for
from tests.small_project import configure, make_small_project

ROOT = Path(__file__).parents[2]
CLANG = "clang-22"


OPTIONS = ["-enable-load-pre=false", "-disable-lftr=true"]
"""The second makes objects of the small project smaller."""

PROGRAM = "compiler_opt.tools.optimize"
SHORT = (
    "--num_workers=2",
    "--gin_bindings=train_eval.num_iterations=2",
    "--gin_bindings=train_eval.rollouts_per_module=2",
)


def run(*arguments: str, cwd: Path = ROOT, **environment: str) -> "subprocess.CompletedProcess[str]":
    return programs.run(PROGRAM, *SHORT, *arguments, cwd=cwd, environment=environment, timeout_s=1500)


@pytest.fixture(autouse=True)
def pretrained_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the policies that ship, which is not there yet."""
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "pretrained"))
    return tmp_path / "pretrained"


@pytest.mark.slow
@pytest.mark.first
def test_from_build_to_report(tmp_path: Path) -> None:
    """One test, since each part continues from the previous one."""
    build = configure(make_small_project(tmp_path / "source"), tmp_path / "build")
    (tmp_path / "options.json").write_text(json.dumps({"format": 1, "levels": {"Oz": OPTIONS, "O2": ["-no-such"]}}))
    flags = (
        f"--build_dir={build}",
        f"--output_dir={tmp_path / 'out'}",
        f"--clang_path={CLANG}",
        "--search_minutes=0.05",
        f"--options={tmp_path / 'options.json'}",
    )
    killed = run_until("== 3/7", *flags)
    finished = run(*flags)
    assert finished.returncode == 0, finished.stderr
    check_it_goes_on_where_it_was_killed(killed, finished.stdout)
    check_what_comes_of_it(finished.stdout, tmp_path / "out")
    check_the_options(finished, tmp_path / "out")
    check_that_finished_it_only_shows_the_result(flags, finished.stdout, tmp_path / "out")
    check_a_night_later(tmp_path)


def run_until(heading: str, *flags: str) -> str:
    """Kills the command when a step begins; returns its output until then."""
    with programs.start(PROGRAM, *SHORT, *flags) as program:
        while f"\n{heading}" not in program.stdout():
            assert not program.wait(0.01), program.stderr()
        os.kill(program.pid, signal.SIGKILL)
        return program.result(timeout_s=20).stdout


def check_it_goes_on_where_it_was_killed(killed: str, finished: str) -> None:
    assert "4 modules of 3 targets; left out: shapes_test, only used by tests" in killed
    assert "Training" in killed and "Deployment" not in killed
    done = re.findall("^(.*): done before$", finished, re.MULTILINE)
    assert done == ["build-bitcode", "corpus", "trace", "vocabulary", "warm start"]
    headings = [line for line in finished.splitlines() if line.startswith("== ")]
    assert [heading.split()[1] for heading in headings] == [f"{number}/7" for number in range(1, 8)]


def check_what_comes_of_it(said: str, out: Path) -> None:
    summary = json.loads((out / "report" / "summary.json").read_text())
    roles = {target["name"]: target["role"] for target in summary["targets"]}
    assert roles == {"shapes": "main", "draw": "main", "shapes_test": "test"}
    assert all(target["default_bytes"] > 0 and target["optimized_bytes"] > 0 for target in summary["targets"])
    assert [(run["passed"], run["summary"]) for run in summary["tests"]] == [
        (True, "100% tests passed, 0 tests failed out of 1")
    ] * 2
    costs = {cost["step"]: cost for cost in summary["costs"]}
    assert costs["search"]["compiles"] >= 4 * 4  # each module under the policy, without inlining, and twice confirmed
    decisions = Decisions.load(out / "search" / "decisions.json")
    assert f"{len(decisions)} decisions after {costs['search']['compiles']} compilations: " in said
    assert list((out / "deployed" / "lib").glob("mlgo-decisions-*.mlgo"))
    assert costs["training"]["compiles"] > 0 and costs["training"]["cpu_s"] > 0
    assert costs["build-default"]["compiles"] == costs["build-optimized"]["compiles"] == 5
    assert "together" in said and "tests, optimized: passed" in said
    assert f"report: {out / 'report' / 'report.html'}" in said.splitlines()
    assert "100% tests passed" in (out / "report" / "report.html").read_text()
    assert (out / "report" / "targets.csv").read_text().count("\n") == 4
    # The drivers are for the user's own builds.
    assert os.access(out / "deployed" / "bin" / "mlgo-clang++", os.X_OK)
    commands = (out / "build-optimized" / "compile_commands.json").read_text()
    assert "mlgo-clang++" in commands and "-fembed-bitcode" not in commands


def check_the_options(finished: "subprocess.CompletedProcess[str]", out: Path) -> None:
    """The search has compiled with them, and so do the drivers."""
    assert f"options of LLVM's passes: {' '.join(OPTIONS)} (4 modules)" in finished.stdout
    assert "warning: --options: -no-such is left out at -O2: the compiler has no such option" in finished.stderr
    driver = out / "deployed" / "bin" / "mlgo-clang"
    info = subprocess.check_output([driver, "--mlgo-info"], text=True)
    assert f"options: -Oz: {' '.join(OPTIONS)}\n" in info and "-O2" not in info
    with (out / "search" / "modules.csv").open() as file:
        searched = {row["module"].partition("/")[2]: int(row["text_bytes"]) for row in csv.DictReader(file)}
    built = {name: read_parts(out / "build-optimized" / name).total for name in searched}
    assert built == searched != {name: read_parts(out / "build-default" / name).total for name in searched}
    # Whoever builds with the drivers gets the same bytes; but not with an option of their own instead.
    entries = json.loads((out / "build-optimized" / "compile_commands.json").read_text())
    changed = 0
    for name in searched:
        (command,) = (entry["command"] for entry in entries if f" -o {name} " in entry["command"])
        arguments = [*shlex.split(command), "-o", str(out / "again.o")]
        subprocess.check_call(arguments, cwd=out / "build-optimized")
        assert (out / "again.o").read_bytes() == (out / "build-optimized" / name).read_bytes()
        subprocess.check_call([*arguments, "-mllvm", "-disable-lftr=false"], cwd=out / "build-optimized")
        changed += (out / "again.o").read_bytes() != (out / "build-optimized" / name).read_bytes()
    assert changed


def check_that_finished_it_only_shows_the_result(flags: tuple[str, ...], said: str, out: Path) -> None:
    built = {path: path.stat().st_mtime_ns for path in out.rglob("*.o")}
    result = run(*flags)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split("7/7")[1] == said.split("7/7")[1]
    assert built == {path: path.stat().st_mtime_ns for path in out.rglob("*.o")}
    quiet = run(*flags, "--quiet")
    assert quiet.stdout in said and "==" not in quiet.stdout and "report: " in quiet.stdout
    as_json = run(*flags, "--json")
    assert as_json.stdout == (out / "report" / "summary.json").read_text()
    assert "== 7/7" in as_json.stderr and quiet.stdout in as_json.stderr

    other = run(*flags, "--seed=9")
    assert other.returncode == 2
    assert "holds an optimisation with another settings of the training; give another --output_dir" in other.stderr
    without = run(*flags, "--options=none")
    assert without.returncode == 2
    assert "holds an optimisation with another set of options; give another --output_dir" in without.stderr
    itself = run(*flags, f"--reuse_policy={out}")
    assert itself.returncode == 2
    assert f"{out}: holds the policy; give another folder as --output_dir" in itself.stderr


def check_a_night_later(place: Path) -> None:
    """In another folder, with one more module, and a test that only fails with the policy, which is reused."""
    source = shutil.copytree(place / "source", place / "later")
    extra = '#include "shapes.h"\nint extra(Sides s) { return area(s) + sum(s); }\n'
    (source / "extra.cpp").write_text(extra)
    lists = source / "CMakeLists.txt"
    lists.write_text(lists.read_text().replace("list.c)", "list.c extra.cpp)"))
    flags = (
        f"--build_dir={configure(source, place / 'build-later')}",
        f"--output_dir={place / 'night'}",
        f"--reuse_policy={place / 'out'}",
        f"--options={place / 'options.json'}",
        f"--clang_path={CLANG}",
        "--test_command=sh -c 'case $PWD in *optimized) echo broken; exit 1;; esac'",
    )
    result = run(*flags)
    assert result.returncode == 3, result.stderr
    assert "tests, optimized: FAILED (broken; logs/build-optimized-tests.log)" in result.stdout
    assert "test command: broken by the policy (fails in 5 of 5 runs with the policy, 0 without)" in result.stdout
    assert "The modules in which the policy breaks tests cannot be named: " in result.stdout
    assert "of 5 modules, 1 are new and 0 have changed since; 0 are gone." in result.stdout
    assert "New: draw/CMakeFiles/shapes.dir/extra.cpp.o." in result.stdout
    assert "advisable to optimise" in result.stdout or "What is reused still holds." in result.stdout
    assert "done before" not in result.stdout
    assert f"Search: none, {place / 'out' / 'search' / 'decisions.json'} is reused" in result.stdout
    assert list((place / "night" / "deployed" / "lib").glob("mlgo-decisions-*.mlgo"))
    assert not (place / "night" / "training").exists()
    changes = json.loads((place / "night" / "report" / "summary.json").read_text())["changes"]
    assert 0 < changes["decisions_new"] < 0.5
    assert "done before" not in run_until("== 2/7", *flags)  # the next night


@pytest.fixture
def build(tmp_path: Path) -> Path:
    return configure(make_small_project(tmp_path / "source"), tmp_path / "build")


@pytest.fixture
def shipped(pretrained_dir: Path) -> NetworkWeights:
    """A policy that ships."""
    weights = weights_for({name: np.arange(20) for name in FEATURES}, hidden=(4,))
    weights = dataclasses.replace(weights, metadata={"problem": "inlining"})
    PretrainedIndex(pretrained_dir).add("random", weights, weights.card())
    return weights


def test_with_a_policy_that_ships_it_needs_no_training(
    build: Path, shipped: NetworkWeights, pretrained_dir: Path, tmp_path: Path
) -> None:
    (pretrained_dir / "random" / "saved_model.pb").write_bytes(b"may hold anything")
    flags = (f"--build_dir={build}", f"--clang_path={CLANG}", "--minutes=0.01")
    printed = run_until("== 5/7", *flags, f"--output_dir={tmp_path / 'searched'}")
    assert "== 3/7 Training: none, pretrained:random decides" in printed
    assert "== 4/7 Search: 0.01 minutes, from the policy" in printed
    assert not (tmp_path / "searched" / "training").exists()
    assert NetworkWeights.load(tmp_path / "searched" / "policy").checksum() == shipped.checksum()
    assert not (tmp_path / "searched" / "policy" / "saved_model.pb").exists()
    # Nor is a policy needed.
    alone = (f"--output_dir={tmp_path / 'alone'}", "--warmstart_policy_dir=default", "--search_minutes=0.01")
    assert "== 3/7 Training: none, the default decides" in run_until("== 4/7", *flags, *alone)


@pytest.mark.slow
def test_it_trains_a_policy_that_ships_further(build: Path, shipped: NetworkWeights, tmp_path: Path) -> None:
    """Nobody names it; its network has another shape than that of the settings."""
    further = tmp_path / "further"
    printed = run_until(
        "== 4/7",
        f"--build_dir={build}",
        f"--output_dir={further}",
        f"--clang_path={CLANG}",
        "--search_minutes=0",
        "--gin_bindings=train_eval.num_iterations=1",
        "--gin_bindings=network.fc_layer_params=(5,)",
    )
    assert "== 2/7 Warm start: pretrained:random" in printed and "1 iterations" in printed
    changed = json.loads((further / "state.json").read_text())["identity"]["settings of the training"]
    assert f"from pretrained:random {shipped.checksum()}" in changed
    assert not (further / "warm_start").exists() and not (further / "vocabulary").exists()
    end = NetworkWeights.load(further / "training" / "policy")
    assert NetworkWeights.load(further / "policy").checksum() == end.checksum()
    assert end.checksum() != shipped.checksum()
    for before, after in zip(shipped.kernels, end.kernels, strict=True):
        # An iteration of PPO, averaged in, moves a weight by far less than another random start would.
        assert np.abs(after - before).max() < 0.05


@pytest.mark.slow
def test_begun_without_training_it_can_be_trained_later(build: Path, tmp_path: Path) -> None:
    """That needs more of the default's decisions than were kept."""
    flags = (f"--build_dir={build}", f"--clang_path={CLANG}", "--minutes=0.05", f"--output_dir={tmp_path / 'alone'}")
    default = "--warmstart_policy_dir=default"
    assert run(*flags, default, "--search_minutes=0.05").returncode == 0
    sizes = json.loads((tmp_path / "alone" / "report" / "summary.json").read_text())["targets"]
    assert sizes and all(size["optimized_bytes"] <= size["default_bytes"] for size in sizes if size["role"] == "main")
    assert "1 iterations" in run_until("== 4/7", *flags, default, "--search_minutes=0.04")
    trained, kept = (
        NetworkWeights.load(tmp_path / "alone" / name).checksum() for name in ("training/policy", "policy")
    )
    assert trained == kept


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with bad input."""
    wrong = tmp_path_factory.mktemp("wrong")
    source = make_small_project(wrong / "source")
    configure(source, wrong / "build")
    (wrong / "empty").mkdir()
    for name, old, new in (
        ("moved", str(source), str(wrong / "gone")),
        ("insource", f"CMAKE_HOME_DIRECTORY:INTERNAL={source}", f"CMAKE_HOME_DIRECTORY:INTERNAL={wrong / 'insource'}"),
        ("xcode", "CMAKE_GENERATOR:INTERNAL=Unix Makefiles", "CMAKE_GENERATOR:INTERNAL=Xcode"),
        ("nocmake", "CMAKE_COMMAND:INTERNAL=", "CMAKE_COMMAND:INTERNAL=/gone"),
    ):
        (wrong / name).mkdir()
        text = (wrong / "build" / "CMakeCache.txt").read_text()
        assert old in text
        (wrong / name / "CMakeCache.txt").write_text(text.replace(old, new))
    (wrong / "insource" / "CMakeLists.txt").write_text("project(x)\n")
    (wrong / "not.json").write_text("nonsense")
    (wrong / "full").mkdir()
    (wrong / "full" / "thesis.tex").write_text("")
    return wrong


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({}, ("expected --build_dir (a CMake build folder) or --compile_commands, found neither or both",)),
        ({"build_dir": "absent"}, ("absent: no such build folder", "cmake -S SOURCE -B BUILD")),
        ({"build_dir": "empty"}, ("empty: expected a build folder configured by CMake", "--compile_commands")),
        ({"build_dir": "source"}, ("source: expected a build folder configured by CMake",)),
        ({"build_dir": "moved"}, ("which no longer has a CMakeLists.txt",)),
        ({"build_dir": "insource"}, ("is an in-source build", "configure one in a folder of its own")),
        ({"build_dir": "xcode"}, ("expected a generator out of Ninja", "found 'Xcode'")),
        ({"build_dir": "build", "clang_path": "clang-99"}, ("clang-99: no such program on PATH",)),
        ({"build_dir": "build", "reuse_policy": "absent"}, ("absent: expected a policy", "train one first")),
        ({"build_dir": "build", "warmstart_policy_dir": "absent"}, ("absent: expected a policy", "train one first")),
        ({"build_dir": "build", "output_dir": "full"}, ("full: is not empty, and holds no optimisation",)),
        ({"build_dir": "build", "minutes": "5", "search_minutes": "6"}, ("=6: expected at most --minutes=5",)),
        ({"build_dir": "build", "test_command": "'a"}, ("--test_command='a: cannot be split into words",)),
        ({"build_dir": "build", "objective": "speed"}, ("--objective=speed needs --benchmark=",)),
        ({"build_dir": "build", "benchmark": "./x"}, ("--benchmark: not with --objective=size; leave it out",)),
        (
            {"build_dir": "build", "objective": "speed", "benchmark": "./x", "reuse_policy": "absent"},
            ("--reuse_policy: not with --objective=speed",),
        ),
        ({"build_dir": "build", "objective": "speed", "benchmark": "./x 'a"}, ("./x 'a: cannot be split into words",)),
        ({"build_dir": "build", "gin_bindings": "ppo.colour=1"}, ("ppo.colour=1", "expected name.parameter=value")),
        ({"compile_commands": "absent.json"}, ("absent.json: cannot be read",)),
        ({"compile_commands": "not.json"}, ("not.json: expected JSON",)),
    ],
)
def test_a_mistake_is_one_line(flags: dict[str, str], words: tuple[str, ...], wrong: Path) -> None:
    flags = {"output_dir": "out", **flags}
    before = sorted(wrong.rglob("*"))
    result = run(*(f"--{name}={value}" for name, value in flags.items()), cwd=wrong)
    assert (result.returncode, "Traceback" in result.stderr) == (2, False), result.stderr
    message = result.stderr.splitlines()[-1]
    assert message.startswith("error: ")
    for word in words:
        assert word in message
    assert sorted(wrong.rglob("*")) == before


def test_without_cmake(wrong: Path, tmp_path: Path) -> None:
    """The CMake that configured the build is gone, and PATH has none."""
    (tmp_path / "clang-22").symlink_to(shutil.which(CLANG) or "")
    result = run("--build_dir=nocmake", "--output_dir=out", cwd=wrong, PATH=str(tmp_path))
    assert result.returncode == 2
    assert re.search(r"error: cmake: no such program \(/gone/\S+ is gone\); install the package cmake", result.stderr)


@pytest.mark.ci
def test_without_any_clang(wrong: Path, tmp_path: Path) -> None:
    """The build's compiler cannot run policies, and there is no other."""
    code = "import functools, compiler_opt.llvm.toolchain as t; "
    code += "t.find_clang = functools.partial(t.find_clang, llvm_folders=()); "
    code += "from compiler_opt.tools import optimize; optimize.entry()"
    result = subprocess.run(
        [sys.executable, "-c", code, "--build_dir=build", "--output_dir=out"],
        cwd=wrong,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert result.returncode == 2
    assert "no clang found on PATH" in result.stderr
