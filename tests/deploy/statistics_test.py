"""MLGO_STATS: what becomes of compilations is counted, and counting never changes what becomes of them."""

import concurrent.futures
import dataclasses
import os
import re
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from compiler_opt.deploy.decision_files import DeployedDecisions
from compiler_opt.deploy.deployment import deploy
from compiler_opt.deploy.policies import PolicyRequest
from compiler_opt.pass_options.sets import OptionSets
from compiler_opt.policies.decisions import Decisions
from tests.deploy.conftest import Compiler, run
from tests.deploy.sources import FAT, LEAN

USED = "with the policy or options"
OTHER_LEVEL = "neither policy nor options for this level or target"
NO_CODE = "no code is generated, as in preprocessing and plain links"
FILES = "files of the deployment are missing or damaged"
PART = "only a part of the deployment: other files are missing or damaged"
WARNED = "clang alone or a part of the deployment, with a warning"
CRASH = "the compiler crashed with the policy or options"
FAILURE = "the compiler failed with the policy or options"
USER_ERROR = "clang alone has errors, too"
REFUSED = "only with the policy or options, and not repeated without (strict)"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "place"
    (place / "stats").mkdir(parents=True)
    (place / "lean.c").write_text(LEAN)
    (place / "fat.c").write_text(FAT)
    (place / "bad.c").write_text("int f(void) { return missing; }\n")
    return place


def counts(compiler: Compiler, place: Path) -> dict[str, int]:
    """What `--mlgo-stats` shows, without zeros."""
    shown = compiler.run(["--mlgo-stats"], place, {"MLGO_STATS": str(place / "stats")})
    assert (shown.returncode, shown.stderr) == (0, "")
    rows = re.findall(r"^ *(\S.*?) +(\d+)$", shown.stdout, re.MULTILINE)
    return {row: int(number) for row, number in rows if number != "0"}


def counted(compiler: Compiler, place: Path, arguments: str, **environment: str) -> dict[str, int]:
    """What one compilation counts as; it prints and exits as it does without counting."""
    variables = {"MLGO_STATS": str(place / "stats"), **environment}
    assert compiler.run(["--mlgo-zero-stats"], place, variables).returncode == 0
    results = [compiler.run(arguments.split(), place, each) for each in (environment, variables)]
    assert results[0].returncode == results[1].returncode
    assert results[0].stderr == results[1].stderr
    return counts(compiler, place)


def alone(reason: str, warns: bool = False) -> dict[str, int]:
    return {WARNED if warns else "clang alone, as it should": 1, reason: 1}


@pytest.mark.ci
def test_what_each_command_line_counts_as(compiler: Compiler, place: Path) -> None:
    assert counted(compiler, place, "-Oz -c lean.c") == {USED: 1}
    object_with_policy = (place / "lean.o").read_bytes()
    assert compiler.run(["-Oz", "-c", "lean.c"], place).returncode == 0
    assert (place / "lean.o").read_bytes() == object_with_policy
    assert counted(compiler, place, "-O2 -c lean.c") == alone(OTHER_LEVEL)
    assert counted(compiler, place, "-Oz -E lean.c") == alone(NO_CODE)
    assert counted(compiler, place, "-Oz -shared lean.o -o lean.so") == alone(NO_CODE)
    assert counted(compiler, place, "--version") == alone(NO_CODE)
    assert counted(compiler, place, "-Oz -xc -c - -o lean.o") == alone("an input can be read only once, or is missing")
    disabled = alone("switched off by MLGO_DISABLE")
    assert counted(compiler, place, "-Oz -c lean.c", MLGO_DISABLE="1") == disabled
    assert counted(compiler, place, "-Oz -c bad.c") == {"failed": 1, USER_ERROR: 1}
    never_worse = {"MLGO_NEVER_WORSE": "1"}
    assert counted(compiler, place, "-Oz -c lean.c", **never_worse) == {USED: 1}
    assert counted(compiler, place, "-Oz -c fat.c", **never_worse) == alone(
        "never worse: clang's object is the better one"
    )
    assert counted(compiler, place, "-Oz -S lean.c", **never_worse) == alone(
        "never worse: there is no output to compare"
    )


