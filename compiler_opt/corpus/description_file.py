"""What `corpus_description.json` says, checked; the format stands in `description.py`."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compiler_opt.corpus.contents import REMAKE
from compiler_opt.corpus.module import check_name
from compiler_opt.errors import CorpusError
from compiler_opt.files import read_regular, shown

MAX_DESCRIPTION_BYTES = 1 << 28


@dataclasses.dataclass(frozen=True)
class Description:
    """What it says.

    Attributes:
      modules: by name, in order, the project.
      has_thinlto: whether each module has a ThinLTO index.
      global_command_override: cc1 options used instead of each module's own.
      compiler: what wrote the bitcode.
    """

    modules: Mapping[str, str]
    has_thinlto: bool
    global_command_override: tuple[str, ...] | None
    compiler: Mapping[str, Any] | None


def read_description(path: Path) -> Description:
    """Reads and checks a description.

    Raises:
      CorpusError: there is none, or it is not usable.
    """
    try:
        data = read_regular(path, MAX_DESCRIPTION_BYTES)
    except FileNotFoundError:
        raise CorpusError(
            f"{path}: no such file, so {path.parent} is no corpus; make one with compiler_opt/tools/fetch_corpus.py "
            "or compiler_opt/tools/extract_ir.py"
        ) from None
    except OSError as error:
        raise CorpusError(
            f"{path}: cannot be read ({error.strerror}); give the folder of a corpus, or {REMAKE}"
        ) from None
    try:
        description = json.loads(data)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise CorpusError(f"{path}: expected JSON, found something else ({reason}); {REMAKE}") from None
    if not isinstance(description, dict):
        raise CorpusError(f"{path}: expected a JSON object, found {type(description).__name__}; {REMAKE}")
    return _parse(path, description)


def _parse(where: Path, description: Mapping[str, Any]) -> Description:
    if "modules" not in description:
        raise CorpusError(f"{where}: expected the key 'modules', found {sorted(description)!r:.200}; {REMAKE}")
    names = description["modules"]
    if not isinstance(names, list):
        raise CorpusError(f"{where}: 'modules': expected a list, found {type(names).__name__}; {REMAKE}")
    if not names:
        raise CorpusError(f"{where}: the corpus is empty ('modules' lists nothing); {REMAKE}")
    has_thinlto = description.get("has_thinlto", False)
    if not isinstance(has_thinlto, bool):
        raise CorpusError(f"{where}: 'has_thinlto': expected true or false, found {shown(has_thinlto)}; {REMAKE}")
    override = description.get("global_command_override")
    if override is not None and not _is_strings(override):
        raise CorpusError(f"{where}: 'global_command_override': expected a list of options, found {shown(override)}")
    projects = description.get("projects", [])
    if not _is_strings(projects):
        raise CorpusError(f"{where}: 'projects': expected a list of names, found {shown(projects)}")
    compiler = description.get("compiler")
    if compiler is not None and not _is_compiler(compiler):
        raise CorpusError(
            f"{where}: 'compiler': expected an object with 'version': [major, minor, patch], found {shown(compiler)}"
        )

    own_name = where.parent.resolve().name or "corpus"
    prefixes = frozenset(projects)
    modules: dict[str, str] = {}
    for name in names:
        try:
            check_name(name)
        except CorpusError as error:
            raise CorpusError(f"{where}: {error}; {REMAKE}") from None
        if name in modules:
            raise CorpusError(f"{where}: module {shown(name)} is listed twice; {REMAKE}")
        project = _project_of(name, prefixes)
        if project is None:
            if projects:
                raise CorpusError(f"{where}: module {shown(name)} belongs to none of 'projects'; {REMAKE}")
            project = own_name
        modules[name] = project
    return Description(modules, has_thinlto, None if override is None else tuple(override), compiler)


def _project_of(name: str, projects: frozenset[str]) -> str | None:
    """The longest of the projects that the name starts with."""
    end = name.rfind("/")
    while end > 0:
        if name[:end] in projects:
            return name[:end]
        end = name.rfind("/", 0, end)
    return None


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and item for item in value)


def _is_compiler(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    version = value.get("version")
    return version is None or (
        isinstance(version, list)
        and len(version) == 3
        and all(isinstance(part, int) and not isinstance(part, bool) and part >= 0 for part in version)
    )
