"""A foreign model as a graph of operations, whichever file it comes from, and its evaluation by numpy.

Nothing but the operations in `OPERATIONS` is ever evaluated: no runtime of TensorFlow or TFLite sees the file.

Legend: T decisions, R rows: T, or 1 for what is the same in all decisions.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from compiler_opt.errors import PolicyError
from compiler_opt.files import one_line, shown

INPUT, CONSTANT = "Placeholder", "Const"
MAX_ELEMENTS = 1 << 26
"""Of a model's constants together, and of what is computed at a time."""
_CHUNK = 256
"""Decisions that are evaluated at a time."""


@dataclasses.dataclass(frozen=True, eq=False)
class Node:
    """An operation with one output.

    Attributes:
      operation: TensorFlow's name of it; `INPUT` and `CONSTANT` for tensors that are not computed.
      name: of the tensor, for messages; of an input, its name in the model's signature.
      inputs: its operands.
      value: of a constant.
      boundaries: `[Q]` float32, of a `Bucketize`.
      options: what else it is given, by TensorFlow's names: `DstT` (a numpy type) of a `Cast`, `axis` of a `Pack`, ...
        Of an input, `dtype` (a numpy type) and `shape`.
    """

    operation: str
    name: str
    inputs: tuple["Node", ...] = ()
    value: np.ndarray | None = None
    boundaries: np.ndarray | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Model:
    """A model that takes one decision at a time.

    Attributes:
      origin: its path, for messages.
      form: what it is, such as `SavedModel`.
      sha256: of the file that has its graph.
      advice: the name of its output.
      output: computes the advice, `[1]`.
    """

    origin: str
    form: str
    sha256: str
    advice: str
    output: Node

    def decisions(self, observations: Mapping[str, np.ndarray]) -> np.ndarray:
        """Evaluates the graph, operation by operation.

        Args:
          observations: by name, `[T]` int64 each. Inputs that are not given are 0.

        Returns:
          the decisions, `[T]` int64.

        Raises:
          PolicyError: its shapes or types do not fit, or it is too large.
        """
        count = len(next(iter(observations.values())))
        chunks = [
            {name: values[start : start + _CHUNK] for name, values in observations.items()}
            for start in range(0, count, _CHUNK)
        ]
        try:
            with np.errstate(all="ignore"):
                return np.concatenate([_evaluated(self.output, chunk) for chunk in chunks])
        except (ValueError, TypeError, IndexError, OverflowError, MemoryError) as error:
            raise PolicyError(
                f"{self.origin}: its operations do not fit together ({type(error).__name__}: "
                f"{shown(one_line(str(error)))}); save or convert the policy again"
            ) from None


def one_advice(origin: str, outputs: Mapping[str, Any]) -> str:
    """The name of a model's only output. Raises PolicyError if there are others."""
    if len(outputs) == 1:
        return next(iter(outputs))
    found = ", ".join(sorted(outputs)) or "none"
    raise PolicyError(
        f"{origin}: expected a model with one output, the decision; found {found}. Policies that sample "
        "(saved_collect_policy) or remember (recurrent networks) cannot be imported; give the greedy one (saved_policy)"
    )


def _evaluated(output: Node, observations: Mapping[str, np.ndarray]) -> np.ndarray:
    """Decisions `[T]` int64. The value of each node is `[R, ...]`: a row has the shape of the tensor in the model."""
    count = len(next(iter(observations.values())))
    values: dict[Node, np.ndarray] = {}
    num_elements = 0
    # Not by recursion, since the graph may be deep.
    stack = [output]
    while stack:
        node = stack[-1]
        if missing := [each for each in node.inputs if each not in values]:
            stack += missing
            continue
        stack.pop()
        if node in values:
            continue
        if node.operation == CONSTANT:
            values[node] = np.asarray(node.value)[np.newaxis]
        elif node.operation == INPUT:
            given = observations.get(node.name, np.zeros(count, np.int64))
            values[node] = given.astype(node.options["dtype"]).reshape(count, *node.options["shape"])
        else:
            values[node] = OPERATIONS[node.operation](node, *(values[each] for each in node.inputs))
            num_elements += values[node].size
            _check_size(num_elements)
    return np.broadcast_to(values[output].reshape(len(values[output]), 1)[:, 0], count).astype(np.int64)


def _check_size(*extents: int) -> None:
    if math.prod(extents) > MAX_ELEMENTS:
        raise ValueError(f"it computes more than {MAX_ELEMENTS} numbers for {_CHUNK} decisions")


def _static(value: np.ndarray) -> list[int]:
    """A shape or an axis, which is the same in all decisions."""
    if len(value) != 1 or value.dtype.kind not in "iu":
        raise ValueError("a shape depends on the features")
    return [int(each) for each in value.reshape(-1)]


