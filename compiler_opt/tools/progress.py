"""The progress bar of commands that compile a corpus."""

import contextlib
from collections.abc import Callable, Iterator

from compiler_opt.collect.rollout import Rollout
from compiler_opt.progress_bar import progress_bar


@contextlib.contextmanager
def rollout_bar(total: int) -> Iterator[Callable[[Rollout], None]]:
    """A bar on stderr for so many compilations; the function counts one, and whether it failed."""
    failures = 0
    with progress_bar(total=total, unit="compile", smoothing=0.05) as bar:

        def advance(rollout: Rollout) -> None:
            nonlocal failures
            bar.update()
            if rollout.failure is not None:
                failures += 1
                bar.set_postfix(failed=failures)

        yield advance
