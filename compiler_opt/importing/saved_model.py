"""Reads a policy from a SavedModel, such as TF-Agents' `PolicySaver` writes.

Nothing of it is loaded as a program: the graph is read as a protocol buffer, and weights by TensorFlow's reader of
checkpoints. To evaluate the policy, TensorFlow runs a graph of our making, with the weights as constants. It consists
of the operations in `_PURE` only, none of which sees a file, a process, or the network.
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import saved_model_pb2, trackable_object_graph_pb2

from compiler_opt.errors import PolicyError
from compiler_opt.files import read_regular, shown
from compiler_opt.importing.graph import CONSTANT, INPUT, Model, Node, one_advice

SAVED_MODEL_FILE = "saved_model.pb"
SIGNATURE = "action"

_MAX_BYTES = 1 << 28
_MAX_ELEMENTS = 1 << 26
_MAX_CALLS = 1 << 10
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_SAME = ("Identity", "StopGradient", "PreventGradient")
"""Operations that return their operand."""
_PURE = frozenset(
    "AddV2 ArgMax BiasAdd BroadcastArgs BroadcastTo Bucketize Cast ConcatV2 ExpandDims MatMul Maximum Minimum Mul Pack "
    "RealDiv Relu Reshape Shape Sqrt Square Squeeze StridedSlice".split()
)
_SAMPLING = ("Multinomial", "Random", "Stateless")
_RECURRENT = ("While", "StatelessWhile", "TensorList")


def read_saved_model(directory: Path) -> Model:
    """Reads the signature `action` of a SavedModel.

    Raises:
      PolicyError: there is none, it is damaged, or it computes the decision by other operations than a greedy
        feed-forward policy.
    """
    path = directory / SAVED_MODEL_FILE
    try:
        content = read_regular(path, _MAX_BYTES)
    except OSError as error:
        raise PolicyError(
            f"{path}: cannot be read ({error.strerror}); give the folder of a policy that google/ml-compiler-opt saved"
        ) from None
    proto = saved_model_pb2.SavedModel()
    try:
        proto.ParseFromString(content)
        [graph] = proto.meta_graphs
        return _read(directory, graph, hashlib.sha256(content).hexdigest())
    except (DecodeError, ValueError, KeyError, IndexError, TypeError, RecursionError, tf.errors.OpError) as error:
        raise PolicyError(
            f"{path}: no SavedModel that this program understands ({type(error).__name__}: {shown(str(error))}); save "
            "the policy again"
        ) from None


def _read(directory: Path, graph: Any, sha256: str) -> Model:
    if SIGNATURE not in graph.signature_def:
        found = ", ".join(sorted(graph.signature_def)) or "none"
        raise PolicyError(f"{directory}: expected the signature {SIGNATURE!r} of a policy, found {found}")
    signature = graph.signature_def[SIGNATURE]
    advice = one_advice(str(directory), signature.outputs)
    call_name, _, port = signature.outputs[advice].name.partition(":")
    call = next(node for node in graph.graph_def.node if node.name == call_name)
    if call.op not in _CALLS:
        raise PolicyError(f"{directory}: expected a SavedModel of TensorFlow 2, found one of TensorFlow 1")
    inputs = {info.name.partition(":")[0]: Node(INPUT, name) for name, info in signature.inputs.items()}
    variables = iter(_Variables(directory, graph).of_function(call.attr["f"].func.name))
    operands = [inputs[name] if name in inputs else next(variables) for name in call.input if name[0] != "^"]
    functions = {function.signature.name: function for function in graph.graph_def.library.function}
    calls = iter(range(_MAX_CALLS))
    output = _Function(str(directory), functions, call.attr["f"].func.name, operands, calls).output(int(port))
    dtypes = {name: info.dtype for name, info in signature.inputs.items()}

    def run(observations: Mapping[str, np.ndarray]) -> np.ndarray:
        return _run(output, dtypes, observations)

    return Model(str(directory), "SavedModel", sha256, advice, output, run)


class _Variables:
    """The variables of a SavedModel, as constants."""

    def __init__(self, directory: Path, graph: Any):
        self._directory = directory
        self._objects = graph.object_graph_def
        size = sum(path.stat().st_size for path in (directory / "variables").glob("variables.data-*"))
        if size > _MAX_BYTES:
            raise PolicyError(f"{directory}/variables: expected at most {_MAX_BYTES} bytes, found {size}")
        self._reader = tf.train.load_checkpoint(str(directory / "variables" / "variables"))
        self._shapes = self._reader.get_variable_to_shape_map()
        self._saved = trackable_object_graph_pb2.TrackableObjectGraph()
        self._saved.ParseFromString(self._reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))
        self._places = self._matched()

    def of_function(self, name: str) -> list[Node]:
        """Values of the variables that a function takes besides its arguments, in order."""
        return [self._value(place) for place in self._objects.concrete_functions[name].bound_inputs]

    def _matched(self) -> dict[int, int]:
        """For each object of the SavedModel, its place in the checkpoint: that of the same path from the root."""
        matched, queue = {0: 0}, [0]
        while queue:
            here = queue.pop()
            saved = {child.local_name: child.node_id for child in self._saved.nodes[matched[here]].children}
            for child in self._objects.nodes[here].children:
                if child.node_id not in matched and child.local_name in saved:
                    matched[child.node_id] = saved[child.local_name]
                    queue.append(child.node_id)
        return matched

    def _value(self, place: int) -> Node:
        attributes = self._saved.nodes[self._places[place]].attributes
        key = next(each.checkpoint_key for each in attributes if each.name == "VARIABLE_VALUE")
        if np.prod(self._shapes[key], dtype=np.float64) > _MAX_ELEMENTS:
            raise PolicyError(f"{self._directory}: the variable {key} is too large")
        return Node(CONSTANT, key, value=np.asarray(self._reader.get_tensor(key)))


class _Function:
    """A function of the graph, applied to operands; functions that it calls become part of it."""

    def __init__(
        self, origin: str, functions: Mapping[str, Any], name: str, operands: list[Node], calls: Iterator[int]
    ):
        if next(calls, None) is None:
            raise ValueError("too many calls of functions")
        self._origin = origin
        self._further_calls = calls
        self._functions = functions
        self._function = functions[name]
        arguments = self._function.signature.input_arg
        if len(arguments) != len(operands):
            raise ValueError(f"{name}: {len(arguments)} arguments for {len(operands)} operands")
        self._definitions = {node.name: node for node in self._function.node_def}
        self._calls: dict[str, _Function] = {}
        self._nodes = {argument.name: operand for argument, operand in zip(arguments, operands, strict=True)}

    def output(self, port: int) -> Node:
        return self._tensor(self._function.ret[self._function.signature.output_arg[port].name])

    def _tensor(self, reference: str) -> Node:
        """The tensor of a reference: an argument's name, or `NODE:OUTPUT:PORT`."""
        if reference not in self._nodes:
            name, _, rest = reference.partition(":")
            definition = self._definitions[name]
            port = int(rest.rpartition(":")[2] or 0)
            if definition.op in _CALLS:
                self._nodes[reference] = self._call(definition).output(port)
            else:
                self._nodes[reference] = self._node(definition)
        return self._nodes[reference]

    def _call(self, definition: Any) -> "_Function":
        if definition.name not in self._calls:
            name = definition.attr["f"].func.name
            self._calls[definition.name] = _Function(
                self._origin, self._functions, name, self._operands(definition), self._further_calls
            )
        return self._calls[definition.name]

    def _operands(self, definition: Any) -> list[Node]:
        return [self._tensor(reference) for reference in definition.input if not reference.startswith("^")]

    def _node(self, definition: Any) -> Node:
        operation, name = definition.op, definition.name
        if operation == CONSTANT:
            return Node(CONSTANT, name, value=_constant(definition), definition=definition)
        if operation in _SAME or operation == "ReadVariableOp":
            return self._operands(definition)[0]
        if operation not in _PURE:
            raise PolicyError(f"{self._origin}: {_refusal(operation, name)}")
        boundaries = None
        if operation == "Bucketize":
            boundaries = np.array(definition.attr["boundaries"].list.f, np.float32)
        return Node(operation, name, tuple(self._operands(definition)), None, boundaries, definition)


