import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from compiler_opt.corpus.ready_made import manifest
from compiler_opt.errors import CorpusError

PROJECT: dict[str, Any] = {
    "licence": "MIT",
    "language": "c",
    "archive": {"name": "example", "version": "1.0", "sha256": "0" * 64},
    "root": ".",
    "sources": ["*.c"],
}


def write(path: Path, content: Any) -> Path:
    path.write_text(yaml.safe_dump(content))
    return path


def with_project(**changes: Any) -> dict[str, Any]:
    project = {key: value for key, value in {**PROJECT, **changes}.items() if value is not None}
    return {"projects": {"one": project}, "sets": {"small": {"train": ["one"]}}}


def test_the_shipped_manifest_keeps_its_promises() -> None:
    known = manifest.load()
    splits = known.split("small")
    languages = {split: [project.language for project in projects] for split, projects in splits.items()}
    assert languages["held_out"].count("c++") >= 3
    assert languages["held_out"].count("c") >= 2
    assert {"c", "c++"} <= set(languages["train"])
    assert len(languages["train"]) >= 8
    smoke = known.split("smoke")
    assert {project.language for projects in smoke.values() for project in projects} == {"c", "c++"}
    used = {name for splits in known.sets.values() for names in splits.values() for name in names}
    assert used == set(known.projects)


def test_the_larger_sets_are_as_large_as_they_are_said_to_be() -> None:
    known = manifest.load()
    modules = {}
    for name in ("small", "standard", "large"):
        projects = [project for split in known.split(name).values() for project in split]
        modules[name] = sum(project.measured.modules for project in projects)
        assert len(projects) >= 20
    assert modules["standard"] >= 1_500
    assert modules["small"] < modules["standard"] < modules["large"]
    for name in ("standard", "large"):
        assert set(known.sets[name]) == {"train", "validation", "held_out"}
        validation = known.split(name)["validation"]
        assert {project.language for project in validation} == {"c", "c++"}
    assert all(project.measured.modules and project.measured.num_bytes for project in known.projects.values())
    assert all(project.archive.num_bytes for project in known.projects.values())


def test_each_set_grows_from_the_one_before_and_holds_out_the_same() -> None:
    sets = manifest.load().sets
    assert set(sets["small"]["train"]) < set(sets["standard"]["train"]) < set(sets["large"]["train"])
    assert sets["small"]["held_out"] == sets["standard"]["held_out"] == sets["large"]["held_out"]
    assert set(sets["standard"]["validation"]) < set(sets["large"]["validation"])
    # Fixed before the first training run; published results name them.
    assert sets["small"]["held_out"] == ("box2d", "cmark", "h3", "jsonnet", "leveldb", "libsass", "opentimelineio")


def test_projects_that_nobody_has_looked_at_are_in_a_set_of_their_own() -> None:
    """Otherwise they would be compiled, and looked at, by accident."""
    known = manifest.load()
    assert {name for name, splits in known.sets.items() if "test" in splits} == {"test"}
    assert set(known.sets["test"]) == {"test"}
    languages = [project.language for project in known.split("test")["test"]]
    assert languages.count("c") == languages.count("c++") >= 8
    assert all(5 <= project.measured.modules <= 150 for project in known.split("test")["test"])
    archives = [project.archive.name for project in known.split("test")["test"]]
    assert len(set(archives)) == len(archives)


def test_no_archive_is_on_two_sides_in_any_set() -> None:
    """Projects bundled in one archive may share a library."""
    known = manifest.load()
    sides: dict[str, set[str]] = {}
    for splits in known.sets.values():
        for split, names in splits.items():
            for name in names:
                sides.setdefault(known.projects[name].archive.name, set()).add(split)
    assert {archive for archive, splits in sides.items() if len(splits) > 1} == set()


def test_licences_are_spdx_expressions_of_known_licences() -> None:
    """Tools would not recognise a misspelt name."""
    words = {
        word
        for project in manifest.load().projects.values()
        for word in re.findall(r"[\w.+-]+", project.licence)
        if word not in ("AND", "OR", "WITH")
    }
    known = {
        *("Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CDDL-1.0", "GPL-2.0-or-later", "GPL-3.0-only"),
        *("GPL-3.0-or-later", "ISC", "LGPL-2.1-only", "LGPL-2.1-or-later", "LGPL-3.0-or-later", "MIT", "MPL-1.1"),
        *("MPL-2.0", "NCSA", "SMLNJ", "Unlicense", "Zlib", "zlib-acknowledgement"),
        "LicenseRef-AGG-2.4",  # Permits everything if the notice stays; not on SPDX's list.
        "LicenseRef-QuickFIX-1.0",  # A BSD licence with an advertising clause, not on SPDX's list.
    }
    assert words == known


def test_an_archive_is_pinned_the_same_way_by_all_its_projects() -> None:
    archives = {project.archive for project in manifest.load().projects.values()}
    assert len({archive.name for archive in archives}) == len(archives)


def test_projects_for_other_architectures_are_left_out() -> None:
    content = with_project(architectures=["x86_64", "riscv64"])
    known = manifest.load(write_temporary(content))
    assert known.for_architecture("riscv64") == known
    assert known.for_architecture("aarch64") == manifest.Manifest({}, {"small": {"train": ()}})
    # Adding an architecture does not invalidate what is already built.
    anywhere = manifest.load(write_temporary(with_project())).projects["one"]
    assert known.projects["one"].digest() == anywhere.digest()
    shipped = manifest.load()
    assert shipped.for_architecture("x86_64") == shipped
    assert "minimap2" not in shipped.for_architecture("aarch64").projects


