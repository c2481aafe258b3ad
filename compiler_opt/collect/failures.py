"""When a run stops because most of its modules fail. Single failures are counted and named, and stop nothing."""

from collections.abc import Mapping

from compiler_opt.errors import CorpusError

_HOPELESS = 20
"""So many compilations that all fail, with none that does not, are enough to see that the rest will."""


def check_failures(failures: Mapping[str, str], attempts: int, what: str = "modules") -> None:
    """Stops a run in which most modules fail.

    Args:
      failures: the reason by module, the first one first.
      attempts: how many were compiled.
      what: they are.

    Raises:
      CorpusError: more than half failed; the message gives the first reason.
    """
    if 2 * len(failures) > attempts:
        raise CorpusError(
            f"{len(failures)} of {attempts} {what} failed to compile; the first: {next(iter(failures.values()))}"
        )


class FailureWatch:
    """Looks at modules as they are done, and stops at once when all of the first ones fail.

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
        """Takes a module.

        Raises:
          CorpusError: each one so far failed, and they are many; the message gives the first reason.
        """
        self._done += 1
        if failure is not None:
            self._failures[module] = failure
        if len(self._failures) == self._done >= min(_HOPELESS, self._num_modules):
            self.finish()

    def finish(self) -> None:
        """Looks at all of them.

        Raises:
          CorpusError: more than half failed; the message gives the first reason.
        """
        check_failures(self._failures, self._done, self._what)
