"""Stops a run in which most modules fail. Single failures are counted and logged, and stop nothing."""

from collections.abc import Mapping

from compiler_opt.errors import CorpusError

_HOPELESS = 20
"""If this many compilations fail and none succeeds, the others will fail too."""


def check_failures(failures: Mapping[str, str], attempts: int, what: str = "modules") -> None:
    """Stops a run in which most modules fail.

    Args:
      failures: reasons by module, the first failure first.
      attempts: number of compiled modules.
      what: plural noun for the error message.

    Raises:
      CorpusError: more than half failed; the message gives the first reason.
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
        """Counts a module.

        Raises:
          CorpusError: the first modules have all failed; the message gives the first reason.
        """
        self._done += 1
        if failure is not None:
            self._failures[module] = failure
        if len(self._failures) == self._done >= min(_HOPELESS, self._num_modules):
            self.finish()

    def finish(self) -> None:
        """Raises CorpusError if more than half of the modules failed; the message gives the first reason."""
        check_failures(self._failures, self._done, self._what)
