"""A model of native sizes: linear, corrected by boosted trees, by a network, or by the mean of both; its files.

A model's folder has `model.json` (columns, factors, what it was trained with, and the checksum of the other) and
`model.npz` (arrays). Nothing in them is executed or unpickled. N functions, D features, C of them frequent.
"""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt.array_files import load_arrays, pack_arrays
from compiler_opt.checked_values import convert
from compiler_opt.cost_models.ir2native.dataset import Dataset
from compiler_opt.cost_models.ir2native.functions import VERSION
from compiler_opt.cost_models.ir2native.linear import predict_linear
from compiler_opt.cost_models.ir2native.network import FeedForwardNetwork
from compiler_opt.cost_models.model_files import DESCRIPTION, reading
from compiler_opt.cost_models.trees import BoostedTrees
from compiler_opt.errors import PolicyError
from compiler_opt.files import read_checked_json, replaced_folder, write_atomically, write_checked_json
from compiler_opt.llvm.toolchain import Toolchain

IR2NATIVE = "ir2native"
"""The name of this kind of model."""

KINDS = ("linear", "trees", "network", "mean")
"""What corrects the linear stage: nothing, one of them, or the mean of their corrections."""

MAX_MODEL_BYTES = 1 << 28
_ARRAYS = "model.npz"
_MAX_CORRECTION = 3.0
"""Of the logarithm: no function is predicted 20 times as large as its linear prediction, or a 20th."""


@dataclasses.dataclass(frozen=True)
class Stages:
    """What is fitted: a linear stage, and corrections of its logarithm.

    Attributes:
      coefficients: `[D]` bytes of each feature, of the linear stage.
      frequent: `[C]` int64, positions of the features that trees and network see.
      trees, network: the corrections.
    """

    coefficients: np.ndarray
    frequent: np.ndarray
    trees: BoostedTrees
    network: FeedForwardNetwork

    def predict(self, x: np.ndarray, kinds: Sequence[str] = KINDS) -> dict[str, np.ndarray]:
        """Sizes `[N]` of `[N, D]` by each kind, before calibration."""
        linear = predict_linear(self.coefficients, x)
        if not len(x):
            return dict.fromkeys(kinds, linear)
        inputs = second_stage_inputs(x[:, self.frequent], linear)
        corrections: dict[str, np.ndarray] = {"linear": np.zeros(len(x))}
        if {"trees", "mean"} & set(kinds):
            corrections["trees"] = self.trees.predict(inputs)
        if {"network", "mean"} & set(kinds):
            corrections["network"] = self.network.predict(inputs)
        if "mean" in kinds:
            corrections["mean"] = (corrections["trees"] + corrections["network"]) / 2
        return {kind: linear * np.exp(np.clip(corrections[kind], -_MAX_CORRECTION, _MAX_CORRECTION)) for kind in kinds}

    def arrays(self) -> dict[str, np.ndarray]:
        """What is saved."""
        parts = {"trees": self.trees.arrays(), "network": self.network.arrays()}
        packed = {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}
        return {"coefficients": self.coefficients, "frequent": self.frequent, **packed}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], num_features: int) -> "Stages":
        """What was saved, for D features; raises ValueError if it is none, in one line."""
        coefficients, frequent = (arrays.get(name, np.zeros(0)) for name in ("coefficients", "frequent"))
        shape = (num_features,)
        if coefficients.shape != shape or coefficients.dtype != np.float64 or not np.isfinite(coefficients).all():
            raise ValueError(f"expected {num_features} coefficients")
        if frequent.ndim != 1 or frequent.dtype != np.int64 or not ((frequent >= 0) & (frequent < num_features)).all():
            raise ValueError("expected positions of features")

        def part(prefix: str) -> dict[str, np.ndarray]:
            return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}

        num_inputs = 2 * len(frequent) + 1
        return cls(
            coefficients,
            frequent,
            BoostedTrees.from_arrays(part("trees."), num_inputs),
            FeedForwardNetwork.from_arrays(part("network."), num_inputs),
        )


