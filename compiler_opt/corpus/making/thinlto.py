"""Extracts a corpus from a local ThinLTO link, and reads the ThinLTO indexes of modules.

The bitcode of these modules is from after function importing. To compile it again, clang needs the module's index for
the link's decisions about its symbols, and must not import again.

In a distributed build each backend is a clang process, which embeds that bitcode and its options if it is given `-mllvm
-lto-embed-bitcode=post-merge-pre-opt` (`-Xclang -fembed-bitcode=all` crashes it: clang 19 and 22); `extract.py` reads
them. The backends of a local link run inside the linker. Next to each object `X`, lld saves their inputs:
`X.3.import.bc`, the bitcode (`-Wl,--save-temps=import`), and `X.thinlto.bc`, its index
(`-Wl,--thinlto-emit-index-files`). They have no command lines, so the corpus gets a `global_command_override`: the
options of the link, translated for clang.
"""

import dataclasses
import glob
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from compiler_opt.corpus import bitcode
from compiler_opt.corpus.builds import params, response_files
from compiler_opt.corpus.builds.objects import ObjectFile, name_below, normal
from compiler_opt.corpus.command_lines.command_line import INDEX_OPTION, INDEX_SUFFIX
from compiler_opt.corpus.command_lines.driver_options import UNSPECIFIED
from compiler_opt.corpus.making.writing import CorpusWriter, MadeCorpus, map_with_failures
from compiler_opt.corpus.validation import checked_path, read_bitcode, reading
from compiler_opt.errors import CorpusError
from compiler_opt.files import printable

MAX_INDEX_BYTES = 1 << 28

_DIRECTORY_OPTION = "-fdebug-compilation-dir="


def read_index(item: ObjectFile, options: Sequence[str], base: Path) -> bytes:
    """Reads the index that a backend compiled an object with, by the backend's options.

    `base` is the folder that the backends ran in; the compilation directory in the options is tried next. Raises
    CorpusError if there is no index.
    """
    named = next((option for option in reversed(options) if option.startswith(INDEX_OPTION)), None)
    if named is None:
        raise CorpusError(
            f"{item.shown}: was not compiled with {INDEX_OPTION}; give the objects that the backends of a distributed "
            "ThinLTO build made, or leave out --thinlto_build"
        )
    path = named.removeprefix(INDEX_OPTION)
    ran_in = (option for option in options if option.startswith(_DIRECTORY_OPTION))
    places = [base, *(Path(option.removeprefix(_DIRECTORY_OPTION)) for option in ran_in)]
    found = next((place / path for place in places if (place / path).exists()), places[0] / path)
    return read_index_file(found, item.shown)


def read_index_file(path: Path, shown: str) -> bytes:
    """Reads an index and checks that it is bitcode, so that no other file that an object names enters a corpus.

    Raises CorpusError, whose message starts with `shown`, if it is not.
    """
    name = f"{shown}: its ThinLTO index {printable(path)}"
    remedy = "give the folder that the build ran in with --obj_base_dir"
    return read_bitcode(path, remedy, shown_as=name, max_bytes=MAX_INDEX_BYTES)


IMPORTED_SUFFIX = ".3.import.bc"

_REMEDY = "link with -Wl,--save-temps=import -Wl,--thinlto-emit-index-files by lld"


@dataclasses.dataclass(frozen=True)
class Link:
    """The files of a ThinLTO link.

    Attributes:
      modules: name and path of each, without suffixes.
      options: the options of the link; empty if unknown.
      skipped: inputs for which the linker saved no file.
    """

    modules: tuple[tuple[str, Path], ...]
    options: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


def link_of_params(path: Path, base: Path | None = None) -> Link:
    """Finds the modules and options of a link by its parameter file; see `params.objects_of_params`.

    Raises CorpusError if a file cannot be read, or includes itself.
    """
    base = normal(base or Path.cwd())
    inputs, options = params.parse(response_files.expand(response_files.read(path, params.WANTED), base, str(path)))
    modules: dict[str, Path] = {}
    skipped: list[str] = []
    for text in dict.fromkeys(inputs):
        given = normal(base / checked_path(text, str(path)))
        found = _saved_inputs(given) if name_below(base, given) is not None else []
        modules.update((place.relative_to(base).as_posix(), place) for place in found)
        if not found:
            skipped.append(text)
    return Link(tuple(modules.items()), tuple(options), tuple(skipped))


