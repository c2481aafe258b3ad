"""Options of LLVM's passes: those that a compiler lists, and how one is written."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_opt.errors import ConfigError, ToolchainError
from compiler_opt.llvm.pass_options import (
    CHOICE,
    FLAG,
    INTEGER,
    REAL,
    TEXT,
    PassOption,
    list_pass_options,
    parse_option,
)

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}", fullmatch=True)
VALUES = st.none() | st.from_regex(r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]{0,60}", fullmatch=True)


@pytest.mark.both_compilers
def test_what_a_compiler_has(clang_path: str) -> None:
    options = list_pass_options(Path(clang_path))
    assert len(options) > 2000
    assert all(name == option.name for name, option in options.items())
    load_pre = options["enable-load-pre"]
    assert (load_pre.kind, load_pre.default, load_pre.choices) == (FLAG, "1", ())
    assert options["min-jump-table-entries"].kind == INTEGER and options["min-jump-table-entries"].default == "4"
    assert options["disable-lsr"].default == "0"
    allocator = options["regalloc"]
    assert allocator.kind == CHOICE and {"basic", "fast", "greedy"} <= set(allocator.choices)
    assert options["info-output-file"].kind == TEXT
    assert {FLAG, INTEGER, REAL, CHOICE, TEXT} == {option.kind for option in options.values()}
    # Nothing that takes the name of a file is called a flag.
    assert not [name for name, each in options.items() if each.kind == FLAG and re.search(r"-(file(name)?|dir)$", name)]


def test_no_compiler(tmp_path: Path) -> None:
    silent = tmp_path / "clang"
    silent.write_text("#!/bin/sh\n")
    silent.chmod(0o755)
    with pytest.raises(ToolchainError, match=r"expected a list of options from -mllvm -help-list-hidden, found none"):
        list_pass_options(silent)
    silent.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(ToolchainError, match=r"-mllvm -help-list-hidden: exit status 3"):
        list_pass_options(silent)


@pytest.mark.parametrize(
    ("kind", "accepted", "refused"),
    [
        (FLAG, [None, "true", "false"], ["1", "yes", "TRUE", ""]),
        (INTEGER, ["0", "-3", "+12"], [None, "1.5", "0x1", "many", "1" * 20]),
        (REAL, ["0", "1.25", "-3"], [None, "1e3", ".5", "nan"]),
        (CHOICE, ["basic"], [None, "greedy", ""]),
        (TEXT, [], [None, "file", "1"]),
    ],
)
def test_accepted_values(kind: str, accepted: list[str | None], refused: list[str | None]) -> None:
    option = PassOption("name", kind, None, ("basic",), "")
    assert all(map(option.accepts, accepted))
    assert not any(map(option.accepts, refused))


@given(NAMES, VALUES, st.sampled_from(["-", "--"]))
def test_options_are_parsed(name: str, value: str | None, dashes: str) -> None:
    assert parse_option(dashes + name + (f"={value}" if value is not None else "")) == (name, value)


@given(st.text(max_size=300))
def test_nothing_else_is_an_option(text: str) -> None:
    """What is parsed is written in one word of harmless characters."""
    try:
        name, value = parse_option(text)
    except ConfigError as error:
        assert "\n" not in str(error) and len(str(error)) < 300
    else:
        assert text.lstrip("-") == (name if value is None else f"{name}={value}")
        assert re.fullmatch(r"[\w.=+-]{2,200}", text)


@pytest.mark.parametrize(
    "text", ["", "-", "lsr", "---lsr", "-lsr=", "-a b", "-a=/etc/passwd", "-a=b,c", "-a\n", "@a", "-a" * 101]
)
def test_refused_options(text: str) -> None:
    with pytest.raises(ConfigError, match="expected an option of LLVM's such as -enable-load-pre=false, found "):
        parse_option(text)
