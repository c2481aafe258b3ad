"""When a run resumes, each setting that has changed is logged, and a change of the problem or algorithm is refused."""

import dataclasses
import logging
from pathlib import Path
from typing import Any, cast

import pytest

from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.command_lines.problem_config import ProblemConfig
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.weights import NetworkConfig
from compiler_opt.problems import problem as problems
from compiler_opt.rl.config import TrainingConfig
from compiler_opt.rl.training_context import TrainingContext, describe_settings, log_changed_settings
from tests.small_corpus import make_small_corpus


def test_each_difference_is_a_line(toolchain: Toolchain, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    corpus = make_small_corpus(tmp_path, str(toolchain.clang))
    config = TrainingConfig()
    before = describe_settings("inlining", corpus, toolchain, {"train_eval": config, "network": NetworkConfig()})
    log_changed_settings(Path("run"), before, dict(before))
    assert caplog.records == []
    smaller = dataclasses.replace(corpus, modules=corpus.modules[:-1]).configured(ProblemConfig(("-O2",)))
    other = dataclasses.replace(config, seed=7, num_modules=3)
    now = describe_settings("inlining", smaller, toolchain, {"train_eval": other, "network": NetworkConfig()})
    with caplog.at_level(logging.WARNING):
        log_changed_settings(Path("run"), before, now)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 4
    assert "run: continued with another corpus: was " in messages[0]
    assert "4 modules" in messages[0] and "3 modules" in messages[0]
    assert "run: continued with another train_eval.num_modules: was '16', is '3'" in messages
    assert "run: continued with another train_eval.seed: was '1', is '7'" in messages
    assert "problem_config.flags_to_add: was '()', is \"('-O2',)\"" in messages[3]
    for name, value in (("compile_task", "regalloc_eviction"), ("train_eval.algorithm", "evolution")):
        with pytest.raises(ConfigError, match=f"holds a run whose {name} was .* and is '{value}' now; use that, or"):
            log_changed_settings(Path("run"), before, {**before, name: value})


@pytest.mark.parametrize("clang_path", ["clang-22"], indirect=True)
def test_runs_share_the_baseline(toolchain: Toolchain, tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    corpus = make_small_corpus(tmp_path / "corpus", str(toolchain.clang))
    problem, shared = problems.load("inlining"), tmp_path / "shared"

    def context(name: str, pool: "WorkerPool[Any]", **more: Any) -> TrainingContext:
        settings = {"corpus": corpus, "problem": problem, **more}
        return TrainingContext(
            tmp_path / name,
            settings["corpus"],
            toolchain,
            settings["problem"],
            pool,
            {},
            TrainingConfig(),
            NetworkConfig(),
            baseline_dir=shared,
        )

    with WorkerPool(toolchain, problem, 1) as pool:
        first = context("first", pool).baseline
        fewer = dataclasses.replace(corpus, modules=corpus.modules[:-1])
        assert len(context("fewer", pool, corpus=fewer).baseline.scores) == len(first.scores) - 1
    # Nothing can be compiled any more.
    none = cast(Any, None)
    assert context("second", none).baseline.scores == first.scores
    with pytest.raises(AttributeError):
        context("other", none, problem=problems.load("regalloc_priority")).baseline  # noqa: B018
    assert len(list(shared.iterdir())) == 2 and not (tmp_path / "first").exists()
