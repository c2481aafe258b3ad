"""Modules of ThinLTO builds: bitcode into which other modules' functions were imported already, and an index each.

In a distributed build every backend is a clang of its own, which `-mllvm -lto-embed-bitcode=post-merge-pre-opt` makes
embed that bitcode and its options (`-Xclang -fembed-bitcode=all` crashes such a clang, seen with 19 and 22). To compile
it once more, clang needs the module's index for what the link decided about its symbols, and must not import again.
"""

from collections.abc import Sequence
from pathlib import Path

from compiler_opt.corpus import bitcode
from compiler_opt.corpus.builds.objects import ObjectFile
from compiler_opt.corpus.command_lines.thinlto import INDEX_OPTION
from compiler_opt.errors import CorpusError
from compiler_opt.files import printable, read_regular

MAX_INDEX_BYTES = 1 << 28

_DIRECTORY_OPTION = "-fdebug-compilation-dir="


def read_index(item: ObjectFile, options: Sequence[str], base: Path) -> bytes:
    """The index that a backend compiled an object with.

    Args:
      item: the object.
      options: of the backend.
      base: the folder that the backends ran in; where the index is not there, the one that its options name is tried.

    Raises:
      CorpusError: there is none.
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
    bitcode.check(data, what, "build it again")
    return data
