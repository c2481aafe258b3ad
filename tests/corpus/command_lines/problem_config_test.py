"""Changes of recorded options by `problem_config`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_opt.corpus.command_lines.problem_config import ProblemConfig
from compiler_opt.errors import ConfigError, CorpusError

OPTIONS = (
    *("-cc1", "-triple", "x86_64-pc-linux-gnu", "-target-cpu", "x86-64", "-Os", "-vectorize-slp"),
    *("-mframe-pointer=all", "-mllvm", "-inline-threshold=5", "-mllvm", "-enable-gvn-hoist", "-D", "N"),
)


def changed(**fields: object) -> str:
    return " ".join(ProblemConfig(**fields).apply(OPTIONS))  # type: ignore[arg-type]


def test_an_empty_config_changes_nothing() -> None:
    assert not ProblemConfig()
    assert ProblemConfig().apply(OPTIONS) is OPTIONS


def test_flags_are_added_at_the_end() -> None:
    assert (
        changed(flags_to_add=("-Oz", "-mllvm", "-unroll-count=1")) == " ".join(OPTIONS) + " -Oz -mllvm -unroll-count=1"
    )


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("-vectorize-slp", "-vectorize-slp "),
        ("-target-cpu", "-target-cpu x86-64 "),
        ("-mframe-pointer", "-mframe-pointer=all "),
        ("-mframe-pointer=all", "-mframe-pointer=all "),
        ("-mllvm -inline-threshold", "-mllvm -inline-threshold=5 "),
        ("-mllvm --inline-threshold=5", "-mllvm -inline-threshold=5 "),
        ("-mllvm", "-mllvm -inline-threshold=5 -mllvm -enable-gvn-hoist "),
        ("-mframe-pointer=none", ""),
        ("-inline-threshold", ""),
        ("-vectorize", ""),
        ("x86-64", ""),
    ],
)
def test_deleted(name: str, gone: str) -> None:
    assert changed(flags_to_delete=(name,)) == " ".join(OPTIONS).replace(gone, "")


@pytest.mark.parametrize(
    ("name", "value", "old", "new"),
    [
        ("-target-cpu", "znver4", "-target-cpu x86-64 ", "-target-cpu znver4 "),
        ("-mframe-pointer", "none", "-mframe-pointer=all", "-mframe-pointer=none"),
        ("-Os", "-Oz", "-Os", "-Oz"),
        ("-mllvm -inline-threshold", "9", "-inline-threshold=5", "-inline-threshold=9"),
        ("-tune-cpu", "znver4", "", ""),
    ],
)
def test_only_existing_flags_are_replaced(name: str, value: str, old: str, new: str) -> None:
    assert changed(flags_to_replace={name: value}) == " ".join(OPTIONS).replace(old, new)


def test_a_missing_value_is_the_modules_fault() -> None:
    with pytest.raises(CorpusError, match="'-triple' is the last option"):
        ProblemConfig(flags_to_delete=("-Os",)).apply(("-cc1", "-triple"))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (ProblemConfig(flags_to_add=("-load", "x.so")), "flags_to_add: '-load' is not an option"),
        (
            ProblemConfig(flags_to_add=("-mllvm", "-info-output-file=x")),
            "flags_to_add: -mllvm '-info-output-file=x' is",
        ),
        (ProblemConfig(flags_to_add=("-fwrapv",)), "flags_to_add: '-fwrapv' does nothing"),
        (ProblemConfig(flags_to_add=("-Oz", "-D", "X")), "flags_to_add: '-D' does nothing"),
        (ProblemConfig(flags_to_add=("-target-cpu",)), "flags_to_add: '-target-cpu' is the last option"),
        (ProblemConfig(flags_to_add=("-target-cpu", "/x")), "flags_to_add: '-target-cpu /x'"),
        (ProblemConfig(flags_to_add=("@x",)), "flags_to_add: '@x'"),
        (ProblemConfig(flags_to_replace={"-target-cpu": "a b"}), "flags_to_replace: '-target-cpu a b'"),
        (ProblemConfig(flags_to_replace={"-Os": "-load"}), "flags_to_replace: '-load'"),
        (ProblemConfig(flags_to_delete=("Os",)), "flags_to_delete: expected options, found 'Os'"),
        (ProblemConfig(flags_to_delete=("-cc1",)), "flags_to_delete: expected options, found '-cc1'"),
    ],
)
def test_unusable_flags_are_refused(config: ProblemConfig, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        config.check()
    assert message in str(error.value)
    assert ".cmd" not in str(error.value)


def test_trusted_flags_may_be_any_that_do_something() -> None:
    ProblemConfig(flags_to_add=("-load", "x.so")).check(trusted=True)
    for words in (("-o", "x"), ("-D", "X"), ("x.c",)):
        with pytest.raises(ConfigError):
            ProblemConfig(flags_to_add=words).check(trusted=True)


FULL = ProblemConfig(("-Oz",), ("-g", "-mllvm -x"), {"-target-cpu": "y"})


def test_json_round_trip() -> None:
    assert ProblemConfig().to_json() == {}
    assert ProblemConfig.from_json({"seed": 1}) == ProblemConfig()
    assert ProblemConfig.from_json({**FULL.to_json(), "seed": 1}) == FULL
    assert hash(FULL) == hash(ProblemConfig.from_json(FULL.to_json()))


json_values = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=3), inner, max_size=2)),
    max_leaves=4,
)


@given(
    st.one_of(
        json_values,
        st.dictionaries(
            st.sampled_from(["flags_to_add", "flags_to_delete", "flags_to_replace", "x"]), json_values, max_size=4
        ),
    )
)
def test_whatever_a_policy_says_is_read_or_refused(value: object) -> None:
    try:
        config = ProblemConfig.from_json({"problem_config": value})
        config.check()
    except ConfigError as error:
        assert len(str(error).splitlines()) == 1
        return
    config.apply(OPTIONS)


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        (("-fprofile-instrument-use-path=a.profdata",), ("-fprofile-instrument-use-path=/x/b.profdata",)),
        (("-fprofile-instrument-use-path", "a.profdata"), ("-fprofile-instrument-use-path", "/x/b.profdata")),
    ],
)
def test_a_path_keeps_the_form_in_which_it_was_recorded(recorded: tuple[str, ...], expected: tuple[str, ...]) -> None:
    config = ProblemConfig(flags_to_replace={"-fprofile-instrument-use-path": "/x/b.profdata"})
    assert config.apply(("-cc1", *recorded, "-O2")) == ("-cc1", *expected, "-O2")
    config.check(trusted=True)
    with pytest.raises(ConfigError, match=r"-fprofile-instrument-use-path.*--trust_corpus"):
        config.check()
