"""A policy's model card: what the policy is, how it was trained, its measured results, and a checksum of its weights.

    model_card.json     for programs; checked whenever the policy is loaded
    MODEL_CARD.md       the same for people

Both are in a policy's folder, and beside everything that is exported from it.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from compiler_opt.checked_values import Json, convert, fact_text, read_json
from compiler_opt.errors import PolicyError
from compiler_opt.files import one_line, printable, shown, write_atomically
from compiler_opt.llvm.ir2vec import IDENTITY

CARD_FILE = "model_card.json"
MARKDOWN_FILE = "MODEL_CARD.md"
FORMAT = 1
CHECKSUM_FACT = "Policy: checksum"
"""The key of the measured policy's checksum in an evaluation."""

_MAX_BYTES = 1 << 24
_REMEDY = "export the policy again"
_UNKNOWN = "not recorded"


@dataclasses.dataclass(frozen=True)
class ModelCard:
    """What is known of a policy.

    Attributes:
      checksum: SHA-256 of features, vocabulary and weights, see `NetworkWeights.checksum`.
      problem: the decision, such as `inlining`.
      features: the names of the network's inputs, in order.
      layers: the width of each dense layer; the last is the number of actions.
      compiler: with which it was trained: `version`, `version_text`, `target`.
      corpus: on which it was trained: `name`, `num_modules`, `projects`.
      algorithm: by which it was trained.
      seeds: by purpose, such as `training`.
      training: further facts, such as iterations, compiles, minutes.
      results: measurements, each with its conditions.
    """

    checksum: str
    problem: str
    features: tuple[str, ...]
    layers: tuple[int, ...]
    compiler: Mapping[str, Json] | None = None
    corpus: Mapping[str, Json] | None = None
    algorithm: str | None = None
    seeds: Mapping[str, int] = dataclasses.field(default_factory=dict)
    training: Mapping[str, Json] = dataclasses.field(default_factory=dict)
    results: Sequence[Mapping[str, Json]] = ()

    @classmethod
    def from_metadata(
        cls, checksum: str, features: Sequence[str], layers: Sequence[int], metadata: Mapping[str, Json]
    ) -> "ModelCard":
        """Makes the card of a policy from the metadata that training records."""
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
        """Reads the card in a policy's folder; None if there is none, as with old policies.

        Raises:
          PolicyError: the card is damaged, or of another format.
        """
        path = directory / CARD_FILE
        try:
            values = read_json(path, dict[str, Json], max_bytes=_MAX_BYTES, error=PolicyError, remedy=_REMEDY)
        except FileNotFoundError:
            return None
        found = values.pop("format", None)
        if found != FORMAT:
            raise PolicyError(f"{path}: expected a model card of format {FORMAT}, found {shown(found)}; {_REMEDY}")
        try:
            return convert(values, cls)
        except ValueError as error:
            raise PolicyError(f"{path}: {error}; {_REMEDY}") from None

    def check(self) -> None:
        """Raises PolicyError if a value has the wrong type, as may happen if the metadata are somebody else's."""
        try:
            convert(dataclasses.asdict(self), ModelCard)
        except ValueError as error:
            raise PolicyError(f"metadata: {error}") from None

    def save(self, directory: Path) -> None:
        """Writes both files; raises OutputError if they cannot be written."""
        write_atomically(directory / CARD_FILE, self.to_json().encode())
        write_atomically(directory / MARKDOWN_FILE, self.to_markdown().encode())

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
        lines += [f"| {_cell(key)} | {_cell(value)} |" for key, value in facts.items()]
        lines += ["", "## Trained on", "", *_bullets(self.corpus)]
        lines += ["", "## Measured", ""]
        for result in self.results:
            lines += [*_bullets(result), ""]
        if not self.results:
            lines += ["Not measured yet: see `compiler_opt/tools/evaluate.py`.", ""]
        lines += ["## Features", "", ", ".join(f"`{_cell(name)}`" for name in self.features), ""]
        return "\n".join(lines)

    def with_results(self, results: Sequence[Mapping[str, Json]]) -> "ModelCard":
        """The same card with these measurements instead."""
        return dataclasses.replace(self, results=tuple(results))


def check(directory: Path, checksum: str) -> None:
    """Compares the checksum of a policy's weights with the card in its folder, if there is one.

    Raises:
      PolicyError: they differ, or the card is damaged.
    """
    card = ModelCard.load(directory)
    if card is not None and card.checksum != checksum:
        raise PolicyError(
            f"{directory}: its weights are not those of its model card (checksum {checksum[:12]}..., "
            f"{CARD_FILE} says {card.checksum[:12]}...); a file was damaged or replaced: export the policy again, "
            f"or remove {CARD_FILE} if the weights are meant to be these"
        )


def _cell(value: Json) -> str:
    """A value, which may be anybody's, as text of one line in Markdown, which is no HTML and ends no cell."""
    return printable(one_line(fact_text(value).replace("|", "\\|").replace("<", "&lt;")))


def _bullets(facts: Mapping[str, Json] | None) -> Iterator[str]:
    for key, value in (facts or {"corpus": _UNKNOWN}).items():
        yield f"- {_cell(key.removeprefix('num_').replace('_', ' '))}: {_cell(value)}"
