"""What the inliner plugin writes down: a training log with decisions, and the names of the functions.

After the features come `inlining_default` (when known), `inlining_decision`, `caller`, `callee`, `inlined` and `logits`
(when a policy decided); see `native/inliner_plugin.cpp`.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from compiler_opt.errors import ProtocolError
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.llvm.training_log_reader import decode_log
from compiler_opt.tensor_spec import TensorSpec

DECISION, LOGITS = "inlining_decision", "logits"


@dataclasses.dataclass(frozen=True)
class InlinerLog:
    """The decisions of one compilation, T of them.

    Attributes:
      observations: T observations of the features asked for, as raw bytes.
      advice: `[T]` int64.
      logits: `[T, 2]` float32, None unless a policy decided.
      call_sites: who calls whom.
    """

    observations: bytes
    advice: np.ndarray
    logits: np.ndarray | None
    call_sites: CallSites


def names_path(log: Path) -> Path:
    """Where the plugin writes the functions' names to."""
    return log.with_name(f"{log.name}.functions")


def read(log: Path, features: Sequence[TensorSpec]) -> InlinerLog | None:
    """Reads the log of a compilation that succeeded.

    Args:
      log: its path.
      features: with which the observations are expected to begin.

    Returns:
      None when there was nothing to decide.

    Raises:
      ProtocolError: the log is damaged, or begins with other features.
    """
    try:
        content = log.read_bytes()
        names = names_path(log).read_bytes()
    except FileNotFoundError:
        return None
    if not content:
        return None
    decoded = decode_log(content)
    if decoded.left_bytes:
        raise ProtocolError(f"log: its last {decoded.left_bytes} bytes are no whole record")
    if decoded.features[: len(features)] != tuple(features):
        raise ProtocolError("log: the inliner plugin does not tell the features that the compiler was probed for")
    arrays = decoded.arrays()
    missing = [name for name in (DECISION, "caller", "callee", "inlined") if name not in arrays]
    if missing:
        raise ProtocolError(f"log: expected {', '.join(missing)} after the features, found none")
    num_bytes = sum(spec.num_bytes for spec in features)
    return InlinerLog(
        # Contiguous first: numpy turns anything else into bytes one by one.
        np.ascontiguousarray(decoded.observations[:, :num_bytes]).tobytes(),
        arrays[DECISION].reshape(-1),
        arrays.get(LOGITS),
        _call_sites(names, *(arrays[name].reshape(-1) for name in ("caller", "callee", "inlined"))),
    )


def _call_sites(names: bytes, callers: np.ndarray, callees: np.ndarray, inlined: np.ndarray) -> CallSites:
    functions = tuple(names.decode("utf-8", "surrogateescape").split("\0")[:-1])
    for column in (callers, callees):
        if len(column) and not 0 <= column.min() <= column.max() < len(functions):
            raise ProtocolError(f"log: an index is not among the {len(functions)} names of functions")
    return CallSites(functions, callers.astype(np.int32), callees.astype(np.int32), inlined != 0)
