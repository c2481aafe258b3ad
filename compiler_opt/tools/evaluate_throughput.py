"""Measures how far models of basic blocks are from the labels, project by project, beside simple baselines.

    python -m compiler_opt.tools.evaluate_throughput --blocks_dir=$BLOCKS --split=held_out --model_dir=$GRAPH \
        --model_dir=$SEQUENCE

prints the mean absolute percentage error on $BLOCKS/held_out.npz of each model, and of baselines that are fitted to
$BLOCKS/train.npz.
"""

from pathlib import Path

import numpy as np
from absl import flags

from compiler_opt.cost_models.throughput.accuracy import by_group, percentage_errors
from compiler_opt.cost_models.throughput.baselines import fit_all
from compiler_opt.cost_models.throughput.block_trees import BlockTrees
from compiler_opt.cost_models.throughput.collection import projects_of
from compiler_opt.cost_models.throughput.datasets import LabelledBlocks, load_labelled
from compiler_opt.cost_models.throughput.instructions import Decoder
from compiler_opt.cost_models.trees import require_scikit_learn
from compiler_opt.errors import ConfigError
from compiler_opt.report.formatting import aligned
from compiler_opt.tensorflow_loading import load_tensorflow, require_tensorflow
from compiler_opt.tools import entry_point, shared_flags

_BLOCKS_DIR = shared_flags.required_path("blocks_dir", "Folder with the files of collect_blocks.")
_SPLIT = flags.DEFINE_string("split", "validation", "The file to measure on; held_out is for published figures.")
_MODEL_DIR = flags.DEFINE_multi_string("model_dir", [], "Folder of a model of train_throughput; may be repeated.")
_LABEL_SOURCE = flags.DEFINE_string("label_source", None, "Which labels, if the blocks have those of several sources.")
_THREADS = flags.DEFINE_integer("num_threads", 1, "Threads of TensorFlow.", 1)


@entry_point.command
def entry() -> None:
    require_scikit_learn()
    decoder = Decoder()
    train = load_labelled(_BLOCKS_DIR.value / "train.npz", decoder, _LABEL_SOURCE.value)
    test = load_labelled(_BLOCKS_DIR.value / f"{_SPLIT.value}.npz", decoder, train.source)
    if _MODEL_DIR.value:
        require_tensorflow("a model of blocks")
    predicted: dict[str, np.ndarray] = {}
    for baseline in fit_all(train.instructions, train.cycles):
        predicted[baseline.name] = baseline.predict(test.instructions)
    trees = BlockTrees(train.instructions, _annotations(train), train.cycles)
    predicted[trees.name] = trees.predict(test.instructions, _annotations(test))
    for folder in _MODEL_DIR.value:
        load_tensorflow()
        import tensorflow as tf

        from compiler_opt.cost_models.throughput.model import ThroughputModel, annotation_inputs

        if folder == _MODEL_DIR.value[0]:
            tf.config.threading.set_intra_op_parallelism_threads(_THREADS.value)
            tf.config.threading.set_inter_op_parallelism_threads(_THREADS.value)
        model = ThroughputModel.load(Path(folder))
        if model.description.label_source != test.source:
            raise ConfigError(
                f"{folder}: was trained with labels of {model.description.label_source}; the blocks have {test.source}"
            )
        name = f"{model.description.kind} network"
        predicted[name if name not in predicted else f"{name}, {folder}"] = model.predict_encoded(
            model.network.encode(test.instructions), annotation_inputs(test.blocks)
        )
    entry_point.echo(f"{len(test.cycles)} blocks, labels of {test.source}; mean absolute percentage error (median)")
    projects = projects_of(test.blocks)
    rows = [("project", "blocks", *predicted)]
    errors = {name: by_group(values, test.cycles, projects) for name, values in predicted.items()}
    overall = {name: percentage_errors(values, test.cycles) for name, values in predicted.items()}
    for project in sorted(set(projects)):
        means = (f"{errors[name][project].mean:.2%}" for name in predicted)
        rows.append((project, str(projects.count(project)), *means))
    rows.append(("all", str(len(projects)), *(f"{each.mean:.2%} ({each.median:.2%})" for each in overall.values())))
    for line in aligned(rows, 1, (1, len(rows) - 1)):
        entry_point.echo(line)


def _annotations(found: LabelledBlocks) -> np.ndarray:
    return np.array([block.annotations for block in found.blocks])


if __name__ == "__main__":
    entry()
