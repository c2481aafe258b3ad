"""Decisions are counted as rollouts meet them, once."""

from pathlib import Path

from compiler_opt.collect.decision_counts import cached_decision_counts, count_decisions
from compiler_opt.collect.rollout import DefaultPolicy, rollout
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.files import read_checked_json, write_checked_json
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.problems import problem as problems
from compiler_opt.problems.inlining import PROBLEM as INLINING_PROBLEM
from tests.small_corpus import make_small_corpus


def test_counts(toolchain: Toolchain, tmp_path: Path) -> None:
    problem = problems.load("inlining")
    (tmp_path / "corpus").mkdir()
    modules = make_small_corpus(tmp_path / "corpus", str(toolchain.clang)).modules
    expected = {}
    for module in modules:
        trajectory = rollout(module, DefaultPolicy(problem), problem, toolchain, scratch=tmp_path).trajectory
        expected[module.name] = 0 if trajectory is None else len(trajectory)
    assert expected["plain/data.c.o"] == 0
    assert sum(expected.values()) > 5
    path = tmp_path / "decisions.json"
    with WorkerPool(toolchain, INLINING_PROBLEM, 1) as pool:
        assert cached_decision_counts(path, {"corpus": "x"}, modules, pool, problem) == expected
        # The same again is read; for another key, or when a module fails, it is counted.
        write_checked_json(path, {**read_checked_json(path), "counts": {"read": 1}})
        assert cached_decision_counts(path, {"corpus": "x"}, modules, pool, problem) == {"read": 1}
        modules[0].command_path.write_bytes(b"-cc1\0-load\0x.so\0")
        del expected[modules[0].name]
        assert cached_decision_counts(path, {"corpus": "y"}, modules, pool, problem) == expected
        counted = count_decisions(modules, pool, problem)
    assert counted.counts == expected
    [(failed, reason)] = counted.failures.items()
    assert failed == modules[0].name and "'-load'" in reason
