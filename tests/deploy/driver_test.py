"""What mlgo-clang does to a command line, seen by what comes out."""

import dataclasses
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler_opt.deploy.deployment import Deployment
from compiler_opt.deploy.driver import SOURCE
from tests.deploy.conftest import Compiler, run
from tests.deploy.sources import FAT, LEAN


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with something to compile of every kind."""
    place = tmp_path / "place"
    place.mkdir()
    (place / "lean.c").write_text(LEAN)
    (place / "fat.c").write_text(FAT)
    (place / "lean.cpp").write_text(LEAN)
    (place / "main.c").write_text(f"{LEAN}\nint main(void) {{ return unit() + flat() == cube(); }}\n")
    (place / "bad.c").write_text("int f(void) { return x; }\n")
    (place / "warns.c").write_text(f"{LEAN}\nstatic int unused;\n")
    (place / "lean.h").write_text(LEAN)
    (place / "-E.h").write_text("")
    (place / "start.s").write_text(".globl start\nstart:\n  ret\n")
    (place / "options.cfg").write_text("# -O0\n-Oz \\\n  -g0\n@more.cfg\n")
    (place / "more.cfg").write_text("# -O0\n-DNAME=1")
    (place / "record.cfg").write_bytes("-frecord-command-line".encode("utf-16"))
    (place / "options.rsp").write_text('-Oz "-c"\n  -DNAME=\\"x\\"')
    return place


DECIDES = {
    "object": "-Oz -c lean.c",
    "name of the object": "-Oz -c lean.c -o other.o",
    "the last level wins": "-O0 -O2 -Oz -c lean.c",
    "level spelled out": "--optimize=z -c lean.c",
    "assembly": "-Oz -S lean.c -o out.s",
    "bitcode": "-Oz -emit-llvm -c lean.c -o out.bc",
    "bitcode for the linker": "-Oz -flto -c lean.c -o out.o",
    "bitcode for ThinLTO": "-Oz -flto=thin -c lean.c -o out.o",
    "dependencies beside it": "-Oz -MD -MF lean.d -MT lean.o -c lean.c",
    "language given": "-Oz -xc++ -c lean.c",
    "C++": "-Oz -c lean.cpp",
    "several": "-Oz -c lean.c fat.c",
    "and assembled": "-Oz -c lean.c start.s",
    "linked": "-Oz main.c -o program",
    "response file": "@options.rsp lean.c",
    "configuration file": "--config=./options.cfg -c lean.c",
    "configuration file, named apart": "--config ./options.cfg -c lean.c",
    "values that look like options": "-Oz -c -I -E -D X -I -M -include -E.h lean.c",
    "only inputs follow": "-Oz -c -- lean.c",
}

LEAVES_ALONE = {
    "no level": "-c lean.c",
    "another level": "-O2 -c lean.c",
    "another level comes last": "-Oz -Os -c lean.c",
    "a level that is a value": "-I -Oz -c lean.c",
    "another level than that of the configuration file": "--config=./options.cfg -O2 -c lean.c",
    "preprocessed": "-Oz -E lean.c -o lean.i",
    "dependencies only": "-Oz -MM lean.c -o lean.d",
    "checked": "-Oz -fsyntax-only lean.c",
    "precompiled header": "-Oz -x c-header lean.h -o lean.pch",
    "header by its name": "-Oz lean.h -o lean.pch",
    "assembled": "-Oz -c start.s",
    "assembled, language given": "-Oz -x assembler -c start.s",
    "not optimised by LLVM": "-Oz -Xclang -disable-llvm-passes -emit-llvm -c lean.c -o out.bc",
    "linked": "-Oz objects/main.o -o program",
    "linked, with a linker that has no plugins": "-Oz -flto objects/main.o -o program",
    "not even compiled": "-Oz -### -c lean.c",
    "version": "--version",
    "question": "-print-search-dirs",
}


def outputs(folder: Path) -> dict[str, bytes]:
    """Contents of the files by path, less those of the sources."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix not in (".c", ".cpp", ".h", ".rsp", ".cfg") and path.name != "start.s"
    }


