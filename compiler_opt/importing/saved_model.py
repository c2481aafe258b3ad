"""Reads a policy from a SavedModel, such as TF-Agents' `PolicySaver` writes.

Nothing of it is loaded as a program: the graph is read as a protocol buffer, and weights by TensorFlow's reader of
checkpoints. What leads to the decision must consist of the operations that `graph.py` evaluates; all else in the file,
such as the functions that restore or initialise it, is ignored.
"""

import dataclasses
import hashlib
import itertools
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2, trackable_object_graph_pb2

from compiler_opt.errors import PolicyError
from compiler_opt.files import open_regular, read_regular, shown
from compiler_opt.importing.graph import CONSTANT, INPUT, MAX_ELEMENTS, OPERATIONS, Model, Node, one_advice

SAVED_MODEL_FILE = "saved_model.pb"
SIGNATURE = "action"

_MAX_BYTES = 1 << 28
_MAX_CALLS = 1 << 10
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_SAME = ("Identity", "StopGradient", "PreventGradient")
"""Operations that return their operand."""
_NUMBERS = "biuf"
"""Kinds of the element types of constants: booleans, integers and real numbers."""
_SAMPLING = ("Multinomial", "Random", "Stateless")
_RECURRENT = ("While", "StatelessWhile", "TensorList")
_DAMAGED = (
    *(DecodeError, OSError, ValueError, KeyError, IndexError, TypeError, OverflowError, RecursionError, StopIteration),
    tf.errors.OpError,
)


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
    except _DAMAGED as error:
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
    inputs = {
        info.name.partition(":")[0]: Node(INPUT, name, options={"dtype": _number_type(info.dtype), "shape": (1,)})
        for name, info in signature.inputs.items()
    }
    variables = iter(_Variables(directory, graph).of_function(call.attr["f"].func.name))
    operands = [inputs[name] if name in inputs else next(variables) for name in call.input if name[0] != "^"]
    functions = {function.signature.name: function for function in graph.graph_def.library.function}
    output = _Function(str(directory), functions, call.attr["f"].func.name, operands, _Limits()).output(int(port))
    return Model(str(directory), "SavedModel", sha256, advice, output)


@dataclasses.dataclass
class _Limits:
    """What may still be read of a graph, so that a small file does not take much memory."""

    calls: int = _MAX_CALLS
    elements: int = MAX_ELEMENTS

    def call(self) -> None:
        self.calls -= 1
        if self.calls < 0:
            raise ValueError("too many calls of functions")

    def read(self, name: str, shape: Iterable[int]) -> None:
        """Counts the elements of a constant before it is read."""
        self.elements -= math.prod(map(max, shape, itertools.repeat(0)))
        if self.elements < 0:
            raise ValueError(f"{name}: constants of more than {MAX_ELEMENTS} elements together")


def _number_type(enum: int) -> np.dtype:
    """Numpy's type of numbers. Raises TypeError or ValueError for another type."""
    dtype = np.dtype(tf.as_dtype(enum).as_numpy_dtype)
    if dtype.kind not in _NUMBERS:
        raise ValueError(f"expected numbers, found {dtype}")
    return dtype


class _Variables:
    """The variables of a SavedModel, as constants."""

    def __init__(self, directory: Path, graph: Any):
        self._objects = graph.object_graph_def
        folder, size = directory / "variables", 0
        for path in folder.iterdir():
            # TensorFlow's reader waits for other kinds of files, and follows what a folder of this name says.
            with os.fdopen(open_regular(path)) as file:
                size += os.fstat(file.fileno()).st_size
        if size > _MAX_BYTES:
            raise PolicyError(f"{folder}: expected at most {_MAX_BYTES} bytes, found {size}")
        self._reader = tf.train.load_checkpoint(str(folder / "variables"))
        self._shapes = self._reader.get_variable_to_shape_map()
        self._types = self._reader.get_variable_to_dtype_map()
        self._limits = _Limits()
        if self._types[_OBJECT_GRAPH] != tf.string or self._shapes[_OBJECT_GRAPH]:
            raise ValueError(f"{_OBJECT_GRAPH}: expected a string")
        self._saved = trackable_object_graph_pb2.TrackableObjectGraph()
        self._saved.ParseFromString(self._reader.get_tensor(_OBJECT_GRAPH))
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
        _number_type(self._types[key])
        self._limits.read(key, self._shapes[key])
        return Node(CONSTANT, key, value=np.asarray(self._reader.get_tensor(key)))


class _Function:
    """A function of the graph, applied to operands; functions that it calls become part of it."""

    def __init__(self, origin: str, functions: Mapping[str, Any], name: str, operands: list[Node], limits: _Limits):
        limits.call()
        self._origin = origin
        self._limits = limits
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
                self._origin, self._functions, name, self._operands(definition), self._limits
            )
        return self._calls[definition.name]

    def _operands(self, definition: Any) -> list[Node]:
        return [self._tensor(reference) for reference in definition.input if not reference.startswith("^")]

    def _node(self, definition: Any) -> Node:
        operation, name = definition.op, definition.name
        if operation == CONSTANT:
            return Node(CONSTANT, name, value=self._constant(definition))
        if operation in _SAME or operation == "ReadVariableOp":
            return self._operands(definition)[0]
        if operation not in OPERATIONS:
            raise PolicyError(f"{self._origin}: {_refusal(operation, name)}")
        boundaries = None
        if operation == "Bucketize":
            self._limits.read(name, (len(definition.attr["boundaries"].list.f),))
            boundaries = np.array(definition.attr["boundaries"].list.f, np.float32)
        return Node(operation, name, tuple(self._operands(definition)), None, boundaries, _options(definition))

    def _constant(self, definition: Any) -> np.ndarray:
        tensor = definition.attr["value"].tensor
        _number_type(tensor.dtype)
        self._limits.read(definition.name, (side.size for side in tensor.tensor_shape.dim))
        return np.asarray(tf.make_ndarray(tensor))


def _options(definition: Any) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in definition.attr.items():
        if name == "DstT":
            options[name] = _number_type(value.type)
        elif name == "squeeze_dims":
            options[name] = tuple(value.list.i)
        elif name in ("transpose_a", "transpose_b"):
            options[name] = value.b
        elif name == "axis" or name.endswith("_mask"):
            options[name] = value.i
    return options


def _refusal(operation: str, name: str) -> str:
    if operation.startswith(_SAMPLING):
        return f"samples its decisions (operation {operation}); give the greedy policy, which is saved as saved_policy"
    if operation.startswith(_RECURRENT):
        return f"is recurrent (operation {operation}); only feed-forward policies can be imported"
    return f"computes {shown(name)} by the operation {operation}, which no policy of quantiles and dense layers has"
