"""Inlining scored by what a program that ran would cost: callgrind counts the same, in rollouts and from the shell."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.corpus_programs import ProgramSource
from benchmarks.program_builds import PGO, ProgramBuilds
from compiler_opt.collect.rollout import Rollout, RolloutSettings
from compiler_opt.collect.schedule import Job
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.cost_models import block_costs
from compiler_opt.cost_models.function_costs import CompiledProfile, costs_by_function
from compiler_opt.cost_models.objectives import ProfiledObject, TextAndCost
from compiler_opt.decisions.inlining import DECISION
from compiler_opt.errors import CorpusError
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.objectives.linked_text import weighted_text_bytes
from compiler_opt.policies.policy import ConstantPolicy, Policy
from compiler_opt.problem import Problem
from tests import programs
from tests.cost_models.function_costs_test import block, code_of
from tests.hot_calls import MAIN, WORK
from tests.small_corpus import make_corpus

pytestmark = pytest.mark.parametrize("clang_path", ["clang-22"], indirect=True)
"""Profiles need clang's runtime library, a package that ./run_tests.sh installs for the newest compiler."""

_NEVER, _ALWAYS = ConstantPolicy(0), ConstantPolicy(1)


@pytest.fixture(scope="module")
def builds(toolchain: Toolchain, clang_path: str, tmp_path_factory: pytest.TempPathFactory) -> ProgramBuilds:
    place = tmp_path_factory.mktemp("program")
    (place / "corpus").mkdir()
    make_corpus(place / "corpus", clang_path, {"mine/work.c": WORK}, level="O2")
    (place / "mine_bench.c").write_text(MAIN)
    modules = Corpus.load(str(place / "corpus")).modules
    built = ProgramBuilds(ProgramSource(place / "mine_bench.c"), modules, toolchain, place / "out")
    built.build(PGO)
    return built


@pytest.fixture(scope="module")
def profile(builds: ProgramBuilds, toolchain: Toolchain) -> CompiledProfile:
    return CompiledProfile(builds.folder / "run.profdata", toolchain)


@pytest.fixture(scope="module")
def problem(profile: CompiledProfile, toolchain: Toolchain) -> Problem[ProfiledObject, Any]:
    costs = block_costs.load("instructions", toolchain)
    return Problem(DECISION, TextAndCost(costs, toolchain, profile, text_percent=5.0))


def _rollout(
    problem: Problem[ProfiledObject, Any],
    policy: Policy | None,
    builds: ProgramBuilds,
    toolchain: Toolchain,
    keep: Path | None = None,
) -> Rollout[ProfiledObject]:
    settings = RolloutSettings(record_call_sites=True)
    with WorkerPool(toolchain, problem, num_workers=1) as pool:
        ((_, result),) = pool.rollouts([Job(builds.modules[0], policy, settings=settings, keep_object=keep)])
    assert result.failure is None
    return result


@pytest.mark.ci
@pytest.mark.parametrize("policy", [None, *(pytest.param(each, marks=pytest.mark.slow) for each in (_NEVER, _ALWAYS))])
def test_callgrind_counts_the_same(
    policy: Policy | None,
    builds: ProgramBuilds,
    problem: Problem[ProfiledObject, Any],
    profile: CompiledProfile,
    toolchain: Toolchain,
    tmp_path: Path,
) -> None:
    measured = _rollout(problem, policy, builds, toolchain, tmp_path / "work.o").measurement
    assert measured is not None
    builds.link("trial", [tmp_path / "work.o"])
    ran = {
        function.symbol: counts.instructions
        for function, counts in builds.measure("trial", simulate=False).functions.items()
        if builds.is_own(function.object)
    }
    estimated = costs_by_function(measured.code, block_costs.load("instructions", toolchain), profile)
    for name in ("work", "often", "once", "rarely"):
        assert estimated.get(name, 0) == pytest.approx(ran.get(name, 0), rel=0.02, abs=100), name
    if policy is not None:
        assert (estimated.get("often", 0) > 100_000) == (policy is _NEVER)


