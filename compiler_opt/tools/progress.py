"""The progress bar of commands that compile a corpus."""

import contextlib
import sys
from collections.abc import Callable, Iterator

from tqdm import tqdm

from compiler_opt.collect.rollout import Rollout


@contextlib.contextmanager
def rollout_bar(total: int) -> Iterator[Callable[[Rollout], None]]:
    """A bar on stderr for so many compilations; the function counts one, and whether it failed."""
    interval_s = 0.2 if sys.stderr.isatty() else 10  # In a file, every update is a line.
    failures = 0
    with tqdm(total=total, unit="compile", smoothing=0.05, mininterval=interval_s) as bar:

        def advance(rollout: Rollout) -> None:
            nonlocal failures
            bar.update()
            if rollout.failure is not None:
                failures += 1
                bar.set_postfix(failed=failures)

        yield advance
