"""Finds the objects in a folder tree, for builds without a description."""

import os
from pathlib import Path

from compiler_opt.corpus.builds.objects import (
    ARCHIVE,
    BITCODE,
    OTHER,
    THIN_ARCHIVE,
    Build,
    ObjectFile,
    kind_of_file,
    name_below,
    normal,
)
from compiler_opt.errors import CorpusError

MAX_FILES = 1 << 22


def objects_of_directory(folder: Path, base: Path | None = None) -> Build:
    """Finds the objects in a tree, sorted by name.

    Files with an object's suffix count as objects whatever they contain; extraction refuses them with a reason.
    Symlinks are skipped, since their targets would count twice or be outside the tree, and so are archives, since their
    objects are usually in the tree as well.

    Args:
      folder: the root of the tree.
      base: the folder that module names are relative to; by default `folder`.

    Raises:
      CorpusError: it is not a folder, cannot be read, or is outside the base folder.
    """
    root = normal(folder)
    names_from = root if base is None else normal(base)
    objects: list[ObjectFile] = []
    skipped: dict[str, list[str]] = {}
    for path in _files_below(root, folder):
        name = name_below(names_from, path)
        if name is None:
            raise CorpusError(f"{folder}: is outside of {base}; give a folder that holds it with --obj_base_dir")
        if path.is_symlink():
            skipped.setdefault("links", []).append(name)
            continue
        kind = kind_of_file(path)
        if kind in (ARCHIVE, THIN_ARCHIVE):
            skipped.setdefault("archives", []).append(name)
        elif kind in (None, OTHER) or (kind == BITCODE and path.suffix == ".bc"):
            skipped.setdefault("files that are not objects", []).append(name)
        else:
            objects.append(ObjectFile(path, name))
    objects.sort(key=lambda item: item.name)
    return Build(tuple(objects), skipped)


def _files_below(root: Path, shown: Path) -> list[Path]:
    def fail(error: OSError) -> None:
        raise CorpusError(
            f"{error.filename}: cannot be read ({error.strerror}); give a folder of objects that can be read"
        ) from None

    if not root.is_dir():
        raise CorpusError(f"{shown}: expected a folder of objects, found none; give the folder of a build")
    paths: list[Path] = []
    for parent, _, names in os.walk(root, onerror=fail):
        paths += (Path(parent) / name for name in names)
        if len(paths) > MAX_FILES:
            raise CorpusError(f"{shown}: expected at most {MAX_FILES} files, found more; give a part of it")
    return paths
