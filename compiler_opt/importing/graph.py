"""A foreign model as a graph of operations, whichever file it comes from."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from compiler_opt.errors import PolicyError

INPUT, CONSTANT = "Placeholder", "Const"


@dataclasses.dataclass(frozen=True, eq=False)
class Node:
    """An operation with one output.

    Attributes:
      operation: TensorFlow's name of it; `INPUT` and `CONSTANT` for tensors that are not computed.
      name: of the tensor, for messages; of an input, its name in the model's signature.
      inputs: its operands.
      value: of a constant.
      boundaries: `[Q]` float32, of a `Bucketize`.
      definition: TensorFlow's protocol buffer of it, if it comes from a SavedModel.
    """

    operation: str
    name: str
    inputs: tuple["Node", ...] = ()
    value: np.ndarray | None = None
    boundaries: np.ndarray | None = None
    definition: Any = None


@dataclasses.dataclass(frozen=True)
class Model:
    """A model that takes one decision at a time.

    Attributes:
      origin: its path, for messages.
      form: what it is, such as `SavedModel`.
      sha256: of the file that has its graph.
      advice: the name of its output.
      output: computes the advice, `[1]`.
      run: evaluates the model by its own runtime: observations by name, `[T]` int64 each, to decisions, `[T]` int64.
        Features that are not given are 0.
    """

    origin: str
    form: str
    sha256: str
    advice: str
    output: Node
    run: Callable[[Mapping[str, np.ndarray]], np.ndarray]


def one_advice(origin: str, outputs: Mapping[str, Any]) -> str:
    """The name of a model's only output. Raises PolicyError if there are others."""
    if len(outputs) == 1:
        return next(iter(outputs))
    found = ", ".join(sorted(outputs)) or "none"
    raise PolicyError(
        f"{origin}: expected a model with one output, the decision; found {found}. Policies that sample "
        "(saved_collect_policy) or remember (recurrent networks) cannot be imported; give the greedy one (saved_policy)"
    )
