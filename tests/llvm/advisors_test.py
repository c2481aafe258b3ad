from pathlib import Path

from compiler_opt.llvm.advisors import ADVISORS, INLINING, REGALLOC_EVICTION, mllvm


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
