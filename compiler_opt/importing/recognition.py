"""Finds the policy network in a model's graph, from its decision back to its features.

    decision = argmax(dense(... relu(dense(concatenation of all features' transforms))))
    transforms of a feature: x, sqrt(x), x * x, where x = bucketize(feature, quantiles) / number of quantiles

Between these may be what only changes shapes and types, and a clip of the decision to [0, 1]. A model that computes
anything else is refused, with the name of what was found.

Legend: F features, H units of the first layer.
"""

import dataclasses
from collections.abc import Collection, Iterator

import numpy as np

from compiler_opt.errors import PolicyError
from compiler_opt.files import one_line, shown
from compiler_opt.importing.graph import CONSTANT, INPUT, MAX_ELEMENTS, Model, Node
from compiler_opt.policies.weights import TRANSFORMS, NetworkWeights

_SHAPES = ("Reshape", "ExpandDims", "Squeeze", "BroadcastTo")
_SHAPES_AND_TYPES = (*_SHAPES, "Cast")
_NUM_ACTIONS = 2
_MAX_PARTS, _MAX_QUANTILES = 1 << 14, 1 << 20
_EXACT = 1 << 24
"""Integers up to this are exact in float32."""


def policy_network(model: Model, feature_names: Collection[str]) -> NetworkWeights:
    """The network of a binary policy over integer features.

    Args:
      model: the policy.
      feature_names: the features that it may observe.

    Raises:
      PolicyError: the model computes something else; the message names it.
    """
    try:
        # Weights that are too large are refused later.
        with np.errstate(all="ignore"):
            return _recognised(model.output, feature_names)
    except PolicyError as error:
        raise PolicyError(f"{model.origin}: {error}") from None
    except (IndexError, ValueError, TypeError) as error:
        raise PolicyError(
            f"{model.origin}: an operation lacks an operand, or has another than it takes ({one_line(str(error))}); "
            "save or convert the policy again"
        ) from None


def _recognised(output: Node, feature_names: Collection[str]) -> NetworkWeights:
    layers, encoded = _dense_layers(_logits(output))
    first, _ = layers[0]
    columns = list(_columns(encoded))
    if len(columns) != len(first):
        raise PolicyError(f"expected a kernel of {len(columns)} rows for as many inputs, found {len(first)}")
    quantiles: dict[str, np.ndarray] = {}
    for column in columns:
        if column.feature not in feature_names:
            raise PolicyError(
                f"observes {shown(column.feature)}, which compilers do not send for this decision; expected some of "
                f"{', '.join(feature_names)}"
            )
        if not np.array_equal(quantiles.setdefault(column.feature, column.quantiles), column.quantiles):
            raise PolicyError(f"expected one list of quantiles for {column.feature}, found two")
    if (count := sum(map(len, quantiles.values()))) > _MAX_QUANTILES:
        raise PolicyError(f"expected at most {_MAX_QUANTILES} quantiles of all features, found {count}")
    features = tuple(quantiles)
    kernel = np.zeros((len(TRANSFORMS) * len(features), first.shape[1]), np.float32)  # [3 F, H]
    for column, row in zip(columns, first, strict=True):
        kernel[len(TRANSFORMS) * features.index(column.feature) + TRANSFORMS.index(column.transform)] += row
    kernels = (kernel, *(later for later, _ in layers[1:]))
    return NetworkWeights(
        features, tuple(map(_in_double_precision, quantiles.values())), kernels, tuple(bias for _, bias in layers)
    )


def _logits(output: Node) -> Node:
    node = output
    while node.operation != "ArgMax":
        if node.operation in _SHAPES_AND_TYPES:
            node = node.inputs[0]
        elif node.operation in ("Minimum", "Maximum", "AddV2"):
            # The decision's bounds, and the first of its values.
            node, bound = _with_constant(node)
            expected = _NUM_ACTIONS - 1 if bound.operation == "Minimum" else 0
            if bound.value is None or (bound.value != expected).any():
                raise PolicyError(f"expected a decision of 0 or 1, found {bound.operation} with {bound.value}")
        else:
            raise PolicyError(
                f"expected a decision by arg max of two logits, found the operation {node.operation} "
                f"({shown(node.name)}): no greedy policy of binary decisions"
            )
    axis = node.inputs[1].value
    if axis is None or axis.size != 1 or int(axis.reshape(())) not in (-1, 1):
        raise PolicyError("expected an arg max over the last axis")
    return node.inputs[0]


