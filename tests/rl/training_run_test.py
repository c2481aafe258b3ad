"""When a run resumes, each setting that has changed is logged, and a change of the problem or algorithm is refused."""

import dataclasses
import logging
from pathlib import Path

import pytest

from compiler_opt.corpus.command_lines.problem_config import ProblemConfig
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.weights import NetworkConfig
from compiler_opt.problem import load
from compiler_opt.rl.config import TrainingConfig
from compiler_opt.rl.training_run import describe_settings, log_changed_settings
from tests.small_corpus import make_small_corpus


def test_each_difference_is_a_line(toolchain: Toolchain, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    corpus = make_small_corpus(tmp_path, str(toolchain.clang))
    config = TrainingConfig()
    before = describe_settings(load("inlining"), corpus, toolchain, {"train_eval": config, "network": NetworkConfig()})
    log_changed_settings(Path("run"), before, dict(before))
    assert caplog.records == []
    smaller = dataclasses.replace(corpus, modules=corpus.modules[:-1]).configured(ProblemConfig(("-O2",)))
    other = dataclasses.replace(config, seed=7, num_modules=3)
    now = describe_settings(load("inlining"), smaller, toolchain, {"train_eval": other, "network": NetworkConfig()})
    with caplog.at_level(logging.WARNING):
        log_changed_settings(Path("run"), before, now)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 4
    assert "run: continued with another corpus: was " in messages[0]
    assert "4 modules" in messages[0] and "3 modules" in messages[0]
    assert "run: continued with another train_eval.num_modules: was '16', is '3'" in messages
    assert "run: continued with another train_eval.seed: was '1', is '7'" in messages
    assert "problem_config.flags_to_add: was '()', is \"('-O2',)\"" in messages[3]
    for name, value in (("compile_task", "regalloc_eviction"), ("train_eval.algorithm", "es")):
        with pytest.raises(ConfigError, match=f"holds a run whose {name} was .* and is '{value}' now; use that, or"):
            log_changed_settings(Path("run"), before, {**before, name: value})
