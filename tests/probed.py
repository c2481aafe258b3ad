"""The tested compilers, each probed once in a run of the tests."""

import functools
import pickle

from compiler_opt.llvm.toolchain import Toolchain, probe
from tests.made_once import made_once

COMPILERS = ("clang-19", "clang-22")


@functools.cache
def probed(clang: str) -> Toolchain:
    """As `probe`, which takes half a second."""
    toolchain: Toolchain = pickle.loads(made_once(lambda: pickle.dumps(probe(clang)), ["probe", clang]))  # noqa: S301
    return toolchain
