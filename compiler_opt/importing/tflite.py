"""Reads a policy from a TFLite model, such as google/ml-compiler-opt converts from its SavedModels.

The file is read as data (`tensorflow/lite/schema/schema.fbs`). To evaluate the policy, TFLite's interpreter runs the
file, after the operations that lead to its output were found to be builtin arithmetic.
"""

import hashlib
import struct
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema

from compiler_opt.errors import PolicyError
from compiler_opt.files import read_regular, shown
from compiler_opt.importing.graph import CONSTANT, INPUT, Model, Node, one_advice
from compiler_opt.tensorflow_loading import stderr_held

TFLITE_SUFFIX = ".tflite"
_MAX_BYTES = 1 << 28
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
            index: Node(INPUT, self._name(index)) for index in self._graph.InputsAsNumpy().tolist()
        }
        self._producers = {
            output: operator
            for operator in map(self._graph.Operators, range(self._graph.OperatorsLength()))
            for output in operator.OutputsAsNumpy().tolist()
        }

    def model(self) -> Model:
        outputs = self._outputs()
        advice = one_advice(str(self._path), outputs)
        output = self._tensor(outputs[advice])
        return Model(str(self._path), "TFLite", hashlib.sha256(self._content).hexdigest(), advice, output, self._run)

    def _outputs(self) -> dict[str, int]:
        """The outputs by the name of the advice: that of the signature or, in old models, of the tensor."""
        for signature in map(self._model.SignatureDefs, range(self._model.SignatureDefsLength())):
            if signature.SignatureKey() == b"action":
                found = map(signature.Outputs, range(signature.OutputsLength()))
                return {each.Name().decode(): each.TensorIndex() for each in found}
        return {self._name(index): index for index in self._graph.OutputsAsNumpy().tolist()}

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
        dtypes = {schema.TensorType.FLOAT32: "<f4", schema.TensorType.INT32: "<i4", schema.TensorType.INT64: "<i8"}
        if tensor.Type() not in dtypes:
            raise PolicyError(f"{self._path}: has quantised weights ({shown(self._name(index))}), expected float32")
        content = self._model.Buffers(tensor.Buffer()).DataAsNumpy()
        shape = tensor.ShapeAsNumpy().tolist() if tensor.ShapeLength() else []
        # Without content, DataAsNumpy returns 0.
        values = np.frombuffer(content.tobytes() if isinstance(content, np.ndarray) else b"", dtypes[tensor.Type()])
        return Node(CONSTANT, self._name(index), value=values.reshape(shape))

    def _computed(self, index: int) -> Node:
        operator, name = self._producers[index], self._name(index)
        code = self._model.OperatorCodes(operator.OpcodeIndex())
        kind = _NAMES[max(code.BuiltinCode(), code.DeprecatedBuiltinCode())]
        operands = [self._tensor(each) if each >= 0 else None for each in operator.InputsAsNumpy().tolist()]
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
        if kind == "CONCATENATION":
            # TensorFlow's operation has its axis as last operand.
            given = (*given, Node(CONSTANT, "axis", value=np.array(-1)))
        boundaries = None
        if kind == "BUCKETIZE":
            boundaries = np.array(self._options(operator, "BucketizeOptions").BoundariesAsNumpy(), np.float32)
        return Node(_SAME_AS[kind], name, given, boundaries=boundaries)

    def _dense(self, operator: Any, name: str, operands: tuple[Node, ...]) -> Node:
        options = self._options(operator, "FullyConnectedOptions")
        x, kernel, *bias = operands
        if kernel.value is None:
            raise PolicyError(f"{self._path}: {shown(name)}: expected a constant kernel")
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

    def _run(self, observations: Mapping[str, np.ndarray]) -> np.ndarray:
        # It warns that it will move to another package, and says how it computes.
        with warnings.catch_warnings(), stderr_held():
            warnings.simplefilter("ignore", UserWarning)
            interpreter = tf.lite.Interpreter(model_content=self._content)
            interpreter.allocate_tensors()
        [output] = interpreter.get_output_details()[:1]
        places = {}
        for detail in interpreter.get_input_details():
            interpreter.set_tensor(detail["index"], np.zeros(detail["shape"], detail["dtype"]))
            name = detail["name"].removeprefix(_PREFIX).partition(":")[0]
            if name in observations:
                places[detail["index"]] = observations[name].astype(detail["dtype"]).reshape(-1, *detail["shape"])
        decisions = np.empty(len(next(iter(observations.values()))), np.int64)
        for row in range(len(decisions)):
            for index, values in places.items():
                interpreter.set_tensor(index, values[row])
            interpreter.invoke()
            decisions[row] = interpreter.get_tensor(output["index"]).reshape(())
        return decisions
