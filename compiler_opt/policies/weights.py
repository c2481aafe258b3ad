"""A trained network as plain numpy: starts in no time, decides in some 15 microseconds.

Legend: F features, B buckets of all features together, H units of the first layer, A actions, T decisions.

Each feature is replaced by its position among the vocabulary's quantiles, so the first dense layer sees one of a few
values per feature. Its products are computed once, when the network is loaded: a table `[B, H]`; a decision then
gathers and adds F rows instead of multiplying. The result is that of the dense layer up to rounding.
"""

import abc
import dataclasses
import functools
import hashlib
import json
import math
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt.array_files import load_arrays, save_arrays
from compiler_opt.errors import PolicyError
from compiler_opt.files import shown
from compiler_opt.llvm import ir2vec
from compiler_opt.llvm.training_log import Header, record_dtype
from compiler_opt.policies import model_card
from compiler_opt.policies.policy import Decider, Policy, uniforms
from compiler_opt.tensor_spec import TensorSpec

NETWORK_FILE = "network.npz"
FORMAT = 1
_MAX_FILE_BYTES = 1 << 28
_MAX_SPAN = 1 << 62
"""Of all integer features' quantiles, which have one number line."""

TRANSFORMS = ("x", "sqrt(x)", "x^2")
"""What the first layer sees of a feature whose quantile position is x; a width of 3 per feature, in this order."""


