"""Trials: the compiler generates a module's code with each set, and each function gets its smallest that is as fast."""

import dataclasses
import math
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from compiler_opt.collect.schedule import Job
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
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
from compiler_opt.search.function_options import measure, task
from tests.llvm.options_plugin_test import MENU, SOURCE
from tests.small_corpus import make_small_corpus

_WIDE = "long wide(long n) { long many[200]; for (int i = 0; i < 200; i++) many[i] = n * i; return g(many[n & 63]); }\n"
_WARNING = r".warning \"hey\""


class Compiler:
    """Compiles a source to an object with the plugin, beside which it leaves its other files."""

    def __init__(self, toolchain: Toolchain, folder: Path):
        self.toolchain, self.folder = toolchain, folder
        (folder / "a.c").write_text(SOURCE + _WIDE)

    def compile(self, options: FunctionOptions, *words: str) -> bytes:
        done = self.run(options, *words)
        assert not done.returncode and not done.stderr, done.stderr
        return (self.folder / "a.o").read_bytes()

    def run(self, options: FunctionOptions, *words: str) -> subprocess.CompletedProcess[str]:
        plugin = load_option(options_plugin(self.toolchain))
        command = [str(self.toolchain.clang), plugin, "-Oz", "-ffunction-sections", "-c", "a.c", "-o", "a.o", *words]
        variables = {**os.environ, **environment(options, self.folder)}
        return subprocess.run(command, cwd=self.folder, env=variables, capture_output=True, text=True, check=False)


@pytest.fixture
def compiler(toolchain: Toolchain, tmp_path: Path) -> Compiler:
    return Compiler(toolchain, tmp_path)


@pytest.fixture(scope="module")
def corpus(clang_path: str, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_small_corpus(tmp_path_factory.mktemp("corpus"), clang_path)


@pytest.fixture(scope="module")
def pool(toolchain: Toolchain) -> Iterator[WorkerPool]:
    with WorkerPool(toolchain, task(len(MENU)), 2) as pool:
        yield pool


def _functions(pool: WorkerPool, corpus: Corpus, options: FunctionOptions) -> dict[tuple[str, str], int]:
    """Bytes of each function, by module and name, in objects that were compiled with these options."""
    jobs = (Job(module.with_function_options(options), None) for module in corpus.modules)
    found = {}
    for _, result in pool.rollouts(jobs):
        assert result.measurement is not None, result.failure
        for name, size in result.measurement.functions.items():
            if name in result.measurement.bodies:
                found[result.module, name] = size
    return found


@pytest.mark.both_compilers
def test_the_compiler_finds_what_one_compilation_with_each_set_finds(corpus: Corpus, pool: WorkerPool) -> None:
    by_set = [_functions(pool, corpus, FunctionOptions(MENU, default=number)) for number in range(len(MENU))]
    best = {key: min(sizes[key] for sizes in by_set) for key in by_set[0]}
    assert sum(best.values()) < sum(by_set[0].values())
    # Up to the padding of entries for unwinding, and short jumps, which depend on the functions beside.
    tried = _functions(pool, corpus, FunctionOptions(MENU, trial=math.inf))
    assert sum(tried.values()) == pytest.approx(sum(best.values()), abs=8 * len(corpus.modules))
    assert all(abs(tried[key] - best[key]) <= 4 for key in best)
    # And it reports them.
    measured = measure(corpus.modules, None, pool, MENU)
    assert measured.before == pytest.approx(sum(by_set[0].values()), abs=8 * len(corpus.modules))
    assert measured.after(math.inf) == pytest.approx(sum(best.values()), abs=8 * len(corpus.modules))
    assert _functions(pool, corpus, FunctionOptions((MENU[0],) * len(MENU), trial=MAX_INSTRUCTIONS)) == by_set[0]


@pytest.mark.both_compilers
def test_the_object_is_that_of_the_choices(compiler: Compiler) -> None:
    """A trial leaves nothing behind: what follows is what a compilation with those choices gives."""
    found = compiler.compile(FunctionOptions(MENU, trial=math.inf))
    bodies = read_functions(compiler.folder)
    sizes = []
    for number in range(len(MENU)):
        compiler.compile(FunctionOptions(MENU, default=number))
        sizes.append(read_object_sizes(compiler.folder / "a.o").functions)
    best = {name: min(range(len(MENU)), key=lambda number: sizes[number][name]) for name in bodies if name in sizes[0]}
    assert len(set(best.values())) > 2
    choices = {(name, bodies[name]): number for name, number in best.items()}
    assert found == compiler.compile(FunctionOptions(MENU, choices))


def test_a_choice_is_not_tried(compiler: Compiler) -> None:
    compiler.compile(FunctionOptions(MENU))
    bodies = read_functions(compiler.folder)
    choices = dict.fromkeys(bodies.items(), 3)
    expected = compiler.compile(FunctionOptions(MENU, default=3))
    assert compiler.compile(FunctionOptions(MENU, choices, trial=math.inf)) == expected
    del choices["sum", bodies["sum"]]
    assert compiler.compile(FunctionOptions(MENU, choices, trial=math.inf)) != expected


def test_the_limit_holds(compiler: Compiler) -> None:
    """With a limit below what any set does, every function keeps the first one."""
    first = compiler.compile(FunctionOptions(MENU))
    assert compiler.compile(FunctionOptions(MENU, trial=1e-6)) == first
    assert compiler.compile(FunctionOptions(MENU, trial=math.inf)) != first


@pytest.mark.both_compilers
@pytest.mark.parametrize("words", [("-g",), ("-fPIC", "-fno-plt"), ("-fno-integrated-as",), ("-O2",)])
def test_other_ways_to_compile(compiler: Compiler, words: Sequence[str]) -> None:
    without = compiler.compile(FunctionOptions(MENU), *words)
    assert compiler.compile(FunctionOptions(MENU, trial=math.inf), *words) != without
    assert compiler.compile(FunctionOptions(MENU, trial=1e-6), *words) == without


def test_debug_information_changes_no_choice(compiler: Compiler) -> None:
    texts = []
    for words in ((), ("-g",)):
        compiler.compile(FunctionOptions(MENU, trial=MAX_INSTRUCTIONS), *words)
        copy = [str(compiler.toolchain.tool("llvm-objcopy")), "-O", "binary", "--only-section=.text*", "a.o", "a.bin"]
        subprocess.run(copy, cwd=compiler.folder, check=True)
        texts.append((compiler.folder / "a.bin").read_bytes())
    assert texts[0] == texts[1]


def test_nothing_is_reported_twice(compiler: Compiler) -> None:
    """Neither warnings nor remarks of the code generator, whose text and files are the same with trials."""
    reports = []
    for options in (FunctionOptions(MENU), FunctionOptions(MENU, trial=1e-6)):
        words = ["-Wframe-larger-than=64", "-Rpass-missed=regalloc", "-fsave-optimization-record", "-g"]
        done = compiler.run(options, *words)
        assert not done.returncode
        reports.append((done.stderr, (compiler.folder / "a.opt.yaml").read_bytes()))
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
def test_where_nothing_can_be_compared_or_seen_nothing_is_tried(compiler: Compiler, words: Sequence[str]) -> None:
    """Objects of other formats, and what users print of the code generator."""
    found = []
    for trial in (0.0, math.inf):
        done = compiler.run(FunctionOptions(MENU, trial=trial), *words)
        assert not done.returncode, done.stderr
        found.append((done.stderr, (compiler.folder / "a.o").read_bytes()))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("assembly", "words"),
    [
        (_WARNING, ()),
        (_WARNING, ("-Werror", "-Wno-inline-asm")),
        (".tfloat 1.5", ("-fno-integrated-as",)),
    ],
)
def test_assembly_of_the_module_is_read_once(compiler: Compiler, assembly: str, words: Sequence[str]) -> None:
    with (compiler.folder / "a.c").open("a") as file:
        file.write(f'__asm__("{assembly}");\n')
    plain, tried = (compiler.run(FunctionOptions(MENU, trial=trial), *words) for trial in (0.0, math.inf))
    assert plain.returncode == tried.returncode == 0, tried.stderr
    assert plain.stderr == tried.stderr


