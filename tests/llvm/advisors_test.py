from pathlib import Path

import numpy as np
import pytest

from compiler_opt.collect.rollout import DefaultPolicy, rollout
from compiler_opt.decisions.inlining import PROBLEM
from compiler_opt.llvm.advisors import ADVISORS, INLINING, REBUILT_DEFAULT, REGALLOC_EVICTION, mllvm
from compiler_opt.llvm.toolchain import Toolchain
from tests.real_observations import SOURCES
from tests.small_corpus import make_corpus


def test_mllvm_puts_the_flag_before_each_option() -> None:
    assert mllvm(["-a", "-b=1"]) == ["-mllvm", "-a", "-mllvm", "-b=1"]


def test_problems_are_named_by_their_key() -> None:
    assert list(ADVISORS) == ["inlining", "regalloc_eviction", "regalloc_priority"]
    assert all(flags.problem == name for name, flags in ADVISORS.items())


_GROWTH = ["-mllvm", "-ml-advisor-size-increase-threshold=5"]


def test_interactive_options() -> None:
    enable = ["-mllvm", "-enable-ml-inliner=release", *_GROWTH]
    assert INLINING.interactive_options() == enable
    assert INLINING.interactive_options(include_default=True) == [
        *enable,
        "-mllvm",
        "-inliner-interactive-include-default",
    ]


def test_a_problem_without_default_ignores_the_wish_for_it() -> None:
    options = REGALLOC_EVICTION.interactive_options(include_default=True)
    assert options == ["-mllvm", "-regalloc-enable-advisor=release"]


def test_a_model_in_llvm_has_llvms_own_limit_of_growth() -> None:
    assert INLINING.embedded_options() == ["-mllvm", "-enable-ml-inliner=release"]


def test_development_options() -> None:
    log = Path("some.log")
    options = ["-mllvm", "-enable-ml-inliner=development", "-mllvm", "-training-log=some.log", *_GROWTH]
    assert INLINING.development_options(log) == options
    with_model = INLINING.development_options(log, Path("model"))
    assert with_model == [*options, "-mllvm", "-ml-inliner-model-under-training=model"]


@pytest.mark.ci
def test_the_default_decision_is_rebuilt_from_its_cost(toolchain: Toolchain, tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, str(toolchain.clang), SOURCES)
    cost, threshold = REBUILT_DEFAULT
    is_right: list[np.ndarray] = []
    for module in corpus.modules:
        trajectory = rollout(module, DefaultPolicy(PROBLEM), PROBLEM, toolchain).trajectory
        assert trajectory is not None
        features = trajectory.features()
        is_right.append((features[cost] < features[threshold]).reshape(-1) == trajectory.advice)
    found = np.concatenate(is_right)
    assert len(found) > 500
    assert found.mean() > 0.98