def second_stage_inputs(x: np.ndarray, linear: np.ndarray) -> np.ndarray:
    """What trees and network see: `[N, C]` counts and `[N]` linear predictions -> `[N, 2C + 1]`.

    The logarithms of counts, and how dense they are: their ratios to the linear prediction, in tenths of bytes.
    """
    counts = np.log1p(np.maximum(x, 0.0))
    density = 10.0 * np.asarray(x, np.float32) / linear[:, None].astype(np.float32)
    return np.concatenate([counts, density, np.log(linear)[:, None]], axis=1).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class _Description:
    """The content of `model.json`."""

    version: int
    columns: list[str]
    factors: dict[str, float]
    chosen: str
    compiler: dict[str, Any]
    about: dict[str, Any]
    arrays_sha256: str


@dataclasses.dataclass(frozen=True)
class Ir2NativeModel:
    """A fitted model.

    Attributes:
      columns: the D features.
      stages: what is fitted to them.
      factors: the calibration of each kind.
      chosen: the kind that predicts by default.
      compiler: what it was fitted for, as by `Toolchain.identity`.
      about: what else is known of its training.
      seen: `[S]` uint64, hashes of the symbols that it was fitted to, as by `Dataset.symbol_hashes`.
    """

    columns: tuple[str, ...]
    stages: Stages
    factors: Mapping[str, float]
    chosen: str
    compiler: Mapping[str, Any]
    about: Mapping[str, Any]
    seen: np.ndarray

    def predict(self, dataset: Dataset, kind: str | None = None) -> np.ndarray:
        """The size in bytes of each function of a dataset, `[N]` float64."""
        return self.predict_all(dataset, (kind or self.chosen,))[kind or self.chosen]

    def predict_all(self, dataset: Dataset, kinds: Sequence[str] = KINDS) -> dict[str, np.ndarray]:
        """The same by several kinds of corrections."""
        found = self.stages.predict(dataset.matrix(self.columns), kinds)
        return {kind: sizes * self.factors[kind] for kind, sizes in found.items()}

    def check(self, toolchain: Toolchain) -> None:
        """Raises PolicyError if the model is for another LLVM or target than the toolchain's."""
        expected = (self.compiler.get("version", "").partition(".")[0], self.compiler.get("target"))
        found = (str(toolchain.version[0]), toolchain.target)
        if expected != found:
            raise PolicyError(
                f"the model is for LLVM {expected[0]} and {expected[1]}, but {toolchain.clang} is LLVM {found[0]} for "
                f"{found[1]}; give another --clang_path, or train a model for this one"
            )

    def save(self, folder: Path) -> None:
        """Writes the model's folder; raises OSError or OutputError if it cannot be written."""
        content = pack_arrays({**self.stages.arrays(), "seen": self.seen}, compressed=True)
        description = _Description(
            VERSION,
            list(self.columns),
            dict(self.factors),
            self.chosen,
            dict(self.compiler),
            dict(self.about),
            hashlib.sha256(content).hexdigest(),
        )
        with replaced_folder(folder) as new:
            write_atomically(new / _ARRAYS, content)
            write_checked_json(new / DESCRIPTION, dataclasses.asdict(description))

    @classmethod
    def load(cls, folder: Path) -> "Ir2NativeModel":
        """Reads a model's folder; raises PolicyError, in one line, if it is damaged or none."""
        with reading(folder / DESCRIPTION) as path:
            content = read_checked_json(path, MAX_MODEL_BYTES)
            if content.get("version") != VERSION:
                raise ValueError(
                    f"has features of version {content.get('version')!r:.20}; this program's are {VERSION}"
                )
            description = convert(content, _Description)
            if description.chosen not in KINDS or set(description.factors) != set(KINDS):
                raise ValueError(f"expected factors for {', '.join(KINDS)}")
            if not all(0 < factor < 100 for factor in description.factors.values()):
                raise ValueError("its factors are not such as were written")
            if len(set(description.columns)) != len(description.columns):
                raise ValueError("a feature is listed twice")
        with reading(folder / _ARRAYS) as path:
            return cls._from_arrays(path, description)

    @classmethod
    def _from_arrays(cls, path: Path, description: _Description) -> "Ir2NativeModel":
        arrays = load_arrays(path, MAX_MODEL_BYTES)
        if hashlib.sha256(path.read_bytes()).hexdigest() != description.arrays_sha256:
            raise ValueError("does not match its checksum")
        seen = arrays.get("seen", np.zeros(0))
        if seen.ndim != 1 or seen.dtype != np.uint64:
            raise ValueError("expected hashes of symbols")
        return cls(
            tuple(description.columns),
            Stages.from_arrays(arrays, len(description.columns)),
            description.factors,
            description.chosen,
            description.compiler,
            description.about,
            seen,
        )
