"""Reads a policy from a TFLite model, such as google/ml-compiler-opt converts from its SavedModels.

The file is read as data (`tensorflow/lite/schema/schema.fbs`); TFLite's interpreter never sees it, as it would run all
operations in the file. What leads to the decision must consist of the operations that `graph.py` evaluates; all else is
ignored.
"""

import hashlib
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tensorflow.lite.python import schema_py_generated as schema

from compiler_opt.errors import PolicyError
from compiler_opt.files import read_regular, shown
from compiler_opt.importing.graph import CONSTANT, INPUT, Model, Node, one_advice

TFLITE_SUFFIX = ".tflite"
_MAX_BYTES, _MAX_PARTS = 1 << 28, 1 << 14
_IDENTIFIER = b"TFL3"
_PREFIX = "action_"
_NAMES = {value: name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)}
_SAME_AS = {
    "RESHAPE": "Reshape",
    "EXPAND_DIMS": "ExpandDims",
    "SQUEEZE": "Squeeze",
    "CAST": "Cast",
    "SQRT": "Sqrt",
    "SQUARE": "Square",
    "MUL": "Mul",
    "DIV": "RealDiv",
    "ADD": "AddV2",
    "BUCKETIZE": "Bucketize",
    "CONCATENATION": "ConcatV2",
    "RELU": "Relu",
    "ARG_MAX": "ArgMax",
    "MINIMUM": "Minimum",
    "MAXIMUM": "Maximum",
    "BROADCAST_TO": "BroadcastTo",
}
_TYPES: Mapping[int, np.dtype] = {
    schema.TensorType.FLOAT32: np.dtype("<f4"),
    schema.TensorType.INT32: np.dtype("<i4"),
    schema.TensorType.INT64: np.dtype("<i8"),
}
_FUSED = {"MUL": "MulOptions", "DIV": "DivOptions", "ADD": "AddOptions", "CONCATENATION": "ConcatenationOptions"}
"""Operations that may have an activation, which they have in no policy, and the type of their options."""


def read_tflite(path: Path) -> Model:
    """Reads a TFLite model.

    Raises:
      PolicyError: it cannot be read, is damaged, or computes the decision by other operations than a greedy
        feed-forward policy.
    """
    try:
        content = read_regular(path, _MAX_BYTES)
    except OSError as error:
        raise PolicyError(f"{path}: cannot be read ({error.strerror}); give a model.tflite") from None
    if content[4:8] != _IDENTIFIER:
        raise PolicyError(f"{path}: expected a TFLite model ({_IDENTIFIER.decode()}), found {shown(content[4:8])}")
    try:
        return _File(path, content).model()
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, struct.error) as error:
        raise PolicyError(
            f"{path}: no TFLite model that this program understands ({type(error).__name__}: {shown(str(error))}); "
            "convert the policy again"
        ) from None


