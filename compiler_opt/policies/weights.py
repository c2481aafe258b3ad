"""Policy networks: the shape to train, and the weights with their vocabulary and file.

Legend: F features, H units of the first layer, A outputs.
"""

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from compiler_opt.array_files import load_arrays, save_arrays
from compiler_opt.checked_values import Json
from compiler_opt.errors import PolicyError
from compiler_opt.files import parse_json, shown
from compiler_opt.policies import model_card
from compiler_opt.policies.lstm import LSTM, MAX_UNITS

NETWORK_FILE = "network.npz"
FORMAT, FORMAT_WITH_MARGIN, FORMAT_WITH_LSTM = 1, 2, 3
"""Of the file. Versions of compiler_opt that know neither margins nor LSTMs refuse these, rather than ignore them."""
ALWAYS_DEFAULT = 1e30
"""A margin that no network reaches: the policy takes the default's decisions only."""
_MAX_FILE_BYTES = 1 << 28
_LSTM_PREFIX = "lstm_"
"""Begins the names of an LSTM's arrays in the file."""
_MAX_STEPS = 1024
_FEATURE_NAME = re.compile(r"[A-Za-z_][\w.-]{0,199}", re.ASCII)
"""Of files, since the name becomes a word of C++ and TensorFlow in exports."""

TRANSFORMS = ("x", "sqrt(x)", "x^2")
"""The first layer's inputs for a feature with quantile rank x: 3 per feature, in this order."""


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """The shape of the networks that are trained.

    Attributes:
      fc_layer_params: units of each hidden layer of the policy.
      value_fc_layer_params: units of each hidden layer of the value network, which only learns.
      lstm_units: units of a recurrent layer (LSTM) between the features and the hidden layers, by which the policy
        remembers the earlier decisions of a module; 0 for none. For inlining, with `ppo`, `reinforce`, `dqn`, `es` and
        behavioural cloning.
      lstm_steps: consecutive decisions that are learned from together: what the policy remembers is credited with what
        it was good for at most so many decisions later. It may remember for longer.
    """

    fc_layer_params: tuple[int, ...] = (64, 64)
    value_fc_layer_params: tuple[int, ...] = (32,)
    lstm_units: int = 0
    lstm_steps: int = 32

    def __post_init__(self) -> None:
        for name, lowest, highest in (("lstm_units", 0, MAX_UNITS), ("lstm_steps", 1, _MAX_STEPS)):
            if not lowest <= getattr(self, name) <= highest:
                raise ValueError(f"{name}: expected {lowest} to {highest}, found {getattr(self, name)}")
        for name in ("fc_layer_params", "value_fc_layer_params"):
            if any(units < 1 for units in getattr(self, name)):
                raise ValueError(f"{name}: expected units of at least 1, found {getattr(self, name)}")


