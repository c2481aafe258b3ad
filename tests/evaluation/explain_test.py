"""Two builds of a corpus compared: real compilations, their call sites and sizes, and what single decisions change."""

import csv
import json
from pathlib import Path

import pytest

from compiler_opt import problem as problems
from compiler_opt.collect.rollout import DefaultPolicy
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.evaluation import explain_report
from compiler_opt.evaluation.explain import ExplainSettings, Explanation, explain
from compiler_opt.evaluation.results import PARTS
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.policy import ConstantPolicy
from tests.inlining_networks import never_inline
from tests.small_corpus import make_corpus, make_small_corpus

PROBLEM = problems.load("inlining")
SOURCE = "static int f(int x) { return x; }\nint g(int x) { return f(x); }\n"


@pytest.fixture(scope="module")
def explanation(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Explanation:
    """Inlining nothing, against the default; the two largest decisions are measured."""
    folder = tmp_path_factory.mktemp("explained")
    (folder / "corpus").mkdir()
    corpus = make_small_corpus(folder / "corpus", str(toolchain.clang))
    policy = PROBLEM.decision.load_policy(never_inline(folder / "policy"))
    settings = ExplainSettings(num_workers=1, num_verified=2)
    return explain(corpus, DefaultPolicy(PROBLEM), policy, problem=PROBLEM, toolchain=toolchain, settings=settings)


@pytest.mark.ci
def test_the_decisions_that_make_it_bigger(explanation: Explanation) -> None:
    assert explanation.policies == ("default", "policy") and not explanation.failures
    for project in explanation.projects:
        assert project.linked is not None
        added = project.linked[1] - project.linked[0]
        assert added.code > 0
        found = project.attribution
        attributed = sum(decision.change for decision in found.decisions) + found.unattributed_bytes
        assert abs(attributed - found.change) < 1e-6
        assert all((decision.first, decision.second) == (True, False) for decision in found.decisions)
        # Nothing is inlined, so nothing but functions and their unwind tables grows.
        assert round(found.change) == added.total == added.code + added.unwind
    project_name, largest = explanation.decisions()[0]
    assert project_name == "shapes"
    assert explanation.name(largest.site.callee).startswith("int clamp<int>")
    assert explanation.name(largest.site.caller).startswith("int sum<int>")
    assert largest.modules == ("shapes/area.cpp.o", "shapes/edge.cpp.o")  # both emit `sum`
    # Alone, it does not remove `clamp`, which is still called elsewhere, but the loop of `sum` shrinks.
    assert largest.linked is not None and 0 < largest.linked.code <= largest.linked.total < largest.change
    measured = [decision.linked is not None for _, decision in explanation.decisions()]
    assert measured == [True, True, *[False] * (len(measured) - 2)]


def test_reports(explanation: Explanation, tmp_path: Path) -> None:
    page = explain_report.write(explanation, tmp_path).read_text()
    assert "int clamp&lt;int&gt;" in page and "int clamp<int>" not in page and "measured" in page
    rows = list(csv.DictReader((tmp_path / "decisions.csv").read_text().splitlines()))
    assert len(rows) == len(explanation.decisions()) and rows[0]["first"] == "inlined" and rows[0]["second"] == "kept"
    parts = [int(rows[0][f"linked_{part}_bytes"]) for part in PARTS]
    assert sum(parts) == int(rows[0]["linked_bytes"]) > 0 and rows[-1]["linked_code_bytes"] == ""
    functions = list(csv.DictReader((tmp_path / "functions.csv").read_text().splitlines()))
    assert {"value_of", "_Z5clampIiET_S0_S0_S0_"} <= {row["symbol"] for row in functions}
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [project["project"] for project in summary["projects"]] == ["shapes", "plain"]
    for project in summary["projects"]:
        linked = [project["linked_parts"][policy] for policy in explanation.policies]
        assert [sum(parts[part] for part in PARTS) for parts in linked] == project["linked_bytes"]
    text = explain_report.terminal_text(explanation)
    head = text.splitlines()[0].split()
    assert head[head.index("change") + 1 :][:4] == ["code", "constants", "unwind", "dynamic"]
    assert "value_of into both (call 2)" in text and "inlined -> kept" in text


@pytest.mark.ci
def test_a_module_that_fails_is_left_out(toolchain: Toolchain, tmp_path: Path) -> None:
    sources = {"p/a.c": SOURCE, "p/b.c": SOURCE.replace("g", "h"), "p/c.c": "int i;"}
    corpus = make_corpus(tmp_path, str(toolchain.clang), sources)
    path = tmp_path / "p" / "c.c.o.cmd"
    path.write_bytes(path.read_bytes().replace(b"-Oz\0", b"-Oz\0-mnonsense\0"))
    policy = PROBLEM.decision.load_policy(never_inline(tmp_path / "policy"))
    trusted = Corpus.load(corpus.root, trusted=True)
    settings = ExplainSettings(num_workers=1)
    found = explain(trusted, DefaultPolicy(PROBLEM), policy, problem=PROBLEM, toolchain=toolchain, settings=settings)
    [project] = found.projects
    assert project.num_modules == 2 and list(found.failures) == ["p/c.c.o"]
    assert "failed: p/c.c.o: " in explain_report.terminal_text(found)


def test_policies_that_cannot_be_explained(toolchain: Toolchain, tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, str(toolchain.clang), {"p/a.c": SOURCE})
    never = ConstantPolicy(0, name="never")
    with pytest.raises(PolicyError, match="'never' cannot decide within the compiler"):
        explain(corpus, DefaultPolicy(PROBLEM), never, problem=PROBLEM, toolchain=toolchain)
    with pytest.raises(ConfigError, match="expected policies of different names, found 'never' twice"):
        explain(corpus, never, never, problem=PROBLEM, toolchain=toolchain)
