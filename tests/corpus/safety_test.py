"""A corpus is untrusted: hostile `.cmd` files, tried on real compilers.

They load code, write other files or read arbitrary ones when the compiler runs without the allow-list, and do nothing
with it.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compiler_opt.corpus.command_lines.cc1_options import DROPPED, KEPT, LLVM_KNOBS, entries
from compiler_opt.corpus.command_lines.command_line import checked_options, compile_command, opt_command
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module, format_options, parse_options
from compiler_opt.corpus.statistics import count_module
from compiler_opt.errors import CorpusError
from compiler_opt.llvm.sandbox import VARIABLE
from compiler_opt.llvm.toolchain import Toolchain
from tests.corpus.description_test import write_description
from tests.corpus.hostile_options import HOSTILE_OPTIONS, WRITERS

SOURCE = "int g(int); int f(int x) { return g(x) + g(x + 1); } int h(int x) { return f(f(x)); }\n"

PLUGIN = """
#include <fcntl.h>
__attribute__((constructor)) static void loaded(void) { creat("escaped", 0644); }
"""

USUAL = ("-cc1", "-triple", "x86_64-pc-linux-gnu", "-Oz", "-debug-info-kind=limited", "-dwarf-version=5")


@pytest.fixture(scope="module")
def place(clang_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A module's bitcode, and a plugin that leaves a file when it is loaded."""
    place = tmp_path_factory.mktemp("place")
    (place / "m.c").write_text(SOURCE)
    (place / "plugin.c").write_text(PLUGIN)
    options = ["-Oz", "-g", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c", "m.c", "-o", "m.bc"]
    subprocess.run([clang_path, *options], cwd=place, check=True)
    subprocess.run([clang_path, "-shared", "-fPIC", "plugin.c", "-o", "plugin.so"], cwd=place, check=True)
    return place


def run_in(folder: Path, place: Path, command: list[str]) -> set[str]:
    """Runs a command in an empty folder with a copy of the plugin; returns the names of the files that it left."""
    folder.mkdir()
    shutil.copyfile(place / "plugin.so", folder / "plugin.so")
    subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, check=False)
    left = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    shutil.rmtree(folder)
    # A compiler that crashes may leave the temporary file of its object.
    return {name for name in left if not re.fullmatch(r"plugin\.so|module-\w+\.o\.tmp", name)}


@pytest.mark.ci
def test_nothing_escapes(clang_path: str, place: Path, tmp_path: Path) -> None:
    """Each is refused or dropped; compiling with the rest makes nothing but the object."""
    for number, line in enumerate(HOSTILE_OPTIONS):
        words = line.split(" ")
        bitcode, folder = place / "m.bc", tmp_path / str(number)
        try:
            command = compile_command(clang_path, (*USUAL, *words), bitcode, "module.o")
        except CorpusError as error:
            assert "\n" not in str(error)
            # A ThinLTO index is always the module's own, and this module has none.
            assert any(word.split("=")[0][:8] in str(error) or "m.thinlto.bc" in str(error) for word in words), line
            continue
        assert not any("escaped" in word or "plugin" in word for word in command), line
        assert run_in(folder, place, command) == {"module.o"}, line


def test_they_would_have_escaped(clang_path: str, place: Path, tmp_path: Path) -> None:
    """Without the allow-list, the first of them write a file or load code: the test above is not vacuous."""
    silent = []
    for number, line in enumerate(WRITERS):
        words = line.split(" ")
        command = [clang_path, *USUAL, "-emit-obj", "-x", "ir", str(place / "m.bc"), "-o", "module.o", *words]
        if not run_in(tmp_path / str(number), place, command) - {"module.o"}:
            silent.append(line)
    # One lists dependencies, of which bitcode has none; one is for shared LLVM tools.
    assert set(silent) <= {"-dependency-file escaped -MT target", "-mllvm -load=./plugin.so"}