def test_sources_are_selected_by_patterns() -> None:
    content = with_project(sources=["*.c", "lib/**/*.c", "deep/*/x.c"], exclude=["**/*_test.c", "lib/win/*"])
    project = manifest.load(write_temporary(content)).projects["one"]
    paths = [
        "b.c",
        "a.c",
        "a_test.c",
        "lib/a.c",
        "lib/x/y/b.c",
        "lib/x/b_test.c",
        "lib/win/c.c",
        "deep/x.c",
        "deep/1/x.c",
    ]
    assert project.select(paths) == ["a.c", "b.c", "deep/1/x.c", "lib/a.c", "lib/x/y/b.c"]


@pytest.fixture(autouse=True)
def fresh_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_temporary(content: Any) -> Path:
    return write(Path.cwd() / "manifest.yaml", content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "expected a mapping"),
        ({"projects": {}}, "expected the key 'sets'"),
        ({"projects": {}, "sets": {}, "more": 1}, "unknown key 'more'"),
        (with_project(licence=None), "project one: expected the key 'licence'"),
        (with_project(licenc="MIT"), "project one: unknown key 'licenc'"),
        (with_project(language="rust"), "language: expected one of c, c++, found 'rust'"),
        (
            with_project(archive={"name": "x", "version": "1.0", "sha256": "abc"}),
            "archive.sha256: expected str matching",
        ),
        (
            with_project(archive={"name": "x", "version": 1.0, "sha256": "0" * 64}),
            "archive.version: expected str, found 1.0",
        ),
        (with_project(root="../elsewhere"), "stays inside"),
        (with_project(sources="*.c"), "sources: expected a list, found"),
        (with_project(generated={"/etc/passwd": "x"}), "stays inside"),
        (with_project(generated={"a.h": {"template": "../x", "values": {}}}), "stays inside"),
        ({**with_project(), "sets": {"small": {"train": ["two"]}}}, "there is no project 'two'"),
        (
            {**with_project(), "sets": {"small": {"train": ["one"], "held_out": ["one"]}}},
            "'one' is in both held_out and train",
        ),
        (
            {**with_project(), "sets": {"small": {"train": ["one"]}, "large": {"validation": ["one"]}}},
            "project 'one' is in validation of the set large, and in train of small",
        ),
        (
            {**with_project(), "sets": {"small": {"dev": ["one"]}}},
            "expected the splits train, validation, held_out, test, found 'dev'",
        ),
        (with_project(measured={"modules": -1}), "measured.modules: expected int >= 0, found -1"),
        (with_project(measured={"bytes": "many"}), "measured.bytes: expected int, found 'many'"),
        (with_project(measured={"functions": 1}), "project one: measured: unknown key 'functions'"),
        (with_project(archive={**PROJECT["archive"], "bytes": True}), "archive.bytes: expected int, found True"),
    ],
)
def test_manifests_that_are_refused(content: Any, message: str) -> None:
    path = write_temporary(content)
    with pytest.raises(CorpusError) as error:
        manifest.load(path)
    assert message in str(error.value)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_what_is_not_yaml() -> None:
    path = Path.cwd() / "manifest.yaml"
    path.write_text("a: [")
    with pytest.raises(CorpusError, match="expected YAML") as error:
        manifest.load(path)
    assert "\n" not in str(error.value)


def test_an_unknown_set_is_named_with_those_that_exist() -> None:
    with pytest.raises(CorpusError, match=r"no ready-made corpus 'huge'; there are: large, small, .*, test"):
        manifest.load().split("huge")


def test_templates_are_filled_in_as_cmake_does() -> None:
    template = (
        '#define VERSION "@MAJOR@.@MINOR@"\n'
        "#cmakedefine HAVE_X\n"
        "#cmakedefine HAVE_Y\n"
        "#cmakedefine NAME @NAME@\n"
        "#  cmakedefine01 USE_X\n"
        "#cmakedefine01 USE_Y\n"
    )
    values = {"MAJOR": "3", "MINOR": "1", "HAVE_X": "1", "NAME": "n", "USE_X": "1"}
    assert manifest.configure(template, values) == (
        '#define VERSION "3.1"\n'
        "#define HAVE_X\n"
        "/* #undef HAVE_Y */\n"
        "#define NAME n\n"
        "#  define USE_X 1\n"
        "#define USE_Y 0\n"
    )


def test_the_digest_follows_every_field() -> None:
    one = manifest.load(write_temporary(with_project())).projects["one"]
    two = manifest.load(write(Path.cwd() / "two.yaml", with_project(flags=["-DX"]))).projects["one"]
    assert one.digest() != two.digest()


def test_the_digest_ignores_figures_that_are_only_shown() -> None:
    """Otherwise updating the measurements would invalidate all corpora."""
    one = manifest.load(write_temporary(with_project())).projects["one"]
    measured = with_project(measured={"modules": 7, "bytes": 1000}, archive={**PROJECT["archive"], "bytes": 5})
    two = manifest.load(write(Path.cwd() / "two.yaml", measured)).projects["one"]
    assert (two.measured, two.archive.num_bytes) == (manifest.Measured(7, 1000), 5)
    assert one.digest() == two.digest()
