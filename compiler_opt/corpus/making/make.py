"""Makes a corpus from loose bitcode files, all compiled with the same options.

Layout and names are those of LLVM's mlgo-utils: `lib/a.bc` in the folder becomes module `lib/a`, with the options in
`lib/a.cmd`. The options are in `.cmd` files rather than in the description's `global_command_override`, so that the
corpus can be combined with extracted ones. Unchecked, they are in the latter, as by LLVM's script: they may be options
of clang's driver.
"""

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from compiler_opt.corpus.command_lines.command_line import INDEX_SUFFIX, checked_options
from compiler_opt.corpus.making.writing import CorpusWriter, MadeCorpus, map_with_failures
from compiler_opt.corpus.validation import read_bitcode, reading, resolved_within
from compiler_opt.errors import ConfigError, CorpusError, OutputError

_SUFFIX = ".bc"


def parse_args(text: str) -> tuple[str, ...]:
    """Splits a string of options as a shell does; raises ConfigError unless they are cc1 options on the allow-list."""
    try:
        options = tuple(shlex.split(text))
        checked_options(options)
    except ValueError as error:
        raise ConfigError(f"--default_args={text}: cannot be split into words ({error}); fix the quotes") from None
    except CorpusError as error:
        raise ConfigError(f"--default_args={text}: {error}; expected options such as '-cc1 -Oz'") from None
    return options


def find_bitcode(input_dir: Path, output_dir: Path) -> list[Path]:
    """Finds the files `*.bc` below a folder, sorted, except those in `output_dir`.

    Raises CorpusError if the folder is missing or cannot be read.
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
    check: bool = True,
    overwrite: bool = False,
    progress: Callable[[int], Any] = lambda _: None,
) -> MadeCorpus:
    """Writes bitcode files as a corpus; the description comes last, so a partial corpus has none.

    Module names are relative to `input_dir`, which has all files; `options` are the cc1 options of every module.
    Without `check`, any files are taken, with any options. For the other arguments see `extract.extract`.

    Raises:
      CorpusError: none of the files is a module.
      OutputError: the folder cannot be written, or is not empty.
    """
    if output_dir.resolve() == input_dir.resolve():
        raise OutputError(f"{output_dir}: is the folder of the bitcode files; give another --output_dir")
    writer = CorpusWriter(output_dir, overwrite)

    def make_one(path: Path) -> None:
        name = path.relative_to(input_dir).as_posix().removesuffix(_SUFFIX)
        if check:
            writer.write_module(name, _read(path, input_dir), options)
        else:
            with reading(path, "copy the file"):
                content = path.read_bytes()
            writer.write_module(name, content, None)

    _, failures = map_with_failures(make_one, paths, progress=progress)
    if_empty = f"{input_dir}: none of {len(paths)} files *.bc is a module; give another --input_dir"
    return writer.finish(failures, if_empty, command_override=None if check else options)


def _read(path: Path, root: Path) -> bytes:
    """Reads a bitcode file below `root`; raises CorpusError if it is not a module."""
    if path.name.endswith(INDEX_SUFFIX):
        raise CorpusError(f"{path}: has the name of a ThinLTO index, which is not a module; rename it if it is one")
    return read_bitcode(resolved_within(path, root, "copy the file"), "copy the file", shown_as=path)
