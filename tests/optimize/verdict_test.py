"""Why tests fail: a policy that breaks a program, tests that were broken before, and flaky ones."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compiler_opt.deploy.deployment import deploy
from compiler_opt.deploy.policies import PolicyRequest
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.optimize import steps
from compiler_opt.optimize.cmake_program import CMakeProgram
from compiler_opt.optimize.database_program import DatabaseProgram
from compiler_opt.optimize.optimization import Optimization, OptimizeSettings
from compiler_opt.optimize.program import Compilers, Program, Variant
from compiler_opt.optimize.state import State
from compiler_opt.optimize.suites import COMMAND_NAME
from compiler_opt.optimize.verdict import BEFORE, BISECTION, FLAKY, POLICY, REPETITION, FailedTest, Verdict
from tests.inlining_networks import never_inline
from tests.small_project import configure

SOURCES = {
    # As a logger that skips its own frame to name its caller: right only if `caller` is inlined, as it is by default.
    "frames.cpp": """
static void *caller() { return __builtin_return_address(0); }
extern "C" bool names_its_caller() { return caller() == __builtin_return_address(0); }
""",
    "add.cpp": 'static int one(int x) { return x + 1; } extern "C" int add(int x) { return one(one(x)); }\n',
    "square.cpp": 'static int by(int x, int y) { return x * y; } extern "C" int square(int x) { return by(x, x); }\n',
    "main.cpp": """
extern "C" bool names_its_caller();
extern "C" int add(int x), square(int x);
int main(int argc, char **argv) { return argc > 1 ? !names_its_caller() : add(1) != 3 || square(3) != 9; }
""",
    # `first` stands for a race: it fails when all tests run, and never again. `sometimes` fails every other time.
    "CMakeLists.txt": """
cmake_minimum_required(VERSION 3.14)
project(logger LANGUAGES CXX)
enable_testing()
add_library(logger STATIC add.cpp frames.cpp square.cpp)
add_executable(app main.cpp)
target_link_libraries(app logger)
add_test(NAME arithmetic COMMAND app)
add_test(NAME frames COMMAND app frames)
add_test(NAME gone COMMAND nowhere)
add_test(NAME first COMMAND sh -c "test -e ran || { touch ran; exit 1; }")
add_test(NAME sometimes COMMAND sh -c "if [ -e odd ]; then rm odd; else touch odd; exit 1; fi")
""",
}


@pytest.fixture(scope="module")
def drivers(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Compilers:
    """Drivers with this policy."""
    folder = tmp_path_factory.mktemp("deployed")
    deploy([PolicyRequest(never_inline(folder / "policy"))], folder / "prefix", [toolchain.clang])
    programs = folder / "prefix" / "bin"
    return Compilers(programs / "mlgo-clang", programs / "mlgo-clang++", toolchain.tool("llvm-ar"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    for name, text in SOURCES.items():
        (folder / name).write_text(text)
    return folder


@dataclasses.dataclass
class BuildsAndTests:
    """The part of an optimisation that builds and tests, in a folder that a second one continues."""

    program: Program
    toolchain: Toolchain
    drivers: Compilers
    folder: Path
    settings: OptimizeSettings
    echoed: list[str] = dataclasses.field(default_factory=list)

    def judge(self) -> Verdict | None:
        self.folder.mkdir(exist_ok=True)
        state = State(self.folder, {}, self.echoed.append)
        run = Optimization(
            self.program,
            self.toolchain,
            self.settings,
            self.folder,
            state,
            self.echoed.append,
            notes=[],
            num_headings=7,
        )
        optimized = run.variant("optimized", compilers=self.drivers)
        for variant in (run.default, optimized):
            steps.build(run, variant)
        return steps.run_tests(run, optimized).verdict

    def step(self, name: str) -> dict[str, Any]:
        stored: dict[str, dict[str, Any]] = json.loads((self.folder / "state.json").read_text())["steps"]
        return stored[name]


@pytest.mark.slow
def test_each_cause_is_told_from_the_others(
    source: Path, toolchain: Toolchain, drivers: Compilers, tmp_path: Path
) -> None:
    settings = OptimizeSettings(tmp_path / "out")
    program = CMakeProgram(configure(source, tmp_path / "build"), 2)
    optimization = BuildsAndTests(program, toolchain, drivers, settings.output, settings)
    sources = sorted(source.rglob("*"))
    verdict = optimization.judge()
    assert verdict is not None
    assert {test.name: test.cause for test in verdict.tests} == {
        "frames": POLICY,
        "gone": BEFORE,
        "first": FLAKY,
        "sometimes": FLAKY,
    }
    runs = {test.name: (test.default_failures, test.optimized_failures, test.runs) for test in verdict.tests}
    assert (runs["frames"], runs["gone"], runs["first"]) == ((0, 5, 5), (3, 3, 3), (0, 0, 3))
    # All objects of the library differ; one of them is at fault.
    assert verdict.modules == ("CMakeFiles/logger.dir/frames.cpp.o",)
    assert "The tests pass if plain clang compiles CMakeFiles/logger.dir/frames.cpp.o" in optimization.echoed[-1]
    assert verdict.lines()[0] == "frames: broken by the policy (fails in 5 of 5 runs with the policy, 0 without)"
    assert sorted(source.rglob("*")) == sources
    assert not (optimization.folder / "build-bisect").exists()  # nobody needs it any more
    # Finished steps are not repeated.
    before = optimization.step(REPETITION), optimization.step(BISECTION)
    assert optimization.judge() == verdict
    assert (optimization.step(REPETITION), optimization.step(BISECTION)) == before


class Interrupted(DatabaseProgram):
    """A program whose third build in a search is interrupted."""

    num_builds = 0

    def build(self, variant: Variant, on_progress: Callable[[int, int], object]) -> None:
        if variant.folder.name == "build-bisect":
            self.num_builds += 1
            if self.num_builds == 3:
                raise KeyboardInterrupt
        super().build(variant, on_progress)


@pytest.fixture
def interrupted(source: Path, tmp_path: Path) -> Interrupted:
    names = ("add", "frames", "square", "main")
    entries = [
        {"directory": str(source), "file": f"{name}.cpp", "command": f"c++ -c {name}.cpp -o {name}.o"} for name in names
    ]
    database = tmp_path / "compile_commands.json"
    database.write_text(json.dumps(entries))
    return Interrupted(database, ["c++ " + " ".join(str(source / f"{name}.o") for name in names) + " -o app"], 2)


def test_a_search_continues(interrupted: Interrupted, toolchain: Toolchain, drivers: Compilers, tmp_path: Path) -> None:
    """The user's command is one test; the search has no time at first, then it is interrupted."""
    settings = OptimizeSettings(tmp_path / "out", test_command=("./linked/app", "frames"))
    short = dataclasses.replace(settings, verdict_minutes=0)
    optimization = BuildsAndTests(interrupted, toolchain, drivers, settings.output, short)
    verdict = optimization.judge()
    assert verdict is not None
    # It has run once, whatever the limit.
    assert [(test.name, test.cause, test.runs) for test in verdict.tests] == [(COMMAND_NAME, POLICY, 1)]
    assert verdict.modules == () and "0 minutes (--verdict_minutes) were too few" in verdict.note
    optimization.settings = settings
    with pytest.raises(KeyboardInterrupt):
        optimization.judge()
    outcomes = optimization.step(BISECTION)["partial"]
    assert list(outcomes.values()) == [True, False]  # all plain; all by the policy
    verdict = optimization.judge()
    assert verdict is not None and verdict.modules == ("objects/frames.o",)


