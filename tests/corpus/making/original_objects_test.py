"""Finds the objects of modules in builds by real compilers, archivers and linkers."""

import subprocess
from pathlib import Path

import pytest

from compiler_opt.corpus.builds.archive import objects_of_archive
from compiler_opt.corpus.builds.objects import ObjectFile
from compiler_opt.corpus.making import thinlto
from compiler_opt.corpus.making.extract import Reader
from compiler_opt.corpus.making.original_objects import OriginalObjects
from compiler_opt.errors import CorpusError
from tests.corpus.builds.archive_test import archived
from tests.corpus.builds.conftest import OBJECTS
from tests.corpus.builds.conftest import tree_fixture as tree_fixture
from tests.corpus.making.thinlto_test import compile_for_lto, run

KEEP = ["-Wl,--save-temps=import", "-Wl,--save-temps=prelink", "-Wl,--thinlto-emit-index-files"]


@pytest.mark.parametrize("style", ["gnu", "bsd"])
def test_members_of_archives(clang_path: str, tree: Path, tmp_path: Path, style: str) -> None:
    (tmp_path / "lib").mkdir()
    library = archived(clang_path, tree, tmp_path / "lib" / "libx.a", *OBJECTS, style=style)
    recorded_objects = OriginalObjects(tmp_path)
    for item, name in zip(objects_of_archive(library, tmp_path), OBJECTS, strict=True):
        found = recorded_objects.read(item.name)
        assert found.file.data == (tree / name).read_bytes()
        assert found.code == Reader().read(ObjectFile(tree / name, name))[0].code
    with pytest.raises(CorpusError, match=r"libx.a: has no member for module lib/libx.a/gone.o: built again"):
        recorded_objects.find("lib/libx.a/gone.o")
    library.write_bytes((tree / "main.o").read_bytes())
    with pytest.raises(CorpusError, match=r"libx.a: expected an archive with lib/libx.a/a.o, found something else"):
        OriginalObjects(tmp_path).find("lib/libx.a/a.o")


def test_a_symlinked_archive_outside_is_refused(clang_path: str, tree: Path, tmp_path: Path) -> None:
    build = tmp_path / "build"
    build.mkdir()
    (build / "libx.a").symlink_to(archived(clang_path, tree, tmp_path / "libx.a", "main.o"))
    with pytest.raises(CorpusError, match=r"libx.a: is a link that leaves the folder"):
        OriginalObjects(build).find("libx.a/main.o")


def test_parts_of_an_object_that_was_linked_of_several(tree: Path, tmp_path: Path) -> None:
    both = tmp_path / "both.o"
    subprocess.run(["ld", "-r", "main.o", "lib/a.o", "-o", str(both)], cwd=tree, check=True)
    assert len(Reader().read(ObjectFile(both, "both.o"))) == 2
    recorded_objects = OriginalObjects(tmp_path)
    assert recorded_objects.find("both.o").path == both
    with pytest.raises(CorpusError, match=r"both.o.1: is a part of an object that a linker made of several \(ld -r\)"):
        recorded_objects.find("both.o.1")
    with pytest.raises(CorpusError, match=r"other.o.1: no such object; give the folder that module names"):
        recorded_objects.find("other.o.1")


def test_objects_that_the_linker_made(clang_path: str, tmp_path: Path) -> None:
    objects = compile_for_lto(clang_path, tmp_path)
    archiver = str(Path(clang_path).resolve().with_name("llvm-ar"))
    run(tmp_path, archiver, "qc", "lib/libother.a", "lib/other.o")
    command = [clang_path, "-flto=thin", "-fuse-ld=lld", *objects[:2], "lib/libother.a", *KEEP, "-o"]
    run(tmp_path, *command, "program.lto.x")
    modules = thinlto.link_of_directory(tmp_path).modules
    recorded_objects = OriginalObjects(tmp_path)
    kept = {name: recorded_objects.find(name).path.relative_to(tmp_path).as_posix() for name, _ in modules}
    member = next(name for name in kept if name.startswith("lib/libother.a("))
    assert kept == {
        "main.o": "program.lto.x.lto.main.o",
        "lib/help.o": "lib/program.lto.x.lto.help.o",
        member: f"lib/program.lto.x.lto.{member.removeprefix('lib/')}.o",
    }
    for name, place in modules:
        found = recorded_objects.read(name)
        assert found.code == Path(f"{place}{thinlto.IMPORTED_SUFFIX}").read_bytes()
        assert found.file.sections_named(".llvmbc") == []
    # A module that was not linked has no object; one of two links has two.
    with pytest.raises(CorpusError, match=r"other.o: is LLVM bitcode, .* link with -Wl,--save-temps=prelink"):
        recorded_objects.find("lib/other.o")
    run(tmp_path, *command, "second")
    with pytest.raises(CorpusError, match=r"main.o: several links made .* \(program.*, second.lto.main.o\)"):
        OriginalObjects(tmp_path).find("main.o")
