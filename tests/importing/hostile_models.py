"""Models that write a file when a runtime of TensorFlow is given them, beside the policy that they hold."""

from pathlib import Path
from typing import Any

import flatbuffers  # type: ignore[import-untyped]
from flatbuffers import flexbuffers

from compiler_opt.tensorflow_loading import load_tensorflow
from tests.importing.original_policies import tf

load_tensorflow()
from tensorflow.core.framework import node_def_pb2  # noqa: E402
from tensorflow.core.protobuf import saved_model_pb2  # noqa: E402
from tensorflow.lite.python import schema_py_generated as schema  # noqa: E402


def add_dead_operation(model: Path, written: Path) -> None:
    """Adds to a TFLite file an operation that its output does not depend on, which writes a file."""
    content: Any = schema.ModelT.InitFromObj(schema.Model.GetRootAs(model.read_bytes(), 0))
    [graph] = content.subgraphs[:1]
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
    code.customCode = b"FlexWriteFile"
    code.version = 1
    content.operatorCodes.append(code)
    operator = schema.OperatorT()
    operator.opcodeIndex = len(content.operatorCodes) - 1
    operator.inputs = [_add_string(content, graph, text) for text in (str(written), "written")]
    operator.outputs = []
    definition = node_def_pb2.NodeDef(op="WriteFile", name="dead", input=["a", "b"])
    options = flexbuffers.Builder()
    with options.Vector():
        options.String("WriteFile")
        options.String(definition.SerializeToString().decode("latin-1"))
    operator.customOptions = list(options.Finish())
    graph.operators.append(operator)
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(content.Pack(builder), b"TFL3")
    model.write_bytes(bytes(builder.Output()))


def _add_string(content: Any, graph: Any, text: str) -> int:
    """Adds a tensor of one string, whose buffer begins with their number and the places of their ends."""
    buffer, tensor = schema.BufferT(), schema.TensorT()
    places = [1, 12, 12 + len(text)]
    buffer.data = list(b"".join(place.to_bytes(4, "little") for place in places) + text.encode())
    content.buffers.append(buffer)
    tensor.shape, tensor.type, tensor.name = [], schema.TensorType.STRING, text.encode()
    tensor.buffer = len(content.buffers) - 1
    graph.tensors.append(tensor)
    return len(graph.tensors) - 1


def add_write_to_restore(saved_model: Path, written: Path) -> None:
    """Makes the operation that restores a SavedModel's variables depend on one that writes a file."""
    path = saved_model / "saved_model.pb"
    proto = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    graph = proto.meta_graphs[0].graph_def
    for name, text in (("filename", str(written)), ("contents", "written")):
        node = graph.node.add(name=name, op="Const")
        node.attr["dtype"].type = tf.string.as_datatype_enum
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(text))
    graph.node.add(name="attack", op="WriteFile", input=["filename", "contents"])
    restore = proto.meta_graphs[0].saver_def.restore_op_name
    next(node for node in graph.node if node.name == restore).input.append("^attack")
    path.write_bytes(proto.SerializeToString())
