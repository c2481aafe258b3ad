"""Measures what runtime annotations add to a model of blocks, on programs that it has not seen.

    python -m studies.runtime_annotations --blocks=$BLOCKS/profiled.npz --output_dir=$MODELS

For each project in a file of `cost_model profile`, a graph network learns the measured times of other projects' blocks
(the next project in the alphabet chooses the epoch), and predicts those of this one, with its annotations and with them
hidden. It is one network, for annotations are hidden in half of its training. Beside it are llvm-mca's cycles, and
these with a penalty for each annotation, fitted to the other projects (non-negative least squares of relative errors).

The figure is Spearman's rank correlation of predicted and measured time per execution, over the blocks of a project
that have a measured time, each counted once. Intervals are 95%, of the mean over projects, by resampling projects.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from absl import flags
from scipy.stats import spearmanr

from compiler_opt.cost_models.throughput import model as models
from compiler_opt.cost_models.throughput.blocks import Block
from compiler_opt.cost_models.throughput.datasets import LabelledBlocks, load_labelled
from compiler_opt.cost_models.throughput.extraction import projects_of
from compiler_opt.cost_models.throughput.instructions import Decoder
from compiler_opt.cost_models.throughput.profiling import MEASURED
from compiler_opt.cost_models.throughput.training import Examples, Trainer, TrainingConfig
from compiler_opt.errors import ConfigError
from compiler_opt.files import check_folder_writable, exclusive_directory
from compiler_opt.progress_bar import progress_bar
from compiler_opt.tensorflow_loading import load_tensorflow, require_tensorflow
from compiler_opt.tools import entry_point, shared_flags
from studies.simulation_with_penalties import SimulationWithPenalties

_BLOCKS = shared_flags.required_path("blocks", "The file of `cost_model profile`.")
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for the models.")
_EPOCHS = flags.DEFINE_integer("epochs", 30, "Passes over the blocks.", 1)
_UNITS = flags.DEFINE_integer("units", 32, "Width of the network.", 2)
_SEED = shared_flags.seed("the weights and the order of the blocks")

_T = TypeVar("_T")

_MIN_BLOCKS = 10
_RESAMPLINGS = 10_000
_COLUMNS = ("llvm-mca", "llvm-mca + penalties", "graph, hidden", "graph", "difference")


@entry_point.command
def entry() -> None:
    require_tensorflow("training a model of blocks")
    check_folder_writable(_OUTPUT_DIR.value)
    data = load_labelled(_BLOCKS.value, Decoder(), MEASURED)
    projects = np.array(projects_of(data.blocks))
    names = [str(name) for name in np.unique(projects) if (projects == name).sum() >= _MIN_BLOCKS]
    if len(names) < 3:
        raise ConfigError(
            f"{_BLOCKS.value}: expected at least 3 projects with {_MIN_BLOCKS} measured blocks, found {len(names)}"
        )
    rows = []
    with exclusive_directory(_OUTPUT_DIR.value, "--output_dir"):
        load_tensorflow()
        for number, name in progress_bar(enumerate(names), "projects", len(names), unit="project"):
            test, choose = projects == name, projects == names[(number + 1) % len(names)]
            rows.append(_correlations(data, test, choose, _OUTPUT_DIR.value / name))
    _report(names, [int((projects == name).sum()) for name in names], np.array(rows))


def _correlations(data: LabelledBlocks, test: np.ndarray, choose: np.ndarray, folder: Path) -> list[float]:
    """The correlation of each of `_COLUMNS` over the blocks `test` `[N]`; `choose` `[N]` chooses the epoch."""
    measured = data.cycles
    known = models.annotation_inputs(data.blocks)
    network = _trained(data, ~test & ~choose, choose, folder)
    encoded = network.network.encode(_rows(data.instructions, test))
    hidden = network.predict_encoded(encoded, np.zeros_like(known[test]))
    annotated = network.predict_encoded(encoded, known[test])
    simulated = np.array([_simulated(block) for block in data.blocks])
    annotations = np.array([block.annotations for block in data.blocks])
    penalties = SimulationWithPenalties(simulated[~test], annotations[~test], measured[~test])
    found = [
        float(spearmanr(predicted, measured[test]).statistic)
        for predicted in (simulated[test], penalties.predict(simulated[test], annotations[test]), hidden, annotated)
    ]
    return [*found, found[-1] - found[-2]]


def _trained(data: LabelledBlocks, train: np.ndarray, choose: np.ndarray, folder: Path) -> models.ThroughputModel:
    import tensorflow as tf

    tf.keras.utils.set_random_seed(_SEED.value)
    vocabulary = models.network_of("graph").vocabulary(_rows(data.instructions, train))
    size = {"units": _UNITS.value, "rounds": 2}
    model = models.ThroughputModel(models.new_description("graph", size, vocabulary, data.source))
    config = TrainingConfig(epochs=_EPOCHS.value, batch_blocks=64, warmup_steps=20, seed=_SEED.value)

    def examples(chosen: np.ndarray) -> Examples:
        annotations = models.annotation_inputs(_rows(data.blocks, chosen))
        return Examples(model.network.encode(_rows(data.instructions, chosen)), annotations, data.cycles[chosen])

    folder.mkdir(exist_ok=True)
    trainer = Trainer(model, config, examples(train), examples(choose))
    trainer.restore(folder)
    trainer.train(folder)
    return model


def _rows(values: Sequence[_T], chosen: np.ndarray) -> list[_T]:
    return [values[row] for row in np.flatnonzero(chosen).tolist()]


def _simulated(block: Block) -> float:
    """Cycles by llvm-mca."""
    return next(cycles for source, cycles in block.labels.items() if source != MEASURED)


def _report(names: Sequence[str], sizes: Sequence[int], rows: np.ndarray) -> None:
    """Prints the correlations `[P, C]` of each project."""
    draws = np.random.default_rng(0).integers(len(rows), size=(_RESAMPLINGS, len(rows)))
    low, high = np.percentile(rows[draws].mean(1), [2.5, 97.5], axis=0)
    entry_point.echo(f"{'project':14} blocks  {'  '.join(_COLUMNS)}")
    for name, size, row in zip(names, sizes, rows, strict=True):
        entry_point.echo(f"{name:14} {size:6}  " + "  ".join(_cells([f"{value:.2f}" for value in row])))
    entry_point.echo(f"{'mean':14} {sum(sizes):6}  " + "  ".join(_cells([f"{value:.2f}" for value in rows.mean(0)])))
    intervals = [f"{one:.2f} to {other:.2f}" for one, other in zip(low, high, strict=True)]
    entry_point.echo(f"95%: {', '.join(f'{column} {each}' for column, each in zip(_COLUMNS, intervals, strict=True))}")


def _cells(texts: Sequence[str]) -> list[str]:
    return [f"{text:>{len(column)}}" for text, column in zip(texts, _COLUMNS, strict=True)]


if __name__ == "__main__":
    entry()
