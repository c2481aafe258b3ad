"""Reads the inliner plugin's output: a training log with decisions, and the names of the functions.

Each observation has the features, then `inlining_default` (if known), `inlining_decision`, `caller`, `callee`,
`inlined` and `logits` (if a policy decided); see `native/inliner_plugin.cpp`.
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
    """The T decisions of one compilation.

    Attributes:
      observations: the requested features of T observations, as raw bytes.
      advice: `[T]` int64.
      logits: `[T, 2]` float32; None unless a policy decided.
      call_sites: callers, callees and outcomes.
    """

    observations: bytes
    advice: np.ndarray
    logits: np.ndarray | None
    call_sites: CallSites


def read(log: Path, features: Sequence[TensorSpec]) -> InlinerLog | None:
    """Reads the log of a successful compilation; None if there was nothing to decide.

    Args:
      log: path of the training log; the names are in `LOG.functions`.
      features: the features with which observations must begin.

    Raises:
      ProtocolError: the log is damaged, or begins with other features.
    """
    try:
        content = log.read_bytes()
        names = log.with_name(f"{log.name}.functions").read_bytes()
    except FileNotFoundError:
        return None
    if not content:
        return None
    decoded = decode_log(content)
    if decoded.left_bytes:
        raise ProtocolError(f"log: its last {decoded.left_bytes} bytes are not a complete record")
    if decoded.features[: len(features)] != tuple(features):
        raise ProtocolError("log: the inliner plugin logs other features than the compiler sends over the channel")
    arrays = decoded.arrays()
    missing = [name for name in (DECISION, "caller", "callee", "inlined") if name not in arrays]
    if missing:
        raise ProtocolError(f"log: expected {', '.join(missing)} after the features, found none")
    num_bytes = sum(spec.num_bytes for spec in features)
    return InlinerLog(
        # Contiguous first: otherwise numpy copies byte by byte.
        np.ascontiguousarray(decoded.observations[:, :num_bytes]).tobytes(),
        arrays[DECISION].reshape(-1),
        arrays.get(LOGITS),
        _call_sites(names, *(arrays[name].reshape(-1) for name in ("caller", "callee", "inlined"))),
    )


def _call_sites(names: bytes, callers: np.ndarray, callees: np.ndarray, inlined: np.ndarray) -> CallSites:
    functions = tuple(names.decode("utf-8", "surrogateescape").split("\0")[:-1])
    for column in (callers, callees):
        if len(column) and not 0 <= column.min() <= column.max() < len(functions):
            raise ProtocolError(f"log: a function index is out of range; there are {len(functions)} names")
    return CallSites(functions, callers.astype(np.int32), callees.astype(np.int32), inlined != 0)
