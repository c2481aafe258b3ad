"""How far an optimisation has come, so that it goes on there after an interruption: `state.json` in its folder."""

import contextlib
import dataclasses
import resource
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from compiler_opt.checked_values import read_json
from compiler_opt.errors import ConfigError
from compiler_opt.files import write_json

STATE_NAME = "state.json"
FORMAT = 1
_MAX_BYTES = 1 << 24


@dataclasses.dataclass
class Step:
    """What one step came to.

    Attributes:
      done: it need not be done again.
      wall_s: seconds it took, over all sessions.
      cpu_s: CPU seconds, those of all compilers included.
      result: what later steps want to know of it; JSON values.
    """

    done: bool = False
    wall_s: float = 0.0
    cpu_s: float = 0.0
    result: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class _File:
    format: Literal[1]
    identity: dict[str, str]
    steps: dict[str, Step]


class State:
    """The steps of one optimisation, on disk."""

    def __init__(self, folder: Path, identity: Mapping[str, str], *, start_over: bool = False):
        """Continues what is in the folder, or begins anew where nothing is.

        Args:
          folder: of the optimisation.
          identity: what is optimised and how, by what a user would call it.
          start_over: begin anew instead of raising when that is another.

        Raises:
          ConfigError: the folder holds something else, or an optimisation of something else.
        """
        self._path = folder / STATE_NAME
        self._identity = dict(identity)
        self.steps: dict[str, Step] = {}
        stored = _read(self._path)
        if stored is None:
            if folder.is_dir() and any(folder.iterdir()):
                raise ConfigError(f"{folder}: is not empty, and holds no optimisation; give another --output")
            return
        before = stored.identity
        other = [name for name in {**identity, **before} if before.get(name) != identity.get(name)]
        if other and start_over:
            return
        if other:
            raise ConfigError(
                f"{folder}: holds an optimisation with another {', another '.join(other)}; give another --output, or "
                f"remove {folder} to start over"
            )
        self.steps = stored.steps

    def is_done(self, name: str) -> bool:
        """Whether a step is behind us."""
        return name in self.steps and self.steps[name].done

    def forget(self, *names: str) -> None:
        """Steps that are to be done again."""
        for name in names:
            self.steps.pop(name, None)
        self.save()

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Does a step: it counts as done when the block ends well; what it cost is added up in any case."""
        step = self.steps.setdefault(name, Step())
        step.done = False
        start_s, start_cpu_s = time.monotonic(), _cpu_s()
        try:
            yield step
            step.done = True
        finally:
            step.wall_s += time.monotonic() - start_s
            step.cpu_s += _cpu_s() - start_cpu_s
            self.save()

    def save(self) -> None:
        """Writes it; a step does so at its end.

        Raises:
          OutputError: it cannot be written.
        """
        steps = {name: dataclasses.asdict(step) for name, step in self.steps.items()}
        content = {"format": FORMAT, "identity": self._identity, "steps": steps}
        write_json(self._path, content)


def _read(path: Path) -> "_File | None":
    """The stored state; None when there is none."""
    remedy = f"remove {path.parent}, or give another --output"
    try:
        return read_json(path, _File, max_bytes=_MAX_BYTES, error=ConfigError, remedy=remedy)
    except FileNotFoundError:
        return None


def _cpu_s() -> float:
    """CPU seconds of this process and of all that have ended below it."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
