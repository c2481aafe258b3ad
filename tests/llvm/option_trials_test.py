"""Trials: the compiler generates a module's code with each set, and each function gets its smallest that is as fast."""

import math
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from compiler_opt.llvm.object_file import read_object_sizes
from compiler_opt.llvm.options_plugin import (
    MAX_INSTRUCTIONS,
    FunctionOptions,
    environment,
    options_plugin,
    read_functions,
)
from compiler_opt.llvm.plugin import load_option
from compiler_opt.llvm.toolchain import Toolchain
from tests.llvm.options_plugin_test import MENU, SOURCE, Runner

_WIDE = "long wide(long n) { long many[200]; for (int i = 0; i < 200; i++) many[i] = n * i; return g(many[n & 63]); }\n"
_WARNING = r".warning \"hey\""


@pytest.fixture
def runner(toolchain: Toolchain, tmp_path: Path) -> Runner:
    (tmp_path / "a.c").write_text(SOURCE + _WIDE)
    return Runner(toolchain, tmp_path / "a.c", tmp_path)


@pytest.mark.both_compilers
def test_the_object_is_that_of_the_choices(runner: Runner) -> None:
    """A trial leaves nothing behind: what follows is what a compilation with those choices gives."""
    found = runner.with_plugin(FunctionOptions(MENU, trial=math.inf))
    bodies = read_functions(runner.folder)
    sizes = []
    for number in range(len(MENU)):
        runner.with_plugin(FunctionOptions(MENU, default=number))
        sizes.append(read_object_sizes(runner.folder / "a.o").functions)
    best = {name: min(range(len(MENU)), key=lambda number: sizes[number][name]) for name in bodies if name in sizes[0]}
    assert len(set(best.values())) > 2
    choices = {(name, bodies[name]): number for name, number in best.items()}
    assert found == runner.with_plugin(FunctionOptions(MENU, choices))


def test_a_choice_is_not_tried(runner: Runner) -> None:
    runner.with_plugin(FunctionOptions(MENU))
    bodies = read_functions(runner.folder)
    choices = dict.fromkeys(bodies.items(), 3)
    expected = runner.with_plugin(FunctionOptions(MENU, default=3))
    assert runner.with_plugin(FunctionOptions(MENU, choices, trial=math.inf)) == expected
    del choices["sum", bodies["sum"]]
    assert runner.with_plugin(FunctionOptions(MENU, choices, trial=math.inf)) != expected


def test_the_limit_holds(runner: Runner) -> None:
    """With a limit below what any set does, every function keeps the first one."""
    first = runner.with_plugin(FunctionOptions(MENU))
    assert runner.with_plugin(FunctionOptions(MENU, trial=1e-6)) == first
    assert runner.with_plugin(FunctionOptions(MENU, trial=math.inf)) != first


@pytest.mark.parametrize("words", [("-g",), ("-fPIC", "-fno-plt"), ("-fno-integrated-as",), ("-O2",)])
def test_other_ways_to_compile(runner: Runner, words: Sequence[str]) -> None:
    without = runner.with_plugin(FunctionOptions(MENU), *words)
    assert runner.with_plugin(FunctionOptions(MENU, trial=math.inf), *words) != without
    assert runner.with_plugin(FunctionOptions(MENU, trial=1e-6), *words) == without


def test_debug_information_changes_no_choice(runner: Runner) -> None:
    texts = []
    for words in ((), ("-g",)):
        runner.with_plugin(FunctionOptions(MENU, trial=MAX_INSTRUCTIONS["Oz"]), *words)
        copy = [str(runner.toolchain.tool("llvm-objcopy")), "-O", "binary", "--only-section=.text*", "a.o", "a.bin"]
        subprocess.run(copy, cwd=runner.folder, check=True)
        texts.append((runner.folder / "a.bin").read_bytes())
    assert texts[0] == texts[1]


def test_nothing_is_reported_twice(runner: Runner) -> None:
    """Neither warnings nor remarks of the code generator, whose text and files are the same with trials."""
    reports = []
    for options in (FunctionOptions(MENU), FunctionOptions(MENU, trial=1e-6)):
        words = ["-Wframe-larger-than=64", "-Rpass-missed=regalloc", "-fsave-optimization-record", "-g"]
        done = runner.loaded(options, *words)
        assert not done.returncode
        reports.append((done.stderr, (runner.folder / "a.opt.yaml").read_bytes()))
    assert reports[0] == reports[1]
    assert reports[0][0].count("frame size") == 1 and b"asm-printer" in reports[0][1]


