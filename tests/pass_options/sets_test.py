"""Files of sets of options."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_opt.errors import ConfigError
from compiler_opt.llvm.pass_options import parse_option
from compiler_opt.pass_options.sets import LEVELS, OptionSets, architecture_of, shipped

OPTIONS = st.lists(st.from_regex(r"-[a-z][a-z0-9-]{0,12}(=[a-z0-9]{1,5})?", fullmatch=True), max_size=6)
SETS = st.dictionaries(st.sampled_from(LEVELS), OPTIONS, max_size=4)
TARGETS = st.dictionaries(st.sampled_from(["aarch64", "riscv64", "x86_64"]), SETS, max_size=2)


def written(folder: Path, content: Any) -> Path:
    path = folder / "options.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@settings(max_examples=30)
@given(SETS, TARGETS)
def test_a_file_has_the_first_of_each_name(
    tmp_path_factory: pytest.TempPathFactory, levels: dict[str, list[str]], targets: dict[str, dict[str, list[str]]]
) -> None:
    """Against a slow and obvious count; and what is saved is what was loaded."""
    folder = tmp_path_factory.mktemp("sets")
    sets = OptionSets.load(written(folder, {"format": 1, "levels": levels, "targets": targets}))
    repeated = []
    for architecture, of_levels in (("", levels), *targets.items()):
        for level, options in of_levels.items():
            names = [parse_option(option)[0] for option in options]
            first = [option for index, option in enumerate(options) if names[index] not in names[:index]]
            found = sets.levels[level] if not architecture else sets.targets[architecture][level]
            assert list(found) == first
            repeated += [
                (architecture, level, each) for index, each in enumerate(options) if names[index] in names[:index]
            ]
    assert list(sets.repeated) == repeated
    sets.save(folder / "saved.json")
    saved = OptionSets.load(folder / "saved.json")
    assert (saved.levels, saved.targets, saved.repeated) == (sets.levels, sets.targets, ())


def test_a_target_replaces_sets() -> None:
    sets = OptionSets({"Oz": ("-a",), "O2": ("-b",)}, {"riscv64": {"Oz": (), "Os": ("-c",)}})
    assert [sets.options(level, "x86_64") for level in LEVELS] == [("-b",), (), (), ("-a",)]
    assert [sets.options(level, "riscv64") for level in LEVELS] == [("-b",), (), ("-c",), ()]
    for level in LEVELS:
        for target in ("x86_64", "riscv64"):
            assert [sets.at(level).options(other, target) for other in LEVELS] == [
                sets.options(other, target) if other == level else () for other in LEVELS
            ]
    assert sets.at("O3") == OptionSets({}) != sets.at("Oz")


@pytest.mark.parametrize(
    "target, expected",
    [
        *((target, "arm") for target in ("armv7-linux-gnueabihf", "thumbv7em-none-eabi", "thumbv8m.main", "arm")),
        *(("arm64-apple-macos14", "aarch64"), ("aarch64-linux-gnu", "aarch64"), ("x86_64-linux-gnu", "x86_64")),
    ],
)
def test_one_name_for_all_targets_of_a_kind(target: str, expected: str) -> None:
    assert architecture_of(target) == expected
    first = target.partition("-")[0]
    if first != expected and "." not in first:
        with pytest.raises(ConfigError, match=f"expected the architecture {expected} "):
            OptionSets({}, {first: {}})


def test_a_menu_is_of_whole_sets(tmp_path: Path) -> None:
    """Each entry takes the place of the same options of the constant set, which is the first."""
    menus = {"x86_64": {"Oz": (("-c",), ("-a=1", "-c"))}}
    sets = OptionSets({"Oz": ("-a=0", "-b"), "O2": ("-a=0",)}, menus=menus)
    assert sets.menu("Oz", "x86_64") == (("-a=0", "-b"), ("-a=0", "-b", "-c"), ("-b", "-a=1", "-c"))
    assert sets.menu("O2", "x86_64") == sets.menu("Oz", "riscv64") == ()
    assert sets.at("Oz").menu("Oz", "x86_64") == sets.menu("Oz", "x86_64")
    sets.save(tmp_path / "options.json")
    assert OptionSets.load(tmp_path / "options.json") == sets


def test_a_plugin_is_for_what_the_compiler_tries(tmp_path: Path) -> None:
    """No file may name one, since compilers load it."""
    menus = {"x86_64": {"Oz": (("-passes=mine", "-a=1"),)}}
    sets = OptionSets({}, menus=menus, plugin=tmp_path / "mine.so")
    assert sets and sets.by_function("Oz", "x86_64") is None
    tried = dataclasses.replace(sets, trials=1)
    options = tried.by_function("Oz", "x86_64")
    assert options is not None and options.plugin == tmp_path / "mine.so"
    sets.save(tmp_path / "options.json")
    assert OptionSets.load(tmp_path / "options.json") == dataclasses.replace(sets, plugin=None)
    with pytest.raises(ConfigError, match=r"mine\.so: No such file"):
        options.text()
    texts = set()
    for content in ("one", "other"):
        (tmp_path / "mine.so").write_text(content)
        texts |= {options.text(), options.embedded_source()}
    assert len(texts) == 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "options.json: "),
        ({"levels": {}}, "format"),
        ({"format": 2, "levels": {}}, "format"),
        ({"format": 1, "levels": {}, "level": {}}, "level"),
        ({"format": 1, "levels": {"O1": ["-a"]}}, "levels: expected one of O2, O3, Os, Oz; found 'O1'"),
        ({"format": 1, "levels": {"Oz": "-a"}}, "options.json: "),
        ({"format": 1, "levels": {"Oz": ["a"]}}, "Oz: expected an option of LLVM's such as"),
        ({"format": 1, "levels": {"Oz": ["-a=/etc/x"]}}, "Oz: expected an option of LLVM's such as"),
        ({"format": 1, "levels": {"Oz": [f"-a{i}" for i in range(201)]}}, "options.json: "),
        ({"format": 1, "levels": {}, "targets": {"a-b": {}}}, "expected an architecture such as aarch64"),
        ({"format": 1, "levels": {}, "menus": {"a-b": {}}}, "expected an architecture such as aarch64"),
        ({"format": 1, "levels": {}, "menus": {"x86_64": {"Oz": ["-a"]}}}, "options.json: "),
        ({"format": 1, "levels": {}, "menus": {"x86_64": {"Oz": [["a"]]}}}, "Oz: expected an option of LLVM's such as"),
        ({"format": 1, "levels": {}, "menus": {"x86_64": {"O1": [[]]}}}, "levels: expected one of O2, O3, Os, Oz"),
        ('{"format": 1, "levels": {}' + " " * (1 << 20) + "}", "options.json: "),
    ],
)
def test_malformed_files(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        OptionSets.load(written(tmp_path, content))
    assert str(raised.value).startswith(f"{tmp_path / 'options.json'}: ") and message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing.json: no such file; docs/pass_options.md describes the file"):
        OptionSets.load(tmp_path / "missing.json")


def test_an_option_twice_is_no_set() -> None:
    with pytest.raises(ConfigError, match="Oz: -a is given twice"):
        OptionSets({"Oz": ("-a", "--a=1")})


def test_each_version_has_the_nearest_sets() -> None:
    """All that ship can be loaded, without anything twice."""
    for major in (19, 22):
        sets = shipped(major)
        assert sets.levels["Oz"] and not sets.repeated
        for architecture, levels in sets.menus.items():
            assert all(len(sets.menu(level, architecture)) > 1 for level in levels)
    assert shipped(17) == shipped(19)
    assert shipped(30) == shipped(22)
