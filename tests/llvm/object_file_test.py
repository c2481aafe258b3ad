"""Sizes of real objects against LLVM's own tools, what corrupt objects do, and sizes of linked objects."""

import dataclasses
import json
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_opt.errors import CompileError, ProtocolError, ToolchainError
from compiler_opt.llvm import elf
from compiler_opt.llvm.elf import ElfFile
from compiler_opt.llvm.object_file import TextParts, linked_parts, object_sizes, read_object_sizes, read_parts

SOURCE = """
template <int N> struct Sum {
  int items[N];
  Sum(int first);
  __attribute__((noinline)) int total() { int t = 0; for (int i : items) t += i; return t; }
};
template <int N> Sum<N>::Sum(int first) { for (int &i : items) i = first++; }
void may_throw();
static __attribute__((noinline)) int guarded(int x) { try { may_throw(); } catch (int e) { return e; } return x * 3; }
int first(int x) { Sum<3> s(x); Sum<5> t(x); return s.total() + t.total() + guarded(x); }
int second(int x) { Sum<3> s(x); return s.total() + first(x) + guarded(x + 1); }
const char *table[] = {"some", "read only", "data"};
int zeros[1000];
"""
TOTAL_OF_3 = "_ZN3SumILi3EE5totalEv"
TARGETS = (
    "x86_64-linux-gnu",
    "i386-linux-gnu",
    "aarch64-linux-gnu",
    "arm-linux-gnueabihf",
    "riscv64-linux-gnu",
    "riscv32-linux-gnu",
    "powerpc64le-linux-gnu",
    "powerpc-linux-gnu",
    "mips64el-linux-gnuabi64",
    "s390x-linux-gnu",
)


def compile_source(clang: str | Path, folder: Path, *options: str, source: str = SOURCE) -> Path:
    (folder / "x.cpp").write_text(source)
    output = folder / "x.o"
    command = [str(clang), "-Oz", "-fasynchronous-unwind-tables", *options, "-c", "x.cpp", "-o", str(output)]
    subprocess.run(command, cwd=folder, check=True)
    return output


def llvm_tool(clang: str | Path, tool: str) -> str:
    """The tool of the same LLVM as `clang`, as Debian names it (`llvm-size-19`)."""
    return str(clang).replace("clang", tool)


@pytest.mark.parametrize(("options", "number"), [(("-fPIC",), 3), (("-fPIE",), 3), (("-fno-pie",), 0)])
def test_constants_with_addresses_need_relocations(
    clang_path: str, tmp_path: Path, options: tuple[str, ...], number: int
) -> None:
    source = 'extern const char *const table[] = {"some", "read-only", "data"};\n'
    output = compile_source(clang_path, tmp_path, *options, source=source)
    sizes = read_object_sizes(output)
    assert sizes.relocation_bytes == 24 * number
    library = tmp_path / "x.so"
    if number:
        command = [clang_path, "-shared", "-nostdlib", "-fuse-ld=lld", str(output), "-o", str(library)]
        subprocess.run(command, check=True)
        (section,) = ElfFile.read(library).sections_named(".rela.dyn")
        assert ElfFile.read(library).sections["size"][section] == sizes.relocation_bytes


@pytest.mark.both_compilers
@pytest.mark.parametrize("target", TARGETS)
def test_text_is_the_text_of_llvm_size_for_every_layout(clang_path: str, tmp_path: Path, target: str) -> None:
    output = compile_source(clang_path, tmp_path, f"--target={target}")
    table = subprocess.run(
        [llvm_tool(clang_path, "llvm-size"), str(output)], capture_output=True, text=True, check=True
    )
    expected = int(table.stdout.splitlines()[1].split()[0])
    assert read_object_sizes(output).text_bytes == expected
    assert read_parts(output).total == expected


@pytest.mark.parametrize("target", ["x86_64-linux-gnu", "arm-linux-gnueabihf"])
def test_parts_of_a_shared_library(clang_path: str, lld: Path, tmp_path: Path, target: str) -> None:
    """Against the table of `llvm-size`, by the names of sections."""
    output = compile_source(clang_path, tmp_path, f"--target={target}", "-fPIC", "-ffunction-sections")
    library = tmp_path / "x.so"
    subprocess.run([lld, "-shared", "--hash-style=both", str(output), "-o", str(library)], check=True)
    printed = subprocess.run(
        [llvm_tool(clang_path, "llvm-size"), "-A", str(library)], capture_output=True, text=True, check=True
    )
    sizes = {
        line[0]: int(line[1]) for line in map(str.split, printed.stdout.splitlines()) if line[:1] and line[0][0] == "."
    }
    code = [".text", ".plt"]
    unwind = [".eh_frame", ".eh_frame_hdr", ".gcc_except_table", ".ARM.exidx", ".ARM.extab"]
    dynamic = [".dynsym", ".dynstr", ".hash", ".gnu.hash", ".rela.dyn", ".rela.plt", ".rel.dyn", ".rel.plt"]
    parts = read_parts(library)
    assert parts == TextParts(
        *(sum(sizes.get(name, 0) for name in names) for names in (code, [".rodata"], unwind, dynamic))
    )
    assert min(dataclasses.astuple(parts)) > 0
    assert read_parts(output).dynamic == 0 < read_parts(output).unwind


