"""A cost model of blocks of one's own scores policies, as `docs/cost_models_reward.md` says."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.collect.rollout import rollout
from compiler_opt.corpus.module import Module
from compiler_opt.cost_models import block_costs
from compiler_opt.cost_models.block_costs import BlockCosts
from compiler_opt.cost_models.function_costs import ObjectCode
from compiler_opt.cost_models.objectives import BlockCost
from compiler_opt.decisions.regalloc_eviction import DECISION, PROBLEM
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.policy import Policy
from compiler_opt.problem import Problem
from tests import programs
from tests.probed import probed
from tests.regalloc_networks import random_network
from tests.small_corpus import make_busy_corpus

[OWN] = re.findall(r"```python\n(.*?)```", (programs.ROOT / "docs/cost_models_reward.md").read_text(), re.S)
"""In which each byte of code costs one."""


@pytest.fixture
def toolchain() -> Toolchain:
    return probed("clang-22")


def _cost(module: Module, policy: Policy | None, problem: Problem[ObjectCode, None], toolchain: Toolchain) -> float:
    """The bytes of each block, as often as it runs in one call of its function; by hand."""
    code = rollout(module, policy, problem, toolchain).measurement
    assert code is not None
    return math.fsum(len(block) * times for block, times in zip(code.codes, code.frequencies.tolist(), strict=True))


@pytest.mark.ci
def test_the_command_takes_it_by_module_and_name(toolchain: Toolchain, tmp_path: Path) -> None:
    (tmp_path / "my_costs.py").write_text(OWN)
    (tmp_path / "corpus").mkdir()
    corpus = make_busy_corpus(tmp_path / "corpus", str(toolchain.clang))
    random_network(PROBLEM, corpus, toolchain, tmp_path, seed=0).save(tmp_path / "policy")
    result = programs.run(
        "compiler_opt.tools.evaluate",
        "--compile_task=regalloc_eviction",
        "--cost_model=my_costs:COSTS",
        f"--policy_path={tmp_path / 'policy'}",
        "--baselines=most_expensive",
        f"--data_path={corpus.root}",
        f"--clang_path={toolchain.clang}",
        f"--output_dir={tmp_path / 'report'}",
        "--num_workers=1",
        environment={"PYTHONPATH": f"{programs.ROOT}:{tmp_path}"},
    )
    assert result.returncode == 0, result.stderr
    assert "cost by bytes of code" in result.stdout
    summary = json.loads((tmp_path / "report/summary.json").read_text())
    assert [project["project"] for project in summary["projects"]] == ["loops", "mixed"]
    problem = Problem(DECISION, BlockCost(block_costs.load("instructions", toolchain), toolchain))
    for project in summary["projects"]:
        before, after = (
            math.fsum(_cost(module, policy, problem, toolchain) for module in corpus.projects()[project["project"]])
            for policy in (None, DECISION.action_space.baselines()["most_expensive"])
        )
        assert after != before
        assert project["policies"]["most_expensive"]["score_change"] == pytest.approx(after / before - 1)


COSTS = BlockCosts("nothing", lambda blocks: np.zeros(len(blocks)))


def test_what_is_no_cost_model(toolchain: Toolchain) -> None:
    assert block_costs.load(f"{__name__}:COSTS", toolchain) is COSTS
    for name, message in (
        ("no.such.module:COSTS", "no.such.module:COSTS: cannot be imported (No module named 'no'); expected one of"),
        ("json:COSTS", "json:COSTS: cannot be imported"),
        ("json:dumps", "json:dumps: expected an instance of BlockCosts, found function"),
    ):
        with pytest.raises(ConfigError) as caught:
            block_costs.load(name, toolchain)
        assert f"--cost_model: {message}" in str(caught.value)
