"""Compiled both ways, the smaller object kept."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from compiler_opt.llvm.plugin import load_option
from compiler_opt.llvm.toolchain import Toolchain
from tests.deploy.conftest import Compiler, run
from tests.deploy.sources import FAT, LEAN
from tests.machine import with_mounts

NEVER_WORSE = {"MLGO_NEVER_WORSE": "1"}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "place"
    place.mkdir()
    (place / "lean.c").write_text(LEAN)
    (place / "fat.c").write_text(FAT)
    (place / "bad.c").write_text("int f(void) { return x; }\n")
    (place / "main.c").write_text(f"{LEAN}\nint main(void) {{ return unit() + flat() == cube(); }}\n")
    return place


def text_bytes(toolchain: Toolchain, path: Path) -> int:
    result = run([str(toolchain.tool("llvm-size")), str(path)], path.parent)
    return int(result.stdout.splitlines()[1].split()[0])


@pytest.mark.ci
@pytest.mark.parametrize(
    "options", ["-c", "-c -g", "-c -ffunction-sections -fdata-sections", "-c -m32", "-c -gsplit-dwarf"]
)
def test_the_smaller_object_is_kept(compiler: Compiler, toolchain: Toolchain, place: Path, options: str) -> None:
    for name, smaller in {"lean": "policy", "fat": "plain"}.items():
        arguments = ["-Oz", *options.split(), f"{name}.c", "-o", f"{name}.o"]
        contents, sizes = {}, {}
        for how, compile_it in {"plain": compiler.plain, "policy": compiler.with_policy}.items():
            assert compile_it(arguments, place).returncode == 0
            contents[how] = (place / f"{name}.o").read_bytes()
            sizes[how] = text_bytes(toolchain, place / f"{name}.o")
        assert min(sizes, key=lambda how: sizes[how]) == smaller and sizes["plain"] != sizes["policy"]
        before = {path.name for path in place.iterdir()}
        result = compiler.run(arguments, place, NEVER_WORSE)
        assert (result.returncode, result.stderr) == (0, "")
        assert (place / f"{name}.o").read_bytes() == contents[smaller]
        assert {path.name for path in place.iterdir()} == before


def test_foreign_objects(compiler: Compiler, place: Path) -> None:
    """ELF of the other byte order is measured, what is no ELF is compiled plainly."""
    for target, kept in {"powerpc64-linux-gnu": compiler.with_policy, "x86_64-apple-macos12": compiler.plain}.items():
        arguments = [f"--target={target}", "-Oz", "-c", "lean.c", "-o"]
        assert kept([*arguments, "expected.o"], place).returncode == 0
        result = compiler.run([*arguments, "lean.o"], place, NEVER_WORSE)
        assert (result.returncode, result.stderr) == (0, "")
        assert (place / "lean.o").read_bytes() == (place / "expected.o").read_bytes(), target


def test_programs_are_compared_too(compiler: Compiler, place: Path) -> None:
    assert compiler.with_policy(["-Oz", "main.c", "-o", "expected"], place).returncode == 0
    assert compiler.run(["-Oz", "main.c"], place, NEVER_WORSE).returncode == 0
    assert (place / "a.out").read_bytes() == (place / "expected").read_bytes()


@pytest.mark.parametrize(
    "arguments", ["-S lean.c -o out", "-emit-llvm -c lean.c -o out", "-flto -c lean.c -o out", "-S lean.c -o -"]
)
def test_what_cannot_be_compared_is_plain(compiler: Compiler, place: Path, arguments: str) -> None:
    words = ["-Oz", *arguments.split()]
    made = []
    for never_worse in (False, True):
        result = compiler.run(words, place, NEVER_WORSE) if never_worse else compiler.plain(words, place)
        assert (result.returncode, result.stderr) == (0, "")
        made.append((result.stdout, (place / "out").read_bytes() if (place / "out").exists() else b""))
    assert made[0] == made[1]


@pytest.mark.parametrize(
    ("options", "directive"),
    [
        ("-include /dev/fd/{pipe}", ""),
        ("", '#include "/dev/fd/{pipe}"'),
        ("", '#include "/dev/stdin"'),
        ("", '#include "fifo.h"'),
        ("-include fifo.h", ""),
        ("-std=c23", 'int f(void) {{ static const char text[] = {{\n#embed "/dev/stdin"\n}}; return sizeof text; }}'),
        ("", '__asm__(".globl f\\nf: .incbin \\"/dev/stdin\\"");'),
    ],
)
def test_what_can_be_read_but_once_is_compiled_once(
    compiler: Compiler, place: Path, options: str, directive: str
) -> None:
    """Read again it is empty, which makes a smaller object. Unless the command line names it, the policy decides."""
    text = b"static int k(int x) { return x * 3; } int from_pipe(int x) { return k(x) + k(x + 1); }\n"
    os.mkfifo(place / "fifo.h")
    objects = []
    loaded = [] if "-include" in options else [load_option(compiler.plugin)]
    for program in ([compiler.driver], [compiler.clang, *loaded]):
        reader, writer = os.pipe()
        os.write(writer, text)
        os.close(writer)
        (place / "reads.c").write_text(f"{directive.format(pipe=reader)}\n{LEAN}")
        with subprocess.Popen(
            [*program, *f"-Oz -c reads.c -o reads.o {options}".format(pipe=reader).split()],
            cwd=place,
            env={**os.environ, **NEVER_WORSE},
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[reader],
        ) as process:
            if "fifo" in options + directive:
                (place / "fifo.h").write_bytes(text)
            process.communicate(text, timeout=60)
        os.close(reader)
        assert process.returncode == 0
        objects.append((place / "reads.o").read_bytes())
    assert objects[0] == objects[1]


# Compilations, each on a line of its own.
COUNTING = 'for word; do case "$word" in -c) echo >> compilations;; esac; done\nexec $CLANG "$@"\n'


def test_only_large_objects_are_compared(damageable: Compiler, toolchain: Toolchain, place: Path) -> None:
    stand_in = damageable.stand_in(place.parent / "tools", COUNTING)
    table = "const char table[1500] = {1};\n"
    for name, expected, num_compilations in (
        ("fat", damageable.with_policy, 1),
        ("large_fat", damageable.plain, 2),
        ("large_lean", damageable.with_policy, 2),
    ):
        if name.startswith("large_"):
            (place / f"{name}.c").write_text(table + (place / f"{name.removeprefix('large_')}.c").read_text())
        arguments = ["-Oz", "-c", f"{name}.c", "-o"]
        assert expected([*arguments, "expected.o"], place).returncode == 0
        assert (text_bytes(toolchain, place / "expected.o") > 1000) == name.startswith("large_")
        result = damageable.run([*arguments, "made.o"], place, {**stand_in, "MLGO_NEVER_WORSE_ABOVE_KB": "1"})
        assert (result.returncode, result.stderr) == (0, "")
        assert (place / "made.o").read_bytes() == (place / "expected.o").read_bytes(), name
        assert len((place / "compilations").read_text()) == num_compilations, name
        (place / "compilations").unlink()


def test_the_settings(compiler: Compiler, place: Path) -> None:
    """A bound switches the comparison on; the switch has the last word."""
    above = {"MLGO_NEVER_WORSE_ABOVE_KB": "12"}
    cases: tuple[tuple[dict[str, str], str], ...] = (
        ({"MLGO_NEVER_WORSE": "1"}, "yes"),
        (above, "above 12 kB"),
        ({"MLGO_NEVER_WORSE_ABOVE_KB": "0"}, "yes"),
        ({"MLGO_NEVER_WORSE": "0", **above}, "no"),
        ({}, "no"),
    )
    for environment, shown in cases:
        assert f"\nnever worse: {shown}\n" in compiler.run(["--mlgo-info"], place, environment).stdout
    for wrong in ("-1", "1.5", "12kB", "9" * 30):
        result = compiler.run(["-Oz", "-c", "lean.c"], place, {"MLGO_NEVER_WORSE_ABOVE_KB": wrong})
        assert result.stderr == f"error: mlgo: MLGO_NEVER_WORSE_ABOVE_KB: expected a whole number, found {wrong}\n"
        assert result.returncode == 1


def check_kept(damageable: Compiler, place: Path, source: str, kept: str) -> None:
    """Never worse keeps the plain object of a source, or the policy's, for which alone `LESS` is defined."""
    (place / "lean.c").write_text(source)
    script = 'case "$*" in *-fpass-plugin=*) set -- "$@" -DLESS;; esac\nexec $CLANG "$@"\n'
    environment = {**NEVER_WORSE, **damageable.stand_in(place.parent / "tools", script)}
    expected = {"plain": damageable.plain, "policy": damageable.with_policy}[kept]
    options = ["-Oz", "-c", "lean.c", "-o"]
    assert expected([*options, "expected.o", *(["-DLESS"] if kept == "policy" else [])], place).returncode == 0
    result = damageable.run([*options, "lean.o"], place, environment)
    assert (result.returncode, result.stderr) == (0, "")
    assert (place / "lean.o").read_bytes() == (place / "expected.o").read_bytes()


