"""Trains a model of blocks: the mean absolute percentage error is the loss; the best epoch on validation is kept.

FOLDER/checkpoint.npz   the last epoch: weights, optimizer, best weights, history; the same command goes on from there
FOLDER/model.json, weights.npz   the model with the least error on validation, of all epochs so far
"""

import dataclasses
import hashlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt.array_files import load_arrays, save_arrays
from compiler_opt.cost_models.errors import relative_errors
from compiler_opt.cost_models.throughput.model import DESCRIPTION, ThroughputModel
from compiler_opt.errors import ConfigError, told_if_interrupted

CHECKPOINT_NAME = "checkpoint.npz"
_MAX_CHECKPOINT_BYTES = 1 << 32
_SORTED_BATCHES = 16


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """How to train.

    Attributes:
      epochs: passes over the blocks.
      batch_blocks: blocks in each step.
      learning_rate: Adam's at the beginning; it falls to a hundredth of this by half a cosine.
      warmup_steps: in which it rises from 0.
      annotation_dropout: chance with which all annotations of a block are hidden in a step; so the model also works
        without them.
      seed: of everything random.
    """

    epochs: int = 6
    batch_blocks: int = 128
    learning_rate: float = 3e-3
    warmup_steps: int = 200
    annotation_dropout: float = 0.5
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Examples:
    """Blocks to train with, or to measure errors on.

    Attributes:
      encoded: the blocks, by the model's network.
      annotations: `[N, 2A]`, see `model.annotation_inputs`.
      cycles: `[N]`, the labels.
    """

    encoded: Any
    annotations: np.ndarray
    cycles: np.ndarray


@dataclasses.dataclass(frozen=True)
class Epoch:
    """One line of the history.

    Attributes:
      number: from 1 on.
      loss: mean over its steps.
      error: mean absolute percentage error on validation, as a fraction.
    """

    number: int
    loss: float
    error: float