def _refusal(operation: str, name: str) -> str:
    if operation.startswith(_SAMPLING):
        return f"samples its decisions (operation {operation}); give the greedy policy, which is saved as saved_policy"
    if operation.startswith(_RECURRENT):
        return f"is recurrent (operation {operation}); only feed-forward policies can be imported"
    return f"computes {shown(name)} by the operation {operation}, which no policy of quantiles and dense layers has"


def _constant(definition: Any) -> np.ndarray:
    tensor = definition.attr["value"].tensor
    if np.prod([float(side.size) for side in tensor.tensor_shape.dim]) > _MAX_ELEMENTS:
        raise ValueError(f"{definition.name}: too large")
    return np.asarray(tf.make_ndarray(tensor))


def _run(output: Node, dtypes: Mapping[str, int], observations: Mapping[str, np.ndarray]) -> np.ndarray:
    graph = _Frozen(dtypes)
    output_name = graph.add(output)

    def decide(row: dict[str, Any]) -> Any:
        values = {
            name: tf.reshape(row[name], [1]) if name in row else tf.zeros([1], tf.as_dtype(dtypes[name]))
            for name in graph.inputs
        }
        [decision] = tf.graph_util.import_graph_def(graph.definition, input_map=values, return_elements=[output_name])
        return tf.cast(tf.reshape(decision, []), tf.int64)

    used = {name: np.asarray(values, np.int64) for name, values in observations.items() if name in graph.inputs}
    function = tf.function(lambda rows: tf.map_fn(decide, rows, fn_output_signature=tf.int64), autograph=False)
    decisions: np.ndarray = function(used).numpy()
    return decisions


@dataclasses.dataclass
class _Frozen:
    """A GraphDef of pure operations, without functions or variables."""

    dtypes: Mapping[str, int]
    definition: Any = dataclasses.field(default_factory=graph_pb2.GraphDef)
    inputs: set[str] = dataclasses.field(default_factory=set)
    _names: dict[Node, str] = dataclasses.field(default_factory=dict)

    def add(self, node: Node) -> str:
        """Adds a node and all that it depends on; returns the name of its tensor."""
        if node not in self._names:
            operands = [self.add(each) for each in node.inputs]
            made = self.definition.node.add(op=node.operation, name=f"n{len(self.definition.node)}", input=operands)
            if node.operation == INPUT:
                made.name = node.name
                self.inputs.add(node.name)
                made.attr["dtype"].type = self.dtypes[node.name]
            elif node.value is not None:
                made.attr["dtype"].type = tf.as_dtype(node.value.dtype).as_datatype_enum
                made.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(node.value))
            else:
                for key, value in node.definition.attr.items():
                    if not key.startswith("_"):
                        made.attr[key].CopyFrom(value)
            self._names[node] = f"{made.name}:0"
        return self._names[node]
