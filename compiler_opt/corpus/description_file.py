"""Reads and validates `corpus_description.json`; `description.py` documents the format."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from compiler_opt.checked_values import NonNegativeInt, convert, read_json
from compiler_opt.corpus.module import MAX_COMMAND_BYTES, check_name
from compiler_opt.corpus.validation import REMAKE
from compiler_opt.errors import CorpusError
from compiler_opt.files import shown

MAX_DESCRIPTION_BYTES = 1 << 27
MAX_MODULES = 1 << 21

_Text = Annotated[str, msgspec.Meta(min_length=1)]


@dataclasses.dataclass(frozen=True)
class Description:
    """The content of a description.

    Attributes:
      modules: project by module name, in the order of the file.
      has_thinlto: whether each module has a ThinLTO index.
      global_command_override: cc1 options used instead of each module's own.
      compiler: what wrote the bitcode.
    """

    modules: Mapping[str, str]
    has_thinlto: bool
    global_command_override: tuple[str, ...] | None
    compiler: Mapping[str, Any] | None


class _Compiler(msgspec.Struct):
    version: tuple[NonNegativeInt, NonNegativeInt, NonNegativeInt] | None = None


class _File(msgspec.Struct):
    """The keys that we read; others are ignored."""

    modules: Annotated[list[Any], msgspec.Meta(max_length=MAX_MODULES)]
    has_thinlto: bool = False
    global_command_override: tuple[_Text, ...] | None = None
    projects: tuple[_Text, ...] = ()
    compiler: _Compiler | None = None


def read_description(path: Path) -> Description:
    """Reads and validates a description.

    Raises:
      CorpusError: it is missing or invalid.
    """
    try:
        content = read_json(path, dict[str, Any], max_bytes=MAX_DESCRIPTION_BYTES, error=CorpusError, remedy=REMAKE)
    except FileNotFoundError:
        raise CorpusError(
            f"{path}: no such file, so {path.parent} is no corpus; make one with compiler_opt/tools/fetch_corpus.py "
            "or compiler_opt/tools/extract_ir.py"
        ) from None
    try:
        file = convert(content, _File)
    except ValueError as error:
        raise CorpusError(f"{path}: {error}; {REMAKE}") from None
    if not file.modules:
        raise CorpusError(f"{path}: the corpus is empty ('modules' lists nothing); {REMAKE}")
    override = file.global_command_override
    if override is not None and sum(map(len, override)) + len(override) > MAX_COMMAND_BYTES:
        raise CorpusError(
            f"{path}: global_command_override: expected at most {MAX_COMMAND_BYTES} bytes of options, found more"
        )
    modules = _projects_of_modules(path, file.modules, frozenset(file.projects))
    # `compiler` verbatim: it may have keys that others use.
    return Description(modules, file.has_thinlto, file.global_command_override, content.get("compiler"))


def _projects_of_modules(where: Path, names: Iterable[Any], projects: frozenset[str]) -> dict[str, str]:
    """Maps each module to the longest project that prefixes its name; without projects, the corpus is one project."""
    own_name = where.parent.resolve().name or "corpus"
    modules: dict[str, str] = {}
    for name in names:
        try:
            check_name(name)
        except CorpusError as error:
            raise CorpusError(f"{where}: {error}; {REMAKE}") from None
        if name in modules:
            raise CorpusError(f"{where}: module {shown(name)} is listed twice; {REMAKE}")
        project = _project_of(name, projects)
        if project is None:
            if projects:
                raise CorpusError(f"{where}: module {shown(name)} belongs to none of 'projects'; {REMAKE}")
            project = own_name
        modules[name] = project
    return modules


def _project_of(name: str, projects: frozenset[str]) -> str | None:
    """The longest project that prefixes the name."""
    end = name.rfind("/")
    while end > 0:
        if name[:end] in projects:
            return name[:end]
        end = name.rfind("/", 0, end)
    return None