@pytest.mark.ci
def test_no_module_is_named_for_what_is_not_in_the_objects(
    interrupted: Interrupted, toolchain: Toolchain, drivers: Compilers, tmp_path: Path
) -> None:
    command = ("sh", "-c", "case $PWD in *optimized) exit 1; esac")
    settings = OptimizeSettings(tmp_path / "out", test_command=command)
    verdict = BuildsAndTests(interrupted, toolchain, drivers, settings.output, settings).judge()
    assert verdict is not None and verdict.modules == () and verdict.broken
    assert verdict.note.endswith("cannot be named: in a third build folder, the tests pass with the policy.")


@pytest.mark.parametrize(
    ("default_failures", "optimized_failures", "runs", "cause", "undecided"),
    [
        (0, 0, 0, FLAKY, True),
        (0, 1, 1, POLICY, True),  # all that there was time for
        (0, 3, 3, POLICY, True),  # a test that fails half of the time does so once in 64 cases
        (0, 5, 5, POLICY, False),
        (0, 2, 3, FLAKY, True),
        (0, 5, 10, POLICY, False),  # never without the policy
        (0, 4, 10, FLAKY, False),
        (0, 0, 3, FLAKY, False),
        (1, 3, 3, FLAKY, False),
        (3, 3, 3, BEFORE, False),
        (3, 0, 3, BEFORE, False),
    ],
)
def test_causes(default_failures: int, optimized_failures: int, runs: int, cause: str, undecided: bool) -> None:
    test = FailedTest("t", default_failures, optimized_failures, runs)
    assert (test.cause, test.is_undecided) == (cause, undecided)


def test_long_verdicts_are_cut() -> None:
    tests = tuple(FailedTest(f"t{number}", 3, 3, 3) for number in range(12))
    lines = Verdict((*tests, FailedTest("b", 0, 5, 5))).lines()
    assert lines[0].startswith("b: broken by the policy") and lines[-1] == "and 3 more, see summary.json"
    assert len(lines) == 11