@pytest.mark.parametrize(("attribute", "kept"), [("", "plain"), ("__attribute__((weak)) ", "policy")])
def test_the_smaller_of_two_must_define_the_same(damageable: Compiler, place: Path, attribute: str, kept: str) -> None:
    """Of another source, however that comes. A weak function may go, as inline ones do when they are inlined."""
    source = f"{LEAN}\n#ifndef LESS\n{attribute}int more(int x) {{ return x; }}\n#endif\n"
    check_kept(damageable, place, source, kept)


@pytest.mark.parametrize(
    ("steps", "kept"), [("x * 3", "policy"), (" + ".join(f"x / {n}" for n in range(3, 90)), "plain")]
)
def test_less_text_must_not_be_more_code(damageable: Compiler, place: Path, steps: str, kept: str) -> None:
    """Fewer constants or unwind tables do not pay for code."""
    source = f"""{LEAN}
#ifdef LESS
const int table[8] = {{1}};
int more(int x) {{ return {steps}; }}
#else
const int table[800] = {{1}};
int more(int x) {{ return x / 3; }}
#endif
"""
    check_kept(damageable, place, source, kept)


def test_messages_come_once(compiler: Compiler, place: Path) -> None:
    for source in ("bad.c", "lean.c", "fat.c"):
        (place / source).write_text((place / source).read_text() + "static int unused;\n")
        arguments = ["-Oz", "-Wall", "-c", source]
        driver, plain = compiler.run(arguments, place, NEVER_WORSE), compiler.plain(arguments, place)
        assert (driver.returncode, driver.stderr) == (plain.returncode, plain.stderr)
        assert ("unused" in driver.stderr) == (source != "bad.c")


