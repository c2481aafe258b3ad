"""Conversion of plain values to typed ones, and messages about values that do not fit."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from compiler_opt.checked_values import NonNegativeInt, convert, read_json
from compiler_opt.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Archive:
    bytes: NonNegativeInt = 0


@dataclasses.dataclass(frozen=True)
class Project:
    name: str
    sizes: tuple[int, ...] = ()
    archive: Archive = Archive()
    values: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("name: expected one")


def test_values_that_fit() -> None:
    assert convert({"name": "p", "sizes": [1, 2], "archive": {"bytes": 3}}, Project) == Project("p", (1, 2), Archive(3))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "expected a mapping, found []"),
        ({}, "expected the key 'name'"),
        ({"name": "p", "nam": 1}, "unknown key 'nam'"),
        ({"name": 3}, "name: expected str, found 3"),
        ({"name": ""}, "name: expected one"),
        ({"name": "p", "sizes": [1, True]}, "sizes: expected int, found True"),
        ({"name": "p", "archive": {"bytes": -1}}, "archive.bytes: expected int >= 0, found -1"),
        ({"name": "p", "values": {"a": "b"}}, "values: expected int, found {'a': 'b'}"),
        ({"name": "p", "values": {1: 2}}, "values: expected str, found {1: 2}"),
    ],
)
def test_values_that_do_not_fit(value: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        convert(value, Project)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "expected JSON, found something else"),
        (b"\xff", "expected JSON, found something else"),
        (b"[" * 100_000, "expected JSON, found something else"),
        (b'{"name": 3}', "name: expected str, found 3"),
        (b'{"name": "' + b"x" * 2000 + b'"}', "expected at most 1000 bytes"),
    ],
)
def test_files_that_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_bytes(content[:500_000])
    limit = 1000 if b"xx" in content else 1 << 20
    with pytest.raises(ConfigError) as caught:
        read_json(path, Project, max_bytes=limit, error=ConfigError, remedy="write it again")
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert str(caught.value).endswith("; write it again")
    assert "\n" not in str(caught.value)


def test_names_may_contain_bytes_that_are_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"name": "ar\udce9"}))
    assert read_json(path, Project, max_bytes=100, error=ConfigError, remedy="").name == "ar\udce9"