@pytest.mark.parametrize("options", HOSTILE_OPTIONS)
def test_opt_does_not_get_them_either(options: str) -> None:
    try:
        command = opt_command("opt", (*USUAL, *options.split(" ")), "m.bc", "out.bc")
    except CorpusError:
        return
    assert command == opt_command("opt", USUAL, "m.bc", "out.bc")


def listed(clang: str) -> Mapping[str, str]:
    """Every cc1 option in the compiler's help and autocompletion, with its description."""
    result = {}
    completions = subprocess.run([clang, "--autocomplete=-cc1,-"], capture_output=True, text=True, check=True).stdout
    for line in completions.splitlines():
        name, _, about = line.partition("\t")
        result[name] = about
    help_text = subprocess.run([clang, "-cc1", "--help"], capture_output=True, text=True, check=True).stdout
    for match in re.finditer(r"^  (-[^\s<]+)(\s?<[^>]*>)?\s+(.*)$", help_text, re.MULTILINE):
        name, metavar, about = match.groups()
        result[name] = f"{metavar or ''} {about} {result.get(name, '')}"
    return result


PATHS = re.compile(r"(?i)file(?!s can use)|\bpath|director|<dir>|<dsopath>|plugin|\boutput|\bdump\b|\bsave\b|\bwrite\b")

NO_PATHS = {
    "-fbinutils-version=": "a version of binutils, whose object files it is about",
    "-fprofile-update=": "how profiles count, if at all; nothing that is kept makes any",
    "-fdebug-info-for-profiling": "a switch; a profile is made of it later",
    "-fdebug-pass-manager": "a switch; names passes on stderr",
    "-frwpi": "a switch: data is addressed relative to where it can be written",
    "-fverbose-asm": "a switch; objects have no comments",
    "-mincremental-linker-compatible": "a switch of what the object looks like",
    "-mnoexecstack": "a switch: a mark in the object",
    "-fno-dwarf-directory-asm": "a switch of assembly text",
    "-fsplit-machine-functions": "a switch; uses the profile that the bitcode holds",
    "-pic-is-pie": "a switch of the object",
}
"""Kept options whose descriptions suggest a path, and why they take none."""


@pytest.mark.both_compilers
@pytest.mark.parametrize("words", ["{}", "{}escaped", "{}=escaped", "{} escaped"])
def test_no_option_that_is_kept_takes_a_path(clang_path: str, words: str) -> None:
    """Tries all options that the compiler prints, in all forms that they might have."""
    options = listed(clang_path)
    assert len(options) > 3000
    num_kept = 0
    for name, about in options.items():
        try:
            kept = checked_options(("-cc1", *words.format(name).split(" ")))
        except CorpusError:
            continue
        if kept:
            num_kept += 1
            assert not PATHS.search(f"{name} {about}") or name in NO_PATHS, f"{kept}: {about}"
    assert num_kept > 15


KNOBS_OF_WORDS = {
    "arm-implicit-it": "always, never or a value in between",
    "enable-machine-outliner": "always, never or a value in between",
    "global-isel-abort": "what to do when it cannot",
    "pgo-analysis-map": "which parts of a profile the address map has",
    "x86-asm-syntax": "att or intel",
}
"""Kept LLVM options with values other than numbers and booleans."""


@pytest.mark.both_compilers
def test_no_knob_of_llvm_takes_a_path(clang_path: str) -> None:
    command = [clang_path, "-cc1", "-mllvm", "--help-list-hidden", "-x", "ir", "/dev/null"]
    help_text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^ +--?([a-z][\w-]*)(=<[^>]*>)?\s+- (.*)$", help_text, re.MULTILINE)
    assert len(found) > 2000
    kept = []
    for name, metavar, about in found:
        try:
            checked_options(("-cc1", "-mllvm", f"-{name}=1"))
        except CorpusError:
            continue
        kept.append(name)
        assert metavar in ("", "=<int>", "=<uint>", "=<N>") or name in KNOBS_OF_WORDS, f"{name}{metavar}"
        assert not PATHS.search(about), about
    assert len(kept) > 10