def test_a_failure_with_the_policy_keeps_the_plain_object(damageable: Compiler, place: Path) -> None:
    damageable.plugin.write_bytes(b"no library\n")
    for strict in ("0", "1"):
        result = damageable.run(["-Oz", "-c", "lean.c"], place, {**NEVER_WORSE, "MLGO_STRICT": strict})
        assert len(result.stderr.splitlines()) == 1
        assert sorted(path.name for path in place.iterdir() if ".o" in path.name) == ["lean.o"][int(strict) :]
        assert result.returncode == int(strict)
        (place / "lean.o").unlink(missing_ok=True)


@pytest.mark.parametrize("separate", [False, True])
def test_only_what_was_compiled_is_moved(compiler: Compiler, place: Path, separate: bool) -> None:
    """The output is in another folder; a file of that name in this one is the user's."""
    (place / "inside").mkdir()
    for name in ("lean", "fat"):
        (place / "inside" / f"{name}.c").write_text((place / f"{name}.c").read_text())
        (place / f"{name}.o").write_text("mine")
        option = ["-working-directory", f"{place}/inside"] if separate else [f"-working-directory={place}/inside"]
        arguments = ["-Oz", *option, "-c", f"{name}.c", "-o"]
        kept = compiler.with_policy if name == "lean" else compiler.plain
        assert kept([*arguments, "expected.o"], place).returncode == 0
        result = compiler.run([*arguments, f"{name}.o"], place, NEVER_WORSE)
        assert (result.returncode, result.stderr) == (0, "")
        assert (place / "inside" / f"{name}.o").read_bytes() == (place / "inside" / "expected.o").read_bytes()
        assert (place / f"{name}.o").read_text() == "mine"


def test_a_name_that_was_misread_is_left_alone(damageable: Compiler, place: Path) -> None:
    """As if the compiler had a way to name its output that we do not know."""
    script = 'for word; do shift; [ "$word" = lean.o ] && word=other.o; set -- "$@" "$word"; done\nexec $CLANG "$@"\n'
    environment = {**NEVER_WORSE, **damageable.stand_in(place.parent / "tools", script)}
    (place / "lean.o").write_text("mine")
    assert damageable.with_policy(["-Oz", "-c", "lean.c", "-o", "expected.o"], place).returncode == 0
    result = damageable.run(["-Oz", "-c", "lean.c", "-o", "lean.o"], place, environment)
    assert result.returncode == 0
    assert result.stderr == (
        f"warning: mlgo: lean.o: not compared with plain clang-{damageable.major}'s (never worse): "
        "the compiler wrote another file\n"
    )
    assert (place / "lean.o").read_text() == "mine"
    assert (place / "other.o").read_bytes() == (place / "expected.o").read_bytes()


