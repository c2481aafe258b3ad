"""The tested compilers, each probed once in a run of the tests."""

import functools
import os
import pickle
import shutil
from pathlib import Path

from compiler_opt.llvm import toolchain
from compiler_opt.llvm.ir2vec import Ir2VecVocabulary
from compiler_opt.llvm.toolchain import Toolchain, find_clang, probe
from tests.made_once import made_once

COMPILERS = ("clang-19", "clang-22")


def probed(clang: str) -> Toolchain:
    """As `probe`, which takes half a second."""
    return _probed(shutil.which(clang) or clang)


@functools.cache
def _probed(clang: str) -> Toolchain:
    found: Toolchain = pickle.loads(made_once(lambda: pickle.dumps(probe(clang)), ["probe", clang]))  # noqa: S301
    return found


def remember_compilers() -> None:
    """Has all modules that import `probe` later take what it finds about the tested compilers as known.

    Every deployment and most programs begin with it.
    """
    path = os.environ["PATH"]
    tested = {found for name in COMPILERS if (found := shutil.which(name))}

    def remembered(clang: str | Path | None = None, embeddings: Ir2VecVocabulary | None = None) -> Toolchain:
        if embeddings is None and os.environ.get("PATH") == path:
            found = str(find_clang(clang))
            if found in tested:
                return probed(found)
        return probe(clang, embeddings)

    toolchain.probe = remembered