def both(compiler: Compiler, place: Path, arguments: list[str]) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """What the driver makes of a command line and what plain clang does, in the same place and saying the same."""
    here = place.parent / "here"
    made, said = [], []
    ways: tuple[Callable[[list[str], Path], subprocess.CompletedProcess[str]], ...] = (compiler.run, compiler.plain)
    for how in ways:
        shutil.copytree(place, here)
        result = how(arguments, here)
        assert result.returncode == 0, result.stderr
        said.append((result.stdout, result.stderr))
        made.append(outputs(here))
        shutil.rmtree(here)
    assert said[0] == said[1]
    return made[0], made[1]


@pytest.mark.parametrize("name", DECIDES)
def test_the_policy_decides(compiler: Compiler, place: Path, name: str) -> None:
    arguments = ["-Werror", *DECIDES[name].split()]
    driver, plain = both(compiler, place, arguments)
    expected = compiler.with_policy(arguments, place)
    assert expected.returncode == 0, expected.stderr
    assert driver == outputs(place)
    assert driver.keys() == plain.keys()
    assert driver != plain


def test_a_response_file_that_includes_itself_is_an_error_of_clangs(compiler: Compiler, place: Path) -> None:
    (place / "self.rsp").write_text("@self.rsp\n" * 10)
    arguments = ["-Oz", "@self.rsp", "-c", "lean.c"]
    driver, plain = compiler.run(arguments, place), compiler.plain(arguments, place)
    assert "recursive expansion" in plain.stderr
    assert (driver.returncode, driver.stderr) == (plain.returncode, plain.stderr)


@pytest.mark.parametrize(("mebibytes", "is_read"), [(15, True), (17, False)])
def test_response_files_of_many_mebibytes_are_left_to_clang(
    compiler: Compiler, place: Path, mebibytes: int, is_read: bool
) -> None:
    (place / "large.rsp").write_text("-Oz -c lean.c" + " " * (mebibytes << 20))
    driver, plain = both(compiler, place, ["@large.rsp"])
    assert (driver != plain) == is_read


@pytest.mark.parametrize("name", LEAVES_ALONE)
def test_the_policy_is_not_asked(damageable: Compiler, place: Path, name: str) -> None:
    (place / "objects").mkdir()
    compiled = damageable.plain(["-Oz", "-c", "main.c", "-o", "objects/main.o"], place)
    assert compiled.returncode == 0
    # Were it asked, there would be a warning.
    damageable.plugin.unlink()
    arguments = LEAVES_ALONE[name].split()
    driver, plain = both(damageable, place, arguments)
    assert driver == plain


def test_no_options_value_is_taken_for_a_source(compiler: Compiler, place: Path) -> None:
    """Every option that clang's help shows with a value apart from it is known, or has an effect of its own."""
    shown = compiler.plain(["--help-hidden"], place).stdout
    options = set(re.findall(r"^  (--?[A-Za-z][\w+-]*) <", shown, re.MULTILINE))
    known = set(re.findall(r'"(-[^"]+)"', SOURCE.with_name("command_line.h").read_text()))
    assert len(options) > 30
    assert {option for option in options - known if not option.startswith("-Xarch_")} == set()


def test_nothing_to_do(damageable: Compiler, place: Path) -> None:
    damageable.plugin.unlink()
    for arguments in ([], ["-Oz"]):
        driver, plain = damageable.run(arguments, place), damageable.plain(arguments, place)
        assert (driver.returncode, driver.stderr) == (plain.returncode, plain.stderr)


def test_the_names(compiler: Compiler, deployment: Deployment, place: Path) -> None:
    source = 'extern "C" int f(int);\n#ifdef __cplusplus\nint (*p)(int) = f;\n#endif\n'
    (place / "any.c").write_text(source)
    assert run([compiler.driver, "-fsyntax-only", "any.c"], place).returncode == 1
    assert run([compiler.cpp_driver, "-Wno-deprecated", "-fsyntax-only", "any.c"], place).returncode == 0
    # Links to it, as an administrator or a build system makes them.
    (place / "c++").symlink_to(compiler.cpp_driver)
    result = run([str(place / "c++"), "-Wno-deprecated", "-fsyntax-only", "any.c"], place)
    assert result.returncode == 0
    # A number that is not clang's.
    (place / "cc-2024").symlink_to(deployment.driver())
    assert run([str(place / "cc-2024"), "--version"], place).returncode == 0
    first, other = deployment.clangs
    version = run([str(deployment.driver()), "--version"], place).stdout
    assert f"clang version {first}." in version
    assert f"clang version {other}." in run([str(deployment.driver(major=other)), "--version"], place).stdout
    (place / "mlgo-clang-18").symlink_to(deployment.driver())
    result = run([str(place / "mlgo-clang-18"), "--version"], place)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("error: mlgo: mlgo-clang-18: the policy was not deployed for clang-18")


