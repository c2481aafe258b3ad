"""Linked sizes by real linkers: what is folded, what is kept, what is reported."""

import shutil
import subprocess
from pathlib import Path

import pytest

from compiler_opt.errors import CompileError, ToolchainError
from compiler_opt.llvm.linker import linked_text_bytes
from compiler_opt.llvm.object_file import read_object_sizes

SHARED = """
template <class T> __attribute__((noinline)) T cube(T x) { T y = 0; for (T i = 0; i < x; i++) y += i * x; return y; }
void elsewhere(long);
"""


@pytest.fixture
def lld(clang_path: str) -> Path:
    path = shutil.which(Path(clang_path).name.replace("clang", "ld.lld"))
    assert path is not None
    return Path(path)


def compile_objects(clang: str, folder: Path, *bodies: str, target: str = "x86_64-linux-gnu") -> list[Path]:
    objects = []
    for number, body in enumerate(bodies):
        source = folder / f"unit {number}.cpp"  # A name with a blank, as paths may have.
        source.write_text(SHARED + body)
        objects.append(source.with_suffix(".o"))
        command = [clang, f"--target={target}", "-Oz", "-c", str(source), "-o", str(objects[-1])]
        subprocess.run(command, check=True)
    return objects


@pytest.mark.parametrize("target", ["x86_64-linux-gnu", "aarch64-linux-gnu", "riscv64-linux-gnu"])
def test_a_function_in_two_objects_is_linked_once(clang_path: str, lld: Path, tmp_path: Path, target: str) -> None:
    one, two = "long one(long x) { return cube(x); }", "long two(long x) { elsewhere(x); return cube(x); }"
    objects = compile_objects(clang_path, tmp_path, one, two, target=target)
    together = linked_text_bytes(lld, objects)
    apart = [linked_text_bytes(lld, [path]) for path in objects]
    folded = read_object_sizes(objects[0]).comdats["_Z4cubeIlET_S0_"]
    # What comes once per program (CIE, terminator, alignment) is saved too.
    assert folded <= sum(apart) - together <= folded + 64


def test_two_mains_and_undefined_functions_are_no_obstacle(clang_path: str, lld: Path, tmp_path: Path) -> None:
    main = "int main() { elsewhere(cube(3L)); }"
    objects = compile_objects(clang_path, tmp_path, main, main)
    assert linked_text_bytes(lld, objects) > linked_text_bytes(lld, objects[:1])


def test_growth_of_an_object_is_growth_of_the_program(clang_path: str, lld: Path, tmp_path: Path) -> None:
    small, big = (
        "long f(long x) { return cube(x); }",
        "const char text[5000] = {1};\nextern const char *const p = text;",
    )
    objects = compile_objects(clang_path, tmp_path, small, big + small)
    difference = linked_text_bytes(lld, objects[1:]) - linked_text_bytes(lld, objects[:1])
    assert 5000 <= difference < 5100


def test_many_objects_need_no_long_command_line(clang_path: str, lld: Path, tmp_path: Path) -> None:
    objects = compile_objects(clang_path, tmp_path, "long f(long x) { return cube(x); }")
    once, often = linked_text_bytes(lld, objects), linked_text_bytes(lld, objects * 20_000)
    assert once <= often


def test_nothing_links_to_nothing(lld: Path) -> None:
    assert linked_text_bytes(lld, []) == 0


def test_failures_are_one_line(lld: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.o"
    bad.write_text("no object")
    with pytest.raises(CompileError, match=r"linking 1 objects: exit status 1: .*bad\.o") as caught:
        linked_text_bytes(lld, [bad])
    assert "\n" not in str(caught.value)
    with pytest.raises(ToolchainError, match="no such program"):
        linked_text_bytes(tmp_path / "absent", [bad])


def test_leaves_nothing_behind(lld: Path, tmp_path: Path) -> None:
    with pytest.raises(CompileError):
        linked_text_bytes(lld, [tmp_path / "absent.o"], scratch=tmp_path / "scratch")
    assert list((tmp_path / "scratch").iterdir()) == []
