"""Measures how much of a total score evictions can change: the hottest modules of a corpus under many rules.

The few hottest functions dominate a total, and most of their score may be what no eviction changes: copies into the
registers that calls need. The hottest modules are therefore compiled under the compiler's own rule and under many of
the family that evolution searches (problems/regalloc_eviction/rules.py), sampled around it and, if a policy is
given, around the policy's rule. Choosing the best of them for each module in hindsight saves more than any single
policy will, which shows whether a total is worth training for. This is a large sample, not a bound.
"""

from collections import defaultdict
from pathlib import Path

import numpy as np
from absl import flags

from compiler_opt.collect.compilation import Compilation
from compiler_opt.collect.rollout import RolloutSettings
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.errors import CompilerOptError, ConfigError, CorpusError
from compiler_opt.llvm.remarks import RegallocCosts, parse_costs
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.policies.rule import RULE, Rule, RulePolicy
from compiler_opt.problems import problem as problems
from compiler_opt.problems.problem import Problem
from compiler_opt.problems.regalloc import function_scores
from compiler_opt.progress_bar import progress_bar
from compiler_opt.tools import entry_point, shared_flags

_DATA_PATH = flags.DEFINE_string("data_path", None, "Corpus at -O2, such as fetch_corpus makes.", required=True)
_POLICY_PATH = flags.DEFINE_string("policy_path", None, "Policy by evolution; also samples around its rule.")
_CLANG_PATH = shared_flags.clang_path()
_NUM_MODULES = flags.DEFINE_integer("num_modules", 20, "The hottest modules.", 1)
_NUM_RULES = flags.DEFINE_integer("num_rules", 48, "Rules to sample.", 1)
_NUM_WORKERS = shared_flags.num_workers()
_SEED = shared_flags.seed("the sampled rules", 5)

_PROBLEM = "regalloc_eviction"
_SETTINGS = RolloutSettings(timeout_s=300.0)


@entry_point.command
def entry() -> None:
    corpus, toolchain, problem = Corpus.load(_DATA_PATH.value), probe(_CLANG_PATH.value), problems.load(_PROBLEM)
    corpus.check_compiler(toolchain.version, toolchain.clang)
    assert problem.rule is not None
    rules = _draw(problem.rule)
    modules = {module.name: module for module in corpus.modules}
    num_workers = entry_point.num_workers(_NUM_WORKERS.value)
    with WorkerPool(toolchain, problem, num_workers=num_workers) as pool:
        plain = _scores(pool, problem, [Job(module, None, settings=_SETTINGS) for module in modules.values()])
        levels = {name: scores[0] for name, scores in plain.items()}
        total = sum(levels.values())
        if not total:
            raise CorpusError(f"{_DATA_PATH.value}: nothing in it spills, reloads or copies, so nothing can be saved")
        hottest = sorted(levels, key=lambda name: -levels[name])[: _NUM_MODULES.value]
        jobs = [Job(modules[name], rule, settings=_SETTINGS) for name in hottest for rule in rules]
        sampled = _scores(pool, problem, jobs)
    print(f"{'share of total':>14} {'of it copies':>12} {'best rule':>9} {'median':>8}  module")
    saved = 0.0
    for name in hottest:
        level = levels[name]
        changes = np.array(sampled.get(name, [level])) / level - 1
        saved += max(0.0, -changes.min()) * level
        copies = _share_of_copies(modules[name], problem, toolchain)
        print(f"{level / total:>14.1%} {copies:>12.1%} {changes.min():>+9.2%} {np.median(changes):>+8.2%}  {name}")
    seen = sum(levels[name] for name in hottest)
    print(f"the best of {len(rules)} rules for each of these {len(hottest)} modules, chosen afterwards:")
    print(f"  {-saved / total:+.2%} of the total of {len(levels)} modules, of which they are {seen / total:.1%}")
    print(f"  {toolchain.version_text}; seed {_SEED.value}")


def _draw(rule: Rule) -> list[RulePolicy]:
    start = found = rule.start()
    if _POLICY_PATH.value is not None:
        weights = problems.load(_PROBLEM).load_policy(Path(_POLICY_PATH.value)).weights
        if RULE not in weights.metadata:
            raise ConfigError(
                f"--policy_path={_POLICY_PATH.value}: expected a policy by evolution, found no rule in it"
            )
        found = rule.values(weights.metadata[RULE])
    rng = np.random.default_rng(_SEED.value)
    sampled = []
    for between in rng.uniform(0, 1, _NUM_RULES.value):
        centre = start + between * (found - start)
        sampled.append(RulePolicy(rule, centre + rule.scale() * rng.standard_normal(len(start))))
    return sampled


def _scores(pool: WorkerPool, problem: Problem, jobs: list[Job]) -> dict[str, list[float]]:
    """By module, without failures."""
    scores: dict[str, list[float]] = defaultdict(list)
    for job, result in progress_bar(pool.rollouts(jobs), total=len(jobs), unit="compile"):
        if result.failure is None:
            scores[job.module.name].append(problem.score(result.measurement, None))
    return scores


def _share_of_copies(module: Module, problem: Problem, toolchain: Toolchain) -> float:
    with scratch_directory() as scratch:
        compilation = Compilation(module, problem, toolchain, scratch, 0, _SETTINGS)
        try:
            compilation.compile([])
        except CompilerOptError:
            return float("nan")
        costs = parse_costs(compilation.measured_remarks())
    copies = {name: RegallocCosts(copies=cost.copies) for name, cost in costs.items()}
    return sum(function_scores(copies).values()) / sum(function_scores(costs).values())


if __name__ == "__main__":
    entry()
