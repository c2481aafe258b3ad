"""Combines the corpora in the sub-folders of a folder into one, as LLVM's mlgo-utils does.

Nothing is moved: the folder gets a description whose modules are `SUBFOLDER/MODULE`. The descriptions must agree in all
other keys but two of ours: `compiler` gets the newest version, which can read all of the bitcode; `projects` become
`SUBFOLDER/PROJECT`, or `SUBFOLDER` for a corpus without projects.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from compiler_opt.corpus.description import DESCRIPTION_NAME, Corpus
from compiler_opt.corpus.module import check_name
from compiler_opt.corpus.validation import reading, resolved_within
from compiler_opt.errors import CorpusError, OutputError
from compiler_opt.files import check_folder_writable, shown, write_json

_MERGED = ("modules", "projects", "compiler")


@dataclasses.dataclass(frozen=True)
class Combination:
    """The result of `combine`: numbers of modules by sub-folder, in order, and the sub-folders that are not corpora."""

    modules: Mapping[str, int]
    others: tuple[str, ...]


def combine(root_dir: Path, *, check: bool = True, overwrite: bool = False) -> Combination:
    """Writes the combined description of a folder atomically.

    Without `check`, it reads nothing but descriptions: the modules may be elsewhere. With `overwrite` it also replaces
    a description that lists modules outside the sub-folders.

    Raises:
      CorpusError: there is nothing to combine, a sub-folder's corpus is damaged or leaves the folder, or two corpora
        differ in a property.
      OutputError: the folder cannot be written, or is itself a corpus.
    """
    parts, others = _parts(root_dir, check)
    # `Corpus.load` has validated the descriptions; an absent `has_thinlto` is False.
    contents: dict[str, dict[str, Any]] = {
        name: {"has_thinlto": False, **json.loads((root_dir / name / DESCRIPTION_NAME).read_bytes())} for name in parts
    }
    _check_same(root_dir, contents)
    first = next(iter(contents.values()))
    modules = [f"{name}/{module.name}" for name, part in parts.items() for module in part.modules]
    projects = [
        f"{name}/{project}" if contents[name].get("projects") else name
        for name, part in parts.items()
        for project in part.projects()
    ]
    combined: dict[str, Any] = {"modules": modules}
    combined |= {key: value for key, value in first.items() if key not in _MERGED}
    combined["projects"] = projects
    compiler = _agreed(content.get("compiler") or {} for content in contents.values())
    # Where a description lacks the version, the bitcode has it.
    known = [part for part in parts.values() if check or (part.compiler or {}).get("version") is not None]
    if versions := [version for part in known if (version := part.compiler_version()) is not None]:
        compiler["version"] = list(max(versions))
    if compiler:
        combined["compiler"] = compiler
    _check_replaceable(root_dir, set(parts), overwrite)
    check_folder_writable(root_dir)
    write_json(root_dir / DESCRIPTION_NAME, combined)
    return Combination({name: len(part.modules) for name, part in parts.items()}, tuple(others))


def _parts(root_dir: Path, check: bool) -> tuple[dict[str, Corpus], list[str]]:
    """Loads the corpora among the sub-folders, by name; returns them and the names of the other sub-folders."""
    with reading(root_dir, "give the folder whose sub-folders are corpora"):
        folders = sorted(path for path in root_dir.iterdir() if path.is_dir())
    parts: dict[str, Corpus] = {}
    others = []
    places: dict[Path, str] = {}
    for folder in folders:
        if not (folder / DESCRIPTION_NAME).exists():
            others.append(folder.name)
            continue
        place = resolved_within(folder, root_dir, "copy the corpus") if check else folder
        if place in places:
            raise CorpusError(f"{root_dir}: {places[place]!r} and {folder.name!r} are the same corpus; remove one")
        places[place] = folder.name
        check_name(folder.name)
        parts[folder.name] = Corpus.load(folder, check_files=check)
    if not parts:
        raise CorpusError(
            f"{root_dir}: none of {len(folders)} sub-folders is a corpus (has a {DESCRIPTION_NAME}); give the folder "
            "that holds the corpora"
        )
    return parts, others


def _check_same(root_dir: Path, contents: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises CorpusError if two corpora differ in a property."""
    first = next(iter(contents))
    for name, content in contents.items():
        for key in sorted((content.keys() | contents[first].keys()) - set(_MERGED)):
            one, other = (contents[each].get(key) for each in (first, name))
            if one != other:
                raise CorpusError(
                    f"{root_dir}: the corpora {first!r} and {name!r} differ in {key!r}: {shown(one)} and "
                    f"{shown(other)}; combine only those that agree, or extract one of them again"
                )


def _agreed(compilers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The entries that all of them share."""
    first, *rest = compilers
    return {key: value for key, value in first.items() if all(other.get(key) == value for other in rest)}


def _check_replaceable(root_dir: Path, names: set[str], overwrite: bool) -> None:
    """Raises OutputError if the folder has a description that `combine` did not write."""
    path = root_dir / DESCRIPTION_NAME
    if overwrite or not path.exists():
        return
    try:
        modules = json.loads(path.read_bytes())["modules"]
        is_ours = all(module.split("/")[0] in names for module in modules)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        is_ours = False
    if not is_ours:
        raise OutputError(
            f"{path}: lists other modules than those of the sub-folders; give another --root_dir, or --overwrite"
        )
