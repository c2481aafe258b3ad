"""Converts values from JSON, YAML and gin to typed objects by msgspec, with error messages of one line, and to text.

A model is a dataclass, which refuses unknown keys, or another type that msgspec supports; a `msgspec.Struct` ignores
unknown keys unless configured otherwise. JSON is parsed by `json` rather than by msgspec, since names in our files may
contain bytes that are not UTF-8, as lone surrogates.
"""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec

from compiler_opt.errors import CompilerOptError
from compiler_opt.files import parse_json, read_regular, shown

T = TypeVar("T")

Json: TypeAlias = Any
"""A value of JSON as `json` reads it, whose structure is not known or not ours to check."""

NonNegativeInt = Annotated[int, msgspec.Meta(ge=0)]

_JSON_WORDS = {"array": "a list", "object": "a mapping", "null": "None"}


def fact_text(value: Json) -> str:
    """A JSON value as text: `seed 1, iterations 40` for an object, `a, b` for a list; nested ones in parentheses."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_nested(item)}" for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_nested, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "none" if value is None or value == "" else str(value)


def _nested(value: object) -> str:
    text = fact_text(value)
    return f"({text})" if isinstance(value, (Mapping, list, tuple)) and len(value) > 1 else text


def convert(value: object, model: type[T]) -> T:
    """Converts plain values (dictionaries, lists, numbers, text) to a model.

    Raises:
      ValueError: they do not fit; the message is one line such as `archive.bytes: expected int, found 'many'`.
    """
    if dataclasses.is_dataclass(model) and isinstance(value, Mapping):
        unknown = sorted(value.keys() - {field.name for field in dataclasses.fields(model)})
        if unknown:
            raise ValueError(f"unknown key {shown(unknown[0])}")
    try:
        return msgspec.convert(value, model)
    except msgspec.ValidationError as error:
        raise ValueError(_explained(str(error), value)) from None


def read_json(path: Path, model: type[T], *, max_bytes: int, error: type[CompilerOptError], remedy: str) -> T:
    """Reads a JSON file of limited size into a model.

    Raises:
      FileNotFoundError: there is no such file.
      CompilerOptError: an `error`: it cannot be read or does not fit the model; the message ends with the remedy.
    """
    try:
        content = parse_json(read_regular(path, max_bytes))
    except FileNotFoundError:
        raise
    except OSError as problem:
        raise error(f"{path}: cannot be read ({problem.strerror}); {remedy}") from None
    except ValueError as problem:
        raise error(f"{path}: expected JSON, found something else ({problem}); {remedy}") from None
    try:
        return convert(content, model)
    except ValueError as problem:
        raise error(f"{path}: {problem}; {remedy}") from None


def _explained(message: str, value: object) -> str:
    """Rewrites an error message of msgspec, and adds the value that was found."""
    reason, _, place = message.partition(" - at `")
    place = place.rstrip("`")
    if place.startswith("key` in `"):
        place = place.removeprefix("key` in `")
    name, found = _at(value, place.removeprefix("$"))
    if match := re.fullmatch(r"Object missing required field `(.*)`", reason):
        reason = f"expected the key {match[1]!r}"
    elif match := re.fullmatch(r"Object contains unknown field `(.*)`", reason):
        reason = f"unknown key {match[1]!r}"
    elif reason.startswith(("Expected", "Invalid")):
        expected = re.sub(r", got `.*", "", reason).replace("`", "")
        for theirs, ours in _JSON_WORDS.items():
            expected = re.sub(rf"\b{theirs}\b", ours, expected)
        reason = f"{expected[0].lower()}{expected[1:]}, found {shown(found)}"
    return f"{name}: {reason}" if name else reason


def _at(value: object, place: str) -> tuple[str, object]:
    """The name and value at a place such as `.projects[...].archive`, as far as msgspec gives it."""
    names: list[str] = []
    for field, index in re.findall(r"\.([^.\[\]]+)|\[([^\]]*)\]", place):
        if field and isinstance(value, dict):
            names.append(field)
            value = value.get(field)
        elif index.isdigit() and isinstance(value, list | tuple):
            value = value[int(index)]
        else:
            # msgspec does not give the key of a mapping.
            break
    return ".".join(names), value