def test_a_set_that_cannot_compile_a_function_is_chosen_for_none(compiler: Compiler) -> None:
    """Without CodeGenPrepare, addresses of operands need more registers than there are."""
    names = [f"q{i}" for i in range(16)]
    addresses = "".join(f"  char *{name} = &p->b[i][{7 * number + 1}];\n" for number, name in enumerate(names))
    templates = "; ".join(f"cmpb $1,%{number}" for number in range(16))
    operands = ", ".join(f'"m"(*{name})' for name in names)
    (compiler.folder / "a.c").write_text(
        f"struct S {{ char b[100][200]; }};\n{SOURCE}"
        f"int many(struct S *p, long i, int c) {{\n{addresses}  g(q0 != 0);\n"
        f'  if (c > 3) {{ __asm__ volatile("{templates}" :: {operands}); return g(c); }}\n'
        f"  return {' + '.join(f'*{name}' for name in names)};\n}}\n"
    )
    menu = (MENU[0], MENU[3])
    failed = compiler.run(FunctionOptions(menu, default=1))
    if not failed.returncode:
        pytest.fail("this compiler allocates the registers; find another function")
    first, tried = (compiler.run(FunctionOptions(menu, trial=trial)) for trial in (0.0, math.inf))
    assert (first.returncode, tried.returncode, tried.stderr) == (0, 0, "")


def test_the_users_bisection_counts_once(compiler: Compiler) -> None:
    """LLVM's own gate of passes is not asked by trials."""
    counted = []
    for options in (FunctionOptions(MENU), FunctionOptions(MENU, trial=1e-6)):
        done = compiler.run(options, "-mllvm", "-opt-bisect-limit=400")
        assert not done.returncode
        counted.append(done.stderr)
    assert counted[0] == counted[1]


def test_inline_assembly_that_is_wrong_is_an_error_as_ever(compiler: Compiler) -> None:
    with (compiler.folder / "a.c").open("a") as file:
        file.write('void wrong(void) { __asm__("no_such_instruction %eax"); }\n')
    plain, tried = (compiler.run(FunctionOptions(MENU, trial=trial)) for trial in (0.0, math.inf))
    assert plain.returncode == tried.returncode == 1
    assert plain.stderr == tried.stderr and "no_such_instruction" in plain.stderr


@pytest.mark.parametrize("trial", [-1.0, math.nan])
def test_a_limit_that_is_none_is_refused(compiler: Compiler, trial: float) -> None:
    options = FunctionOptions(MENU)
    variables = environment(dataclasses.replace(options, trial=1.0), compiler.folder)
    variables["MLGO_OPTIONS_TRIAL"] = repr(trial)
    plugin = load_option(options_plugin(compiler.toolchain))
    done = subprocess.run(
        [str(compiler.toolchain.clang), plugin, "-Oz", "-c", "a.c"],
        cwd=compiler.folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and f"MLGO_OPTIONS_TRIAL: expected a number above 0, found {trial!r}" in done.stderr
