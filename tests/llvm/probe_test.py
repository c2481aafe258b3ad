import dataclasses
import stat
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.llvm.advisors import ADVISORS, INLINING, REGALLOC_EVICTION, REGALLOC_PRIORITY, AdvisorFlags
from compiler_opt.llvm.probe import Prober
from compiler_opt.llvm.toolchain import Toolchain
from tests.llvm import development_clang


def wrapper(folder: Path, script: str) -> Path:
    """A compiler that does something of its own, written in shell."""
    path = folder / "clang"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.both_compilers
def test_inlining_tells_38_integers(toolchain: Toolchain) -> None:
    support = toolchain.problems["inlining"]
    assert support.interactive, support.reason
    assert len(support.features) == 38
    assert {(feature.dtype, feature.shape) for feature in support.features} == {(np.dtype("i8"), (1,))}
    assert "inlining_default" not in {feature.name for feature in support.features}
    assert support.advice is not None and support.advice.dtype == np.dtype("i8")


@pytest.mark.both_compilers
def test_eviction_tells_a_mask_of_33_positions(toolchain: Toolchain) -> None:
    support = toolchain.problems["regalloc_eviction"]
    assert support.interactive, support.reason
    shapes = {feature.name: feature.shape for feature in support.features}
    assert len(shapes) == 21
    assert shapes["mask"] == (1, 33)
    assert shapes["progress"] == (1,)


@pytest.mark.both_compilers
def test_priority_is_a_float(toolchain: Toolchain) -> None:
    support = toolchain.problems["regalloc_priority"]
    assert support.interactive, support.reason
    assert {feature.name for feature in support.features} == {"li_size", "stage", "weight"}
    assert support.advice is not None and support.advice.dtype == np.dtype("f4")


@pytest.mark.both_compilers
def test_the_default_decision_lands_in_the_wrong_slot_before_22(toolchain: Toolchain) -> None:
    # The versions as Debian packages them; the probe itself looks at no version.
    assert toolchain.problems["inlining"].default_in_callee_slot == (toolchain.version[0] == 19)


@pytest.mark.both_compilers
def test_no_development_mode_in_a_stock_compiler(toolchain: Toolchain) -> None:
    assert not toolchain.development_mode


@pytest.mark.both_compilers
def test_pass_plugins(clang_path: str, tmp_path: Path) -> None:
    assert Prober(Path(clang_path), tmp_path).accepts_pass_plugins()


def test_a_compiler_that_knows_no_channel_says_why(clang_path: str, tmp_path: Path) -> None:
    clang = wrapper(
        tmp_path,
        'for argument; do case "$argument" in *interactive*)'
        " echo \"error: Unknown command line argument '$argument'\" >&2; exit 1;; esac; done\n"
        f'exec {clang_path} "$@"',
    )
    for flags in ADVISORS.values():
        support = Prober(clang, tmp_path).support(flags)
        assert not support.interactive
        assert "Unknown command line argument" in support.reason
        assert support.features == () and support.advice is None


def test_a_compiler_that_asks_nothing_is_not_interactive(tmp_path: Path) -> None:
    support = Prober(wrapper(tmp_path, "exit 0"), tmp_path).support(REGALLOC_EVICTION)
    assert not support.interactive
    assert "asked for no decision" in support.reason


def test_a_compiler_that_sends_rubbish_is_not_interactive(tmp_path: Path) -> None:
    clang = wrapper(
        tmp_path,
        'for argument; do case "$argument" in *channel-base=*) echo rubbish >"${argument#*=}.out";; esac; done',
    )
    support = Prober(clang, tmp_path).support(INLINING)
    assert not support.interactive
    assert "rubbish" in support.reason


@pytest.mark.parametrize("log", ["", "{}", '{"features":[{"name":"a","type":"int8_t","port":0,"shape":[1]}]}\\n'])
def test_development_mode_needs_a_log_of_decisions(log: str, tmp_path: Path) -> None:
    clang = wrapper(
        tmp_path,
        f'for argument; do case "$argument" in -training-log=*) printf \'{log}\' >"${{argument#*=}}";; esac; done',
    )
    support = Prober(clang, tmp_path).support(INLINING)
    assert not support.development and not support.logs_default and not support.embedded


@pytest.mark.ci
@pytest.mark.parametrize("flags", ADVISORS.values(), ids=list(ADVISORS))
def test_a_compiler_built_with_tflite(toolchain: Toolchain, flags: AdvisorFlags, tmp_path: Path) -> None:
    support = Prober(development_clang.make(tmp_path / "bin", toolchain), tmp_path).support(flags)
    assert support == dataclasses.replace(toolchain.problems[flags.problem], development=True, logs_default=True)


@pytest.mark.ci
def test_a_log_without_features_is_no_default_trace(toolchain: Toolchain, tmp_path: Path) -> None:
    clang = development_clang.make(tmp_path / "bin", toolchain, "no_features")
    support = Prober(clang, tmp_path).support(REGALLOC_PRIORITY)
    assert support.development and not support.logs_default


def test_a_built_in_model(toolchain: Toolchain, clang_path: str, tmp_path: Path) -> None:
    """A compiler that takes `release` without a channel; the stock ones say that they cannot."""
    clang = wrapper(
        tmp_path,
        'for argument; do case "$argument" in *interactive*) channel=1;; esac; done\n'
        '[ $channel ] || set -- $(printf "%s\\n" "$@" | sed s/-enable-ml-inliner=release/-enable-ml-inliner=default/)\n'
        f'exec {clang_path} "$@"',
    )
    assert not toolchain.problems["inlining"].embedded
    support = Prober(clang, tmp_path).support(INLINING)
    assert support == dataclasses.replace(toolchain.problems["inlining"], embedded=True)


def test_nothing_is_left_behind(clang_path: str, tmp_path: Path) -> None:
    Prober(Path(clang_path), tmp_path).support(INLINING)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["probe.ll", "probe.o"]
