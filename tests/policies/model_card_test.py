"""Model cards: written, read, and compared with the weights."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.errors import PolicyError
from compiler_opt.policies.model_card import CARD_FILE, MARKDOWN_FILE, ModelCard
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.binary import BinaryPolicy
from tests.real_observations import weights_for

_METADATA = {
    "problem": "inlining",
    "toolchain": {"version": "22.1.8", "version_text": "some clang version 22.1.8", "target": "x86_64-pc-linux-gnu"},
    "corpus": {"name": "train", "num_modules": 866, "projects": ["fmt", "re2"]},
    "method": "PPO",
    "compiles": 8272,
    "seed": 2,
}


def _weights() -> NetworkWeights:
    return dataclasses.replace(weights_for({"cost": np.arange(9), "users": np.arange(9) % 3}), metadata=_METADATA)


def _save(directory: Path) -> NetworkWeights:
    weights = _weights()
    weights.save(directory)
    weights.card().save(directory)
    return weights


def test_it_has_the_metadata_of_training() -> None:
    card = _weights().card()
    assert card.problem == "inlining"
    assert card.features == ("cost", "users")
    assert card.layers == (64, 64, 2)
    assert card.compiler == _METADATA["toolchain"]
    assert card.corpus == _METADATA["corpus"]
    assert card.algorithm == "PPO"
    assert card.seeds == {"training": 2}
    assert card.training == {"compiles": 8272}
    assert card.results == ()


def test_it_survives_the_disk(tmp_path: Path) -> None:
    card = _weights().card().with_results([{"corpus": "held_out", "linked size": "-2.8%"}])
    card.save(tmp_path)
    loaded = ModelCard.load(tmp_path)
    assert loaded is not None
    assert loaded.to_json() == card.to_json()
    assert sorted(path.name for path in tmp_path.iterdir()) == [MARKDOWN_FILE, CARD_FILE]


def test_people_can_read_it() -> None:
    card = _weights().card().with_results([{"corpus": "held_out", "linked size": "-2.8%"}])
    text = card.to_markdown()
    for words in (
        "| compiler | some clang version 22.1.8 |",
        "| seed of training | 2 |",
        "| network | 2 features, dense layers 64-64-2 |",
        card.checksum,
        "- modules: 866",
        "- projects: fmt, re2",
        "- linked size: -2.8%",
        "`cost`, `users`",
    ):
        assert words in text
    assert "Not measured yet" in dataclasses.replace(card, results=(), corpus=None).to_markdown()
    nested = {"trainings": {"seed-1": {"seed": 1, "compiles": 5120}}, "mean of": ["a", "b"]}
    text = dataclasses.replace(card, training=nested).to_markdown()
    assert "| trainings | seed-1 (seed 1, compiles 5120) |" in text and "| mean of | a, b |" in text


def test_a_strangers_card_remains_a_table() -> None:
    odd = "a|b\n# <script>\ud800\x1b[2J"
    metadata = {"method": odd, odd: odd, "corpus": {odd: [odd]}, "toolchain": {"target": odd}}
    card = dataclasses.replace(_weights(), metadata=metadata).card().with_results([{odd: odd}])
    text = dataclasses.replace(card, features=(odd,)).to_markdown()
    assert text.isprintable() or set(text) - {"\n"} == {c for c in text if c.isprintable()}
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        *("# Model card", "## Trained on", "## Measured", "## Features")
    ]
    assert "<" not in text and "a|b" not in text
    text.encode()


def test_a_policy_without_a_card_loads(tmp_path: Path) -> None:
    _weights().save(tmp_path)
    BinaryPolicy(NetworkWeights.load(tmp_path))


def test_a_policy_with_its_card_loads(tmp_path: Path) -> None:
    _save(tmp_path)
    BinaryPolicy(NetworkWeights.load(tmp_path))


def test_a_card_of_other_weights_is_refused(tmp_path: Path) -> None:
    weights = _save(tmp_path)
    kernel = weights.kernels[1].copy()
    kernel[0, 0] = np.nextafter(kernel[0, 0], np.float32(9))
    dataclasses.replace(weights, kernels=(weights.kernels[0], kernel, weights.kernels[2])).save(tmp_path)
    with pytest.raises(PolicyError, match=r"weights are not those of its model card .*export the policy again") as info:
        BinaryPolicy(NetworkWeights.load(tmp_path))
    assert str(tmp_path) in str(info.value) and "\n" not in str(info.value)


def test_the_checksum_covers_what_decides() -> None:
    weights = _weights()
    others = [
        dataclasses.replace(weights, features=("users", "cost")),
        dataclasses.replace(weights, quantiles=(weights.quantiles[1], weights.quantiles[0])),
        dataclasses.replace(weights, biases=(*weights.biases[:2], weights.biases[2] + 1)),
    ]
    assert len({weights.checksum(), *(other.checksum() for other in others)}) == 4
    assert dataclasses.replace(weights, metadata={}).checksum() == weights.checksum()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "expected JSON"),
        ("[" * 100_000, "expected JSON"),
        ("[]", "expected a mapping, found []"),
        ('{"format": 2}', "expected a model card of format 1, found 2"),
        ('{"format": 1}', "expected the key 'checksum'"),
        ({"colour": "red"}, "unknown key 'colour'"),
        ({"checksum": 5}, "checksum: expected str, found 5"),
        ({"compiler": 5}, "compiler: expected a mapping"),
        ({"features": [5]}, "features: expected str, found"),
        ({"layers": ["64"]}, "layers: expected int, found"),
        ({"results": [5]}, "results: expected a mapping, found"),
    ],
)
def test_a_damaged_card_is_refused(tmp_path: Path, content: str | dict[str, object], words: str) -> None:
    _save(tmp_path)
    path = tmp_path / CARD_FILE
    if isinstance(content, dict):
        content = json.dumps(json.loads(path.read_text()) | content)
    path.write_text(content)
    with pytest.raises(PolicyError, match="export the policy again") as info:
        BinaryPolicy(NetworkWeights.load(tmp_path))
    assert words in str(info.value) and str(path) in str(info.value)
