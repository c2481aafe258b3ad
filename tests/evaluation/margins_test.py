"""Choosing margins: the rule by visible arithmetic, and a real policy with real compilers."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.corpus.description import Corpus
from compiler_opt.decisions.inlining import FEATURES
from compiler_opt.decisions.inlining import PROBLEM as INLINING
from compiler_opt.errors import ConfigError, CorpusError, PolicyError
from compiler_opt.evaluation.evaluate import EvaluationSettings
from compiler_opt.evaluation.margins import (
    CHOSEN_ON,
    LinkedChange,
    best_margin,
    choose_margin,
    linked_changes,
    write_margin,
)
from compiler_opt.evaluation.results import Evaluation
from compiler_opt.llvm.object_file import TextParts
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.model_card import ModelCard
from compiler_opt.policies.weights import ALWAYS_DEFAULT, NetworkWeights
from compiler_opt.spaces.native import native_blob
from tests.real_observations import weights_for


def _weights() -> NetworkWeights:
    return weights_for({name: np.arange(40) % (5 + index) for index, name in enumerate(FEATURES)}, hidden=(8,))


def test_the_best_mean_of_projects_is_chosen() -> None:
    changes = {0.0: LinkedChange(-0.02, -0.01), 0.5: LinkedChange(-0.02, -0.03), 1.0: LinkedChange(-0.03, -0.02)}
    assert best_margin(changes) == 0.5


def test_all_together_may_not_be_bigger_than_under_the_smallest_margin() -> None:
    changes = {0.0: LinkedChange(-0.02, -0.01), 0.5: LinkedChange(-0.019, -0.03), 1.0: LinkedChange(-0.03, -0.02)}
    assert best_margin(changes) == 1.0


def test_the_largest_margin_is_chosen_that_keeps_19_of_20_parts_of_the_best_gain() -> None:
    changes = {0.25: LinkedChange(-0.020, -0.040), 0.5: LinkedChange(-0.021, -0.041), 1.0: LinkedChange(-0.020, -0.039)}
    assert best_margin(changes) == 1.0
    assert best_margin({**changes, 2.0: LinkedChange(-0.020, -0.0389)}) == 1.0
    assert best_margin({**changes, 2.0: LinkedChange(-0.0199, -0.040)}) == 1.0
    # A policy that loses: the margin under which it loses least, or nearly.
    assert best_margin({0.0: LinkedChange(0.0200, 0.0100), 0.5: LinkedChange(0.0201, 0.0104)}) == 0.5
    assert best_margin({0.0: LinkedChange(0.0200, 0.0100), 0.5: LinkedChange(0.0201, 0.0106)}) == 0.0


def test_of_equal_margins_the_largest_is_chosen() -> None:
    assert best_margin(dict.fromkeys((0.0, 0.5, 1.0), LinkedChange(0.0, 0.0))) == 1.0


def test_changes_are_of_the_projects_linked_under_all_margins(evaluation: Evaluation) -> None:
    shapes, plain = evaluation.projects
    sizes = (
        {"default": 200, "margin 0": 190, "margin 1": 198},
        {"default": 1000, "margin 0": 1010, "margin 1": 1000},
        {"default": 9, "margin 1": 1},
    )
    projects = [
        dataclasses.replace(project, linked={name: TextParts(size) for name, size in linked.items()})
        for project, linked in zip((plain, plain, shapes), sizes, strict=True)
    ]
    changes = linked_changes(dataclasses.replace(evaluation, projects=tuple(projects)), [0.0, 1.0])
    assert changes[0.0].total == pytest.approx(1200 / 1200 - 1)
    assert changes[0.0].mean == pytest.approx((-10 / 200 + 10 / 1000) / 2)
    assert changes[1.0].total == pytest.approx(1198 / 1200 - 1)
    with pytest.raises(CorpusError, match="no project could be linked"):
        linked_changes(evaluation, [0.0, 1.0])


@pytest.mark.ci
def test_a_real_policy_under_several_margins(corpus: Corpus, toolchain: Toolchain) -> None:
    choice = choose_margin(
        corpus,
        INLINING.decision.policy(_weights()),
        problem=INLINING,
        toolchain=toolchain,
        margins=(ALWAYS_DEFAULT, 0.0),
        settings=EvaluationSettings(num_workers=2),
    )
    assert list(choice.changes) == [0.0, ALWAYS_DEFAULT]
    assert choice.changes[ALWAYS_DEFAULT] == LinkedChange(0.0, 0.0)
    assert choice.evaluation.totals["margin 1e+30"].objects.ties == 4
    assert choice.evaluation.totals["margin 0"].objects.ties < 4
    assert choice.margin == best_margin(choice.changes)
    assert len(choice.table().lines()) == 4


@pytest.mark.parametrize("margins", [(), (0.5, 0.5), tuple(range(9))], ids=str)
def test_margins_that_cannot_be_compared(corpus: Corpus, toolchain: Toolchain, margins: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="--margins: expected 1 to 8 different margins"):
        choose_margin(
            corpus, INLINING.decision.policy(_weights()), problem=INLINING, toolchain=toolchain, margins=margins
        )


def test_a_written_margin_is_in_every_form(tmp_path: Path) -> None:
    weights = dataclasses.replace(_weights(), metadata={"problem": "inlining"})
    directory = tmp_path / "policy"
    directory.mkdir()
    weights.save(directory)
    (directory / "model.tflite").write_bytes(b"decides without the margin")
    written = write_margin(directory, 0.5, chosen_on="validation")
    loaded = NetworkWeights.load(directory)
    assert loaded.margin == written.margin == 0.5
    assert loaded.metadata[CHOSEN_ON] == "validation"
    assert {path.name for path in directory.iterdir()} == {
        "network.npz",
        "network.mlgo",
        "model_card.json",
        "MODEL_CARD.md",
    }
    assert (directory / "network.mlgo").read_bytes() == native_blob(loaded)
    card = ModelCard.load(directory)
    assert card is not None and card.training["margin"] == 0.5
    write_margin(directory, 0.0)
    assert NetworkWeights.load(directory).checksum() == weights.checksum()
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


def test_a_policy_that_cannot_have_a_margin_is_refused(tmp_path: Path) -> None:
    names = ("use_def_density",)
    weights = weights_for({name: np.arange(9) for name in names}, hidden=(4,))
    metadata = {"problem": "regalloc_priority"}
    dataclasses.replace(weights, metadata=metadata).save(tmp_path)
    before = (tmp_path / "network.npz").read_bytes()
    with pytest.raises(PolicyError, match=r"expected margin 0, found 0\.5; only policies with binary actions"):
        write_margin(tmp_path, 0.5)
    assert (tmp_path / "network.npz").read_bytes() == before