def test_better_is_smaller_without_more_code() -> None:
    before = TextParts(code=100, constants=50, unwind=30)
    assert TextParts(100, 50, 29).is_better(before)
    assert TextParts(90, 59, 30).is_better(before)
    assert not TextParts(90, 60, 30).is_better(before)
    assert not TextParts(101, 0, 0).is_better(before)


@pytest.mark.both_compilers
@pytest.mark.parametrize(
    "options", [(), ("-g",), ("-ffunction-sections",), ("-O0",), ("-fno-asynchronous-unwind-tables",)]
)
def test_functions_and_groups_match_readobj(clang_path: str, tmp_path: Path, options: tuple[str, ...]) -> None:
    output = compile_source(clang_path, tmp_path, *options)
    groups = readobj(clang_path, output, "--section-groups")
    symbols = json.loads(readobj(clang_path, output, "--symbols"))[0]
    sizes = read_object_sizes(output)

    assert sizes.comdats.keys() == set(re.findall(r'"Signature":"([^"]*)"', groups))  # The JSON has duplicate keys.
    functions = {
        entry["Symbol"]["Name"]["Name"]: entry["Symbol"]["Size"]
        for entry in symbols["Symbols"]
        if entry["Symbol"]["Type"]["Name"] == "Function"
    }
    assert sizes.functions.keys() == functions.keys()
    assert set(sizes.function_comdats) == {name for name in functions if name.startswith("_ZN3Sum")}
    assert sizes.function_comdats[TOTAL_OF_3] == TOTAL_OF_3


