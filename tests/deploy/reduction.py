"""Reduces a case of `command_lines` to what is needed to show something."""

import dataclasses
import functools
from collections.abc import Callable, Iterator

from tests.deploy.command_lines import Case


def reduced(case: Case, shows: Callable[[Case], bool]) -> Case:
    """The case without what is not needed for it to show the same."""
    while True:
        before = case
        for edit in _edits(case):
            smaller = edit(case)
            if smaller != case and shows(smaller):
                case = smaller
        if case == before:
            return case


def _edits(case: Case) -> Iterator[Callable[[Case], Case]]:
    """What makes a case smaller; each can follow another one, since positions count from the end."""
    for field in dataclasses.fields(Case):
        if field.name != "words":
            yield functools.partial(_usual, field.name)
    for key in case.variables:
        yield functools.partial(_without_variable, key)
    for start, end in _pieces(len(case.words)):
        yield functools.partial(_without_words, start, end)
    for key, content in case.files.items():
        for start, end in _pieces(len(content)):
            yield functools.partial(_without_bytes, key, start, end)


def _usual(field: str, case: Case) -> Case:
    return dataclasses.replace(case, **{field: getattr(Case(), field)})


def _without_variable(name: str, case: Case) -> Case:
    return dataclasses.replace(case, variables={key: value for key, value in case.variables.items() if key != name})


def _without_words(start: int, end: int, case: Case) -> Case:
    words = case.words
    return dataclasses.replace(case, words=words[: max(0, len(words) - end)] + words[len(words) - start :])


def _without_bytes(name: str, start: int, end: int, case: Case) -> Case:
    content = case.files.get(name, b"")
    content = content[: max(0, len(content) - end)] + content[len(content) - start :]
    kept = {key: value for key, value in case.files.items() if key != name}
    return dataclasses.replace(case, files={**kept, name: content} if content else kept)


def _pieces(length: int) -> Iterator[tuple[int, int]]:
    """Halves, quarters and so on of a sequence, as distances from its end."""
    size = (length + 1) // 2
    while size:
        yield from ((start, start + size) for start in reversed(range(0, length, size)))
        size //= 2