@pytest.mark.both_compilers
@pytest.mark.parametrize(
    "words",
    [
        ("--target=x86_64-w64-windows-gnu",),
        ("--target=x86_64-apple-macosx13",),
        ("-mllvm", "-stop-after=finalize-isel"),
        ("-mllvm", "-print-after=finalize-isel"),
        ("-mllvm", "-debug-pass=Structure"),
    ],
)
def test_where_nothing_can_be_compared_or_seen_nothing_is_tried(runner: Runner, words: Sequence[str]) -> None:
    """Objects of other formats, and what users print of the code generator."""
    found = []
    for trial in (0.0, math.inf):
        done = runner.loaded(FunctionOptions(MENU, trial=trial), *words)
        assert not done.returncode, done.stderr
        found.append((done.stderr, (runner.folder / "a.o").read_bytes()))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("assembly", "words"),
    [
        (_WARNING, ()),
        (_WARNING, ("-Werror", "-Wno-inline-asm")),
        (".tfloat 1.5", ("-fno-integrated-as",)),
    ],
)
def test_assembly_of_the_module_is_read_once(runner: Runner, assembly: str, words: Sequence[str]) -> None:
    with (runner.folder / "a.c").open("a") as file:
        file.write(f'__asm__("{assembly}");\n')
    plain, tried = (runner.loaded(FunctionOptions(MENU, trial=trial), *words) for trial in (0.0, math.inf))
    assert plain.returncode == tried.returncode == 0, tried.stderr
    assert plain.stderr == tried.stderr


def test_a_set_that_cannot_compile_a_function_is_chosen_for_none(runner: Runner) -> None:
    """Without CodeGenPrepare, addresses of operands need more registers than there are."""
    names = [f"q{i}" for i in range(16)]
    addresses = "".join(f"  char *{name} = &p->b[i][{7 * number + 1}];\n" for number, name in enumerate(names))
    templates = "; ".join(f"cmpb $1,%{number}" for number in range(16))
    operands = ", ".join(f'"m"(*{name})' for name in names)
    (runner.folder / "a.c").write_text(
        f"struct S {{ char b[100][200]; }};\n{SOURCE}"
        f"int many(struct S *p, long i, int c) {{\n{addresses}  g(q0 != 0);\n"
        f'  if (c > 3) {{ __asm__ volatile("{templates}" :: {operands}); return g(c); }}\n'
        f"  return {' + '.join(f'*{name}' for name in names)};\n}}\n"
    )
    menu = (MENU[0], MENU[3])
    failed = runner.loaded(FunctionOptions(menu, default=1))
    if not failed.returncode:
        pytest.fail("this compiler allocates the registers; find another function")
    first, tried = (runner.loaded(FunctionOptions(menu, trial=trial)) for trial in (0.0, math.inf))
    assert (first.returncode, tried.returncode, tried.stderr) == (0, 0, "")


def test_the_users_bisection_counts_once(runner: Runner) -> None:
    """LLVM's own gate of passes is not asked by trials."""
    counted = []
    for options in (FunctionOptions(MENU), FunctionOptions(MENU, trial=1e-6)):
        done = runner.loaded(options, "-mllvm", "-opt-bisect-limit=400")
        assert not done.returncode
        counted.append(done.stderr)
    assert counted[0] == counted[1]


def test_inline_assembly_that_is_wrong_is_an_error_as_ever(runner: Runner) -> None:
    with (runner.folder / "a.c").open("a") as file:
        file.write('void wrong(void) { __asm__("no_such_instruction %eax"); }\n')
    plain, tried = (runner.loaded(FunctionOptions(MENU, trial=trial)) for trial in (0.0, math.inf))
    assert plain.returncode == tried.returncode == 1
    assert plain.stderr == tried.stderr and "no_such_instruction" in plain.stderr


@pytest.mark.parametrize("trial", [-1.0, math.nan])
def test_a_limit_that_is_none_is_refused(runner: Runner, trial: float) -> None:
    variables = environment(FunctionOptions(MENU, trial=1.0), runner.folder) | {"MLGO_OPTIONS_TRIAL": repr(trial)}
    done = runner.run(load_option(options_plugin(runner.toolchain)), variables=variables)
    assert done.returncode == 1 and f"MLGO_OPTIONS_TRIAL: expected a number above 0, found {trial!r}" in done.stderr
