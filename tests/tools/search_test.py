"""The command search with real compilers, from flags to decision files."""

import csv
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from compiler_opt.collect.rollout import DefaultPolicy, rollout
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.decisions.inlining import PROBLEM
from compiler_opt.evaluation.history import load_history
from compiler_opt.llvm.object_file import linked_parts
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.decisions import Advice, Decisions, OverridingPolicy, Site
from compiler_opt.report.formatting import change_text
from compiler_opt.search.compiling import PoolCompiler
from compiler_opt.search.confirmation import confirm
from compiler_opt.search.search import Search, SearchSettings
from tests import programs
from tests.deploy.sources import save_policy
from tests.inlining_networks import never_inline
from tests.small_corpus import make_small_corpus


@pytest.fixture(scope="module")
def corpus(clang_path: str, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_small_corpus(tmp_path_factory.mktemp("corpus"), clang_path)


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def run(corpus: Corpus, clang_path: str, output: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    result = programs.run(
        "compiler_opt.tools.search",
        f"--data_path={corpus.root}",
        f"--clang_path={clang_path}",
        f"--output_dir={output}",
        "--num_workers=2",
        *flags,
    )
    assert result.returncode == 0, result.stderr
    return result


def test_an_interrupted_search_says_how_far_it_was(corpus: Corpus, clang_path: str, tmp_path: Path) -> None:
    flags = (f"--data_path={corpus.root}", f"--clang_path={clang_path}", "--num_workers=2", "--budget=100000")
    with programs.start("compiler_opt.tools.search", *flags, f"--output_dir={tmp_path / 'out'}") as program:
        while not list((tmp_path / "out").glob("*/search_state.json")):
            assert not program.wait(0.1), program.stderr()
        os.kill(program.pid, signal.SIGINT)
        result = program.result(timeout_s=300)
    projects = len(corpus.projects())
    last = result.stderr.splitlines()[-1]
    assert result.returncode == 130
    assert re.fullmatch(rf"interrupted: \d of {projects} programs; the same command resumes", last)


@pytest.mark.slow
def test_decision_files_that_replay_and_a_search_that_goes_on(
    corpus: Corpus, clang_path: str, toolchain: Toolchain, tmp_path: Path
) -> None:
    result = run(corpus, clang_path, tmp_path / "out", "--budget=6")
    assert result.stdout.splitlines()[-1] == f"report: {tmp_path / 'out' / 'report.html'}"
    page = (tmp_path / "out" / "report.html").read_text()
    assert re.search("<h1>Linked text is .* smaller than with plain clang</h1>", page)
    compiles = {}
    for name, modules in corpus.projects().items():
        assert f"{name}: {tmp_path / 'out' / name / 'decisions.json'}" in result.stdout
        assert f"--decisions={tmp_path / 'out' / name / 'decisions.json'}" in page
        decisions = Decisions.load(tmp_path / "out" / name / "decisions.json")
        assert decisions.about["program"] == name
        rows = rows_of(tmp_path / "out" / name / "modules.csv")
        compiles[name] = sum(int(row["compiles"]) for row in rows)
        assert sum(int(row["text_bytes"]) for row in rows) <= sum(int(row["base_text_bytes"]) for row in rows)
        for module, row in zip(modules, rows, strict=True):
            policy = OverridingPolicy(DefaultPolicy(PROBLEM), decisions)
            replayed = rollout(module, policy, PROBLEM, toolchain)
            assert replayed.measurement is not None, replayed.failure
            assert replayed.measurement.text_bytes == int(row["text_bytes"])
    mean, together = load_history(tmp_path / "out").validation
    # Two compiles of each module confirm the result, unless decisions are dropped.
    assert sum(compiles.values()) + 2 * len(corpus.modules) <= mean.compiles[-1] <= 9 * len(corpus.modules)
    assert mean.values[0] == together.values[0] == 0 and mean.values[-1] <= 0
    run(corpus, clang_path, tmp_path / "out", "--budget=12.5")
    for name, before in compiles.items():
        rows = rows_of(tmp_path / "out" / name / "modules.csv")
        assert sum(int(row["compiles"]) for row in rows) > before


@pytest.mark.slow
def test_search_from_a_policy(corpus: Corpus, clang_path: str, toolchain: Toolchain, tmp_path: Path) -> None:
    save_policy(tmp_path / "policy")
    flags = (f"--policy_path={tmp_path / 'policy'}", "--budget=5", "--projects=shapes", "--json")
    result = run(corpus, clang_path, tmp_path / "out", *flags)
    # What it compares with is plain clang, not the policy.
    modules = corpus.projects()["shapes"]
    with WorkerPool(toolchain, PROBLEM, 2) as pool:
        requests: dict[int, dict[Site, Advice]] = {module: {} for module in range(len(modules))}
        PoolCompiler(pool, modules, DefaultPolicy(PROBLEM)).compile(requests, lambda module: tmp_path / f"{module}.o")
    objects = [tmp_path / f"{module}.o" for module in range(len(modules))]
    plain = linked_parts(toolchain.tool("ld.lld"), objects, scratch=tmp_path).total
    assert result.stdout == (tmp_path / "out" / "summary.json").read_text()
    [program] = json.loads(result.stdout)["programs"]
    assert program["linked_bytes"] <= plain == program["plain_linked_bytes"] != program["base_linked_bytes"]
    change = change_text(program["linked_bytes"] / plain - 1)
    assert "plain clang  before search  with search  change" in result.stderr and change in result.stderr
    page = (tmp_path / "out" / "report.html").read_text()
    assert f"<dt>Start</dt><dd>{tmp_path / 'policy'}</dd>" in page and f"<title>Search: {change} linked text" in page
    decisions = Decisions.load(tmp_path / "out" / "shapes" / "decisions.json")
    assert decisions.about["policy"] != "default"


def test_headroom(corpus: Corpus, clang_path: str, tmp_path: Path) -> None:
    result = run(
        corpus, clang_path, tmp_path / "out", "--headroom", "--budgets=3,5", "--modules_per_project=1", "--json"
    )
    rows = rows_of(tmp_path / "out" / "headroom.csv")
    assert [row["project"] for row in rows] == list(corpus.projects())
    assert {row["language"] for row in rows} == {"C", "C++"}
    assert all(row["modules"] == "1" for row in rows)
    assert json.loads(result.stdout) == {"projects": rows}
    assert "compiles a module" in result.stderr


@pytest.mark.ci
def test_decisions_that_make_a_target_larger_are_dropped(corpus: Corpus, toolchain: Toolchain, tmp_path: Path) -> None:
    modules = corpus.modules
    with WorkerPool(toolchain, PROBLEM, 2) as pool:
        compiler = PoolCompiler(pool, modules, DefaultPolicy(PROBLEM))
        found = Search(compiler, len(modules), SearchSettings(budget=2)).run()
        worse = {site: 1 - advice for site, advice in found.base.all_decisions().items()}
        everything = {"all": range(len(modules))}
        lld = toolchain.tool("ld.lld")
        confirmed = confirm(compiler, found, worse, everything, lld, tmp_path)
    assert confirmed.dropped
    assert len(confirmed.decisions) < len(worse)
    assert confirmed.linked_bytes["all"] <= confirmed.base_linked_bytes["all"]


@pytest.mark.slow
def test_no_target_gets_larger_than_by_default(corpus: Corpus, toolchain: Toolchain, tmp_path: Path) -> None:
    """The policy makes each target larger, and nothing was found from it; then the default's decisions are replayed."""
    modules = corpus.modules
    targets = {name: [modules.index(module) for module in members] for name, members in corpus.projects().items()}
    policy = PROBLEM.decision.load_policy(never_inline(tmp_path / "policy"))
    lld = toolchain.tool("ld.lld")
    with WorkerPool(toolchain, PROBLEM, 2) as pool:
        default, compiler = (PoolCompiler(pool, modules, base) for base in (DefaultPolicy(PROBLEM), policy))
        found = Search(compiler, len(modules), SearchSettings(budget=2), other_starts=[default]).run()
        confirmed = confirm(compiler, found, {}, targets, lld, tmp_path)
        default.compile({module: {} for module in range(len(modules))}, lambda module: tmp_path / f"{module}.o")
    for name, members in targets.items():
        by_default = linked_parts(lld, [tmp_path / f"{module}.o" for module in members], scratch=tmp_path).total
        assert confirmed.base_linked_bytes[name] > by_default == confirmed.linked_bytes[name]
    assert confirmed.decisions