@pytest.mark.slow
def test_nothing_that_is_kept_writes_a_file(clang_path: str, place: Path, tmp_path: Path) -> None:
    """Compiles with every kept option, in all its forms, one at a time."""
    for number, name in enumerate(listed(clang_path)):
        for words in ("{}", "{}escaped", "{} escaped"):
            try:
                options = (*USUAL, *words.format(name).split(" "))
                command = compile_command(clang_path, options, place / "m.bc", "module.o")
            except CorpusError:
                continue
            if checked_options(options) != checked_options(USUAL):
                assert run_in(tmp_path / str(number), place, command) <= {"module.o"}, command


LISTED = entries(KEPT)


def is_on_the_list(kept: tuple[str, ...]) -> bool:
    """A slow, obvious oracle: whether the arguments can be split into listed options in some way."""
    if not kept:
        return True
    first, rest = kept[0], kept[1:]
    if first == "-mllvm" and rest:
        name = rest[0].lstrip("-").partition("=")[0]
        return f"-{name}" in entries(LLVM_KNOBS) and is_on_the_list(rest[1:])
    for entry in LISTED:
        option, blank, value = entry.partition("<value>")
        if option.endswith(" ") and blank:
            if first == option.strip() and rest and is_on_the_list(rest[1:]):
                return True
        elif first == option or (blank and first.startswith(option)):
            return not value and is_on_the_list(rest)
    return False


hostile_words = st.sampled_from([word for line in HOSTILE_OPTIONS for word in line.split(" ")]).map(str.encode)
listed_words = st.sampled_from(entries(KEPT + DROPPED)).map(
    lambda entry: entry.replace(" <value>", "\0x").replace("<value>", "1").encode()
)
commands = st.one_of(
    st.binary(max_size=200),
    st.lists(st.one_of(listed_words, listed_words, hostile_words, st.binary(max_size=9)), max_size=8).map(
        lambda words: b"\0".join([b"-cc1", *words]) + b"\0"
    ),
)


@given(commands, st.booleans())
def test_any_command_file_is_refused_in_one_line_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, with_opt: bool
) -> None:
    root = tmp_path_factory.getbasetemp()
    (root / "any.cmd").write_bytes(data)
    module = Module("any", "p", root)
    try:
        options = module.options()
        command = (
            opt_command("opt", options, "m.bc", "m.o") if with_opt else compile_command("clang", options, "m.bc", "m.o")
        )
    except CorpusError as error:
        assert len(str(error).splitlines()) == 1
        return
    assert options == parse_options(data)
    assert is_on_the_list(checked_options(options))
    assert not any("/" in word or word.startswith("@") for word in command)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(listed_words, max_size=6))
def test_what_is_kept_writes_nothing_but_the_object(
    clang_path: str, place: Path, tmp_path: Path, words: list[bytes]
) -> None:
    options = parse_options(b"\0".join([*(word.encode() for word in USUAL), *words]))
    command = compile_command(clang_path, options, place / "m.bc", "module.o")
    assert run_in(tmp_path / "folder", place, command) <= {"module.o"}


def test_no_value_is_an_option() -> None:
    """Also for a compiler in which the option before it takes none."""
    with pytest.raises(CorpusError, match="expected a plain word"):
        checked_options((*USUAL, "-exception-model", "-fpass-plugin=plugin.so"))
    kept = ("-target-feature", "-avx", "-mllvm", "-unroll-count=1")
    assert checked_options((*USUAL, *kept)) == (*checked_options(USUAL), *kept)


def test_a_trusted_corpus_keeps_its_options() -> None:
    own = ("-fprofile-sample-use=/p", "-load", "./x.so", "-mllvm", "-stats", "-target-cpu", "a/b", "-fnew-one", "-fx=y")
    assert checked_options((*USUAL, *own), trusted=True) == (*checked_options(USUAL), *own)
    with pytest.raises(CorpusError, match=r"'-fprofile-sample-use=/p' .*--trust_corpus"):
        checked_options((*USUAL, *own))


