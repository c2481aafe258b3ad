import pytest

from compiler_opt.llvm.pass_options import CHOICE, FLAG, INTEGER, REAL, TEXT, PassOption, list_pass_options
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.pass_options.candidates import candidates, further, other_target_prefixes


def option(name: str, kind: str, default: str | None = None, *choices: str) -> PassOption:
    return PassOption(name, kind, default, choices, "")


def test_values_of_each_kind() -> None:
    options = [
        option("enable-load-pre", FLAG, "1"),
        option("min-jump-table-entries", INTEGER, "4"),
        option("bonus-inst-threshold", INTEGER, "0"),
        option("weight", REAL, "0.5"),
        option("regalloc", CHOICE, "greedy", "basic", "fast", "greedy"),
        option("file", TEXT),
    ]
    assert candidates(options, []) == [
        "-enable-load-pre=true",
        "-enable-load-pre=false",
        "-min-jump-table-entries=0",
        "-min-jump-table-entries=32",
        "-bonus-inst-threshold=100",
        "-weight=0",
        "-weight=4",
        "-regalloc=basic",
        "-regalloc=fast",
    ]
    assert further(options[1]) == [f"-min-jump-table-entries={n}" for n in (0, 1, 2, 8, 16)]
    assert further(options[0]) == []


@pytest.mark.parametrize(
    "name",
    [
        "print-after-all",
        "verify-dom-info",
        "debug-pass",
        "time-passes",
        "asan-stack",
        "riscv-enable-sink-fold",
        "stats",
    ],
)
def test_options_that_change_no_code_for_this_target_are_left_out(name: str) -> None:
    assert candidates([option(name, FLAG, "0")], ["riscv"]) == []


def test_of_a_real_compiler(toolchain: Toolchain) -> None:
    options = list_pass_options(toolchain.clang)
    prefixes = other_target_prefixes(toolchain.clang, toolchain.target)
    assert "aarch64" in prefixes and "x86" not in prefixes
    tried = candidates(options.values(), prefixes)
    assert {"-enable-load-pre=false", "-disable-lsr=true", "-min-jump-table-entries=32", "-regalloc=basic"} <= set(
        tried
    )
    assert len(options) > 2000 > len({each.partition("=")[0] for each in tried}) > 1000
    assert "x86" in other_target_prefixes(toolchain.clang, "riscv64-unknown-elf")
