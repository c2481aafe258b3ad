"""Blocks of objects, compared with llvm-objdump's disassembly of the same object."""

import re
import subprocess
from pathlib import Path

import pytest

from compiler_opt.cost_models.throughput.address_map import FLAGS, read_object
from compiler_opt.errors import ProtocolError
from compiler_opt.llvm.toolchain import Toolchain
from tests.small_corpus import BUSY_SOURCES, SOURCES

TEXT = SOURCES["shapes/area.cpp"] + BUSY_SOURCES["loops/called.c"]
OPTIONS = ("-fbasic-block-address-map", *FLAGS[1:])
LINE = re.compile(r"^\s*([0-9a-f]+): ((?:[0-9a-f]{2} )+)\s*\t(\S+)")


def compile_object(clang: str, folder: Path, *options: str) -> Path:
    (folder / "x.cpp").write_text(TEXT)
    command = [clang, "-O2", *options, "-c", "x.cpp", "-o", "x.o"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "x.o"


def disassembly(clang: str, path: Path) -> dict[str, list[tuple[bytes, str]]]:
    """Each function's instructions: bytes and mnemonic."""
    command = [clang.replace("clang", "llvm-objdump"), "-d", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    result: dict[str, list[tuple[bytes, str]]] = {}
    for line in text.splitlines():
        if head := re.match(r"^[0-9a-f]+ <(.*)>:$", line):
            result[head[1]] = instructions = []
        elif found := LINE.match(line):
            instructions.append((bytes.fromhex(found[2]), found[3]))
    return result


@pytest.mark.both_compilers
@pytest.mark.parametrize("options", [(), ("-ffunction-sections",)], ids=["one section", "several sections"])
def test_blocks_are_what_objdump_shows(
    options: tuple[str, ...], clang_path: str, toolchain: Toolchain, tmp_path: Path
) -> None:
    path = compile_object(clang_path, tmp_path, *OPTIONS, *options)
    blocks = read_object(path, toolchain, "m")
    functions = disassembly(clang_path, path)
    assert {block.function for block in blocks} == set(functions) and len(functions) >= 3
    for name, instructions in functions.items():
        own = [block for block in blocks if block.function == name]
        assert len({block.block_id for block in own}) == len(own)
        position = 0
        for block in own:
            # Between blocks there is nothing but padding.
            while not b"".join(code for code, _ in instructions[position:]).startswith(block.code):
                assert "nop" in instructions[position][1]
                position += 1
            code = b""
            while len(code) < len(block.code):
                # Nothing follows a jump in its block.
                assert not code or not instructions[position - 1][1].startswith(("j", "ret"))
                code += instructions[position][0]
                position += 1
            assert code == block.code
        assert all("nop" in mnemonic for _, mnemonic in instructions[position:])


def test_code_is_as_without_the_map(clang_path: str, toolchain: Toolchain, tmp_path: Path) -> None:
    with_map = disassembly(clang_path, compile_object(clang_path, tmp_path, *OPTIONS))
    assert with_map == disassembly(clang_path, compile_object(clang_path, tmp_path))


def test_frequencies_are_relative_to_the_entry(toolchain: Toolchain, clang_path: str, tmp_path: Path) -> None:
    blocks = read_object(compile_object(clang_path, tmp_path, *OPTIONS), toolchain)
    by_function: dict[str, list[float]] = {}
    for block in blocks:
        by_function.setdefault(block.function, []).append(block.frequency)
    assert all(frequencies[0] == 1 for frequencies in by_function.values())
    # `called` has a loop.
    assert max(next(each for name, each in by_function.items() if "called" in name)) > 4


def test_what_is_no_such_object_is_refused(toolchain: Toolchain, clang_path: str, tmp_path: Path) -> None:
    path = compile_object(clang_path, tmp_path)
    with pytest.raises(ProtocolError, match=r"x\.o: expected an address map of its blocks; compile it with -fbasic"):
        read_object(path, toolchain)
    path = compile_object(clang_path, tmp_path, *OPTIONS)
    content = path.read_bytes()
    for size in (0, 30, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(ProtocolError, match=r"x\.o: "):
            read_object(path, toolchain)
    path = compile_object(clang_path, tmp_path, *OPTIONS, "--target=aarch64-linux-gnu")
    with pytest.raises(ProtocolError, match="expected an object for x86-64, found one for EM_AARCH64"):
        read_object(path, toolchain)


def test_an_object_without_code_has_no_blocks(toolchain: Toolchain, clang_path: str, tmp_path: Path) -> None:
    (tmp_path / "y.c").write_text("int table[] = {1, 2};")
    subprocess.run([clang_path, *OPTIONS, "-c", "y.c"], cwd=tmp_path, check=True)
    assert read_object(tmp_path / "y.o", toolchain) == []
