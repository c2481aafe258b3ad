"""mlgo-clang does what clang does, on generated command lines; `benchmarks.driver_differential` runs thousands."""

import dataclasses
from pathlib import Path

import pytest

from compiler_opt.llvm.toolchain import Toolchain
from tests.deploy.command_lines import Case, generate, shell_script
from tests.deploy.differential import Drivers, Place
from tests.deploy.reduction import reduced

_CASES, _MANY = 30, 600


@pytest.fixture(scope="module")
def place(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Place:
    root = tmp_path_factory.mktemp("differential")
    return Place(root / "places", Drivers.deploy(toolchain, root / "drivers"))


def _compare(place: Place, numbers: range) -> None:
    found = {}
    for number in numbers:
        case = generate(2, number)
        if differences := place.compare(case).differences:
            found[shell_script(case, f"mlgo-{case.name}")] = differences
    assert found == {}


def test_some(place: Place) -> None:
    _compare(place, range(_CASES))


@pytest.mark.slow
def test_many(place: Place) -> None:
    _compare(place, range(_CASES, _MANY))


def test_differences_are_seen(place: Place, tmp_path: Path) -> None:
    """The other deployment in place of the one with clang's own decisions differs where it has to."""
    drivers = place.drivers
    wrong = Place(tmp_path, dataclasses.replace(drivers, root=tmp_path / "links", default=drivers.other))
    (tmp_path / "links").mkdir()
    (tmp_path / "links/default").symlink_to(drivers.other)
    (tmp_path / "links/other").symlink_to(drivers.default)
    verdict = wrong.compare(Case(words=("-Oz", "-c", "lean.c")))
    assert verdict.uses_policy and verdict.kinds == ["policy", "content of .o"]
    assert wrong.compare(Case(words=("-O1", "-c", "lean.c"))).kinds == []


def test_reduction() -> None:
    case = Case("c++", ("-Wall", "-Oz", "-DX", "@a.rsp", "-c"), {"a.rsp": b"-g lean.c -w"}, {"CL": "/c"}, "umask 0")
    shows = {"-Oz", "@a.rsp"}.issubset
    smaller = reduced(case, lambda smaller: shows(smaller.words) and b"lean" in smaller.files.get("a.rsp", b""))
    assert smaller == Case("clang", ("-Oz", "@a.rsp"), {"a.rsp": b"lean"})


def test_lines_of_a_shell() -> None:
    case = Case("clang", ("-DA=x y", "{place}/lean.c"), {"a.rsp": b"-O\xff'"}, {"TMPDIR": None, "CL": "/c"}, "umask 0")
    script = shell_script(dataclasses.replace(case, stdin="file", stdout="full"), "mlgo-clang")
    expected = "printf '-O\\377\\047' > a.rsp\numask 0\n"
    expected += "env -u TMPDIR CL=/c mlgo-clang '-DA=x y' \"$PWD\"/lean.c <lean.c > /dev/full"
    assert script == expected
