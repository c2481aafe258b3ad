import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module, check_name, format_options, parse_options
from compiler_opt.corpus.sampling import make_sampler
from compiler_opt.errors import ConfigError, CorpusError

BITCODE = b"BC\xc0\xde" + bytes.fromhex("35140000 01000000 00000000".replace(" ", ""))
"""The shortest valid bitcode: the magic and one block of one word."""

OPTIONS = b"-cc1\0-Oz\0"


def write_corpus(root: Path, names: list[str], **extra: Any) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Path(f"{root / name}.bc").write_bytes(BITCODE)
        Path(f"{root / name}.cmd").write_bytes(OPTIONS)
    write_description(root, {"modules": names, "has_thinlto": False, **extra})
    return root


def write_description(root: Path, content: Any) -> None:
    (root / "corpus_description.json").write_text(json.dumps(content))


def refusal(action: Callable[[], Any]) -> str:
    with pytest.raises(CorpusError) as error:
        action()
    assert len(str(error.value).splitlines()) == 1
    return str(error.value)


def test_modules_and_projects(tmp_path: Path) -> None:
    names = ["db/a.o", "db/sub/b.o", "util/c.o", "db-extra/d.o"]
    corpus = Corpus.load(write_corpus(tmp_path, names, projects=["db", "db-extra", "util"]))
    assert [module.name for module in corpus.modules] == names
    assert {project: [module.name for module in modules] for project, modules in corpus.projects().items()} == {
        "db": ["db/a.o", "db/sub/b.o"],
        "util": ["util/c.o"],
        "db-extra": ["db-extra/d.o"],
    }
    module = corpus.by_name["util/c.o"]
    assert module.bitcode_path == tmp_path / "util/c.o.bc"
    assert module.options() == ("-cc1", "-Oz")


def test_a_project_inside_another_wins(tmp_path: Path) -> None:
    corpus = Corpus.load(write_corpus(tmp_path, ["a/b/m.o", "a/m.o"], projects=["a", "a/b"]))
    assert [module.project for module in corpus.modules] == ["a/b", "a"]


def test_without_projects_the_folder_is_one(tmp_path: Path) -> None:
    corpus = Corpus.load(write_corpus(tmp_path / "mine", ["m.o"]))
    assert list(corpus.projects()) == ["mine"]
    assert Corpus.load(tmp_path / "mine" / "corpus_description.json").projects() == corpus.projects()


def test_selection(tmp_path: Path) -> None:
    corpus = Corpus.load(write_corpus(tmp_path, ["a/1.o", "a/2.o", "b/1.o"], projects=["a", "b"]))
    assert [module.name for module in corpus.select(["a"]).modules] == ["a/1.o", "a/2.o"]
    assert "no project 'x' in this corpus; it has 'a, b'" in refusal(lambda: corpus.select(["x"]))


def test_filter(tmp_path: Path) -> None:
    corpus = Corpus.load(write_corpus(tmp_path, ["a/1.o", "a/2.o", "b/1.o"], projects=["a", "b"]))
    assert [module.name for module in corpus.filter("1[.]o$").modules] == ["a/1.o", "b/1.o"]
    assert [module.name for module in corpus.filter(lambda module: module.project == "b").modules] == ["b/1.o"]
    cases: list[tuple[str | Callable[[Module], bool], str]] = [
        ("x", "'x' matches none of 3"),
        ("(", "'(': not a regular"),
        (lambda _: False, "none of 3"),
    ]
    for keep, message in cases:
        with pytest.raises(ConfigError) as error:
            corpus.filter(keep)
        assert message in str(error.value)


