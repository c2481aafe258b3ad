"""The report on an evaluation: files, page and table, for size and for another score."""

import csv
import dataclasses
import json
import os
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest

from compiler_opt import problem as problems
from compiler_opt.checked_values import Json
from compiler_opt.evaluation import report
from compiler_opt.evaluation.history import Curve, History
from compiler_opt.evaluation.report import lead, render
from compiler_opt.evaluation.report_parts import most_changed, policy_facts
from compiler_opt.evaluation.results import Evaluation
from compiler_opt.llvm.object_file import TextParts
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.report.formatting import MINUS

HISTORY = History(Curve("mean", (1, 2, 3), (0.0, 0.01, 0.02)), (Curve("a", (1, 2), (0.0, 0.02)),))


@pytest.mark.ci
def test_files(evaluation: Evaluation, tmp_path: Path) -> None:
    page = report.write(evaluation, tmp_path, HISTORY)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "modules.csv",
        "projects.csv",
        "report.html",
        "summary.json",
    ]
    assert page == tmp_path / "report.html"
    assert json.loads((tmp_path / "summary.json").read_text())["num_modules"] == 4
    with (tmp_path / "modules.csv").open() as file:
        modules = {row["module"]: row for row in csv.DictReader(file)}
    assert modules["shapes/a"]["policy_text_bytes"] == "900"
    assert modules["plain/d"]["policy_text_bytes"] == ""
    assert modules["plain/d"]["policy_failure"] == "plain/d: ran out of time"
    with (tmp_path / "projects.csv").open() as file:
        projects = {row["project"]: row for row in csv.DictReader(file)}
    assert projects["shapes"]["default_linked_bytes"] == "1400"
    assert projects["plain"]["never_linked_bytes"] == ""
    assert projects["shapes"]["never_worse_linked_bytes"] == "1320"


def test_names_may_contain_anything(evaluation: Evaluation, tmp_path: Path) -> None:
    """Bytes that are not UTF-8, formulas of spreadsheets and mathematics of Matplotlib must not lose the results."""
    odd = os.fsdecode(b"=caf\xe9\n$\\frac$" + 99 * b"x")
    projects = tuple(
        dataclasses.replace(
            project,
            name=odd + project.name,
            modules=tuple(
                dataclasses.replace(m, name=f"{odd}{m.name}", project=odd + project.name) for m in project.modules
            ),
        )
        for project in evaluation.projects
    )
    result = dataclasses.replace(evaluation, projects=projects, provenance={"Corpus": odd})
    page = report.write(result, tmp_path).read_text()
    Checker().feed(page)
    assert "caf\\udce9" in page
    report.terminal_table(result)
    with (tmp_path / "projects.csv").open(newline="") as file:
        assert [row["project"][:7] for row in csv.DictReader(file)] == ["'=caf\\u", "'=caf\\u"]


class Checker(HTMLParser):
    """Checks that elements are closed in order, and that none refers to anything outside of the page."""

    VOID = ("meta", "br", "hr", "link", "img")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "img", "iframe", "object")
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("href", "xlink:href", "src"):
                assert value is not None
                assert value.startswith("#")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.mark.ci
@pytest.mark.parametrize("history", [None, HISTORY])
def test_the_page_is_well_formed_and_self_contained(evaluation: Evaluation, history: History | None) -> None:
    page = render(evaluation, history)
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    text = " ".join(checker.text)
    assert "died of SIGSEGV <&>" in text  # Escaped in the page, so that it is shown.
    assert "clang <19>" in text
    assert "url(" not in re.sub(r"url\(#[^)]*\)", "", page)
    assert not re.search(r"#0[1-7]0[1-7]0[1-7]\b", page)  # No stand-in of a colour is left.
    for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ET.fromstring(svg)


@pytest.mark.ci
def test_identifiers_are_unique_over_all_plots(evaluation: Evaluation) -> None:
    page = render(evaluation, HISTORY)
    clips = re.findall(r'<clipPath id="([^"]*)"', page)
    assert len(clips) == len(set(clips))


@pytest.mark.ci
def test_the_same_results_give_the_same_page(evaluation: Evaluation) -> None:
    assert render(evaluation, HISTORY) == render(evaluation, HISTORY)


def test_the_lead(evaluation: Evaluation) -> None:
    assert lead(evaluation) == (
        "Linked, 2 projects of 4 modules take 1,850 bytes of text with policy instead of 1,920. "
        "1 of the 2 programs got smaller, none is bigger."
    )


def test_worst_modules_are_those_that_grew(evaluation: Evaluation) -> None:
    worst = most_changed(evaluation, lambda module: module.change("policy"))
    assert [module.name for module in worst] == ["shapes/b"]


@pytest.mark.ci
def test_a_page_for_one_module(evaluation: Evaluation) -> None:
    shapes = dataclasses.replace(evaluation.projects[0], modules=evaluation.projects[0].modules[:1], excluded={})
    page = render(dataclasses.replace(evaluation, projects=(shapes,), baselines=()))
    Checker().feed(page)
    # Two cards of linked text and one of code; one of the score and two of objects.
    assert page.count('<div class="detail">no interval: one project</div>') == 3
    assert page.count('<div class="detail">no interval: one module in each project</div>') == 3
    # Nor have the tables any.
    assert '<span class="range">no interval: one project</span>' in page


