"""The progress of an optimisation, kept in `state.json` of its folder so that it continues after an interruption."""

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
_MAX_BYTES = 1 << 24


@dataclasses.dataclass
class Step:
    """A step.

    Attributes:
      done: whether it is complete.
      wall_s: seconds it took, over all sessions.
      cpu_s: CPU seconds, including those of compilers.
      result: JSON values for later steps.
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
        """Reads the state of the optimisation in a folder, or starts one.

        Args:
          folder: folder of the optimisation.
          identity: properties that must be the same to continue: name for the user -> value.
          start_over: start again, instead of raising, if a property differs.

        Raises:
          ConfigError: the folder has other contents, or an optimisation with another identity.
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
        return name in self.steps and self.steps[name].done

    def forget(self, *names: str) -> None:
        """Makes steps to be done again."""
        for name in names:
            self.steps.pop(name, None)
        self.save()

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Times a step, which is done if the block ends without an exception; its cost is added up in any case."""
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
        """Writes `state.json`; done at the end of each step.

        Raises:
          OutputError: it cannot be written.
        """
        steps = {name: dataclasses.asdict(step) for name, step in self.steps.items()}
        write_json(self._path, {"format": 1, "identity": self._identity, "steps": steps})


def _read(path: Path) -> "_File | None":
    """The stored state; None if there is none."""
    remedy = f"remove {path.parent}, or give another --output"
    try:
        return read_json(path, _File, max_bytes=_MAX_BYTES, error=ConfigError, remedy=remedy)
    except FileNotFoundError:
        return None


def _cpu_s() -> float:
    """CPU seconds of this process and of its descendants that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