def test_a_moved_prefix_works(damageable: Compiler, compiler: Compiler, place: Path) -> None:
    moved = dataclasses.replace(damageable, prefix=damageable.prefix.with_name("elsewhere, it is"))
    damageable.prefix.rename(moved.prefix)
    for name, each in {"here.o": compiler, "there.o": moved}.items():
        result = each.run(["-Oz", "-c", "lean.c", "-o", name], place)
        assert (result.returncode, result.stderr) == (0, "")
    assert (place / "here.o").read_bytes() == (place / "there.o").read_bytes()
    assert compiler.plain(["-Oz", "-c", "lean.c", "-o", "plain.o"], place).returncode == 0
    assert (place / "here.o").read_bytes() != (place / "plain.o").read_bytes()


def test_standard_input_and_output(compiler: Compiler, place: Path) -> None:
    """What can be read but once is compiled plainly; what is written to standard output comes whole and once."""

    def compile_input(command: str) -> "subprocess.CompletedProcess[bytes]":
        arguments = [command, "-Oz", "-x", "c", "-", "-S", "-o", "-"]
        return subprocess.run(arguments, cwd=place, input=LEAN.encode(), capture_output=True, check=False, timeout=60)

    driver, plain = compile_input(compiler.driver), compile_input(compiler.clang)
    assert (driver.returncode, driver.stdout, driver.stderr) == (0, plain.stdout, b"")
    driver_output = compiler.run(["-Oz", "-S", "lean.c", "-o", "-"], place)
    policy_output = compiler.with_policy(["-Oz", "-S", "lean.c", "-o", "-"], place)
    plain_output = compiler.plain(["-Oz", "-S", "lean.c", "-o", "-"], place)
    assert driver_output.stdout == policy_output.stdout != plain_output.stdout
    os.mkfifo(place / "pipe.c")
    command = [compiler.driver, "-Oz", "-S", "pipe.c", "-o", "-"]
    with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, text=True) as process:
        (place / "pipe.c").write_text(LEAN)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert output.replace("pipe.c", "lean.c") == plain_output.stdout


@pytest.mark.parametrize("source", ["bad.c", "warns.c", "missing.c"])
@pytest.mark.parametrize("options", ["-Oz -c", "-Oz -c -Werror -Wall", "-Oz -c -Wall -fno-such-option", "-Oz -flto -c"])
@pytest.mark.parametrize("strict", ["0", "1"])
def test_messages_and_status_are_the_compilers(
    compiler: Compiler, place: Path, source: str, options: str, strict: str
) -> None:
    arguments = [*options.split(), source]
    driver = compiler.run(arguments, place, {"MLGO_STRICT": strict})
    plain = compiler.plain(arguments, place)
    assert (driver.returncode, driver.stdout, driver.stderr) == (plain.returncode, plain.stdout, plain.stderr)


def test_a_failed_link_is_reported_once(compiler: Compiler, place: Path) -> None:
    arguments = ["-Oz", "fat.c", "-o", "program"]
    driver, plain = compiler.run(arguments, place), compiler.plain(arguments, place)
    assert driver.returncode == plain.returncode == 1
    assert driver.stderr.count("undefined reference to `main'") == 1


def test_link_time_optimisation(compiler: Compiler, place: Path) -> None:
    """The whole program is the policy's too; what ThinLTO imports is not."""
    for name in ("main", "fat"):
        (place / f"{name}.c").write_text((place / f"{name}.c").read_text().replace("static int", "int"))
    (place / "fat.c").write_text((place / "fat.c").read_text() + "int g(int x, int y) { return x - y; }\n")
    for kind, decides in {"full": True, "thin": False}.items():
        options = ["-Oz", f"-flto={kind}", "-fuse-ld=lld"]
        assert compiler.plain([*options, "-c", "main.c", "fat.c"], place).returncode == 0
        link = [*options, "main.o", "fat.o", "-Wl,-u,a", "-o"]
        assert compiler.plain([*link, "plain"], place).returncode == 0
        result = compiler.run([*link, "driver"], place)
        assert (result.returncode, result.stderr) == (0, "")
        assert ((place / "driver").read_bytes() != (place / "plain").read_bytes()) == decides, kind
        assert run([str(place / "driver")], place).returncode == 0


