"""A policy's model card: what it is, how it came to be, what it was measured to win, and a checksum of its weights.

    model_card.json     for programs; checked whenever the policy is loaded
    MODEL_CARD.md       the same for people

Both stand in a policy's folder and beside everything that is made of it.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler_opt.errors import PolicyError
from compiler_opt.files import write_atomically
from compiler_opt.llvm.ir2vec import IDENTITY

CARD_FILE = "model_card.json"
MARKDOWN_FILE = "MODEL_CARD.md"
FORMAT = 1
CHECKSUM_FACT = "Policy: checksum"
"""What an evaluation calls the checksum of the policy that it measured."""

_MAX_BYTES = 1 << 24
_UNKNOWN = "not recorded"


@dataclasses.dataclass(frozen=True)
class ModelCard:
    """What there is to know of a policy; JSON values throughout.

    Attributes:
      checksum: SHA-256 of features, vocabulary and weights, see `NetworkWeights.checksum`.
      problem: what it decides, such as `inlining`.
      features: what it sees, in order.
      layers: the width of each dense layer; the last is the number of actions.
      compiler: the one that it was trained with: `version`, `version_text`, `target`.
      corpus: what it was trained on: `name`, `num_modules`, `projects`.
      algorithm: how it learned.
      seeds: by what they seed.
      training: whatever else is recorded: iterations, compiles, minutes and the like.
      results: measurements, each saying what was measured on what; empty when there are none.
    """

    checksum: str
    problem: str
    features: tuple[str, ...]
    layers: tuple[int, ...]
    compiler: Mapping[str, Any] | None = None
    corpus: Mapping[str, Any] | None = None
    algorithm: str | None = None
    seeds: Mapping[str, int] = dataclasses.field(default_factory=dict)
    training: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    results: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def from_metadata(
        cls, checksum: str, features: Sequence[str], layers: Sequence[int], metadata: Mapping[str, Any]
    ) -> "ModelCard":
        """The card of a policy that knows itself by the metadata that training leaves."""
        rest = dict(metadata)
        seed = rest.pop("seed", None)
        return cls(
            checksum,
            str(rest.pop("problem", _UNKNOWN)),
            tuple(features),
            tuple(layers),
            compiler=rest.pop("toolchain", None),
            corpus=rest.pop("corpus", None),
            algorithm=rest.pop("method", None),
            seeds={} if seed is None else {"training": seed},
            training=rest,
        )

    @classmethod
    def load(cls, directory: Path) -> "ModelCard | None":
        """The card of a policy's folder; None when there is none, as policies of old have none.

        Raises:
          PolicyError: it is damaged, or of another format.
        """
        path = directory / CARD_FILE
        try:
            if path.stat().st_size > _MAX_BYTES:
                raise PolicyError(f"{path}: larger than any model card ({_MAX_BYTES} bytes); export the policy again")
            values = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PolicyError(f"{path}: cannot be read: {error.strerror}; check its permissions") from error
        except (ValueError, RecursionError) as error:
            raise PolicyError(f"{path}: damaged (not JSON); export the policy again") from error
        if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
            raise PolicyError(f"{path}: expected a model card of format {FORMAT}; export the policy again")
        fields = {field.name: field for field in dataclasses.fields(cls)}
        try:
            _check(values, fields)
        except PolicyError as error:
            raise PolicyError(f"{path}: damaged ({error}); export the policy again") from None
        return cls(**{**values, "features": tuple(values["features"]), "layers": tuple(values["layers"])})

    def check(self) -> None:
        """Raises PolicyError: a value is not of its type, as may happen to one that was made of foreign metadata."""
        values = dataclasses.asdict(self)
        lists = {name: list(values[name]) for name in ("features", "layers", "results")}
        _check({**values, **lists}, values)

    def save(self, directory: Path) -> None:
        """Writes both forms.

        Raises:
          OutputError: they cannot be written.
        """
        write_atomically(directory / CARD_FILE, self.to_json().encode())
        write_atomically(directory / MARKDOWN_FILE, self.to_markdown().encode("utf-8", "backslashreplace"))

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=2) + "\n"

    def to_markdown(self) -> str:
        """The card for people."""
        compiler = self.compiler or {}
        facts = {
            "decides": self.problem,
            "compiler": compiler.get("version_text", compiler.get("version", _UNKNOWN)),
            "target": compiler.get("target", _UNKNOWN),
            **({"IR2Vec vocabulary (SHA-256)": f"`{compiler[IDENTITY]}`"} if IDENTITY in compiler else {}),
            "algorithm": self.algorithm or _UNKNOWN,
            **{f"seed of {what}": seed for what, seed in self.seeds.items()},
            **{key.replace("_", " "): value for key, value in self.training.items()},
            "network": f"{len(self.features)} features, dense layers {'-'.join(map(str, self.layers))}",
            "checksum (SHA-256)": f"`{self.checksum}`",
        }
        lines = ["# Model card", "", "| | |", "|---|---|"]
        lines += [f"| {key} | {_cell(value)} |" for key, value in facts.items()]
        lines += ["", "## Trained on", "", *_bullets(self.corpus)]
        lines += ["", "## Measured", ""]
        for result in self.results:
            lines += [*_bullets(result), ""]
        if not self.results:
            lines += ["Not measured yet: see `compiler_opt/tools/evaluate.py`.", ""]
        lines += ["## Features", "", ", ".join(f"`{name}`" for name in self.features), ""]
        return "\n".join(lines)

    def with_results(self, results: Sequence[Mapping[str, Any]]) -> "ModelCard":
        """The same card with these measurements instead."""
        return dataclasses.replace(self, results=tuple(results))


def check(directory: Path, checksum: str) -> None:
    """Holds a policy's weights against the card in its folder, if there is one.

    Raises:
      PolicyError: the card speaks of other weights, or is damaged.
    """
    card = ModelCard.load(directory)
    if card is not None and card.checksum != checksum:
        raise PolicyError(
            f"{directory}: its weights are not those of its model card (checksum {checksum[:12]}..., "
            f"{CARD_FILE} says {card.checksum[:12]}...); a file was damaged or replaced: export the policy again, "
            f"or remove {CARD_FILE} if the weights are meant to be these"
        )


_MAPPING_OR_NONE = (dict, type(None))
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "checksum": str,
    "problem": str,
    "features": list,
    "layers": list,
    "compiler": _MAPPING_OR_NONE,
    "corpus": _MAPPING_OR_NONE,
    "algorithm": (str, type(None)),
    "seeds": dict,
    "training": dict,
    "results": list,
}


def _check(values: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    """Raises PolicyError when values are not a card's."""
    odd = sorted(set(values) ^ set(fields))
    if odd:
        raise PolicyError(f"{odd[0]!r} is {'unknown' if odd[0] in values else 'missing'}")
    for name, expected in _TYPES.items():
        if not isinstance(values[name], expected):
            raise PolicyError(f"{name!r} has the wrong type")
    if not all(isinstance(name, str) for name in values["features"]):
        raise PolicyError("'features' are not names")
    if not all(isinstance(width, int) for width in values["layers"]):
        raise PolicyError("'layers' are not widths")
    if not all(isinstance(result, dict) for result in values["results"]):
        raise PolicyError("'results' are not objects")


def _cell(value: Any) -> str:
    text = ", ".join(f"{key} {item}" for key, item in value.items()) if isinstance(value, dict) else str(value)
    return " ".join(text.replace("|", "\\|").split())


def _bullets(facts: Mapping[str, Any] | None) -> Iterator[str]:
    for key, value in (facts or {"corpus": _UNKNOWN}).items():
        shown = ", ".join(map(str, value)) if isinstance(value, list | tuple) else _cell(value)
        yield f"- {key.removeprefix('num_').replace('_', ' ')}: {shown}"
