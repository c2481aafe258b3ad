"""The files of a store: untrusted, written once, and skipped by name where they are damaged."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from compiler_opt.errors import OutputError
from compiler_opt.files import one_line, shown, write_atomically

T = TypeVar("T")


def read_intact(
    paths: Iterable[Path], read: Callable[[Path], T], on_skipped: Callable[[str], object]
) -> Iterator[tuple[Path, T]]:
    """Files, each with what `read` returns; `on_skipped` gets a line for each where it raises OSError or ValueError."""
    for path in paths:
        try:
            content = read(path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            on_skipped(f"{path}: skipped: {one_line(str(reason)):.200}")
        else:
            yield path, content


def check_usable(found_problem: str, problem: str, found_features: Collection[str], features: Sequence[str]) -> None:
    """Raises ValueError if a file is about another problem, or lacks some of the features."""
    if found_problem != problem:
        raise ValueError(f"is about {shown(found_problem)}, not about {problem}")
    missing = [name for name in features if name not in found_features]
    if missing:
        raise ValueError(f"lacks the features {', '.join(missing)}")


def write_file(path: Path, content: bytes) -> None:
    """Writes a file, which appears whole or not at all, and makes its folder; raises OutputError if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path.parent}: cannot be made: {error.strerror}") from error
    write_atomically(path, content)
