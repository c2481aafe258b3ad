"""A trained model of blocks: made, stored, loaded, and asked for cycles.

A folder with `model.json` (kind, size of the network, vocabulary, source of the labels it was trained with, errors) and
`weights.npz` (the network's variables in their order). Both are untrusted when they are read.
"""

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_opt.array_files import load_arrays, save_arrays
from compiler_opt.checked_values import convert
from compiler_opt.cost_models.model_files import DESCRIPTION, reading
from compiler_opt.cost_models.throughput.blocks import ANNOTATIONS, Block
from compiler_opt.cost_models.throughput.instructions import Decoder, Instruction
from compiler_opt.cost_models.throughput.vocabulary import Vocabulary
from compiler_opt.files import read_checked_json, write_checked_json
from compiler_opt.tensorflow_loading import load_tensorflow

if TYPE_CHECKING:
    from compiler_opt.cost_models.throughput.networks.network import ThroughputNetwork

NETWORKS = {
    "graph": "compiler_opt.cost_models.throughput.networks.graph_network:GraphNetwork",
    "sequence": "compiler_opt.cost_models.throughput.networks.sequence_network:SequenceNetwork",
}
"""The kinds of networks, and where each is."""

PREDICTION_BLOCKS = 256
WEIGHTS_FILE = "weights.npz"
_FORMAT = 3
_MAX_WEIGHT_BYTES = 1 << 30
_MAX_UNITS, _MAX_ROUNDS = 4096, 64


@dataclasses.dataclass(frozen=True)
class Description:
    """What `model.json` says.

    Attributes:
      format: of the folder.
      kind: of `NETWORKS`.
      config: size of the network, of its `CONFIG`.
      vocabulary: the names that it knows.
      label_source: source of the labels it was trained with.
      results: errors and other figures of the training, for people.
    """

    format: int
    kind: str
    config: dict[str, int]
    vocabulary: Vocabulary
    label_source: str
    results: dict[str, Any]


class ThroughputModel:
    """A network with its vocabulary.

    Attributes:
      description: what is stored beside the weights.
      network: the network, a `ThroughputNetwork`.
    """

    def __init__(self, description: Description):
        """Imports TensorFlow and makes a network with random weights."""
        self.description = description
        network_class = network_of(description.kind)
        self.network: ThroughputNetwork = network_class(
            description.vocabulary, network_class.CONFIG(**description.config)
        ).ready()
        self._compiled: Any = None

    @classmethod
    def load(cls, folder: Path) -> "ThroughputModel":
        """Reads a folder that `save` has written.

        Raises:
          PolicyError: there is none, or it is damaged.
        """
        description = read_description(folder)
        with reading(folder / WEIGHTS_FILE) as path:
            arrays = load_arrays(path, _MAX_WEIGHT_BYTES)
            model = cls(description)
            model.set_weights(arrays)
        return model

    def save(self, folder: Path, results: Mapping[str, Any]) -> None:
        """Writes the folder; raises OutputError if that is impossible."""
        save_arrays(folder / WEIGHTS_FILE, self.weights())
        description = dataclasses.replace(self.description, results=dict(results))
        write_checked_json(folder / DESCRIPTION, dataclasses.asdict(description))

    def weights(self) -> dict[str, np.ndarray]:
        """Copies of the variables by their numbers."""
        return {f"{number:03}": variable.numpy() for number, variable in enumerate(self.network.trainable_variables)}

    def set_weights(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Sets the variables; raises ValueError if the arrays are not those of such a network."""
        variables = self.network.trainable_variables
        names = [f"{number:03}" for number in range(len(variables))]
        if sorted(arrays) != names:
            raise ValueError(f"expected {len(names)} arrays of weights, found {len(arrays)}")
        for name, variable in zip(names, variables, strict=True):
            if arrays[name].shape != tuple(variable.shape) or arrays[name].dtype != np.float32:
                raise ValueError(f"weights {name}: expected the shape {tuple(variable.shape)} of float32")
            if not np.isfinite(arrays[name]).all():
                raise ValueError(f"weights {name}: expected finite numbers")
            variable.assign(arrays[name])

    def predict_encoded(self, encoded: Any, annotations: np.ndarray) -> np.ndarray:
        """Cycles `[N]` of encoded blocks with `annotation_inputs` `[N, 2A]`."""
        import tensorflow as tf

        from compiler_opt.cost_models.throughput.networks.network import ANNOTATIONS_KEY

        if self._compiled is None:
            self._compiled = tf.function(self.network.call, input_signature=[self.network.signature()])
        order = np.argsort(encoded.sizes, kind="stable")
        result = np.zeros(len(order))
        for start in range(0, len(order), PREDICTION_BLOCKS):
            rows = order[start : start + PREDICTION_BLOCKS]
            batch = {**self.network.batch(encoded.take(rows)), ANNOTATIONS_KEY: annotations[rows]}
            result[rows] = self._compiled({name: tf.constant(array) for name, array in batch.items()}).numpy()
        return result

    def predict(self, blocks: Sequence[Block], decoder: Decoder) -> np.ndarray:
        """Cycles per execution of each block, `[N]`; NaN for a block that cannot be decoded."""
        decoded = [decoder.decode(block.code) for block in blocks]
        rows = np.array([row for row, block in enumerate(decoded) if block], np.int64)
        result = np.full(len(blocks), np.nan)
        if len(rows):
            instructions: list[list[Instruction]] = [block for block in decoded if block]
            annotations = annotation_inputs([blocks[row] for row in rows])
            result[rows] = self.predict_encoded(self.network.encode(instructions), annotations)
        return result


def read_description(folder: Path) -> Description:
    """Reads what `ThroughputModel.save` says of a model, without TensorFlow.

    Raises:
      PolicyError: there is none, or it is damaged.
    """
    with reading(folder / DESCRIPTION) as path:
        description = convert(read_checked_json(path), Description)
        _check(description)
        return description


def network_of(kind: str) -> Any:
    """The class of a kind of network; imports TensorFlow."""
    load_tensorflow()
    module, name = NETWORKS[kind].split(":")
    return getattr(importlib.import_module(module), name)


def annotation_inputs(blocks: Sequence[Block]) -> np.ndarray:
    """`[N, 2A]` float32: for each annotation `log(1 + events)`, 0 if unknown, and then whether it is known."""
    values = np.array([block.annotations for block in blocks], np.float32).reshape(-1, len(ANNOTATIONS))
    known = np.isfinite(values)
    return np.concatenate([np.log1p(np.where(known, np.maximum(values, 0), 0)), known], axis=1).astype(np.float32)


def _check(description: Description) -> None:
    if description.format != _FORMAT:
        raise ValueError(f"expected format {_FORMAT}, found {description.format}")
    if description.kind not in NETWORKS:
        raise ValueError(f"kind: expected one of {', '.join(NETWORKS)}, found {description.kind!r:.80}")
    limits = {"units": _MAX_UNITS, "rounds": _MAX_ROUNDS}
    for name, value in description.config.items():
        if name not in limits or not 1 <= value <= limits[name]:
            raise ValueError(f"config: expected the size of such a network, found {name!r:.80} = {value}")


def new_description(kind: str, config: Mapping[str, int], vocabulary: Vocabulary, label_source: str) -> Description:
    """The description of a model that is about to be trained."""
    return Description(_FORMAT, kind, dict(config), vocabulary, label_source, {})