def test_where_it_cannot_be_applied_it_says_so(compiler: Compiler, place: Path) -> None:
    """The output exists and may be written, but nothing can be put beside it."""
    (place / "fat.o").write_text("")
    assert compiler.with_policy(["-Oz", "-c", "fat.c", "-o", "expected.o"], place).returncode == 0
    # Even for root, a folder of a file system that is read-only is; the file is one of another.
    mount = "mkdir ro; mount -t tmpfs none ro; touch ro/fat.o; mount --bind fat.o ro/fat.o; mount -o remount,ro ro"
    command = with_mounts(mount, compiler.driver, "-Oz", "-c", "fat.c", "-o", "ro/fat.o")
    result = run(command, place, NEVER_WORSE)
    assert result.returncode == 0
    assert result.stderr.startswith("warning: mlgo: ro/fat.o: not compared with plain ")
    assert "(never worse): it cannot be moved aside: " in result.stderr
    assert (place / "fat.o").read_bytes() == (place / "expected.o").read_bytes()


def test_names_of_any_length(compiler: Compiler, place: Path) -> None:
    name = "x" * 253 + ".o"
    assert compiler.plain(["-Oz", "-c", "fat.c", "-o", "expected.o"], place).returncode == 0
    result = compiler.run(["-Oz", "-c", "fat.c", "-o", name], place, NEVER_WORSE)
    assert (result.returncode, result.stderr) == (0, "")
    assert (place / name).read_bytes() == (place / "expected.o").read_bytes()


@pytest.mark.parametrize("name", ["lean", "fat"])
@pytest.mark.parametrize("option", ["-Wl,-Map=made.map", "-Xlinker -Map=made.map"])
def test_what_is_written_beside_it_is_of_the_same_program(
    compiler: Compiler, place: Path, option: str, name: str
) -> None:
    (place / "main.c").write_text(
        (place / f"{name}.c").read_text() + "int g(int x, int y) { return x; } int main(void) {}"
    )
    arguments = ["-Oz", *option.split(), "main.c", "-o", "made.o"]
    kept = compiler.with_policy if name == "lean" else compiler.plain
    written = []
    for how, environment in ((kept, {}), (compiler.run, NEVER_WORSE)):
        assert how(arguments, place, environment).returncode == 0
        beside = place / "made.map"
        # The names of temporary files are others each time.
        lines = re.sub(r"/tmp/\S+", "", beside.read_text())
        written.append(((place / "made.o").read_bytes(), lines))
        beside.unlink()
    assert written[0][0] == written[1][0]
    assert written[0][1] == written[1][1]


@pytest.mark.parametrize("kind", ["symbolic", "hard"])
def test_what_is_written_through_a_link_stays_there(compiler: Compiler, place: Path, kind: str) -> None:
    (place / "real.o").touch()
    if kind == "symbolic":
        (place / "link.o").symlink_to("real.o")
    else:
        (place / "link.o").hardlink_to(place / "real.o")
    arguments = ["-Oz", "-Xclang", "-fno-temp-file", "-c", "fat.c", "-o"]
    assert compiler.with_policy([*arguments, "expected.o"], place).returncode == 0
    result = compiler.run([*arguments, "link.o"], place, NEVER_WORSE)
    assert result.returncode == 0 and "(never worse): it cannot be moved aside: Too many links" in result.stderr
    assert (place / "link.o").samefile(place / "real.o")
    assert (place / "real.o").read_bytes() == (place / "expected.o").read_bytes()


@pytest.mark.parametrize("source", ["fat.c", "bad.c"])
def test_what_is_appended_comes_once(compiler: Compiler, place: Path, source: str) -> None:
    (place / "warns.h").write_text("#warning once\n")
    (place / source).write_text((place / source).read_text() + '#include "warns.h"\n')
    logs = {"CC_LOG_DIAGNOSTICS": "1", "CC_LOG_DIAGNOSTICS_FILE": "log", "CC_PRINT_PROC_STAT": "1"}
    logs["CC_PRINT_PROC_STAT_FILE"] = "stat"
    lines = []
    for how in (compiler.plain, compiler.run):
        how(["-Oz", "-c", source], place, {**logs, **NEVER_WORSE})
        lines.append([len((place / name).read_text().splitlines()) for name in ("log", "stat")])
        for name in ("log", "stat"):
            (place / name).unlink()
    assert lines[0] == lines[1] and min(lines[0]) > 0
