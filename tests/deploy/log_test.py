"""MLGO_LOG: the decisions that differ from the compiler's, and those of kept objects alone."""

import concurrent.futures
import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.conftest import Compiler
from tests.deploy.sources import FAT, LEAN

DIFFERING = {
    name: number
    for number, line in enumerate(LEAN.splitlines(), 1)
    for name in ("unit", "flat")
    if f"int {name}(" in line
}
"""Lines of the calls of `area` that only the policy inlines, by caller; the last call, the compiler inlines, too."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "place"
    place.mkdir()
    (place / "lean.c").write_text(LEAN)
    (place / "fat.c").write_text(FAT)
    return place


def logged(compiler: Compiler, place: Path, arguments: str, **environment: str) -> list[dict[str, Any]]:
    """What one compilation logs; it makes the same object as without a log."""
    log = place / "log"
    made = []
    variables: Mapping[str, str]
    for variables in (environment, {**environment, "MLGO_LOG": str(log)}):
        result = compiler.run(arguments.split(), place, variables)
        assert (result.returncode, result.stderr) == (0, "")
        made.append([path.read_bytes() for path in sorted(place.glob("*.o"))])
    assert made[0] == made[1]
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return [json.loads(line) for line in lines]


def test_each_call_site_that_differs(compiler: Compiler, place: Path) -> None:
    differing = logged(compiler, place, "-Oz -g -c lean.c")
    assert [(site["caller"], site["callee"], site["ordinal"]) for site in differing] == [
        (name, "area", 0) for name in DIFFERING
    ]
    for site, line in zip(differing, DIFFERING.values(), strict=True):
        assert site["location"].startswith(f"lean.c:{line}:")
        assert {key: site[key] for key in ("module", "decision", "inlined", "replayed")} == {
            "module": "lean.c",
            "decision": "inline",
            "inlined": True,
            "replayed": False,
        }
    assert all("location" not in site for site in logged(compiler, place, "-Oz -c lean.c"))


def test_several_sources_and_other_levels(compiler: Compiler, place: Path) -> None:
    differing = logged(compiler, place, "-Oz -c lean.c fat.c")
    assert {site["module"] for site in differing} == {"lean.c", "fat.c"}
    assert logged(compiler, place, "-O2 -c lean.c") == []
    assert logged(compiler, place, "-Oz -c lean.c", MLGO_DISABLE="1") == []


def test_only_of_objects_that_are_kept(damageable: Compiler, place: Path) -> None:
    never_worse = {"MLGO_NEVER_WORSE": "1"}
    assert len(logged(damageable, place, "-Oz -c lean.c", **never_worse)) == len(DIFFERING)
    # The third compilation is not logged twice.
    assert len(logged(damageable, place, "-Oz -g -gsplit-dwarf -c lean.c", **never_worse)) == len(DIFFERING)
    assert logged(damageable, place, "-Oz -c fat.c", **never_worse) == []
    script = 'case "$*" in *-fpass-plugin=*) $CLANG "$@"; kill -KILL $$;; esac\nexec $CLANG "$@"\n'
    environment = {**damageable.stand_in(place.parent / "tools", script), "MLGO_LOG": str(place / "log")}
    assert damageable.run(["-Oz", "-c", "lean.c"], place, environment).stderr.startswith("warning: mlgo: lean.c: ")
    assert not (place / "log").exists()


def test_many_at_a_time(compiler: Compiler, place: Path) -> None:
    def compile_one(number: int) -> int:
        (place / f"{number}.c").write_text(LEAN)
        return compiler.run(
            ["-Oz", "-c", f"{number}.c"], place, {"MLGO_LOG": "log"}
        ).returncode  # relative to the compiler's working directory

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert set(pool.map(compile_one, range(16))) == {0}
    sites = [json.loads(line) for line in (place / "log").read_text().splitlines()]
    assert {(site["module"], site["caller"]) for site in sites} == {
        (f"{number}.c", caller) for number in range(16) for caller in DIFFERING
    }
    # Those of a module are together.
    assert [site["module"] for site in sites[::2]] == [site["module"] for site in sites[1::2]]


def test_a_log_that_cannot_be_written(compiler: Compiler, place: Path) -> None:
    """The object is right all the same."""
    for strict in ("0", "1"):
        environment = {"MLGO_LOG": "/no/such/folder/log", "MLGO_STRICT": strict}
        result = compiler.run(["-Oz", "-Werror", "-c", "lean.c"], place, environment)
        assert result.stderr == "warning: mlgo: MLGO_LOG: /no/such/folder/log: No such file or directory\n"
        assert result.returncode == 0
    made = (place / "lean.o").read_bytes()
    assert compiler.with_policy(["-Oz", "-c", "lean.c"], place).returncode == 0
    assert (place / "lean.o").read_bytes() == made


@pytest.mark.ci
def test_a_pipe_gets_whole_lines_and_is_not_waited_for_for_ever(compiler: Compiler, place: Path) -> None:
    command, variables = ["-Oz", "-c", "lean.c"], {"MLGO_LOG": str(place / "pipe")}
    warning = f"warning: mlgo: MLGO_LOG: {place}/pipe: nobody reads it\n"
    os.mkfifo(place / "pipe")
    unread = compiler.run(command, place, variables)
    assert (unread.returncode, unread.stderr) == (0, warning)
    made = (place / "lean.o").read_bytes()
    reader = os.open(place / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert compiler.run(command, place, variables).stderr == ""
        sites = [json.loads(line) for line in os.read(reader, 1 << 16).splitlines()]
        assert {site["caller"] for site in sites} == set(DIFFERING)
        writer = os.open(place / "pipe", os.O_WRONLY | os.O_NONBLOCK)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, b"full" * 256)
        os.close(writer)
        idle = compiler.run(command, place, variables)
    finally:
        os.close(reader)
    assert (idle.returncode, idle.stderr) == (0, warning)
    assert (place / "lean.o").read_bytes() == made
