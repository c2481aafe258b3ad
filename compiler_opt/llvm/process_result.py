"""How a process ended, in numbers and in one line."""

import dataclasses
import shlex
import signal

_OUT_OF_SPACE = ("No space left on device", "Disk quota exceeded")


@dataclasses.dataclass(frozen=True)
class ProcessResult:
    """How one process ended.

    Attributes:
      command: its argument list.
      returncode: exit status, or minus the signal that ended it.
      stdout: everything it printed, when that was asked for.
      stderr_tail: the last part of what it printed on stderr.
      cpu_s: user and system CPU seconds of the process.
      timed_out: we killed it because its time was up.
      overflowed: it printed more than it may, and was killed if that was noticed in time.
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
        """Whether it failed for want of memory or disk: the kernel killed it, or it says that no space is left."""
        if self.ok or self.timed_out or self.overflowed:
            return False
        return self.returncode == -signal.SIGKILL or any(text in self.stderr_tail for text in _OUT_OF_SPACE)

    def describe(self) -> str:
        """One line: how it ended, what it said, which command."""
        if self.timed_out:
            how = "ran out of time"
        elif self.overflowed:
            how = "printed more than it may"
        elif self.returncode < 0:
            how = f"died of {describe_exit(self.returncode)}"
            if self.returncode == -signal.SIGXFSZ:
                how += " (a file that it wrote got too large)"
        else:
            how = describe_exit(self.returncode)
        said = _telling_line(self.stderr_tail)
        command = shlex.join(self.command)
        if len(command) > 300:
            command = f"{command[:100]} ... {command[-190:]}"
        return f"{how}{': ' + said if said else ''} (command: {command})"


def describe_exit(returncode: int) -> str:
    """An exit status or, where it is negative, the name of the signal."""
    if returncode >= 0:
        return f"exit status {returncode}"
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


def _telling_line(stderr: str) -> str:
    """The first line that says `error`, else the first that is not blank."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or [""])[0][:300]
