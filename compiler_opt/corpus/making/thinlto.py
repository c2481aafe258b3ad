"""Reads the ThinLTO indexes of modules, whose bitcode is from after function importing.

In a distributed build each backend is a clang process, which embeds that bitcode and its options if it is given `-mllvm
-lto-embed-bitcode=post-merge-pre-opt` (`-Xclang -fembed-bitcode=all` crashes it: clang 19 and 22). To compile the
bitcode again, clang needs the module's index for the link's decisions about its symbols, and must not import again.
"""

from collections.abc import Sequence
from pathlib import Path

from compiler_opt.corpus.builds.objects import ObjectFile
from compiler_opt.corpus.command_lines.thinlto import INDEX_OPTION
from compiler_opt.corpus.validation import read_bitcode
from compiler_opt.errors import CorpusError
from compiler_opt.files import printable

MAX_INDEX_BYTES = 1 << 28

_DIRECTORY_OPTION = "-fdebug-compilation-dir="


def read_index(item: ObjectFile, options: Sequence[str], base: Path) -> bytes:
    """Reads the index that a backend compiled an object with.

    Args:
      item: the object.
      options: of the backend.
      base: the folder that the backends ran in; the compilation directory in `options` is tried next.

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
    """Reads an index and checks that it is bitcode, so that no other file that an object names enters a corpus.

    Raises:
      CorpusError: it is missing or not bitcode; the message starts with `shown`.
    """
    name = f"{shown}: its ThinLTO index {printable(path)}"
    remedy = "give the folder that the build ran in with --obj_base_dir"
    return read_bitcode(path, remedy, shown_as=name, max_bytes=MAX_INDEX_BYTES)