def link_of_directory(folder: Path) -> Link:
    """Finds the modules of all links below a folder; raises CorpusError if it is no folder. The options are unknown."""
    root = normal(folder)
    if not root.is_dir():
        raise CorpusError(f"{folder}: expected the folder of a link, found none; give that of a build")
    found = [Path(str(path).removesuffix(IMPORTED_SUFFIX)) for path in sorted(root.rglob(f"*{IMPORTED_SUFFIX}"))]
    return Link(tuple((place.relative_to(root).as_posix(), place) for place in found))


def extract(
    link: Link,
    output_dir: Path,
    *,
    num_workers: int = 1,
    check: bool = True,
    overwrite: bool = False,
    progress: Callable[[int], Any] = lambda _: None,
) -> MadeCorpus:
    """Writes the modules of a link as a corpus; for the arguments see `extract.extract`.

    Without `check`, the files are taken as they are, and the user has to write the options into the description.

    Raises:
      CorpusError: no module is usable.
      OutputError: the folder cannot be written, or is not empty.
    """
    if not link.modules:
        raise CorpusError(f"the linker saved no file that ends in {IMPORTED_SUFFIX}; {_REMEDY}")
    writer = CorpusWriter(output_dir, overwrite)

    def extract_one(module: tuple[str, Path]) -> str:
        """Writes a module; returns its target, empty if that is not looked for."""
        name, place = module
        if not check:
            with reading(place, _REMEDY):
                code, index = (Path(f"{place}{suffix}").read_bytes() for suffix in (IMPORTED_SUFFIX, INDEX_SUFFIX))
            writer.write_module(name, code, None, index)
            return ""
        code = read_bitcode(Path(f"{place}{IMPORTED_SUFFIX}"), _REMEDY)
        index = read_index_file(Path(f"{place}{INDEX_SUFFIX}"), printable(place))
        triple = bitcode.target_triple(code)
        if triple is None:
            raise CorpusError(f"{printable(place)}: its bitcode names no target; build it again")
        writer.write_module(name, code, None, index)
        return triple

    found, refused = map_with_failures(extract_one, link.modules, num_workers, progress)
    triples = sorted(set(found))
    if len(triples) > 1:
        raise CorpusError(
            f"the modules are for several targets ({', '.join(triples)}); give the parameter file of one link"
        )
    options = command_override(link.options, *triples) if check and triples else [UNSPECIFIED]
    return writer.finish(
        [(place, reason) for (_, place), reason in refused],
        f"none of {len(link.modules)} modules is usable",
        has_thinlto=True,
        command_override=options,
    )


def command_override(link_options: Iterable[str], triple: str) -> list[str]:
    """Returns the cc1 options that compile as lld's backends do.

    At -O2 and -O3 the objects are bit-identical (LLVM 19 and 22). At lower levels they differ: lld still generates code
    as at -O2. Without options of the link, lld's default level and position-independent code are assumed.
    """
    options = list(link_options)
    level, cpu, llvm_options = "2", None, []
    is_pic = not options or any(option.lstrip("-") in _PIC_OPTIONS for option in options)
    for option, following in zip(options, [*options[1:], ""], strict=False):
        name = option.lstrip("-")
        if match := re.fullmatch(r"(?:lto-|plugin-opt=)O(.*)", name):
            level = match[1]
        elif match := re.fullmatch(r"(?:mllvm=|plugin-opt=(?=-))(.*)", name):
            llvm_options.append(match[1])
        elif name == "mllvm":
            llvm_options.append(following)
        elif name.startswith("plugin-opt=mcpu="):
            cpu = name.removeprefix("plugin-opt=mcpu=")
    result = ["-cc1", "-triple", triple, f"-O{level}", "-emit-obj", "-fthinlto-index=<module>.thinlto.bc"]
    result += ["-mrelocation-model", "pic" if is_pic else "static"]
    result += ["-ffunction-sections", "-fdata-sections", "-faddrsig"]
    result += ["-vectorize-loops", "-vectorize-slp"] if level not in ("0", "1") else []
    result += ["-target-cpu", cpu] if cpu else []
    for option in llvm_options:
        result += ["-mllvm", option]
    return result


_PIC_OPTIONS = ("shared", "pie", "pic-executable", "static-pie", "Bshareable")


def _saved_inputs(given: Path) -> list[Path]:
    """The files that lld saved for an input of the link, without suffixes; an archive has one for each member."""
    if Path(f"{given}{IMPORTED_SUFFIX}").exists():
        return [given]
    saved = sorted(given.parent.glob(f"{glob.escape(given.name)}(*{IMPORTED_SUFFIX}"))
    return [Path(str(path).removesuffix(IMPORTED_SUFFIX)) for path in saved]
