"""The state of an interrupted search, from which the same search continues; as a file, JSON with a checksum."""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from compiler_opt.checked_values import NonNegativeInt, convert
from compiler_opt.errors import ConfigError
from compiler_opt.files import one_line, read_checked_json, write_checked_json
from compiler_opt.policies.decisions import Caller, Site, by_caller, from_callers

_MAX_BYTES = 1 << 28
_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class SavedState:
    """What a search has found and learned; builds are made again from the decisions.

    Attributes:
      round: number of trials so far, which seeds the random moves.
      best: decisions of the best confirmed state.
      current: decisions of the current state.
      expectations: see `Expectations.to_json`.
      tried: by move, the versions of its functions when it was tried.
      versions: how often each function has changed.
      limits: moves at once, by module.
      compiles: by module.
      cpu_s: CPU seconds of the compiler.
      curve: `Progress` as tuples.
    """

    round: int = 0
    best: Mapping[Site, int] = dataclasses.field(default_factory=dict)
    current: Mapping[Site, int] = dataclasses.field(default_factory=dict)
    expectations: Sequence[tuple[str, tuple[int, ...], float, float]] = ()
    tried: Mapping[int, int] = dataclasses.field(default_factory=dict)
    versions: Mapping[str, int] = dataclasses.field(default_factory=dict)
    limits: Mapping[int, int] = dataclasses.field(default_factory=dict)
    compiles: Mapping[int, int] = dataclasses.field(default_factory=dict)
    cpu_s: float = 0.0
    curve: Sequence[tuple[int, float, float, float, float]] = ()

    def save(self, path: Path, identity: Mapping[str, str]) -> None:
        """Writes the state with what must be the same to continue; raises OutputError if it cannot."""
        content = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        content |= {"format": _FORMAT, "identity": dict(identity)}
        content |= {name: by_caller(getattr(self, name)) for name in ("best", "current")}
        content |= {name: list(getattr(self, name).items()) for name in ("tried", "limits", "compiles")}
        write_checked_json(path, content)

    @classmethod
    def load(cls, path: Path, identity: Mapping[str, str]) -> "SavedState | None":
        """Reads a state; None if there is none.

        Raises:
          ConfigError: it is damaged, or belongs to another search.
        """
        file = read_state(path, _File, identity)
        if file is None:
            return None
        return cls(
            round=file.round,
            best=from_callers(file.best),
            current=from_callers(file.current),
            expectations=file.expectations,
            tried=dict(file.tried),
            versions=file.versions,
            limits=dict(file.limits),
            compiles=dict(file.compiles),
            cpu_s=file.cpu_s,
            curve=file.curve,
        )


@dataclasses.dataclass
class _File:
    format: Literal[1]
    identity: dict[str, str]
    round: NonNegativeInt
    best: list[Caller[Literal[0, 1]]]
    current: list[Caller[Literal[0, 1]]]
    expectations: list[tuple[str, tuple[int, ...], float, float]]
    tried: list[tuple[int, int]]
    versions: dict[str, NonNegativeInt]
    limits: list[tuple[NonNegativeInt, NonNegativeInt]]
    compiles: list[tuple[NonNegativeInt, NonNegativeInt]]
    cpu_s: float
    curve: list[tuple[int, float, float, float, float]]


class _HasIdentity(Protocol):
    identity: dict[str, str]


_State = TypeVar("_State", bound=_HasIdentity)


def read_state(path: Path, model: type[_State], identity: Mapping[str, str]) -> _State | None:
    """Reads the file of a state, written by `write_checked_json`; None if there is none.

    Raises:
      ConfigError: it is damaged, or belongs to another search.
    """
    remedy = "remove the file to start over, or give another folder"
    try:
        state = convert(read_checked_json(path, _MAX_BYTES), model)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not the state of a search ({one_line(str(error))}); {remedy}") from None
    for name, value in identity.items():
        if state.identity.get(name) != value:
            raise ConfigError(
                f"{path}: the search began with another {name} ({state.identity.get(name)}, now {value}); {remedy}"
            )
    return state


def pins_from(decisions: Mapping[Site, int]) -> dict[str, list[tuple[Site, int]]]:
    """The decisions by caller's name."""
    found: dict[str, list[tuple[Site, int]]] = collections.defaultdict(list)
    for site, advice in decisions.items():
        found[site.caller].append((site, advice))
    return found
