"""Policy networks: the shape to train, and the weights with their vocabulary and file.

Legend: F features, H units of the first layer, A outputs.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from compiler_opt.array_files import load_arrays, save_arrays
from compiler_opt.checked_values import Json
from compiler_opt.errors import PolicyError
from compiler_opt.files import shown
from compiler_opt.policies import model_card

NETWORK_FILE = "network.npz"
FORMAT, FORMAT_WITH_MARGIN = 1, 2
"""Of the file. Versions of compiler_opt that do not know margins refuse the second, rather than ignore the margin."""
ALWAYS_DEFAULT = 1e30
"""A margin that no network reaches: the policy takes the default's decisions only."""
_MAX_FILE_BYTES = 1 << 28

TRANSFORMS = ("x", "sqrt(x)", "x^2")
"""The first layer's inputs for a feature with quantile rank x: 3 per feature, in this order."""


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """The shape of the networks that are trained.

    Attributes:
      fc_layer_params: units of each hidden layer of the policy.
      value_fc_layer_params: units of each hidden layer of the value network, which only learns.
    """

    fc_layer_params: tuple[int, ...] = (64, 64)
    value_fc_layer_params: tuple[int, ...] = (32,)

    def __post_init__(self) -> None:
        for name in ("fc_layer_params", "value_fc_layer_params"):
            if any(units < 1 for units in getattr(self, name)):
                raise ValueError(f"{name}: expected units of at least 1, found {getattr(self, name)}")