def test_global_command_override(tmp_path: Path) -> None:
    write_corpus(tmp_path, ["m.o"], global_command_override=["-cc1", "-O3"])
    (tmp_path / "m.o.cmd").unlink()
    assert Corpus.load(tmp_path).modules[0].options() == ("-cc1", "-O3")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "expected a mapping, found []"),
        ({}, "expected the key 'modules'"),
        ({"modules": []}, "the corpus is empty"),
        ({"modules": "m.o"}, "modules: expected a list, found 'm.o'"),
        ({"modules": ["m.o", "m.o"]}, "'m.o' is listed twice"),
        ({"modules": [""]}, "module name: expected a path, found"),
        ({"modules": [7]}, "module name: expected a path, found 7"),
        ({"modules": ["../../x"]}, "found '../../x'"),
        ({"modules": ["a/../../x"]}, "stays inside the corpus"),
        ({"modules": ["/etc/passwd"]}, "found '/etc/passwd'"),
        ({"modules": ["a\0b"]}, "expected a path, found one with a NUL"),
        ({"modules": ["m.o"], "has_thinlto": "no"}, "has_thinlto: expected bool, found 'no'"),
        (
            {"modules": ["m.o"], "global_command_override": "-cc1"},
            "global_command_override: expected a list | None, found '-cc1'",
        ),
        ({"modules": ["m.o"], "global_command_override": ["-cc1", "x" * (1 << 20)]}, "expected at most 1048576 bytes"),
        ({"modules": ["m.o"], "projects": "m"}, "projects: expected a list, found 'm'"),
        ({"modules": ["m.o"], "projects": ["p"]}, "'m.o' belongs to none of 'projects'"),
        ({"modules": ["m.o"], "compiler": {"version": "22"}}, "compiler.version: expected a list"),
    ],
)
def test_descriptions_that_are_refused(tmp_path: Path, content: Any, message: str) -> None:
    write_description(tmp_path, content)
    text = refusal(lambda: Corpus.load(tmp_path))
    assert message in text
    assert text.startswith(str(tmp_path / "corpus_description.json"))


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000])
def test_what_is_not_json(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "corpus_description.json").write_bytes(content)
    assert "expected JSON" in refusal(lambda: Corpus.load(tmp_path))


def test_a_huge_description_is_refused_unread(tmp_path: Path) -> None:
    """A sparse file of 4 GiB."""
    with (tmp_path / "corpus_description.json").open("wb") as file:
        file.truncate(4 << 30)
    assert "expected at most 134217728 bytes, found 4294967296" in refusal(lambda: Corpus.load(tmp_path))


def test_fifos_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "corpus_description.json")
    assert "corpus_description.json: cannot be read (expected a file" in refusal(lambda: Corpus.load(tmp_path))
    write_corpus(tmp_path / "corpus", ["m.o"])
    for ending in (".cmd", ".bc"):
        (tmp_path / f"corpus/m.o{ending}").unlink()
        os.mkfifo(tmp_path / f"corpus/m.o{ending}")
        assert f"m.o{ending}: expected a file" in refusal(lambda: Corpus.load(tmp_path / "corpus"))