def test_terminal_table(evaluation: Evaluation) -> None:
    lines = report.terminal_table(evaluation).splitlines()
    assert lines[0].split() == [
        "project",
        "language",
        "modules",
        "default",
        "policy",
        "linked",
        "code",
        "objects",
        "never",
    ]
    # 990 bytes of code instead of 1,000.
    assert lines[2].split() == [
        "shapes",
        "C++",
        "2",
        "1,400",
        "1,330",
        *f"{MINUS}5.00% {MINUS}1.00% {MINUS}6.00% +14.3%".split(),
    ]
    assert lines[3].split()[-1] == "\N{EN DASH}"
    assert lines[5].split()[0] == "together"
    assert len({len(line) for line in lines[:6]}) == 1
    assert lines[7].split("  ")[0] == "language" and lines[7].endswith("worst")
    # -5% and 0% in the mean of two: t of one degree of freedom is 12.7062, and the standard error 2.5%.
    c, cpp, both = (re.split("  +", line) for line in lines[9:12])
    none = "(one project)"
    assert c == ["C", "policy", "1", f"0.00% {none}", f"0.00% {none}", "0", "plain 0.00%"]
    assert cpp == ["C++", "policy", "1", f"{MINUS}5.00% {none}", f"{MINUS}1.00% {none}", "0", f"shapes {MINUS}5.00%"]
    assert both[:3] == ["all", "policy", "2"] and both[5:] == ["0", "plain 0.00%"]
    assert both[3] == f"{MINUS}2.50% ({MINUS}34.27% to +29.27%)"
    assert both[4] == f"{MINUS}0.50% ({MINUS}6.85% to +5.85%)"
    # -70 of 1,920 bytes together, -10 of 1,500 bytes of code.
    assert lines[13].startswith(f"linked text: {MINUS}3.65% (95% interval: ")
    assert lines[13].endswith(f"{MINUS}34.27% to +29.27%)")
    assert lines[14].startswith(f"code in it: {MINUS}0.67% (95%")
    assert "1 smaller, 2 same, 1 bigger; 3 failures" in lines[15]
    assert lines[16] == (
        f"with objects only where they are smaller and have no more code (deploy --never_worse): {MINUS}4.17% linked, "
        f"{MINUS}1.33% code; by project {MINUS}5.71% to 0.00%"
    )
    assert lines[17] == "grew most: shapes/b +2.00%"


@pytest.fixture
def with_options(evaluation: Evaluation) -> Evaluation:
    """Three more C projects, of which options save constants, the policy unwind tables."""
    sizes = {
        "default": TextParts(1000, 500, 500),
        "options": TextParts(950, 460, 500),
        "policy": TextParts(1010, 500, 440),
        "policy+options": TextParts(960, 460, 430),
        "never worse": TextParts(960, 460, 430),
    }
    plain = evaluation.projects[1]
    modules = tuple(
        dataclasses.replace(module, outputs=dict.fromkeys(("never", *sizes), module.outputs["default"]), failures={})
        for module in plain.modules
    )
    projects = tuple(
        dataclasses.replace(plain, name=f"project_{number}", modules=modules, linked=sizes, link_failures={})
        for number in range(3)
    )
    shared = {name: dataclasses.replace(each, dynamic=each.unwind * 2) for name, each in sizes.items()}
    shapes = dataclasses.replace(evaluation.projects[0], linked=sizes, shared=shared)
    return dataclasses.replace(
        evaluation, projects=(*projects, shapes), policy="policy+options", alone=("options", "policy")
    )