@pytest.mark.parametrize("configured", ["by default", "by a file"])
def test_the_linker_is_configured(damageable: Compiler, place: Path, configured: str) -> None:
    """The policy decides in links by lld, however clang comes to choose it; nor does a warning come of asking."""
    (place / "fat.c").write_text(FAT.replace("static int", "int") + "int g(int x, int y) { return x - y; }\n")
    assert damageable.plain(["-Oz", "-flto", "-c", "main.c", "fat.c"], place).returncode == 0
    link = ["main.o", "fat.o", "-Wl,-u,a"]
    assert damageable.run(["-Oz", "-flto", "-fuse-ld=lld", *link, "-o", "expected"], place).returncode == 0
    assert damageable.plain(["-Oz", "-flto", "-fuse-ld=lld", *link, "-o", "plain"], place).returncode == 0
    environment: dict[str, str] = {}
    if configured == "by default":
        # As if lld were this clang's default.
        lld = "--start-no-unused-arguments -fuse-ld=lld --end-no-unused-arguments"
        environment = dict(damageable.stand_in(place.parent / "tools", f'exec $CLANG {lld} "$@"\n'))
        options = ["-Oz", "-flto"]
    else:
        (place / "lto.cfg").write_text("-Oz -flto\n-fuse-ld=lld\n")
        options = ["--config=./lto.cfg"]
    result = damageable.run([*options, *link, "-o", "made"], place, environment)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert (place / "made").read_bytes() == (place / "expected").read_bytes() != (place / "plain").read_bytes()


def test_a_second_build_gives_the_same_bytes(compiler: Compiler, place: Path) -> None:
    for name in ("first.o", "second.o"):
        assert compiler.run(["-Oz", "-g", "-c", "lean.c", "-o", name], place).returncode == 0
    assert (place / "first.o").read_bytes() == (place / "second.o").read_bytes()


def test_the_environment_does_not_change_the_policy(compiler: Compiler, place: Path) -> None:
    meddling = {
        "MLGO_INLINER_POLICY": "/no/such/policy",
        "MLGO_INLINER_MODE": "default",
        "MLGO_INLINER_TEMPERATURE": "9",
        "MLGO_INLINER_LOG": str(place / "log"),
        "MLGO_INLINER_STRICT": "1",
    }
    for name, environment in {"quiet.o": {}, "meddled.o": meddling}.items():
        result = compiler.run(["-Oz", "-c", "lean.c", "-o", name], place, environment)
        assert (result.returncode, result.stderr) == (0, "")
    assert (place / "quiet.o").read_bytes() == (place / "meddled.o").read_bytes()
    assert not (place / "log").exists()


def test_it_can_be_switched_off(compiler: Compiler, place: Path) -> None:
    assert compiler.plain(["-Oz", "-c", "lean.c", "-o", "plain.o"], place).returncode == 0
    for word, off in {"1": True, "Yes": True, "on": True, "0": False, "no": False, "FALSE": False, "": False}.items():
        assert compiler.run(["-Oz", "-c", "lean.c", "-o", "off.o"], place, {"MLGO_DISABLE": word}).returncode == 0
        assert ((place / "off.o").read_bytes() == (place / "plain.o").read_bytes()) == off, word
    result = compiler.run(["-Oz", "-c", "lean.c"], place, {"MLGO_DISABLE": "maybe"})
    assert (result.returncode, result.stderr) == (1, "error: mlgo: MLGO_DISABLE: expected 1 or 0, found maybe\n")


