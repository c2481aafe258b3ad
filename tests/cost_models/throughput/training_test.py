"""Both networks learn a small problem; an interrupted training ends as an uninterrupted one; models are stored."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.array_files import load_arrays, save_arrays
from compiler_opt.cost_models.throughput.blocks import Block
from compiler_opt.cost_models.throughput.instructions import Decoder, Instruction
from compiler_opt.cost_models.throughput.model import (
    NETWORKS,
    ThroughputModel,
    annotation_inputs,
    network_of,
    new_description,
)
from compiler_opt.cost_models.throughput.training import Examples, Trainer, TrainingConfig
from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.tensorflow_loading import load_tensorflow

PIECES = [bytes.fromhex(code) for code in ("4801c8", "4889d1", "48f7f1", "488b07", "f20f58c1", "75d0")]
COSTS = np.array([0.25, 0.5, 20.0, 1.0, 4.0, 0.75])
SMALL = {"graph": {"units": 16, "rounds": 2}, "sequence": {"units": 16}}
CONFIG = TrainingConfig(epochs=5, batch_blocks=16, learning_rate=3e-2, warmup_steps=5, seed=1)


def problem(number: int, seed: int) -> tuple[list[Block], np.ndarray]:
    """Blocks whose cycles are the sum of what their instructions cost."""
    generator = np.random.default_rng(seed)
    chosen = [generator.integers(0, len(PIECES), generator.integers(1, 6)) for _ in range(number)]
    blocks = [Block(b"".join(PIECES[piece] for piece in pieces), "p/a.o", "f", 0, 1.0) for pieces in chosen]
    return blocks, np.array([COSTS[pieces].sum() for pieces in chosen])


def instructions(blocks: list[Block]) -> list[list[Instruction]]:
    decoder = Decoder()
    return [decoder.decode(block.code) or [] for block in blocks]


def make(kind: str, config: TrainingConfig = CONFIG, number: int = 240) -> tuple[ThroughputModel, Trainer]:
    load_tensorflow()
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    train, validation = problem(number, 1), problem(50, 2)
    vocabulary = network_of(kind).vocabulary(instructions(train[0]))
    model = ThroughputModel(new_description(kind, SMALL[kind], vocabulary, "test"))
    examples = [
        Examples(model.network.encode(instructions(blocks)), annotation_inputs(blocks), cycles)
        for blocks, cycles in (train, validation)
    ]
    return model, Trainer(model, config, *examples)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["graph", "sequence"])
def test_learns_resumes_and_is_stored(kind: str, tmp_path: Path) -> None:
    model, trainer = make(kind)
    trainer.train(tmp_path / "whole")
    assert trainer.best.error < 0.25 < trainer.history[0].error

    losses: list[float] = []

    def interrupt(loss: float) -> None:
        losses.append(loss)
        if len(losses) == 3 * trainer.steps_per_epoch - 3:
            raise KeyboardInterrupt

    _, first = make(kind)
    parts = re.escape(str(tmp_path / "parts"))
    told = f"^2 of 5 epochs; the model in {parts} is the best one so far; the same command resumes$"
    with pytest.raises(KeyboardInterrupt, match=told):
        first.train(tmp_path / "parts", interrupt)
    so_far = ThroughputModel.load(tmp_path / "parts").description.results
    best = min((1, 2), key=lambda number: trainer.history[number - 1].error)
    assert (so_far["epochs"], so_far["best_epoch"]) == (best, best)
    assert so_far["validation_error"] == pytest.approx(trainer.history[best - 1].error)
    resumed_model, second = make(kind)
    assert second.restore(tmp_path / "parts") and len(second.history) == 2
    second.train(tmp_path / "parts")
    assert [epoch.error for epoch in second.history] == pytest.approx([epoch.error for epoch in trainer.history])
    for name, array in model.weights().items():
        np.testing.assert_allclose(resumed_model.weights()[name], array, rtol=1e-4, atol=1e-5)

    blocks, cycles = problem(40, 3)
    loaded = ThroughputModel.load(tmp_path / "whole")
    predicted = loaded.predict(blocks, Decoder())
    assert np.abs(predicted / cycles - 1).mean() < 0.3
    assert predicted == pytest.approx(model.predict(blocks, Decoder()))
    # Blocks do not depend on those beside them, and what is no code has no cycles.
    bad = Block(b"\x06", "p/a.o", "f", 0, 1.0)
    alone = np.concatenate([loaded.predict([block], Decoder()) for block in blocks[:5]])
    assert alone == pytest.approx(predicted[:5], rel=1e-4)
    mixed = loaded.predict([blocks[0], bad, blocks[1]], Decoder())
    assert np.isnan(mixed).tolist() == [False, True, False]
    assert loaded.description.results["validation_error"] == trainer.best.error

    _, other = make(kind, dataclasses.replace(CONFIG, seed=2))
    with pytest.raises(ConfigError, match=r"checkpoint\.npz: of a training with other blocks or settings"):
        other.restore(tmp_path / "parts")
    _damage(tmp_path / "whole", loaded)


def _damage(folder: Path, model: ThroughputModel) -> None:
    with pytest.raises(PolicyError, match=r"model\.json: no such file"):
        ThroughputModel.load(folder / "none")
    weights = folder / "weights.npz"
    content = weights.read_bytes()
    weights.write_bytes(content[:-10])
    with pytest.raises(PolicyError, match=r"weights\.npz: damaged"):
        ThroughputModel.load(folder)
    arrays = model.weights()
    for name, changed in (("expected", {"000": arrays["000"]}), ("finite", {**arrays, "000": arrays["000"] * np.nan})):
        save_arrays(weights, changed)
        with pytest.raises(PolicyError, match=rf"weights\.npz: damaged: .*{name}"):
            ThroughputModel.load(folder)
    assert load_arrays(weights, 1 << 20)
    description = folder / "model.json"
    description.write_bytes(description.read_bytes().replace(b'"graph"', b'"chart"').replace(b'"sequence"', b'"list"'))
    with pytest.raises(PolicyError, match=r"model\.json: damaged: does not match its checksum"):
        ThroughputModel.load(folder)


@pytest.mark.ci
def test_interrupted_before_an_epoch_is_done(tmp_path: Path) -> None:
    def interrupt(loss: float) -> None:
        raise KeyboardInterrupt

    _, trainer = make("sequence", number=20)
    with pytest.raises(KeyboardInterrupt, match=r"^0 of 5 epochs, and no model yet; the same command resumes$"):
        trainer.train(tmp_path, interrupt)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("kind", NETWORKS)
def test_annotations_are_learnt_and_may_be_unknown(kind: str) -> None:
    model, _ = make(kind, number=20)
    blocks, _ = problem(10, 4)
    measured = [dataclasses.replace(block, annotations=(0.0, 2.0, np.nan, np.nan)) for block in blocks]
    inputs = annotation_inputs(measured)
    assert inputs[0].tolist() == pytest.approx([0, np.log(3), 0, 0, 1, 1, 0, 0])
    assert annotation_inputs(blocks).tolist() == [[0.0] * 8] * 10
    assert (model.predict(measured, Decoder()) != model.predict(blocks, Decoder())).all()
