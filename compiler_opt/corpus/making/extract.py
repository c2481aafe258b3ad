"""Extracts a corpus from a build whose objects embed their bitcode and command line.

With `-Xclang -fembed-bitcode=all`, clang puts the bitcode from before optimisation into section `.llvmbc` and the cc1
options, each terminated by NUL, into `.llvmcmd`. Names and layout are those of LLVM's mlgo-utils. An object that `ld
-r` made of several becomes the modules `X.o.0`, `X.o.1`, ...

`builds` lists the objects of a build; `thinlto.py` reads ThinLTO indexes.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from compiler_opt.corpus.builds.objects import ObjectFile
from compiler_opt.corpus.making import thinlto
from compiler_opt.corpus.making.sections import BITCODE_SECTION, COMMAND_SECTION, Reader
from compiler_opt.corpus.making.writing import CorpusWriter, MadeCorpus, map_with_failures
from compiler_opt.errors import CorpusError


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
    try:
        pattern = re.compile(cmd_filter or "")
    except re.error as error:
        raise CorpusError(f"--cmd_filter: {cmd_filter!r} is not a regular expression ({error})") from None
    reader = Reader(bitcode_section, command_section, llvm_objcopy)
    writer = CorpusWriter(output_dir, overwrite)
    taken = {item.name for item in objects}

    def extract_one(item: ObjectFile) -> int:
        """Writes the modules of an object; returns how many the filter dropped."""
        found = reader.read(item)
        compilations = {item.name if len(found) == 1 else f"{item.name}.{n}": each for n, each in enumerate(found)}
        if len(found) > 1 and (clash := next((name for name in compilations if name in taken), None)):
            raise CorpusError(
                f"{item.shown}: holds several modules, but {clash} is another object's name; extract it alone"
            )
        indexes: dict[str, bytes | None] = {}
        for name, (_, options) in compilations.items():
            if any(pattern.search(option) for option in options):
                indexes[name] = thinlto.read_index(item, options, thinlto_base) if thinlto_base is not None else None
        for name, index in indexes.items():
            writer.write_module(name, *compilations[name], index)
        return len(compilations) - len(indexes)

    dropped, refused = map_with_failures(extract_one, objects, num_workers, progress)
    if refused:
        if_empty = f"none of the {len(objects)} objects holds a module"
    elif objects:
        if_empty = f"--cmd_filter drops all {sum(dropped)} modules; give another one"
    else:
        if_empty = "there is no object to extract; give a build that has objects"
    failures = [(item.path, reason) for item, reason in refused]
    return writer.finish(failures, if_empty, filtered=sum(dropped), has_thinlto=thinlto_base is not None)
