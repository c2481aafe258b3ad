"""The steps of an optimisation, on disk: a step is done again only if something that its result depends on has changed.

    state.do("corpus", Extracted, extract, after=["build-bitcode"])
    state.do("search", Searched, search, inputs=[checksum(policy)], is_enough=lambda found: found.minutes >= minutes)

A step's key is a hash of its name, its inputs, and the keys of the steps whose results it uses. So a change at
one place changes the keys of all that depends on it, and nothing is ever declared stale by name.
"""

import dataclasses
import resource
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from compiler_opt.checked_values import Json, convert, read_json
from compiler_opt.errors import ConfigError
from compiler_opt.files import size_and_sha256, write_json
from compiler_opt.kept_results import key_of

STATE_NAME = "state.json"

_MAX_STATE_BYTES = 1 << 24
_T = TypeVar("_T")


@dataclasses.dataclass
class Record:
    """A step, as it is kept, and as the work of the step is given it.

    Attributes:
      key: of all that the result depends on.
      attempts: how often it was begun with this key.
      done: whether there is a result.
      wall_s: seconds that the attempts took.
      cpu_s: their CPU seconds, including those of compilers.
      compiles: their compilations, which the work counts.
      partial: JSON values of the work for its next attempt, if this one is interrupted or not enough one day.
      result: JSON values of a result of the step's type.
    """

    key: str
    attempts: int = 0
    done: bool = False
    wall_s: float = 0.0
    cpu_s: float = 0.0
    compiles: int = 0
    partial: dict[str, Json] = dataclasses.field(default_factory=dict)
    result: Json = None

    @property
    def continues(self) -> bool:
        """Whether there was an attempt before with the same key, whose files are of use."""
        return self.attempts > 1


@dataclasses.dataclass(frozen=True)
class Cost:
    """Cost of a step: seconds, CPU seconds, compilations."""

    step: str
    wall_s: float
    cpu_s: float
    compiles: int


@dataclasses.dataclass(frozen=True)
class _File:
    format: Literal[2]
    identity: dict[str, str]
    finished: bool
    steps: dict[str, Record]


class State:
    """The steps of one optimisation."""

    def __init__(
        self, folder: Path, identity: Mapping[str, str], echo: Callable[[str], Any] = print, *, start_over: bool = False
    ):
        """Reads the state of the optimisation in a folder, or starts one.

        `identity` has the properties that must be the same to continue, by names that the user understands. With
        `start_over`, it starts again if the optimisation is finished, or has another identity.

        Raises:
          ConfigError: the folder has other contents, or an optimisation with another identity.
        """
        self._path, self._identity, self._echo = folder / STATE_NAME, dict(identity), echo
        self._remedy = f"remove {folder}, or give another --output_dir"
        self._records: dict[str, Record] = {}
        self._used: set[str] = set()
        try:
            stored = read_json(self._path, _File, max_bytes=_MAX_STATE_BYTES, error=ConfigError, remedy=self._remedy)
        except FileNotFoundError:
            if folder.is_dir() and any(folder.iterdir()):
                raise ConfigError(
                    f"{folder}: is not empty, and holds no optimisation; give another --output_dir"
                ) from None
            return
        before = stored.identity
        other = [name for name in {**identity, **before} if before.get(name) != identity.get(name)]
        if start_over and (other or stored.finished):
            return
        if other:
            raise ConfigError(
                f"{folder}: holds an optimisation with another {', another '.join(other)}; give another --output_dir, "
                f"or remove {folder} to start over"
            )
        self._records = stored.steps

    def do(
        self,
        name: str,
        model: type[_T],
        work: Callable[[Record], _T],
        *,
        inputs: Sequence[object] = (),
        after: Collection[str] = (),
        outputs: Collection[Path] = (),
        is_enough: Callable[[_T], bool] = lambda result: True,
    ) -> _T:
        """Does a step, unless it is done.

        Args:
          name: of the step.
          model: type of its result: a dataclass, or None's.
          work: does it; it may look at the record, and change it.
          inputs: what the result depends on, as values whose `repr` tells them apart.
          after: the steps that it depends on, which this process has done or found to be done.
          outputs: files without which it has to be done again.
          is_enough: whether an earlier result is; otherwise the step goes on.

        Raises:
          ConfigError: the earlier result is of another form.
          OutputError: the state cannot be written.
        """
        key, record = self._key(name, inputs, after), self._records.pop(name, None)
        if record is None or record.key != key:
            record = Record(key)
        self._records[name] = record
        self._used.add(name)
        if record.done and all(path.exists() for path in outputs) and is_enough(found := self._result(name, model)):
            self._echo(f"{name}: done before")
            return found
        record.done = False
        record.attempts += 1
        self.save()
        start_s, start_cpu_s = time.monotonic(), _cpu_s()
        try:
            result = work(record)
            record.done, record.result = True, msgspec.to_builtins(result)
        finally:
            record.wall_s += time.monotonic() - start_s
            record.cpu_s += _cpu_s() - start_cpu_s
            self.save()
        return result

    def find(
        self, name: str, model: type[_T], *, inputs: Sequence[object] = (), after: Collection[str] = ()
    ) -> _T | None:
        """The result of a step that is done, with these inputs; None if there is none. See `do`."""
        record = self._records.get(name)
        if record is None or not record.done or record.key != self._key(name, inputs, after):
            return None
        self._used.add(name)
        return self._result(name, model)

    def costs(self) -> tuple[Cost, ...]:
        """What the steps that this process has used have cost, in all processes, in order."""
        return tuple(
            Cost(name, record.wall_s, record.cpu_s, record.compiles)
            for name, record in self._records.items()
            if name in self._used
        )

    def how_far(self) -> str:
        """The steps that are done, of those that this process has come to, and how to resume."""
        done = [name for name, record in self._records.items() if name in self._used and record.done]
        return f"done: {', '.join(done) or 'nothing yet'}; the same command resumes"

    def save(self, *, finished: bool = False) -> None:
        """Writes `state.json`; done at the beginning and end of each step.

        Raises:
          OutputError: it cannot be written.
        """
        steps = {name: dataclasses.asdict(record) for name, record in self._records.items()}
        write_json(self._path, {"format": 2, "identity": self._identity, "finished": finished, "steps": steps})

    def _key(self, name: str, inputs: Sequence[object], after: Collection[str]) -> str:
        return key_of(repr((name, inputs, [self._records[each].key for each in after])))

    def _result(self, name: str, model: type[_T]) -> _T:
        try:
            return convert(self._records[name].result, model)
        except ValueError as error:
            raise ConfigError(f"{self._path}: {name}: {error}; {self._remedy}") from None


def checksum(path: Path | None) -> str | None:
    """SHA-256 of a file that a step depends on; None if there is none."""
    return size_and_sha256(path)[1] if path is not None and path.exists() else None


def _cpu_s() -> float:
    """CPU seconds of this process and of its descendants that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
