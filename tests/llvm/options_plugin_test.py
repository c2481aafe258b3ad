"""The options plugin: objects are those of options on the command line, function by function."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_opt.errors import ConfigError, ProtocolError
from compiler_opt.llvm.advisors import mllvm
from compiler_opt.llvm.elf import ElfFile
from compiler_opt.llvm.options_plugin import (
    FOR_SIZE,
    OPTIONS,
    FunctionOptions,
    environment,
    options_plugin,
    read_functions,
)
from compiler_opt.llvm.plugin import load_option, user_cache
from compiler_opt.llvm.toolchain import Toolchain

SOURCE = """
extern int g(int), h(int, int);
int table[64];
static inline int both(int a, int b) { return a * 31 + (b ^ a) * 31; }
int act(int c) {
  switch (c) {
    case 0: return g(3); case 1: return g(9); case 2: return h(1, c); case 3: return g(c) + 1; case 4: return h(c, 2);
    case 5: g(1); return 0; case 6: return h(2, 7); case 7: g(7); return 4; default: return c;
  }
}
int sum(const int *p, const int *q, int n) {
  int s = 0;
  for (int i = 0; i < n; i++) s += p[i] * q[3 * i + 1] + table[i & 63] + p[i * 2];
  return s;
}
int twice(int a, int b, int c) {
  int s = g(both(a, b)) + h(both(a, b), c);
  for (int i = 0; i < c; i++) { if (both(i, a) > b) s += g(both(i, a) + table[both(a, b) & 63]); }
  return s;
}
double mean(const double *x, int n) {
  double s = 0;
  for (int i = 0; i < n; i++) s += x[i] > 0 ? x[i] / (n + 1) : -x[i];
  return n ? s / n : 0;
}
"""
BASE = ("-enable-pre=false", "-min-jump-table-entries=7")
SETS = (
    ("-disable-lsr=true",),
    ("-disable-machine-cse=true", "-disable-machine-licm=true"),
    ("-disable-cgp=true",),
    ("-pre-RA-sched=list-burr",),
    ("-disable-peephole=true", "-disable-copyprop=true", "-disable-branch-fold=true"),
    ("-disable-early-taildup=true", "-disable-tail-duplicate=true", "-disable-machine-dce=true"),
    ("-disable-machine-sink=true", "-disable-ssc=true"),
    ("-disable-postra-machine-sink=true", "-disable-postra-machine-licm=true"),
)
"""Options that keep each pass out that the plugin can pass over, and one of the other kind."""
MENU = (BASE, *((*BASE, *each) for each in SETS))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "a.c"
    path.write_text(SOURCE)
    return path


class Runner:
    """Compiles the source in a folder."""

    def __init__(self, toolchain: Toolchain, source: Path, folder: Path):
        self.toolchain, self.source, self.folder = toolchain, source, folder

    def run(self, *words: str, variables: Mapping[str, str] = {}) -> subprocess.CompletedProcess[str]:
        command = [str(self.toolchain.clang), "-Oz", "-ffunction-sections", "-c", str(self.source), "-o", "a.o", *words]
        environment = {**os.environ, **variables}
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)

    def plain(self, options: Sequence[str], *words: str) -> bytes:
        done = self.run(*words, *mllvm(options))
        assert not done.returncode, done.stderr
        return (self.folder / "a.o").read_bytes()

    def loaded(self, options: FunctionOptions, *words: str) -> subprocess.CompletedProcess[str]:
        plugin = load_option(options_plugin(self.toolchain))
        return self.run(plugin, *words, variables=environment(options, self.folder))

    def with_plugin(self, options: FunctionOptions, *words: str) -> bytes:
        done = self.loaded(options, *words)
        assert not done.returncode and not done.stderr, done.stderr
        return (self.folder / "a.o").read_bytes()

    def code(self) -> dict[str, bytes]:
        """The code of each function in the last object."""
        file = ElfFile.read(self.folder / "a.o")
        names = [file.section_name(index) for index in range(len(file.sections))]
        return {
            name.removeprefix(".text."): file.section_bytes(index)
            for index, name in enumerate(names)
            if name.startswith(".text.")
        }


@pytest.fixture
def runner(toolchain: Toolchain, source: Path, tmp_path: Path) -> Runner:
    return Runner(toolchain, source, tmp_path)


@pytest.mark.ci
@pytest.mark.both_compilers
def test_one_set_for_all_functions_gives_the_object_of_the_command_line(runner: Runner) -> None:
    plain = runner.plain(BASE)
    objects = []
    for number, options in enumerate(MENU):
        objects.append(runner.plain(options))
        assert runner.with_plugin(FunctionOptions(MENU, default=number)) == objects[-1], options
    changing = [each != plain for each in objects[1:]]
    assert sum(changing) >= 5, changing


@pytest.mark.both_compilers
def test_an_attribute_in_the_code_generator_gives_the_code_of_that_attribute(runner: Runner) -> None:
    """At -O2, of IR that is optimised already, since the attribute changes what the optimiser does."""
    menu = ((), (FOR_SIZE,))
    assert runner.run("-O2", "-S", "-emit-llvm").returncode == 0
    ir = (runner.folder / "a.o").read_text()
    runner.source = runner.folder / "plain.ll"
    runner.source.write_text(ir)
    words = ("-O2", "-Xclang", "-disable-llvm-passes")
    plain = runner.plain((), *words)
    assert runner.with_plugin(FunctionOptions(menu), *words) == plain
    found = runner.with_plugin(FunctionOptions(menu, default=1), *words)
    runner.source.write_text(re.sub(r"(?m)^(attributes #\d+ = { )", r"\1optsize ", ir))
    assert runner.plain((), *words) == found != plain


@pytest.mark.both_compilers
def test_each_function_has_the_code_of_its_set(runner: Runner) -> None:
    code = []
    for number in range(len(MENU)):
        runner.with_plugin(FunctionOptions(MENU, default=number))
        code.append(runner.code())
    bodies = read_functions(runner.folder)
    assert bodies.keys() == {"act", "sum", "twice", "mean"} | ({"both"} & bodies.keys())
    changed = {name: [k for k in range(len(MENU)) if code[k][name] != code[0][name]] for name in code[0]}
    assert changed["sum"] and changed["twice"]
    # In turn, so that a set that is left over from the function before would show.
    choices = {
        (name, bodies[name]): numbers[n % len(numbers)] for n, (name, numbers) in enumerate(changed.items()) if numbers
    }
    runner.with_plugin(FunctionOptions(MENU, choices))
    mixed = runner.code()
    for name, found in mixed.items():
        assert found == code[choices.get((name, bodies[name]), 0)][name], name


def test_another_body_of_the_same_name_keeps_the_default(runner: Runner) -> None:
    plain = runner.plain(BASE)
    runner.with_plugin(FunctionOptions(MENU))
    bodies = read_functions(runner.folder)
    chosen = FunctionOptions(MENU, {("sum", bodies["sum"] ^ 1): 1, ("absent", bodies["sum"]): 1})
    assert runner.with_plugin(chosen) == plain
    assert runner.with_plugin(FunctionOptions(MENU, {("sum", bodies["sum"]): 1})) != plain


def test_what_the_command_line_sets_stays(runner: Runner) -> None:
    users = ("-min-jump-table-entries=2", "-disable-lsr=false")
    expected = runner.plain((users[0], "-enable-pre=false"))
    assert expected != runner.plain((*BASE, "-disable-lsr=true"))
    assert runner.with_plugin(FunctionOptions(MENU, default=1), *mllvm(users)) == expected


def test_without_optimisation_it_changes_nothing(runner: Runner) -> None:
    assert runner.with_plugin(FunctionOptions(MENU, default=1), "-O0") == runner.plain(BASE, "-O0")


def test_a_pass_runs_on_the_functions_of_its_set(runner: Runner) -> None:
    """Except on those that are not to be optimised."""
    plain = runner.plain(())
    menu = ((), ("-passes=reg2mem",))
    assert runner.with_plugin(FunctionOptions(menu)) == plain
    kept = runner.code()
    runner.with_plugin(FunctionOptions(menu))
    bodies = read_functions(runner.folder)
    runner.with_plugin(FunctionOptions(menu, {("sum", bodies["sum"]): 1}))
    changed = runner.code()
    assert len(changed.pop("sum")) > len(kept.pop("sum")) and changed == kept
    source = runner.source.read_text()
    runner.source = runner.folder / "off.c"
    runner.source.write_text(f"#pragma clang optimize off\n{source}")
    assert runner.with_plugin(FunctionOptions(menu, default=1)) == runner.with_plugin(FunctionOptions(menu))


def test_the_users_search_for_a_pass_that_is_at_fault(runner: Runner) -> None:
    """By limits on passes, which ask LLVM's own gate."""
    plugin = load_option(options_plugin(runner.toolchain))
    variables = environment(FunctionOptions(MENU, default=1), runner.folder)
    for limit in ("0", "40", "100000"):
        words = mllvm((f"-opt-bisect-limit={limit}",))
        expected = runner.run(*words, *mllvm(MENU[1]))
        content = (runner.folder / "a.o").read_bytes()
        found = runner.run(plugin, *words, variables=variables)
        assert found.returncode == expected.returncode == 0
        passes = [each.stderr.count("BISECT: ") for each in (expected, found)]
        # Passes that are kept out of the pipeline are not counted, and those that are passed over are not, either.
        assert passes[0] > 100 and abs(passes[0] - passes[1]) <= 20
        if limit != "40":
            assert (runner.folder / "a.o").read_bytes() == content


