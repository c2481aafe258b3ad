"""How much of a program is new to a policy that was trained on it earlier.

A policy sees nothing of a call but its features. A decision whose features occurred in training, whatever became of the
code around it, is one that the policy knows; any other is new to it. So each decision of the default is remembered by a
hash of its features, and each module by one of all of its decisions: where sources lie, comments, and line numbers make
no difference.
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
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.problems.problem import Problem
from compiler_opt.rl.default_trace import DefaultTrace, record_default_trace

REFERENCE_NAME = "reference.npz"
"""Beside the policy's training, in the folder of its optimisation."""

_MAX_BYTES = 1 << 30
_MULTIPLIERS = np.random.default_rng(0x6D6C676F).integers(1, 1 << 62, 256, dtype=np.uint64) | np.uint64(1)


class DecisionHashes:
    """The decisions of a program, by hashes of their features."""

    def __init__(self, features: Sequence[str]) -> None:
        self._features = tuple(features)
        self._hashes: dict[str, np.ndarray] = {}

    def add(self, context: TraceContext) -> None:
        """Takes the decisions of one module."""
        columns = [context.values[name] for name in self._features if name in context.values]
        self._hashes[context.module] = feature_hashes(columns)

    def all(self) -> np.ndarray:
        """`[T]` uint64, of all decisions."""
        return np.concatenate(list(self._hashes.values())) if self._hashes else np.zeros(0, np.uint64)

    def modules(self, names: Iterable[str]) -> dict[str, str]:
        """By name, a hash of all decisions of the module, those with nothing to decide included."""
        nothing = np.zeros(0, np.uint64)
        return {name: hashlib.sha256(self._hashes.get(name, nothing).tobytes()).hexdigest() for name in names}


def feature_hashes(columns: Iterable[np.ndarray]) -> np.ndarray:
    """`[T]` of each feature to `[T]` uint64: equal where all features are, and elsewhere hardly ever."""
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
    """What a policy was trained on, and what it won there.

    Attributes:
      modules: name -> hash of its decisions.
      decisions: sorted different hashes of the decisions under the default.
      summary: of the result, see `results.Result.reference`.
    """

    modules: Mapping[str, str]
    decisions: np.ndarray
    summary: Mapping[str, Any]

    def save(self, folder: Path) -> None:
        """Raises OutputError when it cannot be written."""
        about = {"modules": dict(self.modules), "summary": dict(self.summary)}
        arrays = {"about": np.frombuffer(json.dumps(about).encode(), np.uint8), "decisions": self.decisions}
        save_arrays(folder / REFERENCE_NAME, arrays, compressed=True)

    @classmethod
    def load(cls, folder: Path) -> "Reference | None":
        """What is in the folder of an optimisation; None when it is not there.

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
            raise PolicyError(f"{path}: damaged ({error}); remove it to go without it") from error


def record_decisions(
    corpus: Corpus, problem: Problem, toolchain: Toolchain, trace_path: Path | None
) -> tuple[DefaultTrace, DecisionHashes]:
    """Compiles a program as the compiler's own heuristic would have it, and remembers the features of its decisions.

    Args:
      corpus: the program.
      problem: what is decided.
      toolchain: the compiler.
      trace_path: where to write the default trace; None for nowhere.

    Raises:
      ConfigError: fewer than two modules have decisions.
      CorpusError: most modules fail.
    """
    seen = DecisionHashes(problem.feature_names)
    with WorkerPool(toolchain, problem) as pool:
        trace = record_default_trace(corpus, problem, toolchain, pool, trace_path, on_context=seen.add)
    if trace.num_modules < 2:
        raise ConfigError(
            f"the program has {trace.num_modules} modules with inlining decisions, of {len(corpus.modules)}; "
            "learning takes at least 2"
        )
    return trace, seen


@dataclasses.dataclass(frozen=True)
class Changes:
    """A program against what its policy was trained on.

    Attributes:
      modules_added: names that training did not have.
      modules_removed: names that are gone.
      modules_changed: names whose decisions are others.
      num_modules: of the program now.
      decisions_new: share of the decisions whose features never occurred in training.
      num_decisions: of the program now.
    """

    modules_added: tuple[str, ...]
    modules_removed: tuple[str, ...]
    modules_changed: tuple[str, ...]
    num_modules: int
    decisions_new: float
    num_decisions: int


def compare(reference: Reference, modules: Mapping[str, str], decisions: np.ndarray) -> Changes:
    """What has changed since training.

    Args:
      reference: what there was.
      modules: what there is, name -> hash.
      decisions: `[T]` hashes of the decisions there are.
    """
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