def test_names_with_newlines_and_other_bytes_load_and_are_shown_in_one_line(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9\n\xc2\x85.o")
    (corpus,) = [Corpus.load(write_corpus(tmp_path, [name]))]
    assert corpus.modules[0].name == name
    (tmp_path / f"{name}.bc").write_bytes(b"")
    assert "caf\\udce9\\n\\x85.o.bc: expected LLVM bitcode" in refusal(lambda: Corpus.load(tmp_path))
    (tmp_path / f"{name}.bc").unlink()
    assert "caf\\udce9\\n\\x85.o.bc: no such file" in refusal(lambda: Corpus.load(tmp_path))
    (tmp_path / f"{name}.cmd").unlink()
    assert "caf\\udce9\\n\\x85.o.cmd: cannot be read" in refusal(corpus.modules[0].options)


@pytest.mark.parametrize("name", ["\ud800", "a/\udfff", "x" * 300, "a/" * 3000 + "b"])
def test_names_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    write_description(tmp_path, {"modules": [name], "has_thinlto": False})
    refusal(lambda: Corpus.load(tmp_path))


def test_no_corpus(tmp_path: Path) -> None:
    text = refusal(lambda: Corpus.load(tmp_path / "none"))
    assert "is no corpus" in text
    assert "fetch_corpus" in text


@pytest.mark.parametrize("ending", [".bc", ".cmd"])
def test_files_that_are_missing_or_elsewhere(tmp_path: Path, ending: str) -> None:
    write_corpus(tmp_path / "corpus", ["p/m.o"])
    path = tmp_path / "corpus" / f"p/m.o{ending}"
    outside = tmp_path / path.name
    path.rename(outside)
    assert f"{path}: no such file" in refusal(lambda: Corpus.load(tmp_path / "corpus"))
    path.symlink_to(outside)
    assert f"{path}: is a link that leaves the corpus" in refusal(lambda: Corpus.load(tmp_path / "corpus"))
    path.unlink()
    path.mkdir()
    assert f"{path}: expected a file" in refusal(lambda: Corpus.load(tmp_path / "corpus"))


def test_an_index_that_is_elsewhere(tmp_path: Path) -> None:
    """`X.thinlto.bc` is optional; the compiler reads it if the options are a ThinLTO backend's."""
    write_corpus(tmp_path / "corpus", ["m.o"], has_thinlto=True)
    index = tmp_path / "corpus" / "m.o.thinlto.bc"
    index.symlink_to(tmp_path / "absent")
    assert f"{index}: " in refusal(lambda: Corpus.load(tmp_path / "corpus"))
    (tmp_path / "absent").write_bytes(BITCODE)
    assert f"{index}: is a link that leaves the corpus" in refusal(lambda: Corpus.load(tmp_path / "corpus"))
    index.unlink()
    index.write_bytes(BITCODE)
    assert Corpus.load(tmp_path / "corpus").has_thinlto


def test_a_linked_folder_that_leaves_is_refused_and_one_that_stays_is_not(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", ["p/m.o", "q/m.o"])
    (corpus / "p").rename(corpus / "kept")
    (corpus / "p").symlink_to(corpus / "kept")
    assert len(Corpus.load(corpus).modules) == 2
    (corpus / "p").unlink()
    (corpus / "kept").rename(tmp_path / "outside")
    (corpus / "p").symlink_to(tmp_path / "outside")
    assert f"{corpus / 'p'}: is a link that leaves the corpus" in refusal(lambda: Corpus.load(corpus))


@pytest.mark.parametrize("data", [b"", BITCODE[:-4], BITCODE[:2], b"\x7fELF" + bytes(100)])
def test_damaged_bitcode(tmp_path: Path, data: bytes) -> None:
    write_corpus(tmp_path, ["m.o"])
    (tmp_path / "m.o.bc").write_bytes(data)
    text = refusal(lambda: Corpus.load(tmp_path))
    assert text.startswith(f"{tmp_path / 'm.o.bc'}: expected")
    assert "extract the corpus again" in text


@pytest.mark.parametrize("data", [b"", b"\0", b"x" * (2 << 20)])
def test_unusable_options(tmp_path: Path, data: bytes) -> None:
    module = Corpus.load(write_corpus(tmp_path, ["m.o"])).modules[0]
    module.command_path.write_bytes(data)
    reason = refusal(module.options)
    assert reason.startswith(f"{module.command_path}: ") and "expected" in reason
    module.command_path.unlink()
    assert "cannot be read" in refusal(module.options)


def test_an_older_compiler_is_refused_by_name(tmp_path: Path) -> None:
    corpus = Corpus.load(write_corpus(tmp_path, ["m.o"], compiler={"version": [22, 1, 8]}))
    corpus.check_compiler((22, 0, 0))
    corpus.check_compiler((23, 0, 0))
    text = refusal(lambda: corpus.check_compiler((19, 1, 7), "/usr/bin/clang-19"))
    assert "written by LLVM 22.1.8 cannot be read by /usr/bin/clang-19 (LLVM 19.1.7); use a clang >= 22" in text


def test_an_unrecorded_compiler_is_accepted(tmp_path: Path) -> None:
    corpus = Corpus.load(write_corpus(tmp_path, ["m.o"]))
    assert corpus.compiler_version() is None
    corpus.check_compiler((17, 0, 0))


def test_targets_are_counted(tmp_path: Path) -> None:
    corpus = Corpus.load(write_corpus(tmp_path, ["a.o", "b.o", "c.o"]))
    for name, options in (("a", ("-triple", "x")), ("b", ("-triple", "z", "-triple", "y")), ("c", ("-triple", "y"))):
        (tmp_path / f"{name}.o.cmd").write_bytes(format_options(["-cc1", *options]))
    assert list(corpus.targets("own").items()) == [("y", 2), ("x", 1)]
    (tmp_path / "a.o.cmd").write_bytes(format_options(["-cc1", "-O2"]))
    assert corpus.targets("own") == {"y": 2, "own": 1}


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1))
def test_options_round_trip(options: list[str]) -> None:
    data = format_options(options)
    assert data.endswith(b"\0")
    if data != b"\0":
        assert parse_options(data) == tuple(options)