def test_built_in(runner: Runner, toolchain: Toolchain) -> None:
    expected = runner.with_plugin(FunctionOptions(MENU))
    bodies = read_functions(runner.folder)
    chosen = FunctionOptions(MENU, {("sum", bodies["sum"]): 1, ('"?\\\t\x0b\udcff', 3): 2})
    expected = runner.with_plugin(chosen)
    source, library = runner.folder / "options.cpp", runner.folder / "options.so"
    source.write_text(chosen.embedded_source(), encoding="ascii")
    user_cache().build(toolchain, OPTIONS, library, [source])
    done = runner.run(load_option(library))
    assert not done.returncode and not done.stderr, done.stderr
    assert (runner.folder / "a.o").read_bytes() == expected


@pytest.mark.parametrize(
    ("menu", "choices", "default", "expected"),
    [
        ("-no-such-option=1\n", "", "0", "options-menu.txt: this LLVM has no option -no-such-option"),
        ("\n-min-jump-table-entries=many\n", "", "0", "-min-jump-table-entries does not take the value 'many'"),
        ("", "", "0", "expected a set of options on each line, found none"),
        ("-passes=rebase\n", "", "0", "-passes: unknown function pass 'rebase' in pipeline 'rebase'"),
        ("-disable-lsr=1\n", "", "0", "-disable-lsr: expected true or false, found '1'"),
        ("\n", "1 00 f\n", "0", "expected lines of the number of a set, below 1, a fingerprint and a function"),
        ("\n", "0 xyz f\n", "0", "found '0 xyz f'"),
        ("\n", "0 00\n", "0", "found '0 00'"),
        ("\n", "", "1", "expected the number of a default set below 1, found 1"),
        ("\n", "", "one", "MLGO_OPTIONS_DEFAULT: expected the number of a set, found one"),
    ],
)
def test_what_cannot_be_followed(runner: Runner, menu: str, choices: str, default: str, expected: str) -> None:
    plain = runner.plain(())
    plugin = load_option(options_plugin(runner.toolchain))
    variables = environment(FunctionOptions(((),)), runner.folder) | {"MLGO_OPTIONS_DEFAULT": default}
    Path(variables["MLGO_OPTIONS_MENU"]).write_text(menu)
    Path(variables["MLGO_OPTIONS_CHOICES"]).write_text(choices)
    failed = runner.run(plugin, variables=variables)
    assert failed.returncode and "error: mlgo: " in failed.stderr and expected in failed.stderr
    warned = runner.run(plugin, variables=variables | {"MLGO_OPTIONS_STRICT": "0"})
    assert not warned.returncode and "warning: mlgo: " in warned.stderr
    assert "compiling without options of single functions" in warned.stderr
    assert (runner.folder / "a.o").read_bytes() == plain


