"""A trained graph network as a TFLite file, with TFLite's builtin operations only.

The file's signature `serving_default` has the inputs of `GraphNetwork.SIGNATURE` and `annotations`, for `B` blocks with
`N` nodes, `E` edges and `I` instructions in all, numbered through; all sizes may change from call to call:

    node_type, node_name               [N] int32: see `EncodedGraphs`
    sender, receiver, edge_kind        [E] int32: numbers of nodes, and the `EdgeKind`
    instruction, owner                 [I] int32: numbers of the nodes that are instructions, and of their blocks
    annotations                        [B, 2A] float32: see `annotation_inputs`

and the output `cycles` `[B]` float32. The numbers of names are those of the vocabulary in `model.json`.
"""

import warnings

from compiler_opt.cost_models.throughput.model import ThroughputModel
from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.tensorflow_loading import stderr_held

TFLITE_FILE = "model.tflite"
OUTPUT = "cycles"
_KIND = "graph"


def check_exportable(kind: str) -> None:
    """Raises ConfigError for a kind of network that has no TFLite form."""
    if kind != _KIND:
        raise ConfigError(
            f"TFLite: only the {_KIND} network can be exported, not {kind!r:.80}: the loop of a recurrent layer over "
            "blocks of any number needs operations that TFLite has not built in; export a model of --model=graph"
        )


def tflite_model(model: ThroughputModel) -> bytes:
    """The content of the file.

    Raises:
      ConfigError: the model is of a kind that cannot be exported.
      PolicyError: TensorFlow cannot convert it.
    """
    import tensorflow as tf

    check_exportable(model.description.kind)
    function = tf.function(lambda **batch: {OUTPUT: model.network.call(batch)})
    concrete = function.get_concrete_function(**model.network.signature())
    # TensorFlow announces much, none of which says anything about the file.
    with warnings.catch_warnings(), stderr_held():
        warnings.simplefilter("ignore")
        try:
            converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], model.network)
            content: bytes = converter.convert()
        except (ValueError, tf.errors.OpError) as error:
            raise PolicyError(f"TFLite: cannot convert the model: {' '.join(str(error).split())[:200]}") from error
    return content