def test_failures_by_reason(damageable: Compiler, place: Path) -> None:
    arguments, strict = "-Oz -c lean.c", {"MLGO_STRICT": "1"}
    for number, (script, reason) in enumerate(
        (("kill -KILL $$", FAILURE), ("exit 7", FAILURE), ("kill -SEGV $$", CRASH))
    ):
        copy = dataclasses.replace(damageable, prefix=place.parent / f"copy-{number}")
        shutil.copytree(damageable.prefix, copy.prefix, symlinks=True)
        script = f'case "$*" in *-fpass-plugin=*) {script};; esac\nexec $CLANG "$@"\n'
        stand_in = copy.stand_in(place.parent / f"tools-{number}", script)
        assert counted(copy, place, arguments, **stand_in) == alone(reason, warns=True)
        if reason == CRASH:
            assert counted(copy, place, arguments, **stand_in, **strict) == {"failed": 1, REFUSED: 1}
    damageable.plugin.unlink()
    assert counted(damageable, place, arguments) == alone(FILES, warns=True)
    assert counted(damageable, place, arguments, **strict) == {"failed": 1, REFUSED: 1}


@pytest.mark.slow
def test_a_lost_part_is_no_success(compiler: Compiler, policy_dir: Path, place: Path) -> None:
    """The options remain where the policy is lost, and the policy where its decisions are."""
    Decisions({}, {"problem": "inlining", "llvm": f"{compiler.major}.1.0"}).save(place / "decisions.json")
    request, clangs = [PolicyRequest(policy_dir)], [compiler.clang]
    options = OptionSets({"Oz": ("-disable-lsr",), "O2": ("-disable-lsr",)})
    with_options = deploy(request, place / "options", clangs, options=options)
    with_decisions = deploy(request, place / "decisions", clangs, decisions=[place / "decisions.json"])
    lost = (
        (with_options, f"mlgo-inliner-{compiler.major}.so"),
        (with_decisions, DeployedDecisions.file_name(compiler.major)),
    )
    for deployed, name in lost:
        damaged = dataclasses.replace(compiler, prefix=deployed.prefix)
        assert counted(damaged, place, "-Oz -c lean.c") == {USED: 1}
        (deployed.prefix / "lib" / name).unlink()
        assert "warning: mlgo: " in damaged.run(["-Oz", "-c", "lean.c"], place).stderr
        assert counted(damaged, place, "-Oz -c lean.c") == alone(PART, warns=True)
        for source in ("lean.c", "fat.c"):
            assert counted(damaged, place, f"-Oz -c {source}", MLGO_NEVER_WORSE="1") == alone(PART, warns=True)
        assert counted(damaged, place, "-Oz -c bad.c") == {"failed": 1, USER_ERROR: 1}
        assert counted(damaged, place, "-Oz -c lean.c", MLGO_STRICT="1") == {"failed": 1, REFUSED: 1}
    # What the lost policy has no say in is as it should be.
    damaged = dataclasses.replace(compiler, prefix=with_options.prefix)
    assert counted(damaged, place, "-O2 -c lean.c") == {USED: 1}
    assert counted(damaged, place, "-Oz -E lean.c") == alone(NO_CODE)


def test_every_one_of_many_is_counted(compiler: Compiler, place: Path) -> None:
    variables = {"MLGO_STATS": str(place / "stats"), "MLGO_CLANG": "/bin/true"}  # The count comes before the compiler.

    def compile_some(_: int) -> None:
        for level in ("-O2", "-Oz"):
            for _ in range(25):
                assert compiler.run([level, "-c", "lean.c"], place, variables).returncode == 0

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(compile_some, range(8)))
    assert counts(compiler, place) == {USED: 200, **dict.fromkeys(alone(OTHER_LEVEL), 200)}
    [file] = (place / "stats").iterdir()
    assert file.stat().st_size < 500


def test_counting_begins_and_ends(compiler: Compiler, place: Path) -> None:
    folder = place / "stats"
    variables = {"MLGO_STATS": str(folder)}
    assert compiler.run(["-O2", "-c", "lean.c"], place).returncode == 0
    assert compiler.run(["--mlgo-stats"], place, variables).stdout.startswith("nothing counted yet\n")
    assert not list(folder.iterdir())
    assert compiler.run(["-O2", "-c", "lean.c"], place, variables).returncode == 0
    assert re.match(
        r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\n", compiler.run(["--mlgo-stats"], place, variables).stdout
    )
    assert compiler.run(["--mlgo-zero-stats"], place, variables).returncode == 0
    assert counts(compiler, place) == {}
    mode = (folder / "mlgo-stats").stat().st_mode
    assert stat.S_IMODE(mode) & ~0o644 == 0


def test_a_folder_that_cannot_be_used_changes_nothing(compiler: Compiler, place: Path) -> None:
    (place / "file").write_text("a file\n")
    for folder in (str(place / "missing"), str(place / "file"), "stats"):
        for strict in ("0", "1"):
            result = compiler.run(["-Oz", "-c", "lean.c"], place, {"MLGO_STATS": folder, "MLGO_STRICT": strict})
            assert (result.returncode, result.stderr) == (0, "")
        shown = compiler.run(["--mlgo-stats"], place, {"MLGO_STATS": folder})
        assert shown.returncode == 1 and shown.stderr.startswith("error: mlgo: MLGO_STATS: ")
        assert shown.stderr.count("\n") == 1
    assert not (place / "missing").exists()
    assert not list((place / "stats").iterdir())
    unset = compiler.run(["--mlgo-stats"], place)
    assert unset.stderr == (
        "error: mlgo: MLGO_STATS: expected the absolute path of a folder, found nothing; set it as in the build\n"
    )


