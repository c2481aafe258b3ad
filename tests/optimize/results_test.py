"""Results of an optimisation: which targets count, when to retrain, and the report."""

import dataclasses
import json
import re
import shlex
from pathlib import Path

from compiler_opt.llvm.object_file import TextParts
from compiler_opt.optimize import output
from compiler_opt.optimize.changes import Changes
from compiler_opt.optimize.program import Kind, Target, TestRun
from compiler_opt.optimize.results import ChosenSet, SizeResult, Tests
from compiler_opt.optimize.state import Cost
from compiler_opt.optimize.target_sizes import TargetSize, target_roles
from compiler_opt.optimize.verdict import FailedTest, Verdict
from compiler_opt.report.formatting import MINUS

PASSED = TestRun(True, "100% tests passed", "logs/a.log")
FAILED = TestRun(False, "1 tests failed", "logs/b.log", ("parse",))
BROKEN = Verdict((FailedTest("parse", 0, 5, 5), FailedTest("race", 1, 2, 3)), ("src/parse.o",), "Sorry.")
RESULT = SizeResult(
    program="<shapes>",
    targets=(
        TargetSize("app", "program", "main", TextParts(600, 400), TextParts(570, 330)),
        TargetSize("libapp", "shared library", "main", TextParts(600, 100, 200, 100), TextParts(600, 100, 220, 90)),
        TargetSize("base", "static library", "part", TextParts(500), TextParts(400)),
        TargetSize("app_test", "program", "test", TextParts(700), TextParts(600)),
    ),
    tests=Tests((PASSED, PASSED)),
    costs=(Cost("training", 60.0, 100.0, 800), Cost("build-default", 1.0, 2.0, 4)),
    num_modules=4,
    num_decisions=50,
    compilers=("/deployed/bin/mlgo-clang", "/deployed/bin/mlgo-clang++"),
    options=("-Oz",),
    notes=("Every file is compiled at -Oz.",),
    provenance={"Compiler": "clang"},
)
SAME = (TargetSize("app", "program", "main", TextParts(10), TextParts(10)),)
CHANGES = Changes(("new.o",), (), ("old.o",), 4, 0.1, 50)


def test_main_targets_count() -> None:
    assert (RESULT.default_bytes, RESULT.optimized_bytes) == (2000, 1910)
    assert round(RESULT.change, 6) == -0.045
    assert round(RESULT.code_change(), 6) == -0.025  # 30 of 1,200 bytes


def test_roles() -> None:
    targets = (
        Target("base", Kind.STATIC, "libbase.a"),
        Target("sdk", Kind.STATIC, "libsdk.a", installed=True),
        Target("app", Kind.EXECUTABLE, "app", ("base", "sdk")),
        Target("check", Kind.EXECUTABLE, "check", ("base",)),
    )
    assert target_roles(targets, frozenset({"check"})) == {
        "base": "part",
        "sdk": "main",
        "app": "main",
        "check": "test",
    }


def test_when_what_is_reused_is_outdated() -> None:
    def reason(**values: object) -> str | None:
        return dataclasses.replace(RESULT, is_reused=True, **values).outdated()  # type: ignore[arg-type]

    assert reason() is None
    assert reason(changes=CHANGES, earlier_change=-0.05) is None
    assert (
        reason(changes=dataclasses.replace(CHANGES, decisions_new=0.3)) == "30% of the decisions are new to the policy"
    )
    assert "of 9.00% that were saved before, 4.50% are left" in (reason(earlier_change=-0.09) or "")
    assert reason(targets=SAME) == "it saves nothing"


def test_nothing_is_said_of_training_or_reuse_where_there_was_none() -> None:
    nothing = dataclasses.replace(RESULT, targets=SAME, costs=())
    assert nothing.outdated() is None
    for text in (output.terminal_table(nothing), output.render(nothing)):
        assert "Nothing is saved: the main targets are no smaller than with plain clang." in text
        assert not re.search("train|advisable|Reuse", text.partition("<body>")[2] or text, re.IGNORECASE)
    reused = output.terminal_table(dataclasses.replace(nothing, is_reused=True))
    assert "It is advisable to optimise the program anew: it saves nothing." in reused