@dataclasses.dataclass(frozen=True)
class NetworkWeights:
    """Vocabulary and weights of a feed-forward policy.

    Attributes:
      features: the F features' names, in input order.
      quantiles: for each feature its quantiles, ascending, repetitions included.
      kernels: one per dense layer; the first is `[3 F, H]`, the last `[..., A]`. Rectified but for the last.
      biases: one per dense layer.
      metadata: what is known of how it came to be; recorded, not interpreted.
    """

    features: tuple[str, ...]
    quantiles: tuple[np.ndarray, ...]
    kernels: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        width = len(TRANSFORMS) * len(self.features)
        if len(self.quantiles) != len(self.features) or len(self.kernels) != len(self.biases) or not self.kernels:
            raise PolicyError("policy network: the numbers of features, quantiles, kernels and biases disagree")
        for kernel, bias in zip(self.kernels, self.biases, strict=True):
            if bias.ndim != 1:
                raise PolicyError(f"policy network: expected biases in one dimension, found {bias.ndim}")
            if kernel.shape != (width, len(bias)):
                raise PolicyError(
                    f"policy network: expected a kernel of shape {(width, len(bias))}, found {kernel.shape}; "
                    "vocabulary and weights do not belong together"
                )
            if not (np.isfinite(kernel).all() and np.isfinite(bias).all()):
                raise PolicyError("policy network: a weight is not a finite number")
            width = len(bias)
        for name, quantiles in zip(self.features, self.quantiles, strict=True):
            is_list = quantiles.ndim == 1 and len(quantiles) > 0
            if not is_list or not np.isfinite(quantiles).all() or (quantiles[1:] < quantiles[:-1]).any():
                raise PolicyError(f"vocabulary of {name!r}: expected ascending finite numbers")

    def checksum(self) -> str:
        """SHA-256 of all that decides: names, vocabulary and weights, but not the metadata; in hexadecimal digits."""
        digest = hashlib.sha256(json.dumps(self.features).encode())
        for dtype, arrays in (("<f8", self.quantiles), ("<f4", self.kernels), ("<f4", self.biases)):
            for array in arrays:
                content = np.ascontiguousarray(array, dtype)
                digest.update(f"{content.shape}".encode() + content.tobytes())
        return digest.hexdigest()

    def card(self) -> model_card.ModelCard:
        """What is known of it."""
        widths = [len(bias) for bias in self.biases]
        return model_card.ModelCard.from_metadata(self.checksum(), self.features, widths, self.metadata)

    def save(self, directory: Path) -> None:
        """Writes `network.npz` into a policy's directory, all or nothing.

        Raises:
          OutputError: it cannot be written.
        """
        header = {"format": FORMAT, "features": list(self.features), "metadata": dict(self.metadata)}
        arrays = {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}
        arrays |= {f"quantiles_{index}": value for index, value in enumerate(self.quantiles)}
        arrays |= {f"kernel_{index}": value for index, value in enumerate(self.kernels)}
        arrays |= {f"bias_{index}": value for index, value in enumerate(self.biases)}
        save_arrays(directory / NETWORK_FILE, arrays)

    @classmethod
    def load(cls, directory: Path) -> "NetworkWeights":
        """Reads a policy's `network.npz`; nothing in it is executed or unpickled.

        Raises:
          PolicyError: it is missing, damaged, of another format, or not what the model card beside it speaks of.
        """
        weights = cls._read(directory)
        model_card.check(directory, weights.checksum())
        return weights

    @classmethod
    def _read(cls, directory: Path) -> "NetworkWeights":
        path = directory / NETWORK_FILE
        if not path.is_file():
            raise PolicyError(
                f"{directory}: expected a policy (a folder with {NETWORK_FILE}), found none; train one first"
            )
        try:
            arrays = load_arrays(path, _MAX_FILE_BYTES)
            header = json.loads(arrays["header"].tobytes())
            if header["format"] == FORMAT:
                return cls._of_arrays(header, arrays)
        except OSError as error:
            raise PolicyError(f"{path}: cannot be read ({error.strerror}); export the policy again") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise PolicyError(f"{path}: damaged ({type(error).__name__}: {error}); export the policy again") from error
        except PolicyError as error:
            raise PolicyError(f"{path}: {error}; export the policy again") from error
        raise PolicyError(f"{path}: expected format {FORMAT}, found {shown(header['format'])}; export it again")

    @classmethod
    def _of_arrays(cls, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "NetworkWeights":
        features = list(header["features"])
        for name in features:
            if not (isinstance(name, str) and name.isascii() and name.isprintable() and features.count(name) == 1):
                raise PolicyError(f"policy network: expected the name of a feature, once, found {shown(name)}")
        if not isinstance(header["metadata"], dict):
            raise PolicyError(f"policy network: expected metadata by name, found {shown(header['metadata'])}")
        num_layers = sum(name.startswith("kernel_") for name in arrays)
        # A weight that no float32 can hold is infinite after this, and refused for it.
        with np.errstate(over="ignore"):
            weights = cls(
                tuple(features),
                tuple(arrays[f"quantiles_{index}"].astype(np.float64) for index in range(len(features))),
                tuple(arrays[f"kernel_{index}"].astype(np.float32) for index in range(num_layers)),
                tuple(arrays[f"bias_{index}"].astype(np.float32) for index in range(num_layers)),
                header["metadata"],
            )
        weights.card().check()
        return weights


def quantile_positions(quantiles: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The share of quantiles that are at most each value, in [0, 1]; `[...]` to `[...]` float32."""
    return (np.searchsorted(quantiles, values, side="right") / len(quantiles)).astype(np.float32)


def expand(positions: np.ndarray) -> np.ndarray:
    """What the first layer sees: `[..., F]` to `[..., 3 F]`, the transforms of one feature side by side."""
    stacked = np.stack([positions, np.sqrt(positions), np.square(positions)], axis=-1)
    return stacked.reshape(*positions.shape[:-1], -1)


def positions_of(vocabulary: Sequence[np.ndarray], values: np.ndarray) -> np.ndarray:
    """Features `[..., F]` to their positions among the F features' quantiles, `[..., F]` float32."""
    columns = [quantile_positions(quantiles, values[..., index]) for index, quantiles in enumerate(vocabulary)]
    return np.stack(columns, axis=-1)


def outputs(weights: NetworkWeights, positions: np.ndarray) -> np.ndarray:
    """The straightforward computation: `[..., F]` positions to `[..., A]` float32."""
    activations = expand(positions)
    *hidden, last = zip(weights.kernels, weights.biases, strict=True)
    for kernel, bias in hidden:
        activations = np.maximum(activations @ kernel + bias, 0)
    result: np.ndarray = activations @ last[0] + last[1]
    return result


class LearnedPolicy(Policy):
    """Decides by a network: greedily, or by sampling when `temperature` is over 0."""

    num_outputs: int
    """Width of the network's last layer."""

    def __init__(self, weights: NetworkWeights, *, temperature: float = 0.0, name: str = "policy", origin: str = ""):
        """Takes weights; `origin`, such as their folder, is what errors call the policy by."""
        self.name = name
        self.weights = weights
        self.temperature = temperature
        self._origin = origin or f"policy {name!r}"
        self._key = uuid.uuid4().hex
        if len(weights.biases[-1]) != self.num_outputs:
            raise PolicyError(
                f"{self._origin}: expected a network with {self.num_outputs} outputs, found "
                f"{len(weights.biases[-1])}: it is for another problem than this (see --compile_task)"
            )

    @property
    def key(self) -> str:
        """Of this policy's weights alone, also in other processes."""
        return self._key

    @abc.abstractmethod
    def check(self, feature_names: Sequence[str]) -> None:
        """Raises PolicyError, with names, when the compiler lacks a feature."""

    def _require(self, needed: Sequence[str], feature_names: Sequence[str]) -> None:
        missing = [name for name in needed if name not in feature_names]
        if missing:
            raise PolicyError(
                f"{self._origin}: needs features that this compiler does not send: {', '.join(missing)}; "
                "use the compiler that it was trained with, or a policy for this one"
            )


class NetworkPolicy(LearnedPolicy):
    """Says yes or no."""

    num_outputs = 2

    @classmethod
    def load(cls, directory: Path, *, temperature: float = 0.0, name: str = "policy") -> "NetworkPolicy":
        """Raises PolicyError when the directory holds no good policy."""
        return cls(NetworkWeights.load(directory), temperature=temperature, name=name, origin=str(directory))

    def check(self, feature_names: Sequence[str]) -> None:
        self._require(self.weights.features, feature_names)
        if not self._sees_embeddings:
            spans = (float(quantiles[-1]) - float(quantiles[0]) + 2 for quantiles in self.weights.quantiles)
            largest = max(float(np.abs(quantiles).max()) for quantiles in self.weights.quantiles)
            if max(sum(spans), largest) >= _MAX_SPAN:
                raise PolicyError(f"{self._origin}: its vocabulary spans more than 62 bits; make it again")

    @functools.cached_property
    def _sees_embeddings(self) -> bool:
        return bool(ir2vec.components(self.weights.features))

    def check_specs(self, specs: Sequence[TensorSpec]) -> None:
        """Raises PolicyError when the compiler lacks a feature or, beside embeddings, sends other than integers."""
        self.check([spec.name for spec in specs])
        for spec in specs:
            if self._sees_embeddings and ir2vec.components([spec.name]):
                continue
            if spec.dtype != np.int64 or spec.num_elements != 1:
                raise PolicyError(f"{self._origin}: expected scalar int64 features, found {spec.to_json()}")

    def start(self, header: Header, seed: int) -> Decider:
        self.check_specs(header.features)
        if self._sees_embeddings:
            return _DeciderByNumbers(self.weights, header, seed, self.temperature)
        return _DeciderByIntegers(self._first_layer(), self.weights, header, seed, self.temperature)

    def _first_layer(self) -> "_FirstLayer":
        # A worker is sent the same policy with each job; the table stays with the process that made it.
        first_layer = _first_layers.get(self._key)
        if first_layer is None:
            while len(_first_layers) >= _MAX_FIRST_LAYERS:
                del _first_layers[next(iter(_first_layers))]
            first_layer = _first_layers[self._key] = _FirstLayer(self.weights)
        return first_layer

    def log_probs(self, actions: np.ndarray, logits: np.ndarray) -> np.ndarray:
        """Log probabilities of actions that were drawn, `[T]`, by the logits of 0 and 1, `[T, 2]`; `[T]` float32."""
        logits = logits.astype(np.float64)
        return _sampled_log_probs(actions, (logits[:, 1] - logits[:, 0]) / self.temperature)

    def logits(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        """For many decisions: arrays `[T]` by name to `[T, 2]` float32."""
        columns = [np.asarray(features[name]).reshape(-1) for name in self.weights.features]
        return outputs(self.weights, positions_of(self.weights.quantiles, np.stack(columns, axis=-1)))


class _FirstLayer:
    """Quantile lookup and first dense layer as one search and one gather.

    Every feature's values are moved into a range of their own on one number line, so a single binary search finds the
    buckets of all features at once.
    """

    def __init__(self, weights: NetworkWeights):
        num_transforms = len(TRANSFORMS)
        kernel = weights.kernels[0]
        boundaries, rows, low, high, shift = [], [], [], [], []
        base = 0
        for index, quantiles in enumerate(weights.quantiles):
            # Features are integers: v >= q is v >= ceil(q).
            unique = np.unique(np.ceil(quantiles)).astype(np.int64)
            low.append(int(unique[0]) - 1)
            high.append(int(unique[-1]))
            shift.append(base - low[-1])
            boundaries.append(unique + shift[-1])
            base += high[-1] - low[-1] + 1
            values = np.concatenate([[low[-1]], unique])
            inputs = expand(quantile_positions(quantiles, values)[:, np.newaxis])
            rows.append(inputs @ kernel[num_transforms * index : num_transforms * (index + 1)])
        # The bias comes with the first feature's rows: each decision takes exactly one of them.
        rows[0] = rows[0] + weights.biases[0]
        self.boundaries = np.concatenate(boundaries)
        self.table = np.ascontiguousarray(np.concatenate(rows), np.float32)
        self.low, self.high, self.shift = (np.array(column, np.int64) for column in (low, high, shift))
        self.row_offset = np.arange(len(weights.features))


_first_layers: dict[str, _FirstLayer] = {}
"""By policy, the oldest first; few, since a run has one policy at a time and an evaluation a few."""

_MAX_FIRST_LAYERS = 8


class _NetworkDecider(Decider):
    def __init__(self, seed: int, temperature: float):
        self._temperature = temperature
        self._uniform = uniforms(seed)
        self._scaled_logits: list[float] = []
        self._actions: list[int] = []

    @abc.abstractmethod
    def _logits(self, observation: bytes) -> np.ndarray:
        """`[2]` float32."""

    def __call__(self, observation: bytes) -> int:
        off, on = self._logits(observation).tolist()
        if not self._temperature:
            return int(on > off)
        scaled = (on - off) / self._temperature
        probability = 1 / (1 + math.exp(-scaled)) if scaled > -700 else 0.0
        action = int(self._uniform() < probability)
        self._scaled_logits.append(scaled)
        self._actions.append(action)
        return action

    def log_probs(self) -> np.ndarray | None:
        if not self._temperature:
            return None
        return _sampled_log_probs(np.array(self._actions), np.array(self._scaled_logits))


class _DeciderByIntegers(_NetworkDecider):
    def __init__(self, first: _FirstLayer, weights: NetworkWeights, header: Header, seed: int, temperature: float):
        super().__init__(seed, temperature)
        self._first = first
        self._columns = np.array([header.names.index(name) for name in weights.features])
        self._layers = list(zip(weights.kernels, weights.biases, strict=True))[1:]

    def _logits(self, observation: bytes) -> np.ndarray:
        first = self._first
        values = np.frombuffer(observation, np.int64).take(self._columns)
        np.maximum(values, first.low, out=values)
        np.minimum(values, first.high, out=values)
        values += first.shift
        rows = first.boundaries.searchsorted(values, "right")
        rows += first.row_offset
        activations = np.add.reduce(first.table.take(rows, axis=0), axis=0)
        for kernel, bias in self._layers:
            np.maximum(activations, 0, out=activations)
            activations = activations.dot(kernel)
            activations += bias
        result: np.ndarray = activations
        return result


class _DeciderByNumbers(_NetworkDecider):
    """Of features that need not be integers: each is compared with all of its quantiles."""

    def __init__(self, weights: NetworkWeights, header: Header, seed: int, temperature: float):
        super().__init__(seed, temperature)
        self._weights = weights
        # By type: which of the F features, and where in an observation their bytes are.
        self._gathered: list[tuple[np.dtype, np.ndarray, np.ndarray]] = []
        known = record_dtype(header.features).fields
        assert known is not None
        dtypes = [known[name][0].base for name in weights.features]
        offsets = np.array([known[name][1] for name in weights.features])
        for dtype in dict.fromkeys(dtypes):
            places = np.array([place for place, each in enumerate(dtypes) if each == dtype])
            self._gathered.append((dtype, places, np.add.outer(offsets[places], np.arange(dtype.itemsize)).reshape(-1)))
        self._lengths = np.array([len(column) for column in weights.quantiles])
        # [Q, F]; what a list lacks of the longest is not a number, which nothing reaches.
        self._quantiles = np.full((self._lengths.max(), len(self._lengths)), np.nan)
        for index, column in enumerate(weights.quantiles):
            self._quantiles[: len(column), index] = column

    def _logits(self, observation: bytes) -> np.ndarray:
        content = np.frombuffer(observation, np.uint8)
        values = np.empty(len(self._lengths))
        for dtype, places, sources in self._gathered:
            values[places] = content[sources].view(dtype)
        reached = (self._quantiles <= values).sum(axis=0, dtype=np.uint32)
        return outputs(self._weights, (reached / self._lengths).astype(np.float32))


def _sampled_log_probs(actions: np.ndarray, scaled_logits: np.ndarray) -> np.ndarray:
    """Log probabilities of actions 0 and 1.

    Args:
      actions: `[T]`.
      scaled_logits: `[T]` float64, logit of 1 minus logit of 0, over the temperature.

    Returns:
      `[T]` float32.
    """
    signs = 2 * actions.astype(np.float64) - 1
    log_probs: np.ndarray = -np.logaddexp(0, -signs * scaled_logits).astype(np.float32)
    return log_probs
