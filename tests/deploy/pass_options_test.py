"""Options of LLVM's passes in a deployment: which are used where, and what a user's own options do to them."""

import dataclasses
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from compiler_opt.deploy.deployment import Deployment, deploy
from compiler_opt.deploy.policies import PolicyRequest
from compiler_opt.llvm.advisors import mllvm
from compiler_opt.pass_options.sets import OptionSets
from tests.deploy.cmake_test import CMAKE
from tests.deploy.conftest import Compiler, run
from tests.deploy.driver_test import outputs
from tests.deploy.sources import JUMPS, LEAN, MAIN, SWITCH

OZ, O2 = (
    ("-two-entry-phi-node-folding-threshold=0", "-disable-lsr", f"{JUMPS}=100"),
    ("-disable-machine-licm", f"{JUMPS}=90"),
)
ARM, THUMB = (f"{JUMPS}=2",), (f"{JUMPS}=3",)
SETS = OptionSets({"Oz": OZ, "O2": O2}, {"aarch64": {"Oz": ARM}, "arm": {"Oz": THUMB}})
WERROR = ("-Werror", "-Wno-unused-command-line-argument", "-Wunused-command-line-argument")


@pytest.fixture(scope="module")
def alone(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """Options without any policy."""
    prefix = tmp_path_factory.mktemp("alone") / "prefix"
    return deploy([], prefix, list(deployment.clangs.values()), options=SETS)


@pytest.fixture(scope="module")
def both(deployment: Deployment, policy_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    prefix = tmp_path_factory.mktemp("both") / "prefix"
    return deploy([PolicyRequest(policy_dir)], prefix, list(deployment.clangs.values()), options=SETS)


@pytest.fixture
def driver(compiler: Compiler, alone: Deployment) -> Compiler:
    """The driver that has options alone."""
    return dataclasses.replace(compiler, prefix=alone.prefix)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "place"
    place.mkdir()
    (place / "act.c").write_text(SWITCH + LEAN)
    (place / "act.h").write_text("void act(int);\n")
    (place / "main.c").write_text(MAIN)
    (place / "start.s").write_text('.globl start\nstart:\n  ret\n.section .note.GNU-stack,"",@progbits\n')
    (place / "level.rsp").write_text("-Oz -c")
    (place / "level.cfg").write_text("-Oz\n")
    return place


def made(result: "subprocess.CompletedProcess[str]", place: Path) -> Mapping[str, bytes]:
    """The files of a command that says nothing; removes them."""
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    files = outputs(place)
    for name in files:
        (place / name).unlink()
    return files


USED = {
    "object": "-Oz -c act.c",
    "another level": "-O0 -O2 -c act.c",
    "assembly": "-Oz -S act.c",
    "bitcode for the linker": "-Oz -flto=thin -c act.c",
    "several, and assembled": "-Oz -c act.c main.c start.s",
    "compiled and linked": "-Oz act.c main.c -o program",
    "response file": "@level.rsp act.c",
    "configuration file": "--config=./level.cfg -c act.c",
    "the compiler's own level": "-O2 -Xclang -Oz -c act.c",
    "intermediate files": "-Oz -save-temps -c act.c",
    "dependencies": "-Oz -MD -c act.c",
}


@pytest.mark.parametrize("name", USED)
def test_options_are_used_alone_and_beside_a_policy(
    compiler: Compiler, driver: Compiler, both: Deployment, place: Path, name: str
) -> None:
    """The same as clang makes with them, byte for byte, without a word."""
    arguments = [*WERROR, *USED[name].split()]
    options = mllvm(O2 if name == "another level" else OZ)
    with_options = ["--start-no-unused-arguments", *options, "--end-no-unused-arguments", *arguments]
    plain = made(compiler.plain(arguments, place), place)
    assert made(driver.run(arguments, place), place) == made(compiler.plain(with_options, place), place) != plain
    with_both = dataclasses.replace(compiler, prefix=both.prefix)
    how = compiler.plain if name == "another level" else compiler.with_policy
    assert made(with_both.run(arguments, place), place) == made(how(with_options, place), place)


def test_they_are_not_recorded(driver: Compiler, place: Path) -> None:
    recording = ["-Oz", "-c", "act.c", "-MJ", "act.json", "-frecord-command-line", "-o"]
    files = made(driver.run([*recording, "act.o"], place), place)
    assert b"-frecord-command-line" in files["act.o"]
    assert not any(b"disable-lsr" in content for content in files.values())


LEFT_ALONE = [
    "-c act.c",
    "-O1 -c act.c",
    "-Os -c act.c",
    "-O2 -O0 -c act.c",
    "-Oz -E act.c -o act.i",
    "-Oz -M act.c -o act.d",
    "-Oz -fsyntax-only act.c",
    "-Oz -x c-header act.h -o act.pch",
    "-Oz -c start.s",
    "-Oz -c -x assembler-with-cpp start.s",
    "-Oz objects/act.o objects/main.o -o program",
    "-Oz -flto -fno-lto objects/act.o objects/main.o -o program",
    "-Oz -Xclang -disable-llvm-passes -emit-llvm -c act.c",
]


@pytest.mark.parametrize("text", LEFT_ALONE)
def test_everything_else_is_clangs(driver: Compiler, place: Path, text: str) -> None:
    (place / "objects").mkdir()
    for name in ("act", "main"):
        assert driver.plain(["-Oz", "-c", f"{name}.c", "-o", f"objects/{name}.o"], place).returncode == 0
    arguments = ["-Werror", *text.split()]
    expected = driver.plain(arguments, place)
    files = outputs(place)
    for name in files:
        if not name.startswith("objects"):
            (place / name).unlink()
    result = driver.run(arguments, place)
    assert (result.returncode, result.stdout) == (expected.returncode, expected.stdout)
    assert result.stderr == expected.stderr
    assert outputs(place) == files


def test_they_can_be_switched_off(driver: Compiler, place: Path) -> None:
    plain = made(driver.plain(["-Oz", "-c", "act.c"], place), place)
    assert made(driver.run(["-Oz", "-c", "act.c"], place, {"MLGO_DISABLE": "1"}), place) == plain


# Where the user gives one of ours: (files, environment, arguments)
OWN: Mapping[str, tuple[Mapping[str, str], Mapping[str, str], str]] = {
    "apart": ({}, {}, "-mllvm OPTION"),
    "two dashes": ({}, {}, "-mllvm -OPTION"),
    "joined": ({}, {}, "-mllvm=OPTION"),
    "its value apart": ({}, {}, "-mllvm NAME -mllvm 2"),
    "cc1's": ({}, {}, "-Xclang -mllvm -Xclang OPTION"),
    "response file": ({"own.rsp": "-mllvm OPTION"}, {}, "@own.rsp"),
    "configuration file": ({"own.cfg": "-mllvm OPTION\n"}, {}, "--config=./own.cfg"),
    "cc1's in a configuration file": ({"own.cfg": "-Xclang -mllvm -Xclang OPTION\n"}, {}, "--config=./own.cfg"),
    "added by the environment": ({}, {"CCC_OVERRIDE_OPTIONS": "# +-mllvm +OPTION"}, ""),
    "added first by the environment": ({}, {"CCC_OVERRIDE_OPTIONS": "# ^OPTION ^-Xclang ^-mllvm ^-Xclang"}, ""),
}


@pytest.mark.parametrize("name", OWN)
def test_the_users_option_wins(driver: Compiler, place: Path, name: str) -> None:
    """Whoever gives it, ours of that name has no effect; the others have."""
    files, environment, words = OWN[name]
    for file, text in files.items():
        (place / file).write_text(text.replace("OPTION", f"{JUMPS}=2"))
    arguments = words.replace("OPTION", f"{JUMPS}=2").replace("NAME", JUMPS).split()
    edits = {key: text.replace("OPTION", f"{JUMPS}=2") for key, text in environment.items()}
    command = ["-Oz", *arguments, "-c", "act.c"]
    expected = made(driver.plain(["-Oz", *mllvm([*OZ[:-1], f"{JUMPS}=2"]), "-c", "act.c"], place), place)
    ours = made(driver.plain(["-Oz", *mllvm(OZ), "-c", "act.c"], place), place)
    assert made(driver.run(command, place, edits), place) == expected != ours


@pytest.mark.parametrize("edits", [f"# x{OZ[1]}", "# s/mllvm/unroll-loops/", "# X-mllvm"])
def test_edits_of_ours_lead_to_plain_clang(driver: Compiler, place: Path, edits: str) -> None:
    plain = made(driver.plain(["-Oz", "-c", "act.c"], place), place)
    assert made(driver.run(["-Oz", "-c", "act.c"], place, {"CCC_OVERRIDE_OPTIONS": edits}), place) == plain


TARGETS = {
    "--target=aarch64-linux-gnu": ARM,
    "-target aarch64-linux-gnu": ARM,
    "--target=riscv64-linux-gnu": OZ,
    "-m32": OZ,
    "--target=aarch64-linux-gnu -mbig-endian": OZ,
    "--target=x86_64-linux-gnu": OZ,
    "--target=riscv64 --target=aarch64": ARM,
    "--target=arm64-apple-macos14": ARM,
    "--target=arm-none-eabi -mthumb -mcpu=cortex-m4": THUMB,
    "--target=thumbv7em-none-eabi": THUMB,
}


@pytest.mark.parametrize("target", TARGETS)
def test_the_target_chooses(driver: Compiler, place: Path, target: str) -> None:
    arguments = [*target.split(), "-Oz", "-c", "act.c"]
    expected = made(driver.plain([*mllvm(TARGETS[target]), *arguments], place), place)
    assert made(driver.run(arguments, place), place) == expected


def test_so_does_a_name(driver: Compiler, place: Path) -> None:
    expected = made(driver.plain(["--target=aarch64-linux-gnu", *mllvm(ARM), "-Oz", "-c", "act.c"], place), place)
    link = place.parent / f"aarch64-linux-gnu-clang-{driver.major}"
    link.symlink_to(driver.driver)
    assert made(run([str(link), "-Oz", "-c", "act.c"], place), place) == expected


LINKS = {
    "lld": "-flto -fuse-ld=lld",
    "lld, ThinLTO": "-flto=thin -fuse-ld=lld",
    "gold": "-flto -fuse-ld=gold",
    "the default linker": "-flto",
}


@pytest.mark.parametrize("name", LINKS)
def test_links_that_generate_code(driver: Compiler, place: Path, name: str) -> None:
    options = ["-Werror", *LINKS[name].split()]
    for source in ("act", "main"):
        assert driver.plain([options[1], "-Oz", "-c", f"{source}.c", "-o", f"{source}.obj"], place).returncode == 0
    objects = {source: (place / f"{source}.obj").read_bytes() for source in ("act", "main")}

    def link(how: Compiler, extra: Sequence[str], plainly: bool) -> bytes:
        command = [*options, *extra, "act.obj", "main.obj", "-o", "program"]
        result = (how.plain if plainly else how.run)(command, place)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", ""), result.stderr
        return (place / "program").read_bytes()

    with_ours = [f"-Wl,-plugin-opt={option}" for option in OZ]
    plain = link(driver, ["-Oz"], plainly=True)
    expected = link(driver, ["-Oz", *with_ours], plainly=True)
    assert expected != plain
    assert link(driver, ["-Oz"], plainly=False) == expected
    assert link(driver, [], plainly=False) == link(driver, [], plainly=True)
    assert link(driver, ["-Oz", f"-Wl,-plugin-opt={JUMPS}=2"], plainly=False) == link(
        driver, ["-Oz", *with_ours[:-1], f"-Wl,-plugin-opt={JUMPS}=2"], plainly=True
    )
    assert objects == {source: (place / f"{source}.obj").read_bytes() for source in ("act", "main")}


def test_compiled_and_linked_in_one(driver: Compiler, place: Path) -> None:
    arguments = ["-Werror", "-Oz", "-flto", "-fuse-ld=lld", "act.c", "main.c", "-o", "program"]
    expected = made(
        driver.plain([*mllvm(OZ), *(f"-Wl,-plugin-opt={option}" for option in OZ), *arguments], place), place
    )
    assert made(driver.run(arguments, place), place) == expected


PROJECT = """cmake_minimum_required(VERSION 3.16)
project(options C CXX)
include(CheckCCompilerFlag)
include(CheckIPOSupported)
set(CMAKE_REQUIRED_FLAGS -Werror)
check_c_compiler_flag(-Wall HAS_WALL)
check_ipo_supported(LANGUAGES C)
add_compile_options(-Werror -Wall)
add_link_options(-Werror)
add_library(act STATIC act.c)
add_library(shared SHARED act.c main.c)
add_executable(program main.c)
target_link_libraries(program act)
set_target_properties(program act PROPERTIES INTERPROCEDURAL_OPTIMIZATION ${IPO})
if(NOT HAS_WALL)
  message(FATAL_ERROR "a flag was refused")
endif()
"""


@pytest.mark.ci
def test_a_cmake_project_without_warnings(driver: Compiler, place: Path) -> None:
    (place / "CMakeLists.txt").write_text(PROJECT)
    toolchain = driver.prefix / "share/mlgo" / f"toolchain-{driver.major}.cmake"
    for ipo in ("OFF", "ON"):
        build = ["-G", "Ninja", "-B", ipo, f"-DIPO={ipo}", "-DCMAKE_BUILD_TYPE=MinSizeRel"]
        result = run([CMAKE, *build, f"-DCMAKE_TOOLCHAIN_FILE={toolchain}"], place)
        assert result.returncode == 0, result.stdout + result.stderr
        result = run(["ninja", "-v", "-C", ipo], place)
        assert (result.returncode, "warning" in result.stdout) == (0, False), result.stdout
        assert run([f"{ipo}/program"], place).returncode == 0
    expected = driver.plain(["-DNDEBUG", "-Oz", "-Wall", *mllvm(OZ), "-c", "act.c", "-o", "act.o"], place)
    assert expected.returncode == 0
    assert (place / "OFF/CMakeFiles/act.dir/act.c.o").read_bytes() == (place / "act.o").read_bytes()


CONFIGURE = """
set -e
try() { "$@" > said 2>&1 || { cat said; exit 1; }; test ! -s said || { cat said; exit 1; }; }
echo 'int main(void) { return 0; }' > conftest.c
try $CC $CFLAGS -Werror -c conftest.c
try $CC $CFLAGS -Werror conftest.o -o conftest
try $CC $CFLAGS -Werror conftest.c -o conftest -Wl,--as-needed
try ./conftest
$CC $CFLAGS -Werror -E conftest.c > conftest.i
try $CC $CFLAGS -Werror -c conftest.i
$CC $CFLAGS -Werror -dM -E -x c /dev/null | grep -q __OPTIMIZE_SIZE__
test -n "$($CC $CFLAGS -print-prog-name=ld)"
printf 'all: program\n%%.o: %%.c\n\t$(CC) $(CFLAGS) -Werror -MD -c $< -o $@\n' > Makefile
printf 'program: act.o main.o start.o\n\t$(CC) $(CFLAGS) -Werror $^ -o $@\n' >> Makefile
try make -s
./program
"""


def test_a_configure_script_and_make_without_warnings(driver: Compiler, place: Path) -> None:
    result = run(["sh", "-c", CONFIGURE], place, {"CC": driver.driver, "CFLAGS": "-Oz", "CPPFLAGS": ""})
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_fallback(driver: Compiler, place: Path, tmp_path: Path) -> None:
    """A compiler that dies with the options, or does not know one, makes the plain object."""
    plain = made(driver.plain(["-Oz", "-c", "act.c"], place), place)
    dying, lacking = tmp_path / "dying", tmp_path / "lacking"
    dying.write_text(f'#!/bin/bash\ncase "$*" in *disable-lsr*) kill -KILL $$;; esac\nexec {driver.clang} "$@"\n')
    lacking.write_text(f'#!/bin/bash\nexec {driver.clang} "${{@/-disable-lsr/-disable-xyz}}"\n')
    said = {
        dying: "the compiler died: Killed",
        lacking: "Unknown command line argument '-disable-xyz'.",
    }
    for clang, reason in said.items():
        clang.chmod(0o755)
        result = driver.run(["-Oz", "-c", "act.c"], place, {"MLGO_CLANG": str(clang)})
        start = f"warning: mlgo: act.c: compiled with plain {clang.name}, since it failed with the deployed options: "
        assert (result.returncode, result.stdout, result.stderr.count("\n")) == (0, "", 1)
        assert result.stderr.startswith(start + (reason if clang == dying else ""))
        assert outputs(place) == plain
        (place / "act.o").unlink()
        result = driver.run(["-Oz", "-c", "act.c"], place, {"MLGO_CLANG": str(clang), "MLGO_STRICT": "1"})
        assert result.returncode != 0 and not (place / "act.o").exists()


@pytest.mark.ci
def test_never_worse_compares_with_plain_clang(compiler: Compiler, place: Path, tmp_path: Path) -> None:
    """At -Oz the option makes the object larger, at -O2 smaller."""
    sets = OptionSets({"Oz": ("-enable-tail-merge=false",), "O2": ("-vectorize-loops=false",)})
    deployment = deploy([], tmp_path / "prefix", [compiler.clang], options=sets, never_worse=True)
    driver = dataclasses.replace(compiler, prefix=deployment.prefix)
    for level, options in sets.levels.items():
        arguments = [f"-{level}", "-c", "act.c"]
        plain = made(driver.plain(arguments, place), place)
        ours = made(driver.plain([*mllvm(options), *arguments], place), place)
        assert (text_bytes(ours["act.o"], place) < text_bytes(plain["act.o"], place)) == (level == "O2")
        assert made(driver.run(arguments, place), place) == (ours if level == "O2" else plain)


def text_bytes(content: bytes, place: Path) -> int:
    (place / "sized").write_bytes(content)
    result = run(["size", "sized"], place)
    (place / "sized").unlink()
    return int(result.stdout.split("\n")[1].split()[0])


def test_what_is_written(alone: Deployment, both: Deployment, compiler: Compiler, tmp_path: Path) -> None:
    info = "".join(
        f"options: {where}: {' '.join(options)}\n"
        for where, options in {"-Oz": OZ, "-O2": O2, "-Oz aarch64": ARM, "-Oz arm": THUMB}.items()
    )
    for deployment, num_libraries in ((alone, 0), (both, 2)):
        shown = run([str(deployment.driver(major=compiler.major)), "--mlgo-info"], tmp_path).stdout
        assert info in shown
        assert len(list(deployment.prefix.glob("lib/*"))) == num_libraries
        description = json.loads((deployment.prefix / "share/mlgo/deployment.json").read_text())
        for each in description["compilers"]:
            assert each["options"] == json.loads(json.dumps({"levels": SETS.levels, "targets": SETS.targets}))
            assert each["options_left_out"] == []
    assert 'CMAKE_C_FLAGS_MINSIZEREL "-Oz' in (alone.prefix / "share/mlgo/toolchain.cmake").read_text()


@pytest.mark.slow
def test_without_headers_and_tools(clang_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler stands alone, as in a system without LLVM's packages for development."""
    script = tmp_path / "bin" / "clang"
    script.parent.mkdir()
    script.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] || exec {clang_path} "$@"\n'
        f"echo '{subprocess.check_output([clang_path, '--version'], text=True).splitlines()[0]}'\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin/nowhere")
    (tmp_path / "act.c").write_text(SWITCH)
    for name in ("sh", "g++", "as", "ld"):
        tool = shutil.which(name, path="/usr/bin:/bin")
        assert tool is not None
        (script.parent / name).symlink_to(tool)
    deployment = deploy([], tmp_path / "prefix", [script], options=SETS)
    result = run([str(deployment.driver()), "-Oz", "-c", "act.c"], tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    made_by_driver = (tmp_path / "act.o").read_bytes()
    assert run([clang_path, *mllvm(OZ), "-Oz", "-c", "act.c"], tmp_path).returncode == 0
    assert made_by_driver == (tmp_path / "act.o").read_bytes()
