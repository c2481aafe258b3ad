"""Modules of ThinLTO builds: bitcode into which other modules' functions were imported already, and an index each.

In a distributed build every backend is a clang of its own, which `-mllvm -lto-embed-bitcode=post-merge-pre-opt` makes
embed that bitcode and its options (`-Xclang -fembed-bitcode=all` crashes such a clang, seen with 19 and 22). To compile
it once more, clang needs the module's index for what the link decided about its symbols, and must not import again.
"""

import io
from collections.abc import Sequence
from pathlib import Path

from compiler_opt.corpus import bitcode
from compiler_opt.corpus.builds.objects import ObjectFile
from compiler_opt.errors import CorpusError
from compiler_opt.files import printable, read_regular

INDEX_SUFFIX = ".thinlto.bc"

MAX_INDEX_BYTES = 1 << 28

_INDEX_OPTION = "-fthinlto-index="
_DIRECTORY_OPTION = "-fdebug-compilation-dir="
_EMBED_OPTION = "-lto-embed-bitcode="
_MERGED_OPTION = "-thinlto-assume-merged"


def without_index(options: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """The recorded options without those about the index, and whether they are a ThinLTO backend's."""
    kept: list[str] = []
    is_thinlto = False
    for option in options:
        if option.startswith(_INDEX_OPTION):
            is_thinlto = True
        elif kept and kept[-1] == "-mllvm" and option.lstrip("-").startswith((_EMBED_OPTION[1:], _MERGED_OPTION[1:])):
            kept.pop()
        else:
            kept.append(option)
    return tuple(kept), is_thinlto


def own_index(bitcode_path: Path | str) -> list[str]:
    """The options that compile a module's bitcode with its own index.

    Without the second clang would import again, from files that the index names: in a corpus anyone's.

    Raises:
      CorpusError: there is no index; clang would compile without.
    """
    index = Path(f"{str(bitcode_path).removesuffix('.bc')}{INDEX_SUFFIX}")
    if not index.is_file():
        raise CorpusError(
            f"{index}: expected the module's ThinLTO index, found none; extract the corpus again, with --thinlto_build"
        )
    return [f"{_INDEX_OPTION}{index}", "-mllvm", _MERGED_OPTION]


def read_index(item: ObjectFile, options: Sequence[str], base: Path) -> bytes:
    """The index that a backend compiled an object with.

    Args:
      item: the object.
      options: of the backend.
      base: the folder that the backends ran in; where the index is not there, the one that its options name is tried.

    Raises:
      CorpusError: there is none.
    """
    named = next((option for option in reversed(options) if option.startswith(_INDEX_OPTION)), None)
    if named is None:
        raise CorpusError(
            f"{item.shown}: was not compiled with {_INDEX_OPTION}; give the objects that the backends of a distributed "
            "ThinLTO build made, or leave out --thinlto_build"
        )
    path = named.removeprefix(_INDEX_OPTION)
    ran_in = (option for option in options if option.startswith(_DIRECTORY_OPTION))
    places = [base, *(Path(option.removeprefix(_DIRECTORY_OPTION)) for option in ran_in)]
    found = next((place / path for place in places if (place / path).exists()), places[0] / path)
    return read_index_file(found, item.shown)


def read_index_file(path: Path, shown: str) -> bytes:
    """An index, checked to be bitcode: whatever else an object may name is not copied into a corpus.

    Raises:
      CorpusError: it is missing or something else; the message starts with `shown`.
    """
    what = f"{shown}: its ThinLTO index {printable(path)}"
    try:
        data = read_regular(path, MAX_INDEX_BYTES)
    except OSError as error:
        raise CorpusError(
            f"{what} cannot be read ({error.strerror}); give the folder that the build ran in with --obj_base_dir"
        ) from None
    if wrong := bitcode.problem(io.BytesIO(data), len(data)):
        raise CorpusError(f"{what}: {wrong}; build it again")
    return data
