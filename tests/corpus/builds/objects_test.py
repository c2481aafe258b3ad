import os
import shutil
import subprocess
from pathlib import Path

import pytest

from compiler_opt.corpus.builds.objects import ObjectFile, objects_of_directory
from compiler_opt.corpus.making.extract import extract
from compiler_opt.errors import CorpusError
from tests.corpus.builds.archive_test import archived
from tests.corpus.builds.conftest import OBJECTS


def test_objects_are_found_whatever_they_are_called(clang_path: str, tree: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(tree, root)
    (root / "main.o").rename(root / "CMakeFiles.dir")
    (root / "README").write_text("no object")
    (root / "broken.o").write_text("no object, but it should be one")
    (root / "lto.o").write_bytes(b"BC\xc0\xde")
    (root / "loop").symlink_to(root)
    (root / "linked.o").symlink_to("lib/a.o")
    os.mkfifo(root / "fifo")
    os.mkfifo(root / "fifo.o")
    archived(clang_path, tree, root / "libx.a", "lib/a.o")
    subprocess.run([clang_path, "-nostdlib", "-shared", "lib/a.o", "-o", "x.so", "-fuse-ld=lld"], cwd=root, check=True)
    build = objects_of_directory(root)
    found = ["CMakeFiles.dir", "broken.o", "fifo.o", "lto.o", *sorted(OBJECTS[1:])]
    assert [item.name for item in build.objects] == sorted(found)
    assert {what: sorted(paths) for what, paths in build.skipped.items()} == {
        "archives": ["libx.a"],
        "files that are not objects": ["README", "fifo", "x.so"],
        "links": ["linked.o"],
    }
    extraction = extract(build.objects, tmp_path / "corpus")
    assert extraction.modules == ("CMakeFiles.dir", *sorted(OBJECTS[1:]))
    reasons = {path.name: reason for path, reason in extraction.failures}
    assert "expected an ELF object" in reasons["broken.o"]
    assert "is LLVM bitcode, of a build with -flto" in reasons["lto.o"]
    assert "cannot be read (expected a file" in reasons["fifo.o"]


def test_names_are_relative_to_the_base_folder(tree: Path) -> None:
    assert objects_of_directory(tree / "lib", tree).objects == (
        ObjectFile(tree / "lib/a.o", "lib/a.o"),
        ObjectFile(tree / "lib/b.o", "lib/b.o"),
    )
    with pytest.raises(CorpusError, match=r"is outside of .*; give a folder that holds it with --obj_base_dir"):
        objects_of_directory(tree, tree / "lib")


def test_a_missing_folder_is_refused(tree: Path) -> None:
    for path in (tree / "main.o", tree / "gone"):
        with pytest.raises(CorpusError, match="expected a folder of objects, found none"):
            objects_of_directory(path)


def test_paths_of_any_bytes(tree: Path, tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9\n.o")
    shutil.copy(tree / "main.o", tmp_path / name)
    assert objects_of_directory(tmp_path).objects == (ObjectFile(tmp_path / name, name),)