@given(st.binary(min_size=1, max_size=300))
def test_any_bytes_are_options_and_survive(data: bytes) -> None:
    try:
        options = parse_options(data)
    except CorpusError:
        assert data == b"\0"
        return
    assert format_options(options) == (data if data.endswith(b"\0") else data + b"\0")


@given(st.text(st.characters(categories=None), max_size=30))
def test_names_that_pass_stay_inside(name: str) -> None:
    try:
        check_name(name)
    except CorpusError as error:
        assert len(str(error).splitlines()) == 1
        return
    root = Path("/corpus")
    assert (root / f"{name}.bc").is_relative_to(root)
    assert ".." not in Path(name).parts


any_text = st.text(st.characters(categories=None), max_size=8)  # including lone surrogates
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), any_text),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(any_text, inner, max_size=3)),
    max_leaves=6,
)


@given(
    st.fixed_dictionaries(
        {"modules": json_values},
        optional={
            "has_thinlto": json_values,
            "projects": json_values,
            "compiler": json_values,
            "global_command_override": json_values,
        },
    )
)
def test_any_description_is_refused_in_one_line_or_loads(
    tmp_path_factory: pytest.TempPathFactory, content: Any
) -> None:
    root = tmp_path_factory.mktemp("corpus")
    write_description(root, content)
    refusal(lambda: Corpus.load(root))  # The modules' files are missing, so it never loads.


def test_a_thousand_modules_load_and_are_selected_filtered_and_sampled(tmp_path: Path) -> None:
    write_corpus(
        tmp_path, [f"p{number % 20}/m{number}.o" for number in range(1_000)], projects=[f"p{n}" for n in range(20)]
    )
    corpus = Corpus.load(tmp_path)
    assert len(corpus.select(["p1", "p7"]).modules) == 100
    assert len(corpus.filter("7[.]o$").modules) == 100
    for kind in ("uniform", "size"):
        sampler = make_sampler(kind, corpus.modules, 1)
        assert all(len(sampler.draw(position, 16)) == 16 for position in range(0, 160, 16))


def test_a_sample_of_projects_only_grows(tmp_path: Path) -> None:
    names = [f"p{number % 3}/m{number}.o" for number in range(30)]
    write_corpus(tmp_path, names, projects=["p0", "p1", "p2"])
    corpus = Corpus.load(tmp_path)
    assert corpus.sample(None, 0) == corpus.sample(10, 0) == corpus
    few, more = corpus.sample(2, 0), corpus.sample(5, 0)
    assert [len(modules) for modules in few.projects().values()] == [2, 2, 2]
    assert set(few.modules) < set(more.modules) and few == corpus.sample(2, 0) != corpus.sample(2, 1)
    assert [module for module in corpus.modules if module in few.modules] == list(few.modules)
    assert corpus.select(["p1"]).sample(2, 0).modules == few.select(["p1"]).modules