@dataclasses.dataclass(frozen=True)
class NetworkWeights:
    """Vocabulary and weights of a policy.

    Attributes:
      features: the F features' names, in input order.
      quantiles: of each feature, ascending, with repetitions.
      kernels: one per dense layer; the first is `[3 F, H]`, the last `[..., A]`. All layers but the last are rectified.
        With an LSTM of U units, the first is `[U, H]`.
      biases: one per dense layer.
      metadata: how it was trained; recorded, not interpreted.
      margin: a greedy binary policy leaves the default only where its two logits differ by at least this; elsewhere it
        takes the default decision. 0: the network alone decides. Sampling ignores it.
      lstm: a recurrent layer before the dense ones, if any, with the inputs `[3 F]`.
    """

    features: tuple[str, ...]
    quantiles: tuple[np.ndarray, ...]
    kernels: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    metadata: Mapping[str, Json] = dataclasses.field(default_factory=dict)
    margin: float = 0.0
    lstm: LSTM | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.margin < math.inf:
            raise PolicyError(f"margin: expected a finite number of at least 0, found {shown(self.margin)}")
        width = len(TRANSFORMS) * len(self.features)
        if len(self.quantiles) != len(self.features) or len(self.kernels) != len(self.biases) or not self.kernels:
            raise PolicyError("policy network: the numbers of features, quantiles, kernels and biases disagree")
        if self.lstm is not None:
            if len(self.lstm.kernel) != width:
                raise PolicyError(
                    f"policy network: expected an LSTM with {width} inputs, found {len(self.lstm.kernel)}; "
                    "vocabulary and weights do not belong together"
                )
            width = self.lstm.units
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

    def __repr__(self) -> str:
        layers = " x ".join(str(len(bias)) for bias in self.biases)
        return f"NetworkWeights({len(self.features)} features, layers of {layers})"

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
        if self.lstm is not None:
            for name, array in self.lstm.arrays().items():
                content = np.ascontiguousarray(array, "<f4")
                digest.update(f"{_LSTM_PREFIX}{name} {content.shape}".encode() + content.tobytes())
        return digest.hexdigest()

    @property
    def is_recurrent(self) -> bool:
        """Whether decisions depend on the earlier ones of the module."""
        return self.lstm is not None

    def forward(self, inputs: np.ndarray, is_first: np.ndarray | None = None) -> np.ndarray:
        """Transformed quantile ranks `[..., 3 F]` to outputs `[..., A]` float32.

        Of a recurrent network, the inputs are `[T, 3 F]`, the decisions of modules in order; `is_first` `[T]` says with
        which of them a module begins, by default only with the first.
        """
        if self.lstm is None:
            return self.dense(inputs)
        begins = np.zeros(len(inputs)) if is_first is None else is_first
        return self.dense(self.lstm.unroll(inputs, begins)[:, : self.lstm.units])

    def dense(self, activations: np.ndarray) -> np.ndarray:
        """The inputs of the first dense layer to outputs `[..., A]` float32."""
        *hidden, last = zip(self.kernels, self.biases, strict=True)
        for kernel, bias in hidden:
            activations = np.maximum(activations @ kernel + bias, 0)
        return activations @ last[0] + last[1]

    def scaled(self, factor: float) -> "NetworkWeights":
        """The same network, its outputs multiplied by a factor."""
        kernels = (*self.kernels[:-1], self.kernels[-1] * np.float32(factor))
        biases = (*self.biases[:-1], self.biases[-1] * np.float32(factor))
        return dataclasses.replace(self, kernels=kernels, biases=biases)

    def reordered(self, features: Sequence[str]) -> "NetworkWeights":
        """The same network with its inputs in another order; `features` are its own."""
        places = [self.features.index(name) for name in features]
        rows = [len(TRANSFORMS) * place + number for place in places for number in range(len(TRANSFORMS))]
        kernels, lstm = self.kernels, self.lstm
        if lstm is None:
            kernels = (kernels[0][rows], *kernels[1:])
        else:
            lstm = dataclasses.replace(lstm, kernel=lstm.kernel[rows])
        quantiles = tuple(self.quantiles[place] for place in places)
        return dataclasses.replace(self, features=tuple(features), quantiles=quantiles, kernels=kernels, lstm=lstm)

    def with_margin(self, margin: float | None) -> "NetworkWeights":
        """The same network with another margin; itself for None. Raises PolicyError if the margin is out of range."""
        return self if margin is None else dataclasses.replace(self, margin=margin)

    def card(self) -> model_card.ModelCard:
        """Its model card, without results."""
        widths = [len(bias) for bias in self.biases]
        facts = dict(self.metadata)
        if self.margin:
            facts["margin"] = self.margin
        if self.lstm is not None:
            facts["lstm_units"] = self.lstm.units
        return model_card.ModelCard.from_metadata(self.checksum(), self.features, widths, facts)

    def save(self, directory: Path, *, compressed: bool = False) -> None:
        """Writes `network.npz` into a policy's folder, whole or not at all; raises OutputError if that fails."""
        header = {"format": FORMAT, "features": list(self.features), "metadata": dict(self.metadata)}
        if self.margin:
            header |= {"format": FORMAT_WITH_MARGIN, "margin": self.margin}
        if self.lstm is not None:
            header |= {"format": FORMAT_WITH_LSTM, "margin": self.margin}
        arrays = {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}
        arrays |= {f"quantiles_{index}": value for index, value in enumerate(self.quantiles)}
        arrays |= {f"kernel_{index}": value for index, value in enumerate(self.kernels)}
        arrays |= {f"bias_{index}": value for index, value in enumerate(self.biases)}
        if self.lstm is not None:
            arrays |= {_LSTM_PREFIX + name: value for name, value in self.lstm.arrays().items()}
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
            if directory.suffix == ".tflite" or (directory / "saved_model.pb").is_file():
                raise PolicyError(
                    f"{directory}: is a policy in TensorFlow's form, without {NETWORK_FILE}; import it first: "
                    f"compiler_opt import_policy --policy_path={directory} --output_dir=POLICY"
                )
            raise PolicyError(
                f"{directory}: expected a policy (a folder with {NETWORK_FILE}), found none; train one first"
            )
        try:
            arrays = load_arrays(path, _MAX_FILE_BYTES)
            header = parse_json(arrays["header"].tobytes())
            if header["format"] in (FORMAT, FORMAT_WITH_MARGIN, FORMAT_WITH_LSTM):
                return cls._of_arrays(header, arrays)
        except OSError as error:
            raise PolicyError(f"{path}: cannot be read ({error.strerror}); export the policy again") from error
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise PolicyError(f"{path}: damaged ({type(error).__name__}: {error}); export the policy again") from error
        except PolicyError as error:
            raise PolicyError(f"{path}: {error}; export the policy again") from error
        raise PolicyError(
            f"{path}: expected a format from {FORMAT} to {FORMAT_WITH_LSTM}, found {shown(header['format'])}; "
            "export again"
        )

    @classmethod
    def _of_arrays(cls, header: Mapping[str, Json], arrays: Mapping[str, np.ndarray]) -> "NetworkWeights":
        features: dict[str, None] = {}
        for name in header["features"]:
            if not (isinstance(name, str) and _FEATURE_NAME.fullmatch(name)) or name in features:
                raise PolicyError(f"policy network: expected the name of a feature, once, found {shown(name)}")
            features[name] = None
        if not isinstance(header["metadata"], dict):
            raise PolicyError(f"policy network: expected metadata by name, found {shown(header['metadata'])}")
        margin = 0.0 if header["format"] == FORMAT else header["margin"]
        if not isinstance(margin, int | float) or isinstance(margin, bool):
            raise PolicyError(f"margin: expected a number, found {shown(margin)}")
        num_layers = sum(name.startswith("kernel_") for name in arrays)
        if not features or not all(arrays[f"bias_{index}"].size for index in range(num_layers)):
            raise PolicyError("policy network: expected at least one feature, and one unit in each layer, found none")
        # Weights that overflow float32 become infinite, and are refused.
        with np.errstate(over="ignore"):
            lstm = None
            if header["format"] == FORMAT_WITH_LSTM:
                names = [field.name for field in dataclasses.fields(LSTM)]
                lstm = LSTM(**{name: arrays[_LSTM_PREFIX + name].astype(np.float32) for name in names})
            weights = cls(
                tuple(features),
                tuple(arrays[f"quantiles_{index}"].astype(np.float64) for index in range(len(features))),
                tuple(arrays[f"kernel_{index}"].astype(np.float32) for index in range(num_layers)),
                tuple(arrays[f"bias_{index}"].astype(np.float32) for index in range(num_layers)),
                header["metadata"],
                float(margin),
                lstm,
            )
        weights.card().check()
        return weights