def _dense_layers(logits: Node) -> tuple[list[tuple[np.ndarray, np.ndarray]], Node]:
    """Kernel and bias of each layer, first to last, and the inputs of the first."""
    layers: list[tuple[np.ndarray, np.ndarray]] = []
    node = _through(logits, _SHAPES)
    while True:
        bias = None
        if node.operation in ("BiasAdd", "AddV2"):
            node, added = _with_constant(node)
            bias = added.value
        node = _through(node, _SHAPES)
        if node.operation != "MatMul":
            raise PolicyError(f"expected a dense layer, found the operation {node.operation} ({shown(node.name)})")
        kernel = node.inputs[1].value
        transposed = any(node.options.get(key) for key in ("transpose_a", "transpose_b"))
        if kernel is None or kernel.ndim != 2 or transposed:
            raise PolicyError(f"expected a dense layer with a constant kernel ({shown(node.name)})")
        if kernel.size + sum(later.size for later, _ in layers) > MAX_ELEMENTS:
            # Layers of a small file may share their weights.
            raise PolicyError(f"expected at most {MAX_ELEMENTS} weights, found more")
        kernel = np.array(kernel, np.float32)
        bias = np.zeros(kernel.shape[1], np.float32) if bias is None else np.array(bias, np.float32).reshape(-1)
        layers.insert(0, (kernel, bias))
        node = _through(node.inputs[0], _SHAPES)
        if node.operation != "Relu":
            break
        node = _through(node.inputs[0], _SHAPES)
    if len(layers[-1][1]) != _NUM_ACTIONS:
        raise PolicyError(f"expected two logits, found {len(layers[-1][1])}")
    return layers, node


@dataclasses.dataclass(frozen=True)
class _Column:
    """One input of the first layer.

    Attributes:
      feature: its name.
      quantiles: `[Q]` float32.
      transform: one of `TRANSFORMS`.
    """

    feature: str
    quantiles: np.ndarray
    transform: str


def _columns(encoded: Node) -> Iterator[_Column]:
    """The inputs of the first layer, in order."""
    remaining = [encoded]
    for _ in range(_MAX_PARTS):
        if not remaining:
            return
        if len(remaining) > _MAX_PARTS:
            break
        node = _through(remaining.pop(), _SHAPES)
        if node.operation == "ConcatV2":
            remaining.extend(reversed(node.inputs[:-1]))
        elif node.value is None:
            yield _column(node)
        elif node.value.size:
            # A feature that the policy does not observe is replaced by an empty tensor, but this is none.
            raise PolicyError(f"expected features, found the constant {shown(node.name)}")
    raise PolicyError(f"expected at most {_MAX_PARTS} parts of the first layer's inputs, found more")


def _column(node: Node) -> _Column:
    transform = "x"
    if node.operation == "Sqrt":
        transform, node = "sqrt(x)", node.inputs[0]
    elif node.operation == "Square" or (node.operation == "Mul" and node.inputs[0] is node.inputs[1]):
        transform, node = "x^2", node.inputs[0]
    rank = _through(node, _SHAPES)
    if rank.operation not in ("RealDiv", "Mul"):
        raise _no_rank(rank)
    bucket, scale = _with_constant(rank)
    bucket = _through(bucket, _SHAPES_AND_TYPES)
    if bucket.operation != "Bucketize" or bucket.boundaries is None or scale.value is None or scale.value.size != 1:
        raise _no_rank(bucket)
    source = _through(bucket.inputs[0], _SHAPES_AND_TYPES)
    if source.operation != INPUT:
        raise _no_rank(source)
    found = float(scale.value.reshape(()))
    divisor = found if rank.operation == "RealDiv" else 1 / found if found else 0.0
    if abs(divisor / len(bucket.boundaries) - 1) > 1e-6:
        raise PolicyError(
            f"{source.name}: expected the bucket divided by its {len(bucket.boundaries)} quantiles, found {divisor:g}"
        )
    return _Column(source.name, bucket.boundaries, transform)


def _no_rank(node: Node) -> PolicyError:
    hint = "; a network of z-scores (with_z_score_normalization) cannot be imported" if node.operation == "Sub" else ""
    return PolicyError(
        "expected the quantile rank of a feature, its square and its root as inputs of the first dense layer, found "
        f"the operation {node.operation} ({shown(node.name)}){hint}"
    )


def _with_constant(node: Node) -> tuple[Node, Node]:
    """The computed operand of a binary operation, and its constant one under the operation's name."""
    computed = [each for each in node.inputs if each.operation != CONSTANT]
    constants = [each for each in node.inputs if each.operation == CONSTANT]
    if len(computed) != 1 or len(constants) != 1:
        raise PolicyError(f"expected a constant operand of {node.operation} ({shown(node.name)}), found none")
    return computed[0], dataclasses.replace(constants[0], operation=node.operation)


def _through(node: Node, operations: Collection[str]) -> Node:
    """The first operand, however far, that none of these operations computes."""
    while node.operation in operations:
        node = node.inputs[0]
    return node


def _in_double_precision(quantiles: np.ndarray) -> np.ndarray:
    """Quantiles `[Q]` float64 that integers reach when their float32 reaches the given ones, `[Q]` float32.

    Bucketize compares in float32, and we in float64. The two differ for integers over 2^24: one reaches a quantile if
    it is nearer to it than to the number of float32 below.
    """
    exact = quantiles.astype(np.float64)
    below = np.nextafter(quantiles, np.float32(-np.inf)).astype(np.float64)
    middle = (below + exact) / 2
    rounded = np.where(middle.astype(np.float32) >= quantiles, middle, np.nextafter(middle, np.inf))
    return np.where(np.abs(exact) > _EXACT, rounded, exact)
