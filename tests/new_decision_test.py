"""A decision and an objective of one's own, in a module outside of this package: this one."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pytest

from compiler_opt import Objective, Problem, Reader
from compiler_opt import problem as problems
from compiler_opt.collect.rollout import Rollout
from compiler_opt.collect.schedule import Job
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.decisions import inlining
from compiler_opt.errors import PolicyError
from compiler_opt.llvm.object_file import read_object_sizes
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.policy import ConstantPolicy
from compiler_opt.policies.weights import NetworkWeights
from tests.probed import probed
from tests.small_corpus import make_corpus
from tests.spaces.one_of_three import OneOfThree, OneOfThreePolicy

SLACKS = np.array([-1000, 0, 100])
"""The actions: how much more than LLVM's threshold a call may cost. With the first, nothing is inlined here."""


class Slack(OneOfThree):
    """How much more than LLVM's threshold a call may cost."""

    def policy(
        self, weights: NetworkWeights, *, temperature: float = 0.0, name: str = "policy", origin: str = ""
    ) -> "SlackPolicy":
        return SlackPolicy(weights, temperature=temperature, name=name, origin=origin)


class SlackPolicy(OneOfThreePolicy):
    """Its network chooses the slack; LLVM is told whether the call is inlined with it."""

    def choose(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        limit = features["threshold"].reshape(-1) + SLACKS[super().choose(features)]
        return (features["cost_estimate"].reshape(-1) < limit).astype(np.int64)


def read_functions(object_path: Path, remarks: bytes) -> dict[str, int]:
    """The bytes of each function."""
    del remarks
    return dict(read_object_sizes(object_path).functions)


class LargestFunction(Objective[dict[str, int], int]):
    """The bytes of a module's largest function, in percent of the largest one of its project."""

    score_name = "largest function"
    reader = Reader(read_functions)

    def project_context(self, measurements: Iterable[dict[str, int]], others: Iterable[dict[str, int]] = ()) -> int:
        return max(max(sizes.values()) for sizes in measurements)

    def score(self, measurement: dict[str, int], context: int) -> float:
        return 100 * max(measurement.values()) / context


SLACK = dataclasses.replace(
    inlining.DECISION,
    name="slack",
    feature_names=("callee_basic_block_count", "cost_estimate", "threshold"),
    action_space=Slack(),
)
PROBLEM = Problem(SLACK, LargestFunction(), "small_largest_function")

SOURCE = """
int use(int), flag;
static int twice(int x) { return use(x) + use(x + 1); }
static int loop(int n) { int s = 0; while (n--) s += use(n); return s; }
static int tiny(int x) { return flag + x; }
int few(int x) { return twice(x) + twice(-x) + tiny(x); }
int many(int x) { return loop(x) + loop(2 * x) + (flag ? twice(3 * x) + loop(x - 1) : 0) + few(x) + tiny(x + 7); }
"""


def _weights(kernel: Mapping[tuple[int, int], float], *biases: float) -> NetworkWeights:
    """A network of one layer: the logits of the three actions, from three inputs for each feature."""
    features = SLACK.feature_names
    dense = np.zeros((3 * len(features), 3), np.float32)
    for place, value in kernel.items():
        dense[place] = value
    quantiles = np.array([2.0, 3.0, 4.0])
    return NetworkWeights(features, (quantiles,) * len(features), (dense,), (np.array(biases, np.float32),))


ALWAYS = [_weights({}, *np.eye(3)[action]) for action in range(3)]
"""Networks that always take the same action."""
BY_BLOCKS = _weights({(0, 0): 1.0}, 0.0, -1.0, 0.1)
"""For callees of a single block, whose quantile rank is 0, the last action; for others, the first."""


@pytest.fixture
def toolchain() -> Toolchain:
    return probed("clang-22")


def test_it_is_decided_compiled_and_scored(toolchain: Toolchain, tmp_path: Path) -> None:
    problem = problems.load(f"{__name__}:PROBLEM")
    assert problem is PROBLEM
    corpus = make_corpus(tmp_path, str(toolchain.clang), {"one/calls.c": SOURCE})
    [module] = corpus.modules
    names = ("never", "default", "eager", "by blocks")
    policies = [
        problem.decision.policy(weights, name=name) for name, weights in zip(names, [*ALWAYS, BY_BLOCKS], strict=True)
    ]
    jobs = [Job(module, policy) for policy in (None, ConstantPolicy(0, "refused"), *policies)]
    with WorkerPool(toolchain, problem, num_workers=1) as pool:
        found = {rollout.policy: rollout for _, rollout in pool.rollouts(jobs)}
    assert [rollout.failure for rollout in found.values()] == [None] * len(jobs)

    slack_of = {
        "never": lambda blocks: -1000,
        "default": lambda blocks: 0,
        "eager": lambda blocks: 100,
        "by blocks": lambda blocks: np.where(blocks == 1, 100, -1000),
    }
    told = set()
    for name, slack in slack_of.items():
        advice, features = _decisions(found[name])
        limit = features["threshold"] + slack(features["callee_basic_block_count"])
        assert advice.tolist() == (features["cost_estimate"] < limit).tolist()
        told.add(tuple(advice.tolist()))
    assert len(told) == len(slack_of)

    context = problem.objective.project_context([found["compiler"].measurement])
    scores = {name: problem.score(rollout.measurement, context) for name, rollout in found.items()}
    assert scores["compiler"] == scores["default"] == 100
    assert scores["never"] == scores["refused"] and scores["eager"] > 100


def _decisions(rollout: Rollout[dict[str, int]]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """What LLVM was told in T decisions, `[T]`, and the features of each, `[T]`."""
    trajectory = rollout.trajectory
    assert trajectory is not None
    features = trajectory.header.decode(trajectory.observations)
    return trajectory.advice, {name: features[name].reshape(-1) for name in SLACK.feature_names}


def test_it_has_no_policies_of_the_decision_that_it_is_made_of() -> None:
    two_outputs = dataclasses.replace(BY_BLOCKS, kernels=(np.zeros((9, 2), "f4"),), biases=(np.zeros(2, "f4"),))
    inlining.DECISION.policy(two_outputs)
    with pytest.raises(PolicyError, match="expected a network with 3 outputs, found 2: it is for another problem"):
        SLACK.policy(two_outputs)