def test_a_trusted_corpus_still_names_no_input_and_output() -> None:
    own = ("-o", "x", "-dependency-file", "x", "-x", "c", "-emit-llvm", "-I/x", "a.c", "-", "--", "")
    assert checked_options((*USUAL, *own), trusted=True) == checked_options(USUAL)
    with pytest.raises(CorpusError, match="'@file' is not an option"):
        checked_options((*USUAL, "@file"), trusted=True)
    with pytest.raises(CorpusError, match="'@file' is not an option"):
        checked_options((*USUAL, "-fnew", "@file"), trusted=True)
    for option in ("-target-cpu", "-mllvm"):
        with pytest.raises(CorpusError, match="'@file' is not an option"):
            checked_options((*USUAL, option, "@file"), trusted=True)


OPTION_NAMES = ("-load-pass-plugin=./plugin.so", "-fpass-plugin=./plugin.so", "@response")


def test_a_module_is_no_option(
    clang_path: str, toolchain: Toolchain, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by its name, in a corpus in the current folder, nor where names are not checked."""
    monkeypatch.chdir(tmp_path)
    # Loaded code is not confined, so that it is seen.
    monkeypatch.setenv(VARIABLE, "0")
    shutil.copyfile(place / "plugin.so", "plugin.so.bc")
    Path("response.bc").write_text(" ".join(OPTION_NAMES[:2]) + ".bc")
    for name in OPTION_NAMES:
        for path in (Path(f"{name}.bc"), Path(f"{name}.cmd")):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes((place / "m.bc").read_bytes() if path.suffix == ".bc" else format_options(USUAL))
        write_description(tmp_path, {"modules": [name], "has_thinlto": False})
        for corpus in (".", "./", "corpus_description.json"):
            with pytest.raises(CorpusError, match=f"does not begin with '{name[0]}'") as refused:
                Corpus.load(corpus)
            assert "\n" not in str(refused.value)
        module = Module(name, "p", Path())
        assert module.bitcode_path.is_absolute() and module.command_path.is_absolute()
        counts = count_module(toolchain.tool("opt"), module.bitcode_path)
        assert counts.functions == 2 and counts == count_module(toolchain.tool("opt"), Path(f"{name}.bc"))
        command = compile_command(clang_path, module.options(), module.bitcode_path, "module.o")
        assert subprocess.run(command, check=True, timeout=60).returncode == 0
    assert not Path("escaped").exists()


def test_only_a_trusted_corpus_loads_code(clang_path: str, place: Path, tmp_path: Path) -> None:
    shutil.copyfile(place / "m.bc", tmp_path / "m.o.bc")
    (tmp_path / "m.o.cmd").write_bytes(format_options([*USUAL, "-load", "./plugin.so"]))
    write_description(tmp_path, {"modules": ["m.o"], "has_thinlto": False})
    for trusted, expected in ((True, {"module.o", "escaped"}), (False, None)):
        (module,) = Corpus.load(tmp_path, trusted=trusted).modules
        assert module.trusted == trusted
        if expected is None:
            with pytest.raises(CorpusError, match="'-load' is not an option"):
                compile_command(clang_path, module.options(), module.bitcode_path, "module.o", trusted=module.trusted)
        else:
            command = compile_command(clang_path, module.options(), module.bitcode_path, "module.o", trusted=trusted)
            assert run_in(tmp_path / "folder", place, command) == expected


@given(commands)
def test_any_command_file_of_a_trusted_corpus_is_refused_in_one_line_or_compiles_what_it_should(data: bytes) -> None:
    try:
        command = compile_command("clang", parse_options(data), "m.bc", "m.o", trusted=True)
    except CorpusError as error:
        assert len(str(error).splitlines()) == 1
        return
    assert command[-4:] == ["ir", "m.bc", "-o", "m.o"]
    assert not any(word.startswith("@") for word in words_of_options(command))
    assert list(words_of_options(command)).count("-o") == 1


def words_of_options(command: list[str]) -> Iterator[str]:
    """The arguments of a command that are not values of `-mllvm` or of listed options."""
    words = iter(command)
    for word in words:
        yield word
        if word == "-mllvm" or f"{word} <value>" in LISTED:
            next(words)
