"""Compares the inliner plugin's feature values with those of LLVM's own advisor, over a corpus.

Compiles each module with the plugin, which logs its observations, and over the channel with the same decisions: first
with the compiler's own decisions, then with random ones, which lead to code that no heuristic makes. Every value of
every feature is compared; a mismatch is listed and makes the exit status 1. All given compilers must be able to read
the corpus.
"""

import concurrent.futures
import dataclasses
import functools

import numpy as np
from absl import flags

from compiler_opt.collect.rollout import DefaultPolicy, RolloutSettings, rollout
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.decisions.inlining import PROBLEM
from compiler_opt.errors import ProtocolError
from compiler_opt.llvm.inliner_plugin import inliner_plugin
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.policies.policy import Policy, ReplayPolicy
from compiler_opt.policies.weights import TRANSFORMS, NetworkWeights
from compiler_opt.progress_bar import progress_bar
from compiler_opt.spaces.binary import BinaryPolicy
from compiler_opt.tools import entry_point, shared_flags

_DATA_PATH = flags.DEFINE_string("data_path", None, "The corpus.", required=True)
_CLANG_PATHS = flags.DEFINE_list("clang_paths", "clang-19,clang-22", "The compilers, separated by commas.")
_NUM_MODULES = flags.DEFINE_integer("num_modules", 300, "Modules to sample.", 1)
_NUM_WORKERS = shared_flags.num_workers()
_SEED = shared_flags.seed("the sample of modules, and of the random decisions", 1)


@dataclasses.dataclass(frozen=True)
class Mismatch:
    """The values of one decision from the plugin and from the channel."""

    module: str
    policy: str
    decision: int
    feature: str
    plugin: int
    channel: int


@dataclasses.dataclass(frozen=True)
class Compared:
    """Results of compilations: decisions, compared values, and mismatches."""

    decisions: int
    values: int
    mismatches: tuple[Mismatch, ...]
    failures: tuple[str, ...]


def coin() -> BinaryPolicy:
    """Decides at random with equal probability; a network, because the plugin runs networks."""
    width, names = 8, PROBLEM.decision.feature_names
    kernels = (np.zeros((len(TRANSFORMS) * len(names), width), "f4"), np.zeros((width, 2), "f4"))
    biases = (np.zeros(width, "f4"), np.zeros(2, "f4"))
    return BinaryPolicy(NetworkWeights(names, tuple(np.ones(1) for _ in names), kernels, biases), temperature=1.0)


def compare(module: Module, policy: Policy, toolchain: Toolchain, seed: int) -> Compared:
    """Compiles a module in both ways.

    Args:
      module: to compile.
      policy: who decides, within the compiler.
      toolchain: the compiler.
      seed: for a policy that samples.
    """
    where = f"{module.name}, {policy.name}"
    with scratch_directory() as scratch:

        def compiled(by: Policy, backend: str) -> tuple[str | None, dict[str, np.ndarray]]:
            settings = RolloutSettings(backend=backend)
            found = rollout(module, by, PROBLEM, toolchain, scratch=scratch, seed=seed, settings=settings)
            trajectory = found.trajectory
            values = {} if trajectory is None else {**trajectory.features(), "": trajectory.advice}
            return found.failure, values

        failure, ours = compiled(policy, "plugin")
        if failure or not ours:
            return Compared(0, 0, (), (f"{where}: {failure}",) if failure else ())
        advice = ours.pop("").reshape(-1)
        try:
            failure, theirs = compiled(ReplayPolicy(advice), "channel")
        except ProtocolError as error:
            failure, theirs = str(error), {}
    if failure or len(theirs.get("", ())) != len(advice):
        return Compared(len(advice), 0, (), (f"{where}: {failure or 'the channel asks for fewer decisions'}",))
    names = [spec.name for spec in toolchain.problems[PROBLEM.name].features]
    mismatches = [
        Mismatch(module.name, policy.name, int(index), name, int(ours[name].reshape(-1)[index]), int(column[index]))
        for name in names
        for column in [theirs[name].reshape(-1)]
        for index in np.flatnonzero(ours[name].reshape(-1) != column)
    ]
    return Compared(len(advice), len(advice) * len(names), tuple(mismatches), ())


@entry_point.command
def entry() -> int:
    corpus, failed = Corpus.load(_DATA_PATH.value), False
    order = np.random.default_rng(_SEED.value).permutation(len(corpus.modules))[: _NUM_MODULES.value]
    modules = [corpus.modules[index] for index in order]
    for clang in _CLANG_PATHS.value:
        toolchain = probe(clang)
        corpus.check_compiler(toolchain.version, toolchain.clang)
        inliner_plugin(toolchain)
        jobs = [(module, policy) for module in modules for policy in (DefaultPolicy(PROBLEM), coin())]
        with concurrent.futures.ThreadPoolExecutor(entry_point.num_workers(_NUM_WORKERS.value)) as pool:
            results = pool.map(functools.partial(_compared, toolchain), jobs)
            compared = list(progress_bar(results, total=len(jobs), unit="compilation"))
        failed |= _report(toolchain, len(modules), compared)
    return int(failed)


def _compared(toolchain: Toolchain, job: tuple[Module, Policy]) -> Compared:
    return compare(*job, toolchain, _SEED.value)


def _report(toolchain: Toolchain, num_modules: int, compared: list[Compared]) -> bool:
    """Prints the results; returns whether there was a mismatch or a failure."""
    mismatches = [mismatch for found in compared for mismatch in found.mismatches]
    failures = [failure for found in compared for failure in found.failures]
    decisions, values = sum(found.decisions for found in compared), sum(found.values for found in compared)
    print(toolchain.version_text)
    print(f"  {num_modules} modules, {decisions:,} decisions, {values:,} values: {len(mismatches)} mismatches")
    for each in mismatches:
        print(
            f"  {each.module}, {each.policy}, decision {each.decision}: {each.feature}: plugin {each.plugin}, ", end=""
        )
        print(f"channel {each.channel}")
    for failure in failures:
        print(f"  failed: {failure}")
    return bool(mismatches or failures)


if __name__ == "__main__":
    entry()