def _axis(axis: int | np.ndarray, num_axes: int) -> int:
    """The place of a model's axis, or of that in an operand, among those with rows in front."""
    if isinstance(axis, np.ndarray):
        [axis] = _static(axis)
    if not -num_axes <= axis < num_axes:
        raise ValueError(f"no axis {axis} of {num_axes}")
    return 1 + axis % num_axes


def _with_axes(x: np.ndarray, num_axes: int) -> np.ndarray:
    """With axes of one element after the rows, as broadcasting adds them."""
    return x.reshape(len(x), *(1 for _ in range(1 + num_axes - x.ndim)), *x.shape[1:])


def _alike(parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The same arrays, all with as many rows."""
    rows = max(map(len, parts))
    _check_size(rows, sum(part[0].size for part in parts))
    return [np.broadcast_to(part, (rows, *part.shape[1:])) for part in parts]


def _elementwise(function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[..., np.ndarray]:
    def compute(_: Node, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        num_axes = max(x.ndim, y.ndim) - 1
        x, y = _with_axes(x, num_axes), _with_axes(y, num_axes)
        _check_size(*np.broadcast_shapes(x.shape, y.shape))
        return function(x, y)

    return compute


def _mat_mul(_: Node, x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    rows, num_vectors, width = x.shape
    [matrix] = kernel
    _check_size(rows, num_vectors, matrix.shape[1])
    return (x.reshape(-1, width) @ matrix).reshape(rows, num_vectors, -1)


def _bucketize(node: Node, x: np.ndarray) -> np.ndarray:
    # TensorFlow and TFLite compare integers in float32.
    numbers = x if x.dtype.kind == "f" else x.astype(np.float32)
    return np.searchsorted(np.asarray(node.boundaries), numbers, side="right").astype(np.int32)


def _squeeze(node: Node, x: np.ndarray) -> np.ndarray:
    found = [_axis(axis, x.ndim - 1) for axis in node.options.get("squeeze_dims", ())]
    return np.squeeze(x, tuple(found or (axis for axis in range(1, x.ndim) if x.shape[axis] == 1)))


def _strided_slice(node: Node, x: np.ndarray, *bounds: np.ndarray) -> np.ndarray:
    """Of a shape only: policies slice nothing else."""
    [[begin], [end], [stride]] = map(_static, bounds)
    shape, options = np.array(_static(x)), node.options
    if options.get("ellipsis_mask") or options.get("new_axis_mask") or x.ndim != 2:
        raise ValueError("expected a slice of a shape")
    if options.get("shrink_axis_mask"):
        return shape[[begin]]
    whole = slice(None if options.get("begin_mask") else begin, None if options.get("end_mask") else end, stride)
    return shape[np.newaxis, whole]


def _broadcast_to(_: Node, x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    extents = _static(shape)
    _check_size(len(x), *extents)
    return np.broadcast_to(_with_axes(x, len(extents)), (len(x), *extents))


def _arg_max(_: Node, x: np.ndarray, axis: np.ndarray) -> np.ndarray:
    return np.argmax(x, axis=_axis(axis, x.ndim - 1))


def _pack(node: Node, *parts: np.ndarray) -> np.ndarray:
    return np.stack(_alike(parts), axis=_axis(node.options.get("axis", 0), parts[0].ndim))


def _concat(_: Node, *operands: np.ndarray) -> np.ndarray:
    *parts, axis = operands
    return np.concatenate(_alike(parts), axis=_axis(axis, parts[0].ndim - 1))


OPERATIONS: Mapping[str, Callable[..., np.ndarray]] = {
    "AddV2": _elementwise(np.add),
    "ArgMax": _arg_max,
    "BiasAdd": _elementwise(np.add),
    "BroadcastArgs": lambda _, x, y: np.array([np.broadcast_shapes(_static(x), _static(y))]),
    "BroadcastTo": _broadcast_to,
    "Bucketize": _bucketize,
    "Cast": lambda node, x: x.astype(node.options["DstT"]),
    "ConcatV2": _concat,
    "ExpandDims": lambda _, x, axis: np.expand_dims(x, _axis(axis, x.ndim)),
    "MatMul": _mat_mul,
    "Maximum": _elementwise(np.maximum),
    "Minimum": _elementwise(np.minimum),
    "Mul": _elementwise(np.multiply),
    "Pack": _pack,
    "RealDiv": _elementwise(np.true_divide),
    "Relu": lambda _, x: np.maximum(x, 0),
    "Reshape": lambda _, x, shape: x.reshape(len(x), *_static(shape)),
    "Shape": lambda _, x: np.array([x.shape[1:]], np.int64),
    "Sqrt": lambda _, x: np.sqrt(x),
    "Square": lambda _, x: np.square(x),
    "Squeeze": _squeeze,
    "StridedSlice": _strided_slice,
}
"""By TensorFlow's name, what computes the value of a node from those of its operands; none sees more than numbers."""