def test_files_that_are_missing(runner: Runner) -> None:
    plugin = load_option(options_plugin(runner.toolchain))
    variables = environment(FunctionOptions(((),)), runner.folder)
    for name in ("MLGO_OPTIONS_MENU", "MLGO_OPTIONS_CHOICES", "MLGO_OPTIONS_PLUGIN"):
        done = runner.run(plugin, variables=variables | {name: "/no/such/file"})
        assert done.returncode and re.search("/no/such/file: .*No such file", done.stderr)
    done = runner.run(plugin, variables={"MLGO_OPTIONS_STRICT": "1"})
    assert done.returncode and "none are built in, and MLGO_OPTIONS_MENU names none" in done.stderr
    with pytest.raises(ProtocolError, match="list of functions"):
        read_functions(runner.folder / "elsewhere")
    (runner.folder / "functions.txt").write_text("xyz main\n")
    with pytest.raises(ProtocolError, match="list of functions"):
        read_functions(runner.folder)


def test_numbers_and_names_are_checked() -> None:
    for arguments, expected in (
        (((), {}, 0), "below 0, found 0"),
        ((((),), {}, 1), "below 1, found 1"),
        ((((),), {("f", 1): 1}, 0), "below 1, found 1"),
        ((((),), {("f\ng", 1): 0}, 0), "expected a function"),
        ((((),), {("", 1): 0}, 0), "expected a function"),
        ((((),), {("f", 1 << 64): 0}, 0), "expected a function"),
        (((("load=x.so ;",),), {}, 0), "expected"),
    ):
        with pytest.raises(ConfigError, match=expected):
            FunctionOptions(*arguments)


@given(
    st.dictionaries(
        st.tuples(
            st.text(st.characters(codec="utf-8", exclude_characters="\n\0"), min_size=1), st.integers(0, (1 << 64) - 1)
        ),
        st.integers(0, 1),
    )
)
def test_choices_are_a_line_each(choices: dict[tuple[str, int], int]) -> None:
    options = FunctionOptions(((), ("-disable-lsr",)), choices)
    lines = options.choices_text().split("\n")[:-1]
    parsed = {(name, int(body, 16)): int(number) for number, body, name in (line.split(" ", 2) for line in lines)}
    assert parsed == choices
    assert options.embedded_source().isascii()
