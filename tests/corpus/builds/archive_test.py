import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compiler_opt.corpus.builds.archive import objects_of_archive
from compiler_opt.corpus.builds.objects import ObjectFile
from compiler_opt.corpus.making.extract import extract
from compiler_opt.errors import CorpusError, ProtocolError
from tests.corpus.builds.conftest import OBJECTS


def archived(clang_path: str, tree: Path, target: Path, *objects: str, flags: str = "qcS", style: str = "gnu") -> Path:
    archiver = Path(clang_path).resolve().with_name("llvm-ar")
    options = [f"--format={style}"] if "T" not in flags else ["--thin"]
    subprocess.run([str(archiver), *options, flags.replace("T", ""), str(target), *objects], cwd=tree, check=True)
    return target


@pytest.mark.parametrize("style", ["gnu", "bsd", "darwin"])
def test_members_are_extracted_as_if_they_were_files(clang_path: str, tree: Path, tmp_path: Path, style: str) -> None:
    (tmp_path / "lib").mkdir()
    library = archived(clang_path, tree, tmp_path / "lib" / "libx.a", *OBJECTS, flags="qcs", style=style)
    objects = objects_of_archive(library, tmp_path)
    names = ["main.o", "a.o", "b.o", "a.o.2", "long name of an object.o"]
    assert [item.name for item in objects] == [f"lib/libx.a/{name}" for name in names]
    extract(objects, tmp_path / "members", num_workers=2)
    extract([ObjectFile(tree / name, name) for name in OBJECTS], tmp_path / "files")
    for item, name in zip(objects, OBJECTS, strict=True):
        for suffix in ("bc", "cmd"):
            member = tmp_path / "members" / f"{item.name}.{suffix}"
            assert member.read_bytes() == (tmp_path / "files" / f"{name}.{suffix}").read_bytes()


def test_members_are_read_by_llvm_objcopy_too(clang_path: str, tree: Path, tmp_path: Path) -> None:
    library = archived(clang_path, tree, tmp_path / "libx.a", "lib/a.o", "lib/b.o")
    objcopy = Path(clang_path).resolve().with_name("llvm-objcopy")
    extract(objects_of_archive(library, tmp_path), tmp_path / "own")
    extract(objects_of_archive(library, tmp_path), tmp_path / "objcopy", llvm_objcopy=objcopy)
    for file in ("a.o.bc", "b.o.bc", "a.o.cmd"):
        assert (tmp_path / f"own/libx.a/{file}").read_bytes() == (tmp_path / f"objcopy/libx.a/{file}").read_bytes()


def test_members_of_thin_archives_are_the_files_themselves(clang_path: str, tree: Path) -> None:
    library = archived(clang_path, tree, tree / "lib" / "libthin.a", *OBJECTS, flags="qcsT")
    assert objects_of_archive(library, tree) == [ObjectFile(tree / name, name) for name in OBJECTS]
    with pytest.raises(CorpusError, match=r"libthin.a: its member .*/main.o is outside of .*; .* --obj_base_dir"):
        objects_of_archive(library, tree / "lib")
    library.unlink()


def test_members_that_are_not_objects_are_skipped(clang_path: str, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "README").write_text("no object")
    library = archived(clang_path, tree, tmp_path / "libx.a", str(tmp_path / "README"), "lib/a.o")
    assert [item.name for item in objects_of_archive(library, tmp_path)] == ["libx.a/a.o"]


def header(name: bytes, size: int) -> bytes:
    return name.ljust(16) + b"0".ljust(12) + b"0".ljust(6) + b"0".ljust(6) + b"644".ljust(8) + b"%-10d`\n" % size


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"!<arch>\n" + b"x" * 60, "expected the header of a member at byte 8"),
        (b"!<arch>\n" + header(b"a.o/", 100), "a member ends at byte 168 of 68"),
        (b"!<arch>\n" + header(b"a.o/", 4 << 30)[:58] + b"`\n", "a member ends at byte 4294967364 of 68"),
        (b"!<arch>\n" + header(b"/7", 0), "the name of a member is at byte 7 of 0"),
        (b"!<arch>\n" + header(b"#1/9", 4) + b"abcd", "the name of a member is longer than the member"),
        (b"!<arch>\n" + header(b"x/../", 20) + b"\x7fELF\2\1".ljust(16, b"\0") + b"\1\0>\0", "has a member called"),
        (b"!<thin>\n" + header(b"//", 4 << 30), "a member ends at byte"),
        (b"!<thin>\n" + header(b"../../x.o/", 4), "is outside of"),
        (b"!<thin>\n" + header(b"/", 0) + header(b"/0:12", 4), "member of a nested thin archive"),
    ],
)
def test_archives_that_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "libx.a").write_bytes(content)
    with pytest.raises(CorpusError) as error:
        objects_of_archive(tmp_path / "libx.a", tmp_path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.fixture(name="libraries", scope="module")
def libraries_fixture(clang_path: str, tree: Path, tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The contents of an archive, and of a thin one."""
    folder = tmp_path_factory.mktemp("libraries")
    made = (archived(clang_path, tree, folder / f"{flags}.a", *OBJECTS[-2:], flags=flags) for flags in ("qcs", "qcsT"))
    return [library.read_bytes() for library in made]


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_damaged_archives_are_refused_or_read(
    libraries: list[bytes], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    library = folder / "libx.a"
    content = bytearray(data.draw(st.sampled_from(libraries)))
    del content[data.draw(st.integers(8, len(content))) :]
    for _ in range(data.draw(st.integers(0, 4))):
        # Headers and names, near the start, matter most.
        position = data.draw(st.integers(0, min(len(content), 300) - 1))
        content[position] = data.draw(st.one_of(st.integers(0, 255), st.sampled_from(b"/#1 0.`\n")))
    library.write_bytes(content)
    try:
        objects = objects_of_archive(library, folder)
        assert all(".." not in Path(item.name).parts and not Path(item.name).is_absolute() for item in objects)
        extract(objects, folder / "corpus")
    except (CorpusError, ProtocolError) as error:
        assert "\n" not in str(error)
    assert sorted(path.name for path in folder.iterdir()) in (["corpus", "libx.a"], ["libx.a"])
