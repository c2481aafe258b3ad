"""What several tests need is made once in a run of the tests, whose workers share it."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from compiler_opt.llvm.build_cache import BuildCache, digest_of

FOLDER = "COMPILER_OPT_TESTS_FOLDER"
"""The environment variable of the run's folder."""


def made_once(make: Callable[[], bytes], key: Sequence[str], sources: Sequence[Path] = ()) -> bytes:
    """The result of `make`, which depends only on `key` and on the content of `sources`."""
    folder = os.environ.get(FOLDER)
    if folder is None:  # not run by pytest
        return make()
    # A folder for each, since a build cache makes one thing at a time, and one may need another.
    return BuildCache(Path(folder) / digest_of(key, sources, ())).get("content", make).read_bytes()
