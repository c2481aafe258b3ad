"""Register allocation scored by a cost model: in rollouts, and from the command line."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.collect.rollout import Rollout
from compiler_opt.collect.schedule import Job
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.cost_models import block_costs
from compiler_opt.cost_models.function_costs import BlockProfile, ObjectCode
from compiler_opt.cost_models.objectives import BlockCost
from compiler_opt.cost_models.throughput.blocks import Block, save_blocks
from compiler_opt.decisions import inlining
from compiler_opt.decisions.regalloc_eviction import DECISION, PROBLEM
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.elf import ElfFile
from compiler_opt.llvm.interactive import FunctionOfDecisions
from compiler_opt.llvm.object_comparison import compare
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.policy import Policy
from compiler_opt.problem import AnyProblem, Problem
from tests import programs
from tests.small_corpus import make_busy_corpus

WORST = DECISION.action_space.baselines()["most_expensive"]
MODULE = "loops/called.c"


@pytest.fixture(scope="module")
def corpus(clang_path: str, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_busy_corpus(tmp_path_factory.mktemp("corpus"), clang_path)


def _rollout(
    problem: AnyProblem, policy: Policy | None, corpus: Corpus, toolchain: Toolchain, keep: Path | None = None
) -> Rollout[ObjectCode]:
    (module,) = (module for module in corpus.modules if module.name.startswith(MODULE))
    with WorkerPool(toolchain, problem, num_workers=1) as pool:
        ((_, result),) = pool.rollouts([Job(module, policy, keep_object=keep)])
    assert result.failure is None
    return result


@pytest.mark.ci
def test_each_function_has_a_cost(corpus: Corpus, toolchain: Toolchain) -> None:
    objective = BlockCost(block_costs.load("instructions", toolchain), toolchain)
    problem = Problem(DECISION, objective)
    assert (problem.name, objective.score_name) == ("regalloc_eviction", "cost by instructions")
    plain, worst = (_rollout(problem, policy, corpus, toolchain) for policy in (None, WORST))
    assert plain.measurement is not None and worst.measurement is not None and worst.trajectory is not None
    before, after = (objective.by_function(each, None) for each in (plain.measurement, worst.measurement))
    assert set(before) == set(after) == {"called", "again"}
    assert problem.score(plain.measurement, None) == math.fsum(before.values()) > 0
    # It costs instructions in the loop, which the compiler takes to run 32 times.
    assert after["called"] > before["called"] + 30
    sites = worst.trajectory.sites
    assert isinstance(sites, FunctionOfDecisions)
    _, credit = problem.credit([plain.measurement, worst.measurement], [sites, sites], None) or []
    of_called = np.array(sites.functions)[sites.indices] == "called"
    assert of_called.any() and credit[of_called] == pytest.approx((before["called"] - after["called"]) / 2)


def test_only_what_ran_counts_with_a_profile(corpus: Corpus, toolchain: Toolchain) -> None:
    costs = block_costs.load("RegAllocScore", toolchain)
    estimated = BlockCost(costs, toolchain)
    plain = _rollout(Problem(DECISION, estimated), None, corpus, toolchain).measurement
    assert plain is not None
    per_call = estimated.by_function(plain, None)
    called = plain.functions.index("called")
    ran = [
        Block(code, "program", "called", block_id, frequency, 5 * frequency)
        for code, number, block_id, frequency in zip(
            plain.codes, plain.numbers.tolist(), plain.block_ids.tolist(), plain.frequencies.tolist(), strict=True
        )
        if number == called
    ]
    objective = BlockCost(costs, toolchain, BlockProfile(ran, "a run"))
    assert objective.score_name == "cost by RegAllocScore, of what ran"
    assert objective.identity == "RegAllocScore, executions of a run"
    assert objective.by_function(plain, None) == pytest.approx({"called": 5 * per_call["called"], "again": 0})


def test_the_code_stays_the_same(corpus: Corpus, toolchain: Toolchain, tmp_path: Path) -> None:
    problem = Problem(DECISION, BlockCost(block_costs.load("instructions", toolchain), toolchain))
    _rollout(PROBLEM, None, corpus, toolchain, tmp_path / "plain.o")
    _rollout(problem, None, corpus, toolchain, tmp_path / "with_map.o")
    plain, with_map = (ElfFile.read(tmp_path / name) for name in ("plain.o", "with_map.o"))
    differing = {each.section for each in compare(plain, with_map)}
    assert not any(name.startswith((".text", ".data", ".rodata")) for name in differing)


def test_other_problems_are_refused(toolchain: Toolchain) -> None:
    costs = block_costs.load("instructions", toolchain)
    with pytest.raises(
        ConfigError,
        match=r"inlining moves code between functions, so it needs an objective .* found cost by instructions",
    ):
        Problem(inlining.DECISION, BlockCost(costs, toolchain))


@pytest.mark.slow
@pytest.mark.parametrize("clang_path", ["clang-22"], indirect=True)
def test_training_and_evaluation(corpus: Corpus, toolchain: Toolchain, tmp_path: Path) -> None:
    given = [
        "--compile_task=regalloc_eviction",
        f"--data_path={corpus.root}",
        f"--clang_path={toolchain.clang}",
        "--num_workers=2",
    ]

    def run(program: str, *flags: str, status: int = 0) -> str:
        result = programs.run(program, *given, *flags)
        assert result.returncode == status, result.stderr
        return result.stderr if status else result.stdout

    def train(*flags: str, status: int = 0) -> str:
        bindings = ("train_eval.num_iterations=1", "train_eval.num_modules=4", "es.cloning_epochs=2")
        return run(
            "compiler_opt/rl/train_locally.py",
            f"--output_dir={tmp_path / 'training'}",
            "--vocab_path=compiler_opt/rl/regalloc/vocab",
            "--gin_files=gin_configs/regalloc_eviction/es_of_a_rule_nn_agent.gin",
            *(f"--gin_bindings={binding}" for binding in bindings),
            *flags,
            status=status,
        )

    train("--cost_model=llvm-mca")
    history = [json.loads(line) for line in (tmp_path / "training" / "history.jsonl").read_text().splitlines()]
    assert [entry["failures"] for entry in history] == [0]
    baseline = json.loads((tmp_path / "training" / "baseline.json").read_text())
    assert baseline["key"]["objective"].startswith("llvm-mca 22.")
    metadata = json.loads((tmp_path / "training" / "policy" / "model_card.json").read_text())
    assert "llvm-mca 22." in json.dumps(metadata)
    table = run(
        "compiler_opt/tools/evaluate.py",
        f"--policy_path={tmp_path / 'training' / 'policy'}",
        f"--output_dir={tmp_path / 'evaluation'}",
        "--baselines=",
        "--cost_model=instructions",
    )
    assert "cost by instructions" in table

    save_blocks(tmp_path / "blocks.npz", [Block(b"\x90", "m", "f", 0, 1.0, 1.0)])
    profile = f"--block_profile={tmp_path / 'blocks.npz'}"
    assert "--block_profile: says how often blocks count for a cost model, found none" in train(profile, status=2)
    compiled = f"--profdata={tmp_path / 'blocks.npz'}"
    assert "--profdata: is for inlining, found regalloc_eviction" in train(compiled, "--cost_model=llvm-mca", status=2)
    assert "--cost_model: expected one of instructions, RegAllocScore, llvm-mca, the folder" in train(
        "--cost_model=cycles", status=2
    )
