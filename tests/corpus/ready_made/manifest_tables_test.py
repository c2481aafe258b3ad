from pathlib import Path

from compiler_opt.corpus.ready_made import manifest
from compiler_opt.corpus.ready_made.manifest import Archive, Manifest, Measured, Project

DOCS = Path(__file__).parents[3] / "docs"


def project(name: str, archive: Archive, modules: int, num_bytes: int) -> Project:
    return Project(name, "MIT", "c++", archive, ".", ("*.cc",), measured=Measured(modules, num_bytes))


SHARED = Archive("shared", "1.0", "0" * 64, num_bytes=2_000_000)
OTHER = Archive("other", "2.1", "1" * 64, num_bytes=500_000)
KNOWN = Manifest(
    {
        "b": project("b", SHARED, 1_000, 3_000_000),
        "a": project("a", SHARED, 200, 1_000_000),
        "c": project("c", OTHER, 3, 250_000),
    },
    {"one": {"held_out": ("c",), "train": ("b", "a")}, "two": {"train": ("a",)}},
)


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def test_a_set_is_the_sum_of_its_projects_and_has_each_archive_once() -> None:
    assert cells(manifest.sets_table(KNOWN))[2:] == [
        [
            *("one", "2 projects, 1,200 modules", "none", "1 projects, 3 modules", "none"),
            # Downloads: 2.0 + 0.5; corpora: 3 + 1 + 0.25.
            *("3 projects, 1,203 modules", "2.5", "4.2"),
        ],
        [
            *("two", "1 projects, 200 modules", "none", "none", "none"),
            *("1 projects, 200 modules", "2.0", "1.0"),
        ],
    ]


def test_projects_come_by_split_and_name_with_all_their_sets() -> None:
    assert cells(manifest.projects_table(KNOWN))[2:] == [
        ["a", "train", "C++", "200", "1.0", "MIT", "shared 1.0", "one, two"],
        ["b", "train", "C++", "1000", "3.0", "MIT", "shared 1.0", "one"],
        ["c", "held_out", "C++", "3", "0.2", "MIT", "other 2.1", "one"],
    ]


def test_tables_are_aligned() -> None:
    for table in (manifest.sets_table(KNOWN), manifest.projects_table(KNOWN)):
        assert len({len(line) for line in table.splitlines()}) == 1


def test_the_documents_have_the_tables_as_they_are() -> None:
    known = manifest.load()
    assert manifest.sets_table(known) in (DOCS / "ready_made.md").read_text(encoding="utf-8")
    assert manifest.projects_table(known) in (DOCS / "ready_made_projects.md").read_text(encoding="utf-8")
