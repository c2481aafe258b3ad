"""Extracts a corpus from a build whose objects embed their bitcode and command line.

With `-Xclang -fembed-bitcode=all`, clang puts the bitcode from before optimisation into section `.llvmbc` and the cc1
options, each terminated by NUL, into `.llvmcmd`. Names and layout are those of LLVM's mlgo-utils. An object that `ld
-r` made of several becomes the modules `X.o.0`, `X.o.1`, ...

`builds` lists the objects of a build; `thinlto.py` reads ThinLTO indexes.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from compiler_opt.corpus.builds.objects import ObjectFile
from compiler_opt.corpus.making import thinlto
from compiler_opt.corpus.making.sections import BITCODE_SECTION, COMMAND_SECTION, Reader
from compiler_opt.corpus.making.writing import (
    CorpusWriter,
    MadeCorpus,
    Version,
    map_with_failures,
    newest,
    write_description,
)
from compiler_opt.errors import CorpusError


@dataclasses.dataclass(frozen=True)
class _Extracted:
    """The outcome for one object: LLVM version by module name, and how many modules the filter dropped."""

    modules: dict[str, Version | None]
    filtered: int


def extract(
    objects: Sequence[ObjectFile],
    output_dir: Path,
    *,
    num_workers: int = 1,
    cmd_filter: str | None = None,
    llvm_objcopy: Path | None = None,
    bitcode_section: str = BITCODE_SECTION,
    command_section: str = COMMAND_SECTION,
    thinlto_base: Path | None = None,
    overwrite: bool = False,
    progress: Callable[[int], Any] = lambda _: None,
) -> MadeCorpus:
    """Writes the modules of `objects` as a corpus; the description comes last, so a partial corpus has none.

    Args:
      objects: what to read.
      output_dir: the corpus folder.
      num_workers: objects read at a time.
      cmd_filter: keep only modules with an option in which this regular expression is found.
      llvm_objcopy: read sections with this program, for objects that are not ELF; by default with our ELF reader.
      bitcode_section: section with the bitcode.
      command_section: section with the options.
      thinlto_base: for the objects of a distributed ThinLTO build: the folder that its backends ran in; copies the
        ThinLTO index of each module.
      overwrite: write into a folder that is not empty.
      progress: called with 1 for each object done.

    Raises:
      CorpusError: no object has a usable module, or the filter is not a regular expression.
      OutputError: the folder cannot be written, or is not empty.
    """
    pattern = compiled_filter(cmd_filter)
    reader = Reader(bitcode_section, command_section, llvm_objcopy)
    writer = CorpusWriter(output_dir, overwrite)
    taken = {item.name for item in objects}

    def extract_one(item: ObjectFile) -> _Extracted:
        modules: dict[str, Version | None] = {}
        compilations = reader.read(item)
        for number, compilation in enumerate(compilations):
            name = item.name if len(compilations) == 1 else f"{item.name}.{number}"
            if len(compilations) > 1 and name in taken:
                raise CorpusError(
                    f"{item.shown}: holds several modules, but {name} is another object's name; extract it alone"
                )
            if pattern is None or any(pattern.search(option) for option in compilation.options):
                index = None if thinlto_base is None else thinlto.read_index(item, compilation.options, thinlto_base)
                modules[name] = writer.write_module(name, compilation.code, compilation.options, index)
        return _Extracted(modules, len(compilations) - len(modules))

    extracted, refused = map_with_failures(extract_one, objects, num_workers, progress)
    versions = {name: version for one in extracted for name, version in one.modules.items()}
    filtered = sum(one.filtered for one in extracted)
    failures = tuple((item.path, reason) for item, reason in refused)
    if not versions:
        raise CorpusError(_nothing_extracted(objects, filtered, failures))
    modules = sorted(versions)
    write_description(output_dir, modules, version=newest(versions.values()), has_thinlto=thinlto_base is not None)
    return MadeCorpus(tuple(modules), failures, filtered)


def compiled_filter(cmd_filter: str | None) -> re.Pattern[str] | None:
    """Compiles a regular expression; raises CorpusError if it is invalid."""
    try:
        return re.compile(cmd_filter) if cmd_filter is not None else None
    except re.error as error:
        raise CorpusError(f"--cmd_filter: {cmd_filter!r} is not a regular expression ({error})") from None


def _nothing_extracted(objects: Sequence[ObjectFile], filtered: int, failures: Sequence[tuple[Path, str]]) -> str:
    if failures:
        return f"none of the {len(objects)} objects holds a module; the first: {failures[0][1]}"
    if filtered:
        return f"--cmd_filter drops all {filtered} modules; give another one"
    return "there is no object to extract; give a build that has objects"
