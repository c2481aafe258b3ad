"""A feed-forward network: fitted by Keras, evaluated by numpy, saved as arrays.

B rows of a batch, N rows, D features, L layers.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from compiler_opt.tensorflow_loading import load_tensorflow

MAX_LAYERS = 16


@dataclasses.dataclass(frozen=True)
class NetworkSettings:
    """Settings of the fit, by Adam for the least absolute error.

    Attributes:
      layers: units of each hidden layer.
      epochs: passes over all rows.
      batch: rows of a batch.
      learning_rate: at first; it decays to zero by a cosine.
      dropout: share of the hidden units that are left out of each step.
      weight_decay: by which AdamW draws weights to zero.
    """

    layers: tuple[int, ...] = (128, 64)
    epochs: int = 30
    batch: int = 256
    learning_rate: float = 2e-3
    dropout: float = 0.1
    weight_decay: float = 1e-3


@dataclasses.dataclass(frozen=True)
class FeedForwardNetwork:
    """A network with ReLU between its layers and one output.

    Attributes:
      mean, scale: `[D]` float64, what is subtracted from the inputs, and by what they are then multiplied.
      weights: L matrices, `[D, U1]`, `[U1, U2]`, ..., `[.., 1]` float64.
      biases: L vectors.
    """

    mean: np.ndarray
    scale: np.ndarray
    weights: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]

    @classmethod
    def fit(
        cls, x: np.ndarray, y: np.ndarray, weights: np.ndarray, settings: NetworkSettings, *, seed: int = 0
    ) -> "FeedForwardNetwork":
        """Fits a network to targets `[N]` of rows `[N, D]` with weights `[N]`; imports TensorFlow."""
        load_tensorflow()
        import tensorflow as tf
        import tf_keras as keras

        tf.keras.utils.set_random_seed(seed)
        mean, spread = x.mean(axis=0), x.std(axis=0)
        scale = np.where(spread > 1e-9, 1.0 / np.maximum(spread, 1e-9), 0.0)
        network = keras.Sequential([keras.layers.Input((x.shape[1],))])
        for units in settings.layers:
            network.add(keras.layers.Dense(units, activation="relu"))
            network.add(keras.layers.Dropout(settings.dropout))
        network.add(keras.layers.Dense(1))
        steps = settings.epochs * -(-len(x) // settings.batch)
        rate = keras.optimizers.schedules.CosineDecay(settings.learning_rate, steps)
        network.compile(keras.optimizers.AdamW(rate, weight_decay=settings.weight_decay), loss="mae")
        inputs = _clipped((x - mean) * scale).astype(np.float32)
        network.fit(
            inputs,
            y.astype(np.float32),
            sample_weight=(weights / weights.mean()).astype(np.float32),
            batch_size=settings.batch,
            epochs=settings.epochs,
            verbose=0,
        )
        arrays = [array.astype(np.float64) for array in network.get_weights()]
        return cls(mean.astype(np.float64), scale.astype(np.float64), tuple(arrays[::2]), tuple(arrays[1::2]))

    def predict(self, x: np.ndarray) -> np.ndarray:
        """`[N, D]` -> `[N]` float64."""
        hidden = _clipped((np.asarray(x, np.float64) - self.mean) * self.scale)
        for number, (weights, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = hidden @ weights + bias
            if number < len(self.weights) - 1:
                hidden = np.maximum(hidden, 0.0)
        return hidden[:, 0]

    def arrays(self) -> dict[str, np.ndarray]:
        """What is saved."""
        layers = {f"weights{number}": array for number, array in enumerate(self.weights)}
        layers |= {f"bias{number}": array for number, array in enumerate(self.biases)}
        return {"mean": self.mean, "scale": self.scale, **layers}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], num_features: int) -> "FeedForwardNetwork":
        """The network that was saved, for D features; raises ValueError if it is none, in one line."""
        count = sum(name.startswith("weights") for name in arrays)
        if not 1 <= count <= MAX_LAYERS:
            raise ValueError(f"network: expected 1 to {MAX_LAYERS} layers, found {count}")
        shapes: list[tuple[str, Sequence[int]]] = [("mean", (num_features,)), ("scale", (num_features,))]
        units = num_features
        for number in range(count):
            found = arrays[f"weights{number}"] if f"weights{number}" in arrays else np.zeros(0)
            following = found.shape[1] if found.ndim == 2 and number < count - 1 else 1
            shapes += [(f"weights{number}", (units, following)), (f"bias{number}", (following,))]
            units = following
        for name, shape in shapes:
            if name not in arrays or arrays[name].shape != tuple(shape) or arrays[name].dtype != np.float64:
                raise ValueError(f"network: expected {name} as float64 of shape {tuple(shape)}")
            if not np.isfinite(arrays[name]).all():
                raise ValueError(f"network: not all numbers of {name} are finite")
        return cls(
            arrays["mean"],
            arrays["scale"],
            tuple(arrays[f"weights{number}"] for number in range(count)),
            tuple(arrays[f"bias{number}"] for number in range(count)),
        )


def _clipped(standardised: np.ndarray) -> np.ndarray:
    """Far from what was trained on, inputs mean no more than at eight deviations."""
    return np.clip(standardised, -8.0, 8.0)