def test_what_somebody_else_put_there_is_left_alone(compiler: Compiler, place: Path) -> None:
    victim, file = place / "victim", place / "stats" / "mlgo-stats"
    variables: Mapping[str, str] = {"MLGO_STATS": str(place / "stats")}
    plants: Sequence[Callable[[], object]] = (
        lambda: file.symlink_to(victim),
        lambda: file.symlink_to(place / "new"),
        lambda: os.link(victim, file),
        lambda: os.mkfifo(file),
        lambda: file.write_text("precious\n"),
        file.mkdir,
    )
    for plant in plants:
        # As if it were ours, so that only the kind of file protects it.
        victim.write_text("mlgo-clang statistics 1\n")
        plant()
        before = file.lstat().st_mode
        result = compiler.run(["-Oz", "-c", "lean.c"], place, variables)
        assert (result.returncode, result.stderr) == (0, "")
        for command in ("--mlgo-stats", "--mlgo-zero-stats"):
            shown = compiler.run([command], place, variables)
            assert shown.returncode == 1 and shown.stderr.startswith("error: mlgo: MLGO_STATS: ")
        assert victim.read_text() == "mlgo-clang statistics 1\n"
        assert file.lstat().st_mode == before
        assert not (place / "new").exists()
        if stat.S_ISREG(before) and file.stat().st_nlink == 1:
            assert file.read_text() == "precious\n"
        file.rmdir() if file.is_dir() else file.unlink()


def test_a_damaged_file_and_a_limit_on_files(compiler: Compiler, place: Path) -> None:
    file = place / "stats" / "mlgo-stats"
    file.write_text("mlgo-clang statistics 1\nsince 7\nused 41\nother_level x\n\x1b[31mjunk 5\n")
    assert compiler.run(["-Oz", "-c", "lean.c"], place, {"MLGO_STATS": str(place / "stats")}).returncode == 0
    assert counts(compiler, place) == {USED: 42}
    file.unlink()
    command = ["sh", "-c", 'ulimit -f 0; exec "$0" -E lean.c', compiler.driver]
    result = run(command, place, {"MLGO_STATS": str(place / "stats")})
    assert (result.returncode, result.stderr) == (0, "")
    assert "area" in result.stdout


def test_a_file_without_a_sensible_time_is_not_ours(compiler: Compiler, place: Path) -> None:
    file, variables = place / "stats" / "mlgo-stats", {"MLGO_STATS": str(place / "stats")}
    for since in ("9000000000000000000", "18446744073709551615", "99999999999999999999", "-7", "253402300800"):
        text = f"mlgo-clang statistics 1\nsince {since}\nused 3\n"
        file.write_text(text)
        result = compiler.run(["-Oz", "-c", "lean.c"], place, variables)
        assert (result.returncode, result.stderr) == (0, "")
        for command, verb in (("--mlgo-stats", "read"), ("--mlgo-zero-stats", "write")):
            shown = compiler.run([command], place, variables)
            message = f"cannot {verb} it: it is no file of such statistics; remove it"
            assert (shown.returncode, shown.stderr) == (1, f"error: mlgo: MLGO_STATS: {file}: {message}\n")
        assert file.read_text() == text
    file.write_text("mlgo-clang statistics 1\nsince 253402300799\nused 3\n")
    assert compiler.run(["--mlgo-stats"], place, variables).stdout.startswith("since 9999-12-31 23:59:59 UTC\n")


def test_help_fits_on_a_screen(compiler: Compiler, place: Path) -> None:
    shown = compiler.run(["--mlgo-help"], place)
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 200
    assert f"clang: {compiler.clang}" in lines and f"prefix: {compiler.prefix}" in lines
    assert "policy: inlining at -Oz" in lines
    driver = Path(__file__).parents[2] / "compiler_opt" / "native" / "driver"
    read = {
        name
        for path in driver.iterdir()
        for name in re.findall(r'(?:getenv|_variable)\("(MLGO_\w+)"\)', path.read_text())
    }
    assert read == set(re.findall(r"MLGO_\w+", shown.stdout))
    # Everything else is clang's.
    assert "--mlgo-unknown" in compiler.run(["--mlgo-unknown"], place).stderr