class _File:
    def __init__(self, path: Path, content: bytes):
        self._path = path
        self._content = content
        self._model = schema.Model.GetRootAs(content, 0)
        self._graph = self._model.Subgraphs(0)
        self._nodes: dict[int, Node] = {
            index: Node(INPUT, self._name(index), options=self._input_options(self._graph.Tensors(index)))
            for index in _indices(self._graph.InputsAsNumpy())
        }
        if self._graph.OperatorsLength() > _MAX_PARTS:
            raise ValueError(f"more than {_MAX_PARTS} operations")
        self._producers = {
            output: operator
            for operator in map(self._graph.Operators, range(self._graph.OperatorsLength()))
            for output in _indices(operator.OutputsAsNumpy())
        }

    def model(self) -> Model:
        outputs = self._outputs()
        advice = one_advice(str(self._path), outputs)
        output = self._tensor(outputs[advice])
        return Model(str(self._path), "TFLite", hashlib.sha256(self._content).hexdigest(), advice, output)

    def _outputs(self) -> dict[str, int]:
        """The outputs by the name of the advice: that of the signature or, in old models, of the tensor."""
        for signature in map(self._model.SignatureDefs, range(self._model.SignatureDefsLength())):
            if signature.SignatureKey() == b"action":
                found = map(signature.Outputs, range(signature.OutputsLength()))
                return {each.Name().decode(): each.TensorIndex() for each in found}
        return {self._name(index): index for index in _indices(self._graph.OutputsAsNumpy())}

    def _input_options(self, tensor: Any) -> dict[str, Any]:
        # Of another type are inputs that no policy's decision depends on, such as in tests of LLVM.
        return {"dtype": _TYPES.get(tensor.Type(), np.dtype("f4")), "shape": _extents(tensor)}

    def _name(self, index: int) -> str:
        """A tensor's name; of an input, that of the feature."""
        name: str = self._graph.Tensors(index).Name().decode()
        return name.removeprefix(_PREFIX).partition(":")[0] if name.startswith(_PREFIX) else name

    def _tensor(self, index: int) -> Node:
        if index not in self._nodes:
            self._nodes[index] = self._computed(index) if index in self._producers else self._constant(index)
        return self._nodes[index]

    def _constant(self, index: int) -> Node:
        tensor = self._graph.Tensors(index)
        if tensor.Type() not in _TYPES:
            raise PolicyError(f"{self._path}: has quantised weights ({shown(self._name(index))}), expected float32")
        content = self._model.Buffers(tensor.Buffer()).DataAsNumpy()
        # Without content, DataAsNumpy returns 0. Tensors may share a large buffer, so it is not copied.
        values = np.frombuffer(content if isinstance(content, np.ndarray) else b"", _TYPES[tensor.Type()])
        return Node(CONSTANT, self._name(index), value=values.reshape(_extents(tensor)))

    def _computed(self, index: int) -> Node:
        operator, name = self._producers[index], self._name(index)
        code = self._model.OperatorCodes(operator.OpcodeIndex())
        kind = _NAMES[max(code.BuiltinCode(), code.DeprecatedBuiltinCode())]
        operands = [self._tensor(each) if each >= 0 else None for each in _indices(operator.InputsAsNumpy())]
        given = tuple(each for each in operands if each is not None)
        if kind in _FUSED and self._options(operator, _FUSED[kind]).FusedActivationFunction():
            raise PolicyError(f"{self._path}: {shown(name)}: expected no activation after {kind}")
        if kind == "FULLY_CONNECTED":
            return self._dense(operator, name, given)
        if kind not in _SAME_AS:
            what = f"{kind} {code.CustomCode().decode()}" if kind == "CUSTOM" else kind
            raise PolicyError(
                f"{self._path}: computes {shown(name)} by the operation {what}, which no greedy policy of quantiles "
                "and dense layers has"
            )
        boundaries, options = None, dict[str, Any]()
        if kind == "CONCATENATION":
            # TensorFlow's operation has its axis as last operand.
            axis = self._options(operator, "ConcatenationOptions").Axis()
            given = (*given, Node(CONSTANT, "axis", value=np.array(axis)))
        elif kind == "RESHAPE" and len(given) == 1:
            shape = self._options(operator, "ReshapeOptions").NewShapeAsNumpy()
            given = (*given, Node(CONSTANT, "shape", value=np.array(shape)))
        elif kind == "SQUEEZE" and operator.BuiltinOptions() is not None:
            dims = self._options(operator, "SqueezeOptions").SqueezeDimsAsNumpy()
            options["squeeze_dims"] = dims.tolist() if isinstance(dims, np.ndarray) else ()
        elif kind == "CAST":
            options["DstT"] = _TYPES[self._graph.Tensors(index).Type()]
        elif kind == "BUCKETIZE":
            boundaries = np.asarray(self._options(operator, "BucketizeOptions").BoundariesAsNumpy(), np.float32)
        return Node(_SAME_AS[kind], name, given, None, boundaries, options)

    def _dense(self, operator: Any, name: str, operands: tuple[Node, ...]) -> Node:
        options = self._options(operator, "FullyConnectedOptions")
        x, kernel, *bias = operands
        if kernel.value is None:
            raise PolicyError(f"{self._path}: {shown(name)}: expected a constant kernel")
        if not options.KeepNumDims():
            x = Node("Reshape", name, (x, Node(CONSTANT, "shape", value=np.array([-1, kernel.value.shape[1]]))))
        made = Node("MatMul", name, (x, Node(CONSTANT, kernel.name, value=kernel.value.T)))
        if bias:
            made = Node("BiasAdd", name, (made, bias[0]))
        activation = options.FusedActivationFunction()
        if activation not in (schema.ActivationFunctionType.NONE, schema.ActivationFunctionType.RELU):
            raise PolicyError(f"{self._path}: {shown(name)}: expected the activation ReLU, found number {activation}")
        return Node("Relu", name, (made,)) if activation else made

    def _options(self, operator: Any, kind: str) -> Any:
        options = getattr(schema, kind)()
        table = operator.BuiltinOptions()
        options.Init(table.Bytes, table.Pos)
        return options


def _indices(vector: Any) -> list[int]:
    """The indices in a vector, which flatbuffers give as 0 if it is empty."""
    if not isinstance(vector, np.ndarray):
        return []
    if len(vector) > _MAX_PARTS:
        raise ValueError(f"a list of more than {_MAX_PARTS} tensors")
    found: list[int] = vector.tolist()
    return found


def _extents(tensor: Any) -> tuple[int, ...]:
    return tuple(tensor.ShapeAsNumpy().tolist()) if tensor.ShapeLength() else ()