@pytest.mark.ci
def test_what_runs_often_may_take_more_bytes(
    builds: ProgramBuilds, problem: Problem[ProfiledObject, Any], profile: CompiledProfile, toolchain: Toolchain
) -> None:
    never, always = (_rollout(problem, policy, builds, toolchain) for policy in (_NEVER, _ALWAYS))
    assert never.measurement is not None and always.measurement is not None
    text = weighted_text_bytes(never.measurement.sizes, {})
    assert always.measurement.sizes.text_bytes > 2 * text
    context = problem.objective.project_context([never.measurement])
    assert problem.score(never.measurement, context) == pytest.approx(6 * text, abs=10), "5% a percent, and the text"
    assert problem.score(always.measurement, context) > problem.score(never.measurement, context)
    # Three percent of the cost are not worth that much text, unless text is cheap.
    costs = block_costs.load("instructions", toolchain)
    problem = Problem(DECISION, TextAndCost(costs, toolchain, profile, text_percent=100.0))
    context = problem.objective.project_context([never.measurement])
    assert problem.score(always.measurement, context) < problem.score(never.measurement, context)

    assert never.trajectory is not None and always.trajectory is not None
    sites = [each.trajectory.sites for each in (never, always) if each.trajectory is not None]
    assert all(isinstance(each, CallSites) for each in sites)
    group = [never.measurement, always.measurement]
    (_, credit) = problem.credit(group, sites, context) or []  # type: ignore[arg-type]
    inlined = sites[1]
    assert isinstance(inlined, CallSites)
    names = np.array(inlined.functions)
    hot = (names[inlined.callers] == "work") & (names[inlined.callees] == "often")
    cold = names[inlined.callees] == "once"
    assert credit[hot].min() > 0 > credit[cold].max()


def test_copies_share_cost_and_text(
    builds: ProgramBuilds, problem: Problem[ProfiledObject, Any], toolchain: Toolchain
) -> None:
    measured = _rollout(problem, None, builds, toolchain).measurement
    assert measured is not None
    context = problem.objective.project_context([measured])
    assert problem.objective.with_copies(context, {"group": 2.0})["copies"] == {"group": 2.0}
    assert problem.objective.with_copies(context, {})["bytes_per_cost"] == context["bytes_per_cost"] > 0
    assert list(problem.objective.shared_parts(measured)) == []
    assert json.loads(json.dumps(context)) == context
    elsewhere = dataclasses.replace(measured.code, calls=np.zeros_like(measured.code.calls))
    with pytest.raises(CorpusError, match=r"run.profdata: expected functions of each project that ran, found none"):
        problem.objective.project_context([dataclasses.replace(measured, code=elsewhere)])


def test_a_loop_that_never_ends_counts_once_for_each_call(profile: CompiledProfile) -> None:
    code = code_of([block("f", 0, 0), block("f", 1, 0, 1e9), block("g", 0, 0), block("g", 1, 0, 3.0)], calls=[8, 50])
    counts, _ = profile.executions(code)
    assert counts.tolist() == [8, 8, 50, 150]


def test_files_that_are_no_profile(builds: ProgramBuilds, toolchain: Toolchain, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no profile\n")
    damaged = tmp_path / "damaged"
    damaged.write_bytes((builds.folder / "run.profdata").read_bytes()[:100])
    for path in (tmp_path / "text", damaged, tmp_path / "missing"):
        with pytest.raises(CorpusError, match=path.name):
            CompiledProfile(path, toolchain)


@pytest.mark.slow
def test_training_and_evaluation(builds: ProgramBuilds, toolchain: Toolchain, tmp_path: Path) -> None:
    corpus = builds.folder.parent / "corpus"
    cost = ("--cost_model=instructions", f"--profdata={builds.folder / 'run.profdata'}")

    def run(program: str, *flags: str, status: int = 0) -> str:
        given = (f"--data_path={corpus}", f"--clang_path={toolchain.clang}", "--num_workers=1")
        result = programs.run(program, *given, *flags)
        assert result.returncode == status, result.stderr
        return result.stderr if status else result.stdout

    training = (
        "compiler_opt/rl/train_locally.py",
        f"--output_dir={tmp_path / 'training'}",
        "--vocab_path=compiler_opt/rl/inlining/vocab",
        "--gin_files=gin_configs/inlining/ppo_nn_agent.gin",
        "--gin_bindings=train_eval.num_iterations=2",
        "--gin_bindings=train_eval.num_modules=1",
    )
    run(*training, *cost)
    baseline = json.loads((tmp_path / "training" / "baseline.json").read_text())
    assert baseline["key"]["objective"].startswith("instructions, profile ")
    table = run(
        "compiler_opt/tools/evaluate.py",
        f"--policy_path={tmp_path / 'training' / 'policy'}",
        f"--output_dir={tmp_path / 'evaluation'}",
        "--baselines=never",
        *cost,
    )
    assert "text and cost by instructions" in table
    assert "so it needs --profdata" in run(*training, cost[0], status=2)
    assert "--profdata: says how often blocks count for a cost model" in run(*training, cost[1], status=2)