def readobj(clang: str | Path, path: Path, option: str) -> str:
    command = [llvm_tool(clang, "llvm-readobj"), "--elf-output-style=JSON", option, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.both_compilers
@pytest.mark.parametrize("target", TARGETS)
def test_unwind_entries_belong_to_their_functions_and_groups(clang_path: str, tmp_path: Path, target: str) -> None:
    output = compile_source(clang_path, tmp_path, f"--target={target}", "-ffunction-sections")
    frames = subprocess.run(
        [llvm_tool(clang_path, "llvm-dwarfdump"), "--eh-frame", str(output)], capture_output=True, text=True, check=True
    ).stdout
    # `00000018 00000034 0000001c FDE cie=...`: the second field is the length, less the four bytes that hold it.
    expected = sum(int(line.split()[1], 16) + 4 for line in frames.splitlines() if " FDE " in line)
    file = ElfFile.read(output)
    symbols, _ = file.symbols(next(i for i, s in enumerate(file.sections) if s["type"] == elf.SHT_SYMTAB))
    code_bytes = sum(int(s["size"]) for s in symbols if s["info"] & 0xF == elf.STT_FUNC)
    sizes = object_sizes(file)
    assert sum(sizes.functions.values()) - code_bytes == expected
    index_bytes = 8 if target.startswith("arm") else 0  # `.ARM.exidx`, a member of the group like the function's code.
    assert sizes.comdats[TOTAL_OF_3] == sizes.functions[TOTAL_OF_3] + index_bytes


def test_aliases_of_a_constructor_are_one_group(clang_path: str, tmp_path: Path) -> None:
    source = """
    struct Base { int n; Base(int); virtual ~Base(); };
    template <class T> struct Derived : Base { T t; Derived(T x); };
    template <class T> Derived<T>::Derived(T x) : Base(x + 1), t(x) {}
    template struct Derived<long>;
    """
    sizes = read_object_sizes(compile_source(clang_path, tmp_path, source=source))
    complete, base = "_ZN7DerivedIlEC1El", "_ZN7DerivedIlEC2El"
    assert sizes.functions[complete] == sizes.functions[base] > 0
    assert sizes.function_comdats[complete] == sizes.function_comdats[base] == "_ZN7DerivedIlEC5El"
    assert sizes.comdats["_ZN7DerivedIlEC5El"] == sizes.functions[base]


def test_object_without_code(clang_path: str, tmp_path: Path) -> None:
    sizes = read_object_sizes(compile_source(clang_path, tmp_path, source="int x;"))
    assert (sizes.text_bytes, sizes.comdats, sizes.functions, sizes.function_comdats) == (0, {}, {}, {})


def test_stripped_object_still_has_text(clang_path: str, tmp_path: Path) -> None:
    output = compile_source(clang_path, tmp_path)
    before = read_object_sizes(output).text_bytes
    subprocess.run([llvm_tool(clang_path, "llvm-objcopy"), "--strip-all", str(output)], check=True)
    assert read_object_sizes(output).text_bytes == before


def test_more_sections_than_sixteen_bits_can_number(tmp_path: Path) -> None:
    """65,300 sections: the count is in the first header and the symbols' sections in a table of their own."""
    lines = [
        f'.section .text.f{i},"ax",@progbits\n.type f{i},@function\nf{i}: nop\n.size f{i}, 1\n' for i in range(65_300)
    ]
    (tmp_path / "x.s").write_text("".join(lines))
    subprocess.run(["clang-19", "--target=x86_64-linux-gnu", "-c", "x.s", "-o", "x.o"], cwd=tmp_path, check=True)
    sizes = read_object_sizes(tmp_path / "x.o")
    assert sizes.text_bytes == 65_300
    assert len(sizes.functions) == 65_300
    assert sizes.functions["f65299"] == 1


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"", "expected an ELF object"),
        (b"BC\xc0\xde" + bytes(100), "expected an ELF object"),
        (b"\x7fELF\x02\x01\x01" + bytes(20), "truncated ELF header"),
        (b"\x7fELF\x02\x01\x01" + bytes(33) + struct.pack("<Q", 1 << 63) + bytes(40), "section headers of 64 bytes"),
    ],
)
def test_what_is_not_an_object_is_refused_by_name(tmp_path: Path, contents: bytes, message: str) -> None:
    path = tmp_path / "bad.o"
    path.write_bytes(contents)
    with pytest.raises(ProtocolError, match=message) as caught:
        read_object_sizes(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.o", tmp_path):
        with pytest.raises(ProtocolError, match="cannot read the object file"):
            read_object_sizes(path)


@pytest.fixture(scope="module")
def good_objects(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """One object of each layout: 64 and 32 bits, little and big endian."""
    folder = tmp_path_factory.mktemp("good")
    targets = ("x86_64-linux-gnu", "i386-linux-gnu", "s390x-linux-gnu", "powerpc-linux-gnu")
    return [compile_source("clang-22", folder, f"--target={target}").read_bytes() for target in targets]


def read_or_refuse(data: bytes) -> None:
    try:
        sizes = object_sizes(ElfFile(Path("fuzzed.o"), data))
    except ProtocolError as error:
        assert "\n" not in str(error)
        return
    names = sum(len(name) for name in (*sizes.functions, *sizes.comdats))
    assert names <= 40 * len(data)
    assert all(value >= 0 for value in sizes.functions.values())


@given(st.data())
def test_truncated_object_is_read_or_refused(good_objects: list[bytes], data: st.DataObject) -> None:
    contents = data.draw(st.sampled_from(good_objects))
    read_or_refuse(contents[: data.draw(st.integers(0, len(contents)))])


@given(st.data())
def test_corrupt_object_is_read_or_refused(good_objects: list[bytes], data: st.DataObject) -> None:
    contents = bytearray(data.draw(st.sampled_from(good_objects)))
    # Half of the damage goes where the tables are: the header, and the section headers at the end.
    places = st.one_of(
        st.integers(0, 63), st.integers(0, len(contents) - 1), st.integers(len(contents) * 2 // 3, len(contents) - 1)
    )
    values = st.sampled_from([0, 1, 4, 17, 0x7F, 0x80, 0xFF])
    for place, value in data.draw(st.lists(st.tuples(places, values), min_size=1, max_size=12)):
        contents[place] = value
    read_or_refuse(bytes(contents))


@given(st.data())
def test_corrupt_section_header_fields_are_read_or_refused(good_objects: list[bytes], data: st.DataObject) -> None:
    """Whole fields of section headers replaced by hostile numbers."""
    contents = data.draw(st.sampled_from(good_objects))
    file = ElfFile(Path("good.o"), contents)
    sections = file.sections.copy()
    end = contents.rfind(file.sections.tobytes())
    hostile = st.sampled_from([0, 1, 3, 7, len(contents) - 1, len(contents), 1 << 31, (1 << 32) - 1, (1 << 63) + 5])
    fields = st.sampled_from(["name", "type", "flags", "offset", "size", "link", "info"])
    for index, field, value in data.draw(
        st.lists(st.tuples(st.integers(0, len(sections) - 1), fields, hostile), min_size=1, max_size=6)
    ):
        sections[field][index] = value & (256 ** sections.dtype[field].itemsize - 1)
    read_or_refuse(contents[:end] + sections.tobytes() + contents[end + sections.nbytes :])


def test_names_that_all_point_into_one_huge_string_are_refused(good_objects: list[bytes]) -> None:
    """Otherwise a file of N bytes could ask for N * N / 24 bytes of names."""
    contents = good_objects[0]
    file = ElfFile(Path("good.o"), contents)
    huge = b"x" * 100_000 + b"\0"
    file.data = contents + huge
    sections = file.sections.copy()
    table = int(next(i for i, s in enumerate(sections) if s["type"] == elf.SHT_SYMTAB))
    sections["offset"][sections["link"][table]] = len(contents)
    sections["size"][sections["link"][table]] = len(huge)
    file.sections = sections
    with pytest.raises(ProtocolError, match="overlap"):
        file.strings(int(sections["link"][table]), sections["name"][:1].repeat(10_000) * 0)


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
    together = linked_parts(lld, objects).total
    apart = [linked_parts(lld, [path]).total for path in objects]
    folded = read_object_sizes(objects[0]).comdats["_Z4cubeIlET_S0_"]
    # What comes once per program (CIE, terminator, alignment) is saved too.
    assert folded <= sum(apart) - together <= folded + 64


def test_two_mains_and_undefined_functions_are_no_obstacle(clang_path: str, lld: Path, tmp_path: Path) -> None:
    main = "int main() { elsewhere(cube(3L)); }"
    objects = compile_objects(clang_path, tmp_path, main, main)
    assert linked_parts(lld, objects).total > linked_parts(lld, objects[:1]).total


def test_growth_of_an_object_is_growth_of_the_program(clang_path: str, lld: Path, tmp_path: Path) -> None:
    small, big = (
        "long f(long x) { return cube(x); }",
        "const char text[5000] = {1};\nextern const char *const p = text;",
    )
    objects = compile_objects(clang_path, tmp_path, small, big + small)
    small_parts, big_parts = linked_parts(lld, objects[:1]), linked_parts(lld, objects[1:])
    assert 5000 <= big_parts.constants - small_parts.constants < 5100
    assert (big_parts.code, big_parts.unwind, big_parts.dynamic) == (small_parts.code, small_parts.unwind, 0)


@pytest.mark.ci
def test_many_objects_need_no_long_command_line(clang_path: str, lld: Path, tmp_path: Path) -> None:
    objects = compile_objects(clang_path, tmp_path, "long f(long x) { return cube(x); }")
    once, often = linked_parts(lld, objects).total, linked_parts(lld, objects * 20_000).total
    assert once <= often


@pytest.mark.parametrize("target", ["x86_64-linux-gnu", "aarch64-linux-gnu", "riscv64-linux-gnu"])
@pytest.mark.parametrize("model", ["-fPIC", "-fno-pic"])
def test_a_shared_library_has_dynamic_symbols(
    clang_path: str, lld: Path, tmp_path: Path, target: str, model: str
) -> None:
    """Also of code that is not position-independent."""
    output = compile_source(clang_path, tmp_path, f"--target={target}", model)
    program, library = linked_parts(lld, [output]), linked_parts(lld, [output], shared=True)
    assert library.dynamic > 100 > program.dynamic == 0
    assert (library.constants, library.unwind) == pytest.approx((program.constants, program.unwind), abs=16)
    assert library.code >= program.code  # with stubs for calls of symbols that another library may replace


def test_nothing_links_to_nothing(lld: Path) -> None:
    assert linked_parts(lld, []) == TextParts(0)


def test_an_object_names_no_other_input(clang_path: str, lld: Path, tmp_path: Path) -> None:
    """Objects may ask for libraries, by any path; a linker script would be read, too."""
    script, source = tmp_path / "script", tmp_path / "m.ll"
    script.write_text("OUTPUT(elsewhere) INPUT(/etc/passwd)")
    source.write_text(
        'target triple = "x86_64-pc-linux-gnu"\ndefine i32 @f() { ret i32 1 }\n'
        f'!llvm.dependent-libraries = !{{!0}}\n!0 = !{{!"{script}"}}\n'
    )
    subprocess.run([clang_path, "-c", str(source), "-o", str(tmp_path / "m.o")], check=True)
    assert linked_parts(lld, [tmp_path / "m.o"]).total > 0


def test_failures_are_one_line(lld: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.o"
    bad.write_text("no object")
    with pytest.raises(CompileError, match=r"linking 1 objects: exit status 1: .*bad\.o") as caught:
        linked_parts(lld, [bad])
    assert "\n" not in str(caught.value)
    with pytest.raises(ToolchainError, match="no such program"):
        linked_parts(tmp_path / "absent", [bad])


def test_leaves_nothing_behind(lld: Path, tmp_path: Path) -> None:
    with pytest.raises(CompileError):
        linked_parts(lld, [tmp_path / "absent.o"], scratch=tmp_path / "scratch")
    assert list((tmp_path / "scratch").iterdir()) == []