class Trainer:
    """Trains a model, epoch by epoch."""

    def __init__(self, model: ThroughputModel, config: TrainingConfig, train: Examples, validation: Examples):
        """Creates the optimizer's variables."""
        import tensorflow as tf
        import tf_keras

        self._model, self._config = model, config
        self._train, self._validation = train, validation
        self._optimizer = tf_keras.optimizers.legacy.Adam(0.0)
        self._variables = model.network.trainable_variables
        self._optimizer._create_all_weights(self._variables)
        self.history: list[Epoch] = []
        self._num_saved = 0
        self._best = model.weights()

        network, variables, optimizer = model.network, self._variables, self._optimizer

        def step(batch: Any, cycles: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.abs(network.call(batch) - cycles) / cycles)
            gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, variables), 1.0)
            optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return loss

        self._step = tf.function(
            step,
            input_signature=[network.signature(), tf.TensorSpec((None,), tf.float32)],
        )

    @property
    def best(self) -> Epoch:
        """The epoch with the least error on validation."""
        return min(self.history, key=lambda epoch: (epoch.error, epoch.number))

    def train(
        self,
        folder: Path,
        on_step: Callable[[float], object] = lambda _: None,
        on_epoch: Callable[[Epoch], object] = lambda _: None,
    ) -> None:
        """Trains the remaining epochs; afterwards the model has the best one's weights, and is in the folder.

        The best model so far is there after each epoch.

        Args:
          folder: for checkpoint and model.
          on_step: called with the loss of each step.
          on_epoch: called after each epoch.

        Raises:
          KeyboardInterrupt: it is interrupted; `str()` says how far it was, and where the model is.
        """
        with told_if_interrupted(lambda: self._interruption(folder)):
            while len(self.history) < self._config.epochs:
                epoch = self._epoch(on_step)
                self.history.append(epoch)
                if self.best is epoch:
                    self._best = self._model.weights()
                    self._save_model(folder)
                self._save(folder)
                on_epoch(epoch)
        self._model.set_weights(self._best)
        self._save_model(folder)

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(len(self._train.cycles) / self._config.batch_blocks)

    def restore(self, folder: Path) -> bool:
        """Continues from the folder's checkpoint, if there is one.

        Raises:
          ConfigError: it is damaged, or of a training with other blocks or settings.
        """
        path = folder / CHECKPOINT_NAME
        try:
            arrays = load_arrays(path, _MAX_CHECKPOINT_BYTES)
            identity = arrays["identity"].astype(np.uint8).tobytes()
            if identity != self._identity():
                raise ConfigError(
                    f"{path}: of a training with other blocks or settings; repeat those, or give another --output_dir"
                )
            parts: dict[str, dict[str, np.ndarray]] = {"weights": {}, "best": {}, "optimizer": {}}
            for name, array in arrays.items():
                part, _, number = name.partition("/")
                if number:
                    parts[part][number] = array
            history = arrays["history"]
            if history.ndim != 2 or history.shape[1] != 2:
                raise ValueError("expected the history of losses and errors")
            self._model.set_weights(parts["best"])
            self._best = self._model.weights()
            self._model.set_weights(parts["weights"])
            self._optimizer.set_weights([parts["optimizer"][number] for number in sorted(parts["optimizer"])])
        except FileNotFoundError:
            return False
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(f"{path}: damaged: {error}; remove it to begin anew") from None
        self.history = [Epoch(number, *values) for number, values in enumerate(history.tolist(), 1)]
        self._num_saved = len(self.history)
        return True

    def _interruption(self, folder: Path) -> str:
        """How far an interrupted training was, where its model is, and how to resume it."""
        how_far = f"{self._num_saved} of {self._config.epochs} epochs"
        if not self._num_saved or not (folder / DESCRIPTION).exists():
            return f"{how_far}, and no model yet; the same command resumes"
        return f"{how_far}; the model in {folder} is the best one so far; the same command resumes"

    def _save_model(self, folder: Path) -> None:
        """Writes the model, whose weights are those of the best epoch."""
        results = {
            "training": dataclasses.asdict(self._config),
            "training_blocks": len(self._train.cycles),
            "validation_blocks": len(self._validation.cycles),
            "epochs": len(self.history),
            "best_epoch": self.best.number,
            "validation_error": self.best.error,
        }
        self._model.save(folder, results)

    def _save(self, folder: Path) -> None:
        optimizer = enumerate(self._optimizer.get_weights())
        save_arrays(
            folder / CHECKPOINT_NAME,
            {
                "identity": np.frombuffer(self._identity(), np.uint8),
                "history": np.array([(epoch.loss, epoch.error) for epoch in self.history]),
                **{f"weights/{name}": array for name, array in self._model.weights().items()},
                **{f"best/{name}": array for name, array in self._best.items()},
                **{f"optimizer/{number:03}": np.asarray(array) for number, array in optimizer},
            },
        )
        self._num_saved = len(self.history)

    def _identity(self) -> bytes:
        """Digest of what must not change between the parts of a training."""
        digest = hashlib.sha256(repr((self._config, self._model.description)).encode())
        for examples in (self._train, self._validation):
            digest.update(examples.cycles.tobytes() + examples.annotations.tobytes())
        return digest.digest()

    def _epoch(self, on_step: Callable[[float], object]) -> Epoch:
        import tensorflow as tf

        from compiler_opt.cost_models.throughput.networks.network import ANNOTATIONS_KEY

        number = len(self.history) + 1
        generator = np.random.default_rng((self._config.seed, number))
        total = 0.0
        for position, rows in enumerate(self._batches(generator)):
            step = (number - 1) * self.steps_per_epoch + position
            annotations = self._train.annotations[rows].copy()
            annotations[generator.random(len(rows)) < self._config.annotation_dropout] = 0
            batch = self._model.network.batch(self._train.encoded.take(rows))
            self._optimizer.learning_rate = self._learning_rate(step)
            loss = self._step(
                {name: tf.constant(array) for name, array in {**batch, ANNOTATIONS_KEY: annotations}.items()},
                tf.constant(self._train.cycles[rows], tf.float32),
            )
            total += float(loss) * len(rows)
            on_step(float(loss))
        predicted = self._model.predict_encoded(self._validation.encoded, self._validation.annotations)
        error = float(relative_errors(predicted, self._validation.cycles).mean())
        return Epoch(number, total / len(self._train.cycles), error)

    def _batches(self, generator: np.random.Generator) -> Sequence[np.ndarray]:
        """The numbers of all blocks, in batches of blocks of similar size, in random order."""
        size, sizes = self._config.batch_blocks, self._train.encoded.sizes
        order = generator.permutation(len(sizes))
        batches = []
        for start in range(0, len(order), size * _SORTED_BATCHES):
            part = order[start : start + size * _SORTED_BATCHES]
            part = part[np.argsort(sizes[part], kind="stable")]
            batches += [part[first : first + size] for first in range(0, len(part), size)]
        return [batches[number] for number in generator.permutation(len(batches))]

    def _learning_rate(self, step: int) -> float:
        config = self._config
        done = step / max(1, config.epochs * self.steps_per_epoch)
        warm = min(1.0, (step + 1) / max(1, config.warmup_steps))
        return config.learning_rate * warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))