@pytest.mark.parametrize("never_worse", ["0", "1"])
@pytest.mark.parametrize(
    "option", ["-frecord-command-line", "-grecord-gcc-switches -g", "-MJ entry.json", "--config=./record.cfg"]
)
def test_a_recorded_command_line_is_the_users(compiler: Compiler, place: Path, option: str, never_worse: str) -> None:
    def strings_of(path: Path) -> set[bytes]:
        return {text for text in re.findall(rb"[ -~]{8,}", path.read_bytes()) if b"-Oz" in text or b"mlgo" in text}

    recorded = place / ("entry.json" if "entry.json" in option else "lean.o")
    # Its value needs quotes wherever it is written.
    arguments = ["-Oz", *option.split(), '-DNAME="a \\\\ $b"', "-c", "lean.c"]
    assert compiler.plain(arguments, place).returncode == 0
    expected = strings_of(recorded)
    plain_object = (place / "lean.o").read_bytes()
    recorded.unlink()
    result = compiler.run(arguments, place, {"MLGO_NEVER_WORSE": never_worse})
    assert (result.returncode, result.stderr) == (0, "")
    assert strings_of(recorded) == expected != set()
    assert (place / "lean.o").read_bytes() != plain_object


def test_a_database_of_two_sources_is_the_users(compiler: Compiler, place: Path) -> None:
    databases = []
    for how in (compiler.plain, compiler.run):
        assert how(["-Oz", "-MJ", "entries.json", "-c", "lean.c", "fat.c"], place).returncode == 0
        databases.append((place / "entries.json").read_text())
    assert databases[0] == databases[1]


def test_a_fragment_of_a_database_is_the_users(compiler: Compiler, place: Path) -> None:
    """clang chooses its name."""
    fragments = []
    for how in (compiler.plain, compiler.run):
        arguments = ["-Oz", "-g", "-grecord-command-line", "-gen-cdb-fragment-path", "fragments"]
        result = how([*arguments, "-c", "lean.c", "-o", "made.o"], place)
        assert (result.returncode, result.stderr) == (0, "")
        assert b"-gen-cdb-fragment-path fragments" in (place / "made.o").read_bytes()
        [fragment] = (place / "fragments").iterdir()
        fragments.append((len(fragment.name), fragment.read_text()))
        shutil.rmtree(place / "fragments")
    assert fragments[0] == fragments[1]


def test_debug_information_for_windows_has_the_users_command_line(compiler: Compiler, place: Path) -> None:
    for options, differs in {"-g": False, "-g -gno-codeview-command-line": True}.items():
        arguments = ["--target=x86_64-windows", *options.split(), "-Oz", "-c", "lean.c"]
        driver, plain = both(compiler, place, arguments)
        # The first bytes have the time.
        assert (driver["lean.o"][8:] != plain["lean.o"][8:]) == differs


def test_a_folder_that_a_response_file_names_is_followed_by_its_other_words(compiler: Compiler, place: Path) -> None:
    (place / "rest.rsp").write_text("fragments -c")
    driver, plain = both(compiler, place, ["-gen-cdb-fragment-path", "@rest.rsp", "-Oz", "lean.c"])
    assert driver["lean.o"] == plain["lean.o"]


def test_info_tells_what_an_object_depends_on(damageable: Compiler, deployment: Deployment, place: Path) -> None:
    def info(**environment: str) -> str:
        result = damageable.run(["--mlgo-info"], place, environment)
        assert (result.returncode, result.stderr) == (0, "")
        return result.stdout

    first = info()
    assert deployment.policies[0].checksum in first
    assert f"clang: {damageable.clang} (" in first
    assert first == info()
    assert info(MLGO_DISABLE="1") != first != info(MLGO_NEVER_WORSE="1")
    assert re.search(r"^library: \S+/libLLVM\S+ \(\d+ bytes of \S+, build [0-9a-f]{40}\)$", first, re.MULTILINE)
    assert re.search(r"^library: \S+/libclang-cpp", first, re.MULTILINE)
    # What counts is the plugin's content: neither when it was written nor how large it is.
    os.utime(damageable.plugin, (1, 1))
    assert info() == first
    content = bytearray(damageable.plugin.read_bytes())
    content[-1] ^= 1
    damageable.plugin.write_bytes(content)
    os.utime(damageable.plugin, (1, 1))
    changed = info()
    assert changed != first
    damageable.plugin.unlink()
    assert info() not in (first, changed)
    # For those who look at the program itself.
    assert deployment.policies[0].checksum.encode() in Path(damageable.driver).read_bytes()
