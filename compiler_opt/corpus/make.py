"""Makes a corpus of loose bitcode files, all of which are to be compiled with the same options.

Layout and names are those of LLVM's mlgo-utils: `lib/a.bc` in the folder becomes module `lib/a`, with the options in
`lib/a.cmd`. The options stand in the `.cmd` files rather than in the description's `global_command_override`, so that
such a corpus can be combined with extracted ones.
"""

import dataclasses
import json
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from compiler_opt.corpus import bitcode, description
from compiler_opt.corpus.command_line import checked_options
from compiler_opt.errors import ConfigError, CorpusError, OutputError
from compiler_opt.files import check_folder_writable, write_atomically

_SUFFIX = ".bc"
_INDEX_SUFFIX = ".thinlto.bc"
_CHUNK_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class MadeCorpus:
    """What became of the files of a folder.

    Attributes:
      modules: names of the modules in the corpus, sorted.
      failures: file and reason of those that are no module.
    """

    modules: tuple[str, ...]
    failures: tuple[tuple[Path, str], ...]


def parse_args(text: str) -> tuple[str, ...]:
    """The options in a string, split into words as a shell would, and checked.

    Raises:
      ConfigError: they cannot be split, are no cc1 options, or are not on the allow-list.
    """
    try:
        options = tuple(shlex.split(text))
        checked_options(options)
    except ValueError as error:
        raise ConfigError(f"--default_args={text}: cannot be split into words ({error}); mend the quotes") from None
    except CorpusError as error:
        raise ConfigError(f"--default_args={text}: {error}; expected such as '-cc1 -Oz'") from None
    return options


def find_bitcode(input_dir: Path, output_dir: Path) -> list[Path]:
    """The files below a folder that are called `*.bc`, sorted, without those in the corpus to be made.

    Raises:
      CorpusError: there is no such folder, or it cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise CorpusError(
            f"{error.filename}: cannot be read ({error.strerror}); give a folder of bitcode files by --input_dir"
        ) from None

    target = output_dir.resolve()
    found = []
    for folder, subfolders, names in os.walk(input_dir, onerror=refuse):
        subfolders[:] = [name for name in subfolders if Path(folder, name).resolve() != target]
        found += [Path(folder, name) for name in names if name.endswith(_SUFFIX)]
    return sorted(found)


def make(
    paths: Sequence[Path],
    input_dir: Path,
    output_dir: Path,
    options: Sequence[str],
    *,
    overwrite: bool = False,
    progress: Callable[[int], Any] = lambda _: None,
) -> MadeCorpus:
    """Writes bitcode files as a corpus; its description comes last, so a part of a corpus never looks whole.

    Args:
      paths: the files, all in `input_dir`.
      input_dir: module names are relative to it.
      output_dir: the corpus folder.
      options: cc1 options of every module.
      overwrite: write into a folder that is not empty.
      progress: called with 1 for each file done.

    Raises:
      CorpusError: none of the files is a module.
      OutputError: the folder cannot be written, or is not empty.
    """
    _prepare_output(input_dir, output_dir, overwrite)
    root, command = input_dir.resolve(), description.format_options(options)
    modules, failures = [], []
    versions = []
    for path in paths:
        name = path.relative_to(input_dir).as_posix().removesuffix(_SUFFIX)
        try:
            _check(path, root)
            versions.append(_copy_module(path, name, command, output_dir))
        except CorpusError as error:
            failures.append((path, str(error)))
        else:
            modules.append(name)
        progress(1)
    if not modules:
        first = f"; the first: {failures[0][1]}" if failures else ""
        raise CorpusError(f"{input_dir}: none of {len(paths)} files *.bc is a module{first}; give another --input_dir")
    content: dict[str, Any] = {"modules": sorted(modules), "has_thinlto": False}
    if known := [version for version in versions if version is not None]:
        content["compiler"] = {"version": list(max(known))}
    write_atomically(output_dir / description.DESCRIPTION_NAME, (json.dumps(content, indent=1) + "\n").encode())
    return MadeCorpus(tuple(sorted(modules)), tuple(failures))


def _prepare_output(input_dir: Path, output_dir: Path, overwrite: bool) -> None:
    """Sees that the folder can be written; it is made with the first module."""
    if output_dir.resolve() == input_dir.resolve():
        raise OutputError(f"{output_dir}: is the folder of the bitcode files; give another --output_dir")
    check_folder_writable(output_dir)
    try:
        if output_dir.is_dir():
            if not overwrite and any(output_dir.iterdir()):
                raise OutputError(f"{output_dir}: is not empty; give another --output_dir, or --overwrite")
            # What is there stops being a corpus before the first module changes.
            (output_dir / description.DESCRIPTION_NAME).unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"{output_dir}: cannot be written ({error.strerror}); give another --output_dir") from None


def _check(path: Path, root: Path) -> None:
    """Raises CorpusError when a file is no module of its own."""
    if path.name.endswith(_INDEX_SUFFIX):
        raise CorpusError(f"{path}: is called as a ThinLTO index is, which is no module; rename it if it is one")
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise CorpusError(f"{path}: cannot be read ({error})") from None
    if not target.is_relative_to(root):
        raise CorpusError(f"{path}: is a link that leaves the folder (to {target}); copy the file")
    if not target.is_file():
        raise CorpusError(f"{path}: expected a file, found something else")


def _copy_module(path: Path, name: str, command: bytes, output_dir: Path) -> tuple[int, int, int] | None:
    """Checks and copies one module; returns the version of the LLVM that wrote it, where the bitcode says."""
    description.check_name(name)
    try:
        with path.open("rb") as source:
            if wrong := bitcode.problem(source, os.fstat(source.fileno()).st_size):
                raise CorpusError(f"{path}: {wrong}; compile it again")
            source.seek(0)
            head = source.read(bitcode.HEAD_BYTES)
            source.seek(0)
            chunks = iter(lambda: source.read(_CHUNK_BYTES), b"")
            _write(output_dir / f"{name}{_SUFFIX}", chunks)
            _write(output_dir / f"{name}.cmd", [command])
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror})") from None
    return bitcode.producer_version(head)


def _write(path: Path, chunks: Iterable[bytes]) -> None:
    """Writes a file whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            file.writelines(chunks)
        partial.replace(path)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({error.strerror}); give another --output_dir") from None
