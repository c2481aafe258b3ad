import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compiler_opt.corpus.builds.bazel_aquery import objects_of_aquery
from compiler_opt.errors import CorpusError
from tests.corpus.builds.archive_test import archived

# As Bazel prints it: a program of main.o and of a library with b.o and a.o; two sets of files share a third.
FRAGMENTS = [
    {"id": 1, "label": "lib"},
    {"id": 2, "label": "a.o", "parentId": 1},
    {"id": 3, "label": "b.o", "parentId": 1},
    {"id": 4, "label": "libx.a", "parentId": 1},
    {"id": 5, "label": "main.o"},
    {"id": 6, "label": "clang"},
    {"id": 7, "label": "program"},
    {"id": 8, "label": "a.o", "parentId": 9},
    {"id": 9, "label": "other"},
]
ARTIFACTS = [{"id": 10 * number, "pathFragmentId": number} for number in (2, 3, 4, 5, 6, 7, 8)]
SETS = [
    {"id": 1, "directArtifactIds": [20, 30]},
    {"id": 2, "directArtifactIds": [50, 60], "transitiveDepSetIds": [3]},
    {"id": 3, "directArtifactIds": [40], "transitiveDepSetIds": [2]},
]
ACTIONS = [
    {"mnemonic": "CppCompile", "inputDepSetIds": [1], "outputIds": [20]},
    {"mnemonic": "CppArchive", "inputDepSetIds": [1], "outputIds": [40], "arguments": ["ar", "rcs", "lib/libx.a"]},
    {
        "mnemonic": "CppLink",
        "inputDepSetIds": [2],
        "outputIds": [70],
        "arguments": ["clang", "-fuse-ld=lld", "@program-2.params"],
        "paramFiles": [{"execPath": "program-2.params", "arguments": ["-o", "program", "-shared", "other/a.o"]}],
    },
]
QUERY = {"actions": ACTIONS, "artifacts": ARTIFACTS, "depSetOfFiles": SETS, "pathFragments": FRAGMENTS}


def write(path: Path, query: Any) -> Path:
    path.write_text(json.dumps(query))
    return path


def test_objects_of_all_links_are_found_each_once(clang_path: str, tree: Path) -> None:
    archived(clang_path, tree, tree / "lib" / "libx.a", "lib/a.o", "lib/b.o")
    # The build makes the archive, so its objects are inputs themselves; Bazel 4 has one mnemonic for both actions.
    for mnemonic in ("CppArchive", "CppLink"):
        actions = [ACTIONS[0], {**ACTIONS[1], "mnemonic": mnemonic}, ACTIONS[2]]
        build = objects_of_aquery(write(tree / "aquery.json", {**QUERY, "actions": actions}), tree)
        assert [item.name for item in build.objects] == ["lib/a.o", "lib/b.o", "other/a.o", "main.o"]
        assert "-shared" in build.link_options
        assert build.skipped == {}
    # An archive that the build does not make is listed by its members.
    query = {**QUERY, "actions": ACTIONS[2:]}
    build = objects_of_aquery(write(tree / "aquery.json", query), tree)
    assert [item.name for item in build.objects] == ["other/a.o", "main.o", "lib/libx.a/a.o", "lib/libx.a/b.o"]


def test_old_queries_with_exec_paths_and_string_ids(tree: Path) -> None:
    query = {
        "actions": [{"mnemonic": "CppLink", "inputDepSetIds": ["1"], "arguments": ["clang", "lib/b.o"]}],
        "artifacts": [{"id": "7", "execPath": "lib/a.o"}],
        "depSetOfFiles": [{"id": "1", "directArtifactIds": ["7"]}],
    }
    build = objects_of_aquery(write(tree / "aquery.json", query), tree)
    assert [item.name for item in build.objects] == ["lib/b.o", "lib/a.o"]


def test_parameter_files_may_be_on_disk(tree: Path) -> None:
    (tree / "on-disk.params").write_text("lib/a.o\nlib/b.o")
    query = {"actions": [{"mnemonic": "CppLink", "arguments": ["clang", "@on-disk.params"]}]}
    build = objects_of_aquery(write(tree / "aquery.json", query), tree)
    assert [item.name for item in build.objects] == ["lib/a.o", "lib/b.o"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ([], "expected a mapping, found []; give what `bazel aquery"),
        ({}, "expected an action CppLink, found none; give what `bazel aquery"),
        ({"actions": [{"mnemonic": "CppCompile"}]}, "expected an action CppLink, found CppCompile"),
        ({"actions": [1]}, "actions: expected a mapping, found 1"),
        ({"actions": [{"mnemonic": "CppLink", "inputDepSetIds": [5]}]}, "there is no entry '5' in 'depSetOfFiles'"),
        ({"actions": [{"mnemonic": "CppLink", "arguments": 3}]}, "actions.arguments: expected a list, found 3"),
        ({**QUERY, "pathFragments": [{"id": n, "label": "x", "parentId": n} for n in range(9)]}, "at most 1024 levels"),
        ({**QUERY, "artifacts": [{"id": True}]}, "artifacts.id: expected int | str, found True"),
    ],
)
def test_queries_that_are_refused(tmp_path: Path, query: Any, message: str) -> None:
    with pytest.raises(CorpusError) as error:
        objects_of_aquery(write(tmp_path / "aquery.json", query), tmp_path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_invalid_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "aquery.json").write_bytes(b"actions {\n  mnemonic: \xff")
    with pytest.raises(CorpusError, match="expected JSON, found something else"):
        objects_of_aquery(tmp_path / "aquery.json", tmp_path)


LABELS = ("..", "/", "a.o", "x", "", "\0", "\ud800")
NUMBERS = st.integers(0, 9)
ENTRIES: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "actions": {
        "mnemonic": st.sampled_from(["CppLink", "CppArchive", "Other", 1]),
        "inputDepSetIds": st.lists(NUMBERS, max_size=3),
        "outputIds": st.lists(NUMBERS, max_size=2),
        "arguments": st.one_of(st.none(), st.lists(st.text(max_size=5), max_size=4)),
        "paramFiles": st.one_of(st.none(), st.lists(st.fixed_dictionaries({"execPath": st.text(max_size=3)}))),
    },
    "depSetOfFiles": {"id": NUMBERS, "directArtifactIds": st.lists(NUMBERS), "transitiveDepSetIds": st.lists(NUMBERS)},
    "artifacts": {"id": NUMBERS, "pathFragmentId": NUMBERS},
    "pathFragments": {"id": NUMBERS, "label": st.sampled_from(LABELS), "parentId": NUMBERS},
}


def entry_of(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    nothing: dict[str, st.SearchStrategy[Any]] = {}
    return st.fixed_dictionaries(nothing, optional=fields)


QUERIES: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {key: st.lists(entry_of(fields), max_size=6) for key, fields in ENTRIES.items()}
)


@given(QUERIES)
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_query_is_refused_or_gives_names_that_stay_inside(tmp_path: Path, query: Any) -> None:
    try:
        build = objects_of_aquery(write(tmp_path / "aquery.json", query), tmp_path)
    except CorpusError as error:
        assert "\n" not in str(error)
        return
    assert all(".." not in Path(item.name).parts and not Path(item.name).is_absolute() for item in build.objects)
