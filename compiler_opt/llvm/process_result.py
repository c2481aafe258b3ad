"""The result of a process, and its description in one line."""

import dataclasses
import shlex
import signal

_OUT_OF_SPACE = ("No space left on device", "Disk quota exceeded")


@dataclasses.dataclass(frozen=True)
class ProcessResult:
    """The result of one process.

    Attributes:
      command: argument list.
      returncode: exit status, or the negative number of the signal that ended it.
      stdout: all of its standard output, if captured.
      stderr_tail: the end of its standard error.
      cpu_s: user and system CPU seconds.
      timed_out: it was killed at its time limit.
      overflowed: it exceeded its output limit (and was killed, unless it had already ended).
    """

    command: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr_tail: str
    cpu_s: float
    timed_out: bool
    overflowed: bool = False

    @property
    def ok(self) -> bool:
        return self.returncode == 0 and not self.timed_out and not self.overflowed

    @property
    def lacked_resources(self) -> bool:
        """Whether it failed for lack of memory or disk: it was killed by SIGKILL, or reports that no space is left."""
        if self.ok or self.timed_out or self.overflowed:
            return False
        return self.returncode == -signal.SIGKILL or any(text in self.stderr_tail for text in _OUT_OF_SPACE)

    def describe(self) -> str:
        """One line: how it ended, its error message, and the command."""
        if self.timed_out:
            how = "ran out of time"
        elif self.overflowed:
            how = "exceeded its output limit"
        elif self.returncode < 0:
            how = f"died of {describe_exit(self.returncode)}"
            if self.returncode == -signal.SIGXFSZ:
                how += " (it exceeded its file size limit)"
        else:
            how = describe_exit(self.returncode)
        message = _error_line(self.stderr_tail)
        command = shlex.join(self.command)
        if len(command) > 300:
            command = f"{command[:100]} ... {command[-190:]}"
        return f"{how}{': ' + message if message else ''} (command: {command})"


def describe_exit(returncode: int) -> str:
    """The exit status or, if negative, the name of the signal."""
    if returncode >= 0:
        return f"exit status {returncode}"
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


def _error_line(stderr: str) -> str:
    """The first line that contains `error`, else the first that is not blank."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or [""])[0][:300]
