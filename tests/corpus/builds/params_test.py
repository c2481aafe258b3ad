import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compiler_opt.corpus.builds.objects import ObjectFile
from compiler_opt.corpus.builds.params import objects_of_params, parse
from compiler_opt.errors import CorpusError
from tests.corpus.builds.archive_test import archived


def names(objects: tuple[ObjectFile, ...]) -> list[str]:
    return [item.name for item in objects]


def test_the_inputs_of_a_link_are_found(clang_path: str, tree: Path) -> None:
    archived(clang_path, tree, tree / "libx.a", "lib/a.o")
    archived(clang_path, tree, tree / "libthin.a", "lib/b.o", flags="qcsT")
    linker = str(Path(clang_path).resolve().with_name("ld.lld"))
    (tree / "nested").write_text("'with space/long name of an object.o' --end-lib")
    (tree / "link.params").write_text(
        "-o lib/none.o\n-shared -m elf_x86_64 -z now main.o\n--start-group libx.a --end-group\n./lib/../libthin.a\n"
        "--start-lib @nested -soname x.o other/a.o lib/b.o -Map link.map"
    )
    # lld reads the same file, and finds every input.
    subprocess.run([linker, "@link.params"], cwd=tree, check=True)
    build = objects_of_params(tree / "link.params", tree)
    assert names(build.objects) == [
        "main.o",
        "libx.a/a.o",
        "lib/b.o",
        "with space/long name of an object.o",
        "other/a.o",
    ]
    assert build.skipped == {}
    assert "-shared" in build.link_options


def test_driver_options_are_passed_on_to_the_linker(tree: Path) -> None:
    (tree / "link.params").write_text(
        "-flto -Wl,--start-lib,lib/a.o,main.o,--end-lib -Wl,-soname -Wl,x.o -Xlinker -o -Xlinker y.o -Xlinker lib/b.o "
        "-Wl,-O2 -lm -L lib.o -Wl,--version-script=x.o -target z.o"
    )
    build = objects_of_params(tree / "link.params", tree)
    assert names(build.objects) == ["lib/a.o", "main.o", "lib/b.o"]
    assert build.skipped == {}


def test_inputs_that_are_no_objects_are_skipped(clang_path: str, tree: Path) -> None:
    shared = tree / "libshared.so"
    subprocess.run(
        [clang_path, "-shared", "-nostdlib", "main.o", "-o", str(shared), "-fuse-ld=lld"], cwd=tree, check=True
    )
    (tree / "script.ld").write_text("SECTIONS {}")
    (tree / "link.params").write_text("libshared.so script.ld libgone.a gone.o /usr/lib/crt1.o main.o lib")
    build = objects_of_params(tree / "link.params", tree)
    # A missing object is listed, and reported when it is extracted.
    assert names(build.objects) == ["gone.o", "main.o"]
    assert build.skipped == {
        "inputs that are not objects": ["libshared.so", "script.ld"],
        "missing inputs": ["libgone.a", "lib"],
        f"inputs outside of {tree}": ["/usr/lib/crt1.o"],
    }


def test_paths_are_relative_to_the_working_directory(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "link.params").write_text("a.o b.o")
    monkeypatch.chdir(tree / "lib")
    build = objects_of_params(Path("../link.params"))
    assert build.objects == (ObjectFile(tree / "lib/a.o", "a.o"), ObjectFile(tree / "lib/b.o", "b.o"))


def test_bad_parameter_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"gone: cannot be read \(No such.*; give the parameter file of a link"):
        objects_of_params(tmp_path / "gone")
    (tmp_path / "loop").write_text("@loop2")
    (tmp_path / "loop2").write_text("x.o @loop2")
    with pytest.raises(CorpusError, match="@loop2 includes itself"):
        objects_of_params(tmp_path / "loop", tmp_path)


link_words = st.lists(
    st.one_of(
        st.sampled_from(
            ["-o", "-Wl,", "-Wl,-o", "-Xlinker", "--start-lib", "@a", "lib.a", "../x.o", "/etc/passwd", "."]
        ),
        st.text(max_size=10),
    )
)


@given(link_words, st.binary(max_size=100))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_parameter_file_is_refused_or_gives_names_that_stay_inside(
    tmp_path: Path, found: list[str], content: bytes
) -> None:
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "lib.a").write_bytes(b"!<thin>\n" + content)
    (tmp_path / "link.params").write_bytes(" ".join(found).encode("utf-8", "surrogatepass"))
    try:
        build = objects_of_params(tmp_path / "link.params", tmp_path)
    except CorpusError as error:
        assert "\n" not in str(error)
        return
    assert all(".." not in Path(item.name).parts and not Path(item.name).is_absolute() for item in build.objects)
    assert set(parse(found)[1]).isdisjoint(names(build.objects))
