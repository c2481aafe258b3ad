"""Stops a run in which most modules fail; single failures are counted and logged, and stop nothing."""

from collections.abc import Mapping

from compiler_opt.errors import CorpusError

_HOPELESS = 20
"""If this many compilations fail and none succeeds, the others will fail too."""


def check_failures(failures: Mapping[str, str], attempts: int, what: str = "modules") -> None:
    """Raises CorpusError if more than half of the attempts failed.

    The message gives the first of `failures`, the reasons by module; `what` is the plural noun in it.
    """
    if 2 * len(failures) > attempts:
        raise CorpusError(
            f"{len(failures)} of {attempts} {what} failed to compile; the first: {next(iter(failures.values()))}"
        )


class FailureWatch:
    """Counts failures as modules are done; stops early if the first ones all fail.

    watch = FailureWatch(len(modules))
    for rollout in ...:
        watch.add(rollout.module, rollout.failure)
    watch.finish()
    """

    def __init__(self, num_modules: int, what: str = "modules"):
        self._num_modules = num_modules
        self._what = what
        self._failures: dict[str, str] = {}
        self._done = 0

    def add(self, module: str, failure: str | None) -> None:
        """Counts a module; raises CorpusError if the first ones have all failed."""
        self._done += 1
        if failure is not None:
            self._failures[module] = failure
        if len(self._failures) == self._done >= min(_HOPELESS, self._num_modules):
            self.finish()

    def finish(self) -> None:
        """Raises CorpusError if more than half of the modules failed."""
        check_failures(self._failures, self._done, self._what)