def test_commands_to_copy_have_a_line_for_each_setting() -> None:
    cmake, make = output.usage(dataclasses.replace(RESULT, options=("-O2", "-fprofile-use=/a b/x.profdata")))
    assert cmake.splitlines()[1:4] == [
        "  -DCMAKE_BUILD_TYPE=Release \\",
        "  -DCMAKE_C_COMPILER=/deployed/bin/mlgo-clang \\",
        "  -DCMAKE_CXX_COMPILER=/deployed/bin/mlgo-clang++ \\",
    ]
    words = shlex.split(cmake.replace("\\\n", ""))
    assert words[-1] == "-DCMAKE_CXX_FLAGS_RELEASE=-O2 '-fprofile-use=/a b/x.profdata' -DNDEBUG"
    assert shlex.split(make.replace("\\\n", ""))[1:3] == [
        "CC=/deployed/bin/mlgo-clang",
        "CXX=/deployed/bin/mlgo-clang++",
    ]
    page = output.render(RESULT)
    assert '<pre class="command" tabindex="0"><code>cmake -S SOURCE -B BUILD' in page
    assert ".command code { white-space: pre; overflow-wrap: normal; }" in page


def test_broken_tests() -> None:
    assert not RESULT.tests_broken
    assert dataclasses.replace(RESULT, tests=Tests((PASSED, FAILED), BROKEN)).tests_broken
    flaky = dataclasses.replace(RESULT, tests=Tests((FAILED, FAILED), Verdict(BROKEN.tests[1:])))
    assert not flaky.tests_broken
    assert "breaks none of the project&#39;s own tests: those that fail are flaky" in output.render(flaky)


def test_files_and_table(tmp_path: Path) -> None:
    result = dataclasses.replace(RESULT, is_reused=True, changes=CHANGES, earlier_change=-0.05)
    report = output.write(result, tmp_path)
    head, app = (tmp_path / "targets.csv").read_text().splitlines()[:2]
    parts = "code constants unwind dynamic".split()
    columns = [f"{build}_{part}_bytes" for build in ("default", "optimized") for part in parts]
    assert head.split(",") == [*"target kind role default_text_bytes optimized_text_bytes".split(), *columns, "change"]
    assert app == "app,program,main,1000,900,600,400,0,0,570,330,0,0,-0.100000"
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["targets"][1]["default"]["dynamic"] == 100 and summary["targets"][1]["default_bytes"] == 1000
    assert (summary["change"], summary["outdated"]) == (RESULT.change, None)
    page = report.read_text()
    assert "&lt;shapes&gt; is 4.50% smaller than with plain clang -Oz" in page and "<shapes>" not in page
    assert "What is reused still holds." in page and "/deployed/bin/mlgo-clang++" in page
    assert "http" not in page.replace("http://www.w3.org", "").replace("https://www.w3.org", "")
    lines = output.terminal_table(result).splitlines()
    assert lines[5].split() == ["together", "2,000", "1,910", *(f"\N{MINUS SIGN}{x}" for x in ("90", "4.50%", "2.50%"))]
    assert "10.0% of 50 decisions are new to the policy; of 4 modules, 1 are new and 1 have changed since" in lines[-4]
    broken = dataclasses.replace(RESULT, tests=Tests((PASSED, FAILED), BROKEN))
    page = output.render(broken)
    assert "FAILED (1 tests failed" in page and "The policy BREAKS 1 test of the project: do not use" in page
    assert "race: flaky (fails in 2 of 3 runs with the policy, 1 without)" in page and "Sorry." in page
    verdict = broken.to_json()["verdict"]
    assert [test["cause"] for test in verdict["tests"]] == ["policy", "flaky"] and verdict["modules"] == (
        "src/parse.o",
    )


def test_the_page_has_options_by_function() -> None:
    chosen = (ChosenSet("-disable-lsr=true", 12, 340), ChosenSet("-disable-cgp=true", 1, 0))
    page = output.render(dataclasses.replace(RESULT, function_options=chosen))
    for text in ("Options by function", "-disable-lsr=true", f"{MINUS}340"):
        assert text in page
    assert "Options by function" not in output.render(RESULT)
