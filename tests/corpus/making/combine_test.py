"""Corpora are combined, or refused if they differ."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.making.combine import combine
from compiler_opt.errors import CorpusError, OutputError
from tests.small_corpus import make_corpus

NAME = "corpus_description.json"


@pytest.fixture(scope="module", name="made")
def made_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`first` (two projects) and `second` (one)."""
    root = tmp_path_factory.mktemp("corpora")
    for name, version, sources in (("first", 19, ("x/a.c", "y/b.c")), ("second", 22, ("x/a.c",))):
        (root / name).mkdir()
        make_corpus(root / name, f"clang-{version}", dict.fromkeys(sources, "int v;"))
    change(root / "second", projects=None)
    return root


@pytest.fixture(name="root")
def root_fixture(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "root")
    return tmp_path / "root"


def content(folder: Path) -> dict[str, Any]:
    description: dict[str, Any] = json.loads((folder / NAME).read_text())
    return description


def change(folder: Path, **values: Any) -> None:
    """Sets keys of a description; None removes one."""
    changed = content(folder) | values
    (folder / NAME).write_text(json.dumps({key: value for key, value in changed.items() if value is not None}))


def test_modules_and_projects_of_all(root: Path) -> None:
    (root / "notes").mkdir()
    result = combine(root)
    assert result.modules == {"first": 2, "second": 1} and result.others == ("notes",)
    assert content(root) == {
        "modules": ["first/x/a.c.o", "first/y/b.c.o", "second/x/a.c.o"],
        "has_thinlto": False,
        "projects": ["first/x", "first/y", "second"],
        # Not recorded, so read from the bitcode.
        "compiler": {"version": list(Corpus.load(root / "second").compiler_version() or ())},
    }
    corpus = Corpus.load(root)
    projects = {name: [module.name for module in modules] for name, modules in corpus.projects().items()}
    assert projects == {
        "first/x": ["first/x/a.c.o"],
        "first/y": ["first/y/b.c.o"],
        "second": ["second/x/a.c.o"],
    }
    assert corpus.compiler_version() is not None and corpus.compiler_version()[0] == 22  # type: ignore[index]


def test_what_all_agree_on_is_kept_and_the_newest_compiler_counts(root: Path) -> None:
    common = {"global_command_override": ["-cc1", "-O2"], "note": {"by": "us"}}
    change(root / "first", **common, compiler={"version": [22, 1, 8], "vendor": "d", "host": "a"})
    change(root / "second", **common, compiler={"version": [19, 1, 7], "vendor": "d", "host": "b"}, has_thinlto=None)
    combine(root)
    combined = content(root)
    assert combined["compiler"] == {"version": [22, 1, 8], "vendor": "d"}
    assert {key: combined[key] for key in common} == common
    assert Corpus.load(root).modules[0].options() == ("-cc1", "-O2")


@pytest.mark.parametrize(
    ("key", "value"), [("global_command_override", ["-cc1", "-O2"]), ("note", 3), ("has_thinlto", True)]
)
def test_corpora_that_differ_are_refused_by_name(key: str, value: Any, root: Path) -> None:
    change(root / "second", **{key: value})
    with pytest.raises(CorpusError) as error:
        combine(root)
    assert f"the corpora 'first' and 'second' differ in {key!r}" in str(error.value)
    assert repr(value) in str(error.value)
    assert not (root / NAME).exists()


def test_combining_again_and_nested(root: Path, tmp_path: Path) -> None:
    combine(root)
    shutil.copytree(root / "first", root / "third")
    assert combine(root).modules == {"first": 2, "second": 1, "third": 2}
    # A combined corpus can be combined again.
    assert combine(tmp_path).modules == {"root": 5}
    assert "root/third/y" in Corpus.load(tmp_path).projects()


def test_a_description_of_other_modules_is_replaced_only_on_request(root: Path) -> None:
    shutil.copytree(root / "first", root, dirs_exist_ok=True)
    before = (root / NAME).read_bytes()
    with pytest.raises(OutputError, match="lists other modules than those of the sub-folders"):
        combine(root)
    assert (root / NAME).read_bytes() == before
    assert sum(combine(root, overwrite=True).modules.values()) == 3


def test_links(root: Path, tmp_path: Path) -> None:
    shutil.move(root / "second", tmp_path / "outside")
    (root / "second").symlink_to(tmp_path / "outside")
    with pytest.raises(CorpusError, match=r"second: is a link that leaves the folder"):
        combine(root)
    (root / "second").unlink()
    (root / "second").symlink_to(root / "first")
    with pytest.raises(CorpusError, match="'first' and 'second' are the same corpus"):
        combine(root)


def test_nothing_to_combine(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="cannot be read"):
        combine(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorpusError, match="none of 1 sub-folders is a corpus"):
        combine(tmp_path)


def test_a_damaged_part_is_named(root: Path) -> None:
    (root / "second" / "x" / "a.c.o.bc").write_text("no bitcode")
    with pytest.raises(CorpusError, match=r"second/x/a\.c\.o\.bc: expected LLVM bitcode"):
        combine(root)
