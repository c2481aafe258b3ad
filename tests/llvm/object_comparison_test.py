"""Objects with and without sections, compared by us and by llvm-objcopy; and differences, each made on purpose."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_opt.errors import ProtocolError
from compiler_opt.llvm.elf import ElfFile
from compiler_opt.llvm.object_comparison import HEADER, ORDER, SectionDifference, compare

EXTRA = (".llvmbc", ".llvmcmd")

SOURCE = """
template <int N> __attribute__((noinline)) int times(int x) { static int calls; calls++; return x * N; }
int first(int x) { return times<3>(x) + times<5>(x + 1); }
int second(int x) { try { return first(x); } catch (...) { return 2; } }
const char *table[] = {"some", "read only", "data"};
int zeros[1000];
"""
TARGETS = ("x86_64-linux-gnu", "i386-linux-gnu", "aarch64-linux-gnu", "powerpc-linux-gnu", "mips64el-linux-gnuabi64")


def compile_source(folder: Path, name: str, *options: str, source: str = SOURCE, clang: str = "clang-22") -> ElfFile:
    (folder / "x.cpp").write_text(source)
    command = [clang, "-Oz", "-ffunction-sections", *options, "-c", "x.cpp", "-o", name]
    subprocess.run(command, cwd=folder, check=True)
    return ElfFile.read(folder / name)


@pytest.fixture(scope="module", name="plain")
def plain_fixture(tmp_path_factory: pytest.TempPathFactory) -> ElfFile:
    return compile_source(tmp_path_factory.mktemp("plain"), "plain.o", "-g")


@pytest.mark.parametrize("target", TARGETS)
def test_sections_that_are_left_out_make_no_difference(target: str, tmp_path: Path) -> None:
    plain = compile_source(tmp_path, "plain.o", f"--target={target}")
    embedded = compile_source(tmp_path, "embedded.o", f"--target={target}", "-Xclang", "-fembed-bitcode=all")
    assert compare(embedded, plain, EXTRA) == compare(plain, embedded, EXTRA) == ()
    assert {difference.section for difference in compare(embedded, plain)} >= set(EXTRA)
    if target.startswith("aarch64"):
        return  # There, llvm-objcopy keeps symbols that mark data in sections which it has removed.
    # llvm-objcopy makes the same file of both.
    removed = [f"--remove-section={name}" for name in EXTRA]
    for name in ("plain", "embedded"):
        subprocess.run(["llvm-objcopy-22", *removed, f"{name}.o", f"{name}-less.o"], cwd=tmp_path, check=True)
    assert (tmp_path / "plain-less.o").read_bytes() == (tmp_path / "embedded-less.o").read_bytes()


@pytest.mark.parametrize(
    ("change", "section"),
    [
        (("x * N", "x + N"), ".text._Z5timesILi3EEii"),
        (('"some"', '"same"'), ".rodata.str1.1"),
        (("zeros[1000]", "zeros[1001]"), ".bss.zeros"),
        (("first(x); }", "times<3>(x); }"), ".rela.text._Z6secondi"),
        (("times<5>(x + 1)", "times<7>(x + 1)"), ".text._Z5timesILi5EEii"),
        (("int zeros", "static int zeros"), ".symtab"),
    ],
)
def test_a_change_of_the_source_shows_where_it_is(change: tuple[str, str], section: str, tmp_path: Path) -> None:
    assert change[0] in SOURCE
    changed = compile_source(tmp_path, "changed.o", "-g", "-fdata-sections", source=SOURCE.replace(*change))
    original = compile_source(tmp_path, "original.o", "-g", "-fdata-sections")
    found = {difference.section for difference in compare(original, changed)}
    assert any(name.startswith(section) for name in found), found


def test_other_targets_of_calls_are_seen(tmp_path: Path) -> None:
    """Two functions that only differ in whom they call: their bytes are the same, their relocations are not."""
    texts = ["void a(); void b(); void f() { a(); b(); }", "void a(); void b(); void f() { b(); a(); }"]
    one, other = (compile_source(tmp_path, f"{n}.o", source=text) for n, text in enumerate(texts))
    assert {difference.section for difference in compare(one, other)} >= {".rela.text._Z1fv"}


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--remove-section=.comment"], ".comment: missing"),
        (["--add-section=.mine=x.cpp"], ".mine: not in the original"),
        (["--set-section-alignment=.text._Z5firsti=64"], ".text._Z5firsti: flags or links"),
        (["--set-section-flags=.comment=alloc,readonly"], ".comment: flags or links"),
        (["--redefine-sym=zeros=ones"], ".symtab: 1 differences in"),
        (["--weaken-symbol=zeros"], ".symtab: 1 differences in"),
        (["--set-symbol-visibility=zeros=hidden"], ".symtab: 1 differences in"),
    ],
)
def test_what_a_tool_changed_is_named(options: list[str], shown: str, plain: ElfFile, tmp_path: Path) -> None:
    shutil.copy(plain.path, tmp_path / "before.o")
    (tmp_path / "x.cpp").write_text("contents")
    # Once without a change, for llvm-objcopy drops what nobody needs.
    subprocess.run(["llvm-objcopy-22", "before.o", "copied.o"], cwd=tmp_path, check=True)
    subprocess.run(["llvm-objcopy-22", *options, "copied.o", "after.o"], cwd=tmp_path, check=True)
    differences = compare(ElfFile.read(tmp_path / "copied.o"), ElfFile.read(tmp_path / "after.o"))
    assert any(difference.describe().startswith(shown) for difference in differences), differences
    assert len(differences) <= 2


def test_another_machine_is_another_header(tmp_path: Path) -> None:
    empty = "int x;"
    one = compile_source(tmp_path, "one.o", "--target=riscv64-linux-gnu", "-march=rv64gc", source=empty)
    other = compile_source(tmp_path, "other.o", "--target=riscv64-linux-gnu", "-march=rv64g", source=empty)
    assert HEADER in [difference.section for difference in compare(one, other)]


def test_order_of_sections_counts(plain: ElfFile) -> None:
    data, table = bytearray(plain.data[:]), plain.sections
    # Swaps the headers of two sections that nothing refers to by number.
    names = plain.section_names()
    first, second = names.index(".debug_abbrev"), names.index(".comment")
    start = int.from_bytes(data[40:48], "little")
    size = table.dtype.itemsize
    places = [slice(start + size * index, start + size * (index + 1)) for index in (first, second)]
    data[places[0]], data[places[1]] = data[places[1]], data[places[0]]
    swapped = compare(plain, ElfFile(plain.path, bytes(data)))
    assert {difference.section for difference in swapped} & {ORDER, ".symtab", ".rela.debug_info"}


@pytest.mark.parametrize(
    ("section", "different"),
    [
        (".rodata.str1.1", [".rela.text", ".symtab"]),
        # As with -fdata-sections; the string of the one is in no section of the other.
        (".rodata..Lstr.{}", [".rela.text", ".rodata..Lstr.3", ".symtab", ".rodata..Lstr.52"]),
    ],
)
def test_numbers_of_private_symbols(tmp_path: Path, section: str, different: list[str]) -> None:
    texts = []
    for number in (3, 52):
        assembly = f".text\n.globl f\nf: lea .Lstr.{number}(%rip), %rax\n"
        strings = f'.section {section.format(number)},"aMS",@progbits,1\n.Lstr.{number}: .asciz "some text"\n'
        (tmp_path / f"{number}.s").write_text(assembly + strings)
        output = tmp_path / f"{number}.o"
        subprocess.run(["clang-22", "-c", f"{number}.s", "-Wa,-L", "-o", str(output)], cwd=tmp_path, check=True)
        texts.append(ElfFile.read(output))
    one, other = texts
    assert [difference.section for difference in compare(one, other)] == different
    assert compare(one, other, private_numbers=False) == ()


@given(st.data())
@settings(max_examples=150)
def test_damaged_objects_are_refused_or_compared(plain: ElfFile, data: st.DataObject) -> None:
    content = bytearray(plain.data[:])
    table = int.from_bytes(content[40:48], "little")
    for _ in range(data.draw(st.integers(1, 4))):
        anywhere, headers = st.integers(0, len(content) - 1), st.integers(table, len(content) - 1)
        content[data.draw(st.one_of(anywhere, headers))] = data.draw(st.integers(0, 255))
    del content[data.draw(st.sampled_from([len(content), *range(0, len(content), 997)])) :]
    try:
        damaged = ElfFile(plain.path, bytes(content))
        differences = compare(plain, damaged)
    except ProtocolError as error:
        assert "\n" not in str(error)
    else:
        assert all("\n" not in difference.describe() for difference in differences)


def test_a_foreign_name_stays_on_its_line() -> None:
    assert SectionDifference("a\nb", 1, 2, 1).describe() == "a\\nb: 1 bytes became 2"
