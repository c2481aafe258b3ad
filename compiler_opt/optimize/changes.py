"""How much of a program is new to a policy that was trained on it earlier.

A policy observes only the features of a call site, so a decision is new to it if no decision with the same features
occurred in training. Each of the default's decisions is recorded as a hash of its features, and each module as a hash
of its decisions: paths of sources, comments and line numbers make no difference.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt.array_files import load_arrays, save_arrays
from compiler_opt.collect.traces import TraceContext
from compiler_opt.errors import PolicyError

REFERENCE_NAME = "reference.npz"
"""The file of `Reference` in the folder of an optimisation."""

_MAX_BYTES = 1 << 30
_MULTIPLIERS = np.random.default_rng(0x6D6C676F).integers(1, 1 << 62, 256, dtype=np.uint64) | np.uint64(1)


class DecisionHashes:
    """Hashes of the features of all decisions of a program."""

    def __init__(self, features: Sequence[str]) -> None:
        self._features = tuple(features)
        self._hashes: dict[str, np.ndarray] = {}

    def add(self, context: TraceContext) -> None:
        """Adds the decisions of one module."""
        columns = [context.values[name] for name in self._features if name in context.values]
        self._hashes[context.module] = feature_hashes(columns)

    def all(self) -> np.ndarray:
        """The hashes of all decisions, `[T]` uint64."""
        return np.concatenate(list(self._hashes.values())) if self._hashes else np.zeros(0, np.uint64)

    def modules(self, names: Iterable[str]) -> dict[str, str]:
        """A hash of all decisions of each module, by name; modules without decisions are included."""
        nothing = np.zeros(0, np.uint64)
        return {name: hashlib.sha256(self._hashes.get(name, nothing).tobytes()).hexdigest() for name in names}


def feature_hashes(columns: Iterable[np.ndarray]) -> np.ndarray:
    """Hashes feature columns, `[T]` each, to `[T]` uint64: equal for equal features, otherwise almost never."""
    total: np.ndarray | None = None
    for column, multiplier in zip(columns, _MULTIPLIERS, strict=False):
        mixed = column.reshape(len(column)).astype(np.int64).view(np.uint64) * multiplier
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(32)
        total = mixed if total is None else total * np.uint64(0x94D049BB133111EB) + mixed
    return total if total is not None else np.zeros(0, np.uint64)


@dataclasses.dataclass(frozen=True)
class Reference:
    """The program that a policy was trained on, and the change that it achieved there.

    Attributes:
      modules: name -> hash of its decisions.
      decisions: sorted unique hashes of the default's decisions.
      summary: the result, see `results.Result.reference`.
    """

    modules: Mapping[str, str]
    decisions: np.ndarray
    summary: Mapping[str, Any]

    def save(self, folder: Path) -> None:
        """Raises OutputError if it cannot be written."""
        about = {"modules": dict(self.modules), "summary": dict(self.summary)}
        arrays = {"about": np.frombuffer(json.dumps(about).encode(), np.uint8), "decisions": self.decisions}
        save_arrays(folder / REFERENCE_NAME, arrays, compressed=True)

    @classmethod
    def load(cls, folder: Path) -> "Reference | None":
        """Reads the reference from the folder of an optimisation; None if there is none.

        Raises:
          PolicyError: it is damaged.
        """
        path = folder / REFERENCE_NAME
        if not path.is_file():
            return None
        try:
            arrays = load_arrays(path, _MAX_BYTES)
            about = json.loads(arrays["about"].tobytes())
            return cls(dict(about["modules"]), arrays["decisions"].astype(np.uint64), dict(about["summary"]))
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise PolicyError(f"{path}: damaged ({error}); remove it to continue without it") from error


@dataclasses.dataclass(frozen=True)
class Changes:
    """Differences between a program now and the one that its policy was trained on.

    Attributes:
      modules_changed: names of modules with other decisions.
      decisions_new: share of the decisions whose features did not occur in training.
    """

    modules_added: tuple[str, ...]
    modules_removed: tuple[str, ...]
    modules_changed: tuple[str, ...]
    num_modules: int
    decisions_new: float
    num_decisions: int


def compare(reference: Reference, modules: Mapping[str, str], decisions: np.ndarray) -> Changes:
    """Compares a program as it is now (hashes of its modules and decisions `[T]`) with the one in training."""
    before = reference.modules
    new = ~np.isin(decisions, reference.decisions)
    return Changes(
        modules_added=tuple(sorted(modules.keys() - before.keys())),
        modules_removed=tuple(sorted(before.keys() - modules.keys())),
        modules_changed=tuple(sorted(n for n in modules.keys() & before.keys() if modules[n] != before[n])),
        num_modules=len(modules),
        decisions_new=float(new.mean()) if len(new) else 0.0,
        num_decisions=len(decisions),
    )
