"""The options of ThinLTO backends, and those that recompile a backend's bitcode."""

from collections.abc import Sequence
from pathlib import Path

from compiler_opt.errors import CorpusError

INDEX_SUFFIX = ".thinlto.bc"

INDEX_OPTION = "-fthinlto-index="

_EMBED_OPTION = "-lto-embed-bitcode="
_MERGED_OPTION = "-thinlto-assume-merged"


def without_index(options: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """Removes the options about the index; also returns whether the options are a ThinLTO backend's."""
    kept: list[str] = []
    is_thinlto = False
    for option in options:
        if option.startswith(INDEX_OPTION):
            is_thinlto = True
        elif kept and kept[-1] == "-mllvm" and option.lstrip("-").startswith((_EMBED_OPTION[1:], _MERGED_OPTION[1:])):
            kept.pop()
        else:
            kept.append(option)
    return tuple(kept), is_thinlto


def index_path(bitcode_path: Path | str) -> Path:
    """The path of a module's index, next to its bitcode."""
    return Path(f"{str(bitcode_path).removesuffix('.bc')}{INDEX_SUFFIX}")


def own_index(bitcode_path: Path | str) -> list[str]:
    """The options that compile a module's bitcode with its own index.

    Without `-thinlto-assume-merged`, clang would import again, from files that an untrusted index names.

    Raises:
      CorpusError: there is no index; clang would silently compile without it.
    """
    index = index_path(bitcode_path)
    if not index.is_file():
        raise CorpusError(
            f"{index}: expected the module's ThinLTO index, found none; extract the corpus again, with --thinlto_build"
        )
    return [f"{INDEX_OPTION}{index}", "-mllvm", _MERGED_OPTION]