@pytest.mark.ci
def test_options_policy_and_both(with_options: Evaluation, tmp_path: Path) -> None:
    lines = report.terminal_table(with_options).splitlines()
    assert max(map(len, lines[:20])) <= 120
    assert lines[0].split()[3:] == ["default", "options", "code", "policy", "code", "both", "code", "objects"]
    # Of 2,000 bytes 90 less, of 1,000 bytes of code 50 less; -50 and +10; -150 and -40.
    changes = [f"{MINUS}4.50%", f"{MINUS}5.00%", f"{MINUS}2.50%", "+1.00%", f"{MINUS}7.50%", f"{MINUS}4.00%"]
    assert lines[2].split()[3:] == ["2,000", *changes, "0.00%"]
    rows = [re.split("  +", line) for line in lines[11:20]]
    assert [row[:3] for row in rows] == [
        [language, name, count]
        for language, count in (("C", "3"), ("C++", "1"), ("all", "4"))
        for name in ("options", "policy", "both")
    ]
    assert rows[2][3:] == [
        f"{MINUS}7.50% (the same in all)",
        f"{MINUS}4.00% (the same in all)",
        "0",
        f"project_0 {MINUS}7.50%",
    ]
    # Only one project: 2,710 bytes instead of 3,000, of which 140 are dynamic.
    (line,) = [line for line in lines if line.startswith("linked as shared libraries: ")]
    assert f": {MINUS}9.67% in the mean of projects, of which {MINUS}4.67% are dynamic symbols" in line
    page = report.write(with_options, tmp_path).read_text()
    Checker().feed(page)
    assert "As shared libraries" in page
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["policy"], summary["evaluated"]) == ("policy", "policy+options")
    (both,) = [each for each in summary["languages"] if (each["language"], each["policy"]) == ("C", "policy+options")]
    # -40, -40 and -70 of 2,000 bytes.
    assert both["contributions"] == pytest.approx({"code": -0.02, "constants": -0.02, "unwind": -0.035, "dynamic": 0})
    assert (both["shared"], both["shared_contributions"]) == (None, {})
    (one,) = [each for each in summary["languages"] if (each["language"], each["policy"]) == ("C++", "options")]
    assert one["text"]["mean"] == {"value": pytest.approx(-0.045), "low": None, "high": None}
    with (tmp_path / "projects.csv").open() as file:
        row = next(csv.DictReader(file))
    assert (row["policy+options_linked_bytes"], row["policy+options_linked_unwind_bytes"]) == ("1850", "430")


def of_eviction(evaluation: Evaluation) -> Evaluation:
    return dataclasses.replace(evaluation, problem=problems.load("regalloc_eviction"))


def test_the_score_table_starts_with_scores(evaluation: Evaluation) -> None:
    table = report.terminal_table(of_eviction(evaluation))
    lines = table.splitlines()
    assert lines[0].split()[:5] == ["project", "language", "modules", "default", "policy"]
    [shapes] = [line for line in lines if line.startswith("shapes")]
    # Scores of 800 and 500 under the default, of 700 and 510 under the policy: -90 of 1,300 in total, and in the mean
    # of -12.5% and +2%. Linked, 1,330 instead of 1,400 bytes.
    fields = shapes.replace(MINUS, "-").split()
    assert fields[2:] == ["2", "1,300", "1,210", "-6.92%", "-5.25%", "-5.00%"]
    assert "weighted spills, reloads and copies" in table
    # -90 of 1,300 and 0 of 500.
    assert f"mean of projects {MINUS}3.46% " in table


def test_the_score_page_lists_the_modules_that_changed_most(evaluation: Evaluation) -> None:
    page = render(of_eviction(evaluation))
    fell, rose = re.findall(r"whose score (?:fell|rose) most</h2>\n(.*?)\n<h2>", page, re.S)
    assert "shapes/a" in fell
    assert "shapes/b" not in fell
    assert "shapes/b" in rose
    assert "shapes/a" not in rose
    assert "The score is " in page
    # A compiler's message is text, not HTML.
    assert "SIGSEGV &lt;&amp;&gt;" in page


def test_the_score_page_without_changes(evaluation: Evaluation) -> None:
    projects = tuple(
        dataclasses.replace(
            project,
            modules=tuple(
                dataclasses.replace(module, outputs=dict.fromkeys(module.outputs, module.outputs["default"]))
                for module in project.modules
            ),
        )
        for project in evaluation.projects
    )
    same = dataclasses.replace(of_eviction(evaluation), projects=projects)
    page = render(same)
    assert "The score is the same as with the compiler&#39;s default" in page
    assert page.count("None.") == 2


def test_facts_of_a_policy_are_text() -> None:
    weights = NetworkWeights.keeping_default("callee_basic_block_count")
    metadata: dict[str, Json] = {"trainings": {"seed-1": {"seed": 1, "compiles": 5120}}, "mean_of": ["a", "b"]}
    metadata["corpus"] = {"num_modules": 2, "targets": {"x86_64-linux": 2}}
    facts = policy_facts(dataclasses.replace(weights, metadata=metadata))
    assert facts == {"Policy: trainings": "seed-1 (seed 1, compiles 5120)", "Policy: mean of": "a, b"} | {
        "Policy: corpus": "num modules 2, targets x86_64-linux 2"
    }


@pytest.mark.ci
def test_wide_tables_scroll_and_keep_their_first_column(evaluation: Evaluation) -> None:
    """No reader without the right edge would know of more columns but by the shadow there."""
    page = render(evaluation)
    assert page.count('<div class="scroll" tabindex="0"') == page.count("<table>") > 4
    assert re.search(r"th:first-child, td:first-child { position: sticky; left: 0; background: var\(--card\)", page)
    assert re.search(
        r"\.scroll, \.command, \.plot { overflow-x: auto; [^}]*var\(--shade\)\) right / 20px 100% no-repeat scroll",
        page,
    )
    assert page.count("--shade: #") == 2  # in light and dark


def test_one_project_has_no_interval_on_the_terminal(evaluation: Evaluation) -> None:
    one = dataclasses.replace(evaluation, projects=evaluation.projects[:1])
    assert f"linked text: {MINUS}5.00% (no interval: one project) together" in report.terminal_table(one)