@dataclasses.dataclass(frozen=True)
class NetworkWeights:
    """Vocabulary and weights of a feed-forward policy.

    Attributes:
      features: the F features' names, in input order.
      quantiles: of each feature, ascending, with repetitions.
      kernels: one per dense layer; the first is `[3 F, H]`, the last `[..., A]`. All layers but the last are rectified.
      biases: one per dense layer.
      metadata: how it was trained; recorded, not interpreted.
      margin: a greedy binary policy leaves the default only where its two logits differ by at least this; elsewhere it
        takes the default decision. 0: the network alone decides. Sampling ignores it.
    """

    features: tuple[str, ...]
    quantiles: tuple[np.ndarray, ...]
    kernels: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    metadata: Mapping[str, Json] = dataclasses.field(default_factory=dict)
    margin: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.margin < math.inf:
            raise PolicyError(f"margin: expected a finite number of at least 0, found {shown(self.margin)}")
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

    @classmethod
    def keeping_default(cls, feature: str) -> "NetworkWeights":
        """A binary policy that always takes the default decision; it observes one feature, as each policy must."""
        kernel, bias = np.zeros((len(TRANSFORMS), 2), np.float32), np.zeros(2, np.float32)
        return cls((feature,), (np.zeros(1),), (kernel,), (bias,), {}, ALWAYS_DEFAULT)

    def checksum(self) -> str:
        """SHA-256 of features, vocabulary, weights and margin, without metadata; in hexadecimal."""
        digest = hashlib.sha256(json.dumps(self.features).encode())
        for dtype, arrays in (("<f8", self.quantiles), ("<f4", self.kernels), ("<f4", self.biases)):
            for array in arrays:
                content = np.ascontiguousarray(array, dtype)
                digest.update(f"{content.shape}".encode() + content.tobytes())
        if self.margin:
            digest.update(f"margin {float(self.margin)!r}".encode())
        return digest.hexdigest()

    def forward(self, inputs: np.ndarray) -> np.ndarray:
        """Transformed quantile ranks `[..., 3 F]` to outputs `[..., A]` float32."""
        activations = inputs
        *hidden, last = zip(self.kernels, self.biases, strict=True)
        for kernel, bias in hidden:
            activations = np.maximum(activations @ kernel + bias, 0)
        return activations @ last[0] + last[1]

    def scaled(self, factor: float) -> "NetworkWeights":
        """The same network, its outputs multiplied by a factor."""
        kernels = (*self.kernels[:-1], self.kernels[-1] * np.float32(factor))
        biases = (*self.biases[:-1], self.biases[-1] * np.float32(factor))
        return dataclasses.replace(self, kernels=kernels, biases=biases)

    def with_margin(self, margin: float | None) -> "NetworkWeights":
        """The same network with another margin; itself for None. Raises PolicyError if the margin is out of range."""
        return self if margin is None else dataclasses.replace(self, margin=margin)

    def card(self) -> model_card.ModelCard:
        """Its model card, without results."""
        widths = [len(bias) for bias in self.biases]
        facts = {**self.metadata, "margin": self.margin} if self.margin else self.metadata
        return model_card.ModelCard.from_metadata(self.checksum(), self.features, widths, facts)

    def save(self, directory: Path, *, compressed: bool = False) -> None:
        """Writes `network.npz` into a policy's folder, whole or not at all; raises OutputError if that fails."""
        header = {"format": FORMAT, "features": list(self.features), "metadata": dict(self.metadata)}
        if self.margin:
            header |= {"format": FORMAT_WITH_MARGIN, "margin": self.margin}
        arrays = {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}
        arrays |= {f"quantiles_{index}": value for index, value in enumerate(self.quantiles)}
        arrays |= {f"kernel_{index}": value for index, value in enumerate(self.kernels)}
        arrays |= {f"bias_{index}": value for index, value in enumerate(self.biases)}
        save_arrays(directory / NETWORK_FILE, arrays, compressed=compressed)

    @classmethod
    def load(cls, directory: Path) -> "NetworkWeights":
        """Reads a policy's `network.npz`; executes and unpickles nothing.

        Raises:
          PolicyError: the file is missing, damaged, of another format, or not the one in the model card.
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
            if header["format"] in (FORMAT, FORMAT_WITH_MARGIN):
                return cls._of_arrays(header, arrays)
        except OSError as error:
            raise PolicyError(f"{path}: cannot be read ({error.strerror}); export the policy again") from error
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise PolicyError(f"{path}: damaged ({type(error).__name__}: {error}); export the policy again") from error
        except PolicyError as error:
            raise PolicyError(f"{path}: {error}; export the policy again") from error
        raise PolicyError(
            f"{path}: expected format {FORMAT} or {FORMAT_WITH_MARGIN}, found {shown(header['format'])}; export again"
        )

    @classmethod
    def _of_arrays(cls, header: Mapping[str, Json], arrays: Mapping[str, np.ndarray]) -> "NetworkWeights":
        features = list(header["features"])
        for name in features:
            if not (isinstance(name, str) and name.isascii() and name.isprintable() and features.count(name) == 1):
                raise PolicyError(f"policy network: expected the name of a feature, once, found {shown(name)}")
        if not isinstance(header["metadata"], dict):
            raise PolicyError(f"policy network: expected metadata by name, found {shown(header['metadata'])}")
        margin = header["margin"] if header["format"] == FORMAT_WITH_MARGIN else 0.0
        if not isinstance(margin, int | float) or isinstance(margin, bool):
            raise PolicyError(f"margin: expected a number, found {shown(margin)}")
        num_layers = sum(name.startswith("kernel_") for name in arrays)
        # Weights that overflow float32 become infinite, and are refused.
        with np.errstate(over="ignore"):
            weights = cls(
                tuple(features),
                tuple(arrays[f"quantiles_{index}"].astype(np.float64) for index in range(len(features))),
                tuple(arrays[f"kernel_{index}"].astype(np.float32) for index in range(num_layers)),
                tuple(arrays[f"bias_{index}"].astype(np.float32) for index in range(num_layers)),
                header["metadata"],
                float(margin),
            )
        weights.card().check()
        return weights


def mean_network(networks: Sequence[NetworkWeights]) -> NetworkWeights:
    """One network with the mean of several networks' outputs: their layers side by side.

    The margin is 0: the mean differs less from the default than each network does.

    Raises:
      PolicyError: the networks differ in features, quantiles or number of layers.
    """
    first, count = networks[0], len(networks)
    for other in networks[1:]:
        for what, is_same in (
            ("features", other.features == first.features),
            ("vocabularies", all(map(np.array_equal, other.quantiles, first.quantiles))),
            ("numbers of layers", len(other.kernels) == len(first.kernels)),
            ("numbers of outputs", len(other.biases[-1]) == len(first.biases[-1])),
        ):
            if not is_same:
                raise PolicyError(f"mean of policies: their {what} differ; expected policies of alike trainings")
    layers = list(zip(*(network.kernels for network in networks), strict=True))
    biases = [np.concatenate(layer) for layer in zip(*(network.biases for network in networks), strict=True)]
    biases[-1] = np.mean([network.biases[-1] for network in networks], axis=0)
    if len(layers) == 1:
        kernels = [np.mean(layers[0], axis=0)]
    else:
        # They share inputs; in later layers they are separate.
        kernels = [np.concatenate(layers[0], axis=1), *(_block_diagonal(layer) for layer in layers[1:-1])]
        kernels.append(np.concatenate(layers[-1], axis=0) / count)
    return dataclasses.replace(
        first,
        kernels=tuple(kernel.astype(np.float32) for kernel in kernels),
        biases=tuple(bias.astype(np.float32) for bias in biases),
        margin=0.0,
    )


def _block_diagonal(blocks: Sequence[np.ndarray]) -> np.ndarray:
    return np.block(
        [
            [block if row == column else np.zeros((len(block), other.shape[1])) for column, other in enumerate(blocks)]
            for row, block in enumerate(blocks)
        ]
    )
