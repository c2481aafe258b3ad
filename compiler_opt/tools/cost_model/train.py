"""Trains a cost model: of the cycles of basic blocks, or of the native size of functions.

    compiler_opt cost_model train --model=graph --blocks_dir=$BLOCKS --output_dir=$MODEL

trains with $BLOCKS/train.npz of `cost_model blocks`, keeps the epoch that is best on $BLOCKS/validation.npz, and writes
it to $MODEL, where the best one so far is after each epoch. After an interruption, the same command continues with the
epoch that was interrupted. With --tflite, it also writes $MODEL/model.tflite; a model that is trained already is only
exported (docs/throughput.md).

    compiler_opt cost_model train --model=ir2native --data_path=$CORPUS/train --validation_path=$CORPUS/validation \
      --output_dir=$OUTPUT

compiles each module of the corpora once, reads features and sizes of its functions into $OUTPUT/dataset (a command that
was interrupted goes on there), fits boosted trees and a network, calibrates them by cross-validation over the projects
of the training, chooses between them by the validation's mean over projects, and saves the model as $OUTPUT/model.
Prints the errors on the validation corpus (docs/cost_models.md). Needs scikit-learn.
"""

import dataclasses
from pathlib import Path
from typing import Any

from absl import flags

from compiler_opt.cost_models.ir2native import evaluation
from compiler_opt.cost_models.ir2native.dataset import Dataset, read_corpus
from compiler_opt.cost_models.ir2native.model import IR2NATIVE, KINDS
from compiler_opt.cost_models.ir2native.network import NetworkSettings
from compiler_opt.cost_models.ir2native.training import TrainingSettings, train
from compiler_opt.cost_models.throughput import model as models
from compiler_opt.cost_models.throughput.datasets import LabelledBlocks, load_labelled
from compiler_opt.cost_models.throughput.instructions import Decoder
from compiler_opt.cost_models.throughput.tflite import TFLITE_FILE, check_exportable, tflite_model
from compiler_opt.cost_models.throughput.training import Epoch, Examples, Trainer, TrainingConfig
from compiler_opt.cost_models.trees import TreeSettings, require_scikit_learn
from compiler_opt.errors import ConfigError, told_if_interrupted
from compiler_opt.files import exclusive_directory, write_atomically, write_json
from compiler_opt.llvm.inliner_plugin import inliner_plugin
from compiler_opt.progress_bar import progress_bar
from compiler_opt.tensorflow_loading import load_tensorflow, require_tensorflow
from compiler_opt.tools import entry_point, shared_flags
from compiler_opt.tools.entry_point import echo

_MODEL = flags.DEFINE_enum(
    "model", "graph", [*sorted(models.NETWORKS), IR2NATIVE], "A kind of network for the cycles of blocks, or ir2native."
)
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for the model, and what a training goes on from.")
_EPOCHS = flags.DEFINE_integer("epochs", None, "Passes of the network over its examples.", 1, 10_000)
_SEED = shared_flags.seed("the weights, the order of the examples, samples and folds")

_BLOCKS_DIR = shared_flags.path("blocks_dir", "Folder with train.npz and validation.npz of `cost_model blocks`.")
_LABEL_SOURCE = flags.DEFINE_string("label_source", None, "Which labels, if the blocks have those of several sources.")
_UNITS = flags.DEFINE_integer("units", None, "Width of the network of blocks.", 2)
_ROUNDS = flags.DEFINE_integer("rounds", None, "Rounds of messages, of the graph network.", 1)
_BATCH_BLOCKS = flags.DEFINE_integer("batch_blocks", TrainingConfig.batch_blocks, "Blocks in each step.", 1)
_LEARNING_RATE = flags.DEFINE_float("learning_rate", TrainingConfig.learning_rate, "At the beginning.", 0.0)
_MAX_BLOCKS = flags.DEFINE_integer("max_blocks", None, "Train with the first blocks only.", 1)
_THREADS = flags.DEFINE_integer("num_threads", 1, "Threads of TensorFlow, for a network of blocks.", 1)
_TFLITE = flags.DEFINE_bool("tflite", False, "Also write a TFLite file of the model, which must be a graph network.")
_OF_BLOCKS: tuple["flags.FlagHolder[Any]", ...] = (
    *(_BLOCKS_DIR, _LABEL_SOURCE, _UNITS, _ROUNDS, _BATCH_BLOCKS, _LEARNING_RATE, _MAX_BLOCKS, _THREADS, _TFLITE),
)

_CORPUS = shared_flags.CorpusFlags(required=False)
_VALIDATION_PATH = flags.DEFINE_string(
    "validation_path", None, "The corpus by which ir2native chooses: other projects, which are not fitted to."
)
_CLANG_PATH = shared_flags.clang_path()
_SAMPLE = flags.DEFINE_integer(
    "modules_per_project", None, "At most so many modules of each project, drawn at random; by default all.", 1
)
_TREES = flags.DEFINE_integer("trees", TreeSettings.iterations, "Boosted trees, of ir2native.", 1, 10_000)
_FOLDS = flags.DEFINE_integer("folds", TrainingSettings.folds, "Parts of the cross-validation that calibrates.", 2, 100)
_NUM_WORKERS = shared_flags.num_workers()
_OF_FUNCTIONS: tuple["flags.FlagHolder[Any]", ...] = (_CORPUS.data_path, _VALIDATION_PATH, _SAMPLE, _TREES, _FOLDS)


@entry_point.command
def entry() -> None:
    require_tensorflow("training a cost model")
    of_functions = _MODEL.value == IR2NATIVE
    for flag in _OF_BLOCKS if of_functions else _OF_FUNCTIONS:
        if flag.present:
            raise ConfigError(f"--{flag.name}: not with --model={_MODEL.value}; leave it out")
    (_train_on_functions if of_functions else _train_on_blocks)(_OUTPUT_DIR.value)


def _train_on_blocks(output: Path) -> None:
    decoder = Decoder()
    if _TFLITE.value:
        check_exportable(_MODEL.value)
    if (folder := _BLOCKS_DIR.value) is None:
        raise ConfigError("expected --blocks_dir, the folder of `cost_model blocks`; see --help")
    train = load_labelled(folder / "train.npz", decoder, _LABEL_SOURCE.value).first(_MAX_BLOCKS.value)
    validation = load_labelled(folder / "validation.npz", decoder, train.source)
    given = {"units": _UNITS.value, "rounds": _ROUNDS.value if _MODEL.value == "graph" else None}
    with exclusive_directory(output, "--output_dir"):
        load_tensorflow(_THREADS.value)
        import tensorflow as tf

        tf.keras.utils.set_random_seed(_SEED.value)
        network = models.network_of(_MODEL.value)
        vocabulary = network.vocabulary(train.instructions)
        size = {name: value for name, value in given.items() if value is not None}
        model = models.ThroughputModel(models.new_description(_MODEL.value, size, vocabulary, train.source))
        config = TrainingConfig(
            epochs=_EPOCHS.value or TrainingConfig.epochs,
            batch_blocks=_BATCH_BLOCKS.value,
            learning_rate=_LEARNING_RATE.value,
            seed=_SEED.value,
        )
        trainer = Trainer(model, config, _examples(model, train), _examples(model, validation))
        if trainer.restore(output):
            entry_point.note(f"continues after epoch {len(trainer.history)} of {config.epochs}")
        left = (config.epochs - len(trainer.history)) * trainer.steps_per_epoch
        with progress_bar(total=left, description="training", unit="step") as bar:
            trainer.train(output, lambda _: bar.update(), _say)
        if _TFLITE.value:
            write_atomically(output / TFLITE_FILE, tflite_model(model))
        echo(
            f"{output}: {_MODEL.value} network of epoch {trainer.best.number}, mean absolute percentage "
            f"error on {len(validation.cycles)} validation blocks {trainer.best.error:.2%}"
        )


def _examples(model: models.ThroughputModel, found: LabelledBlocks) -> Examples:
    return Examples(model.network.encode(found.instructions), models.annotation_inputs(found.blocks), found.cycles)


def _say(epoch: Epoch) -> None:
    entry_point.say(f"epoch {epoch.number}: loss {epoch.loss:.4f}, error on validation {epoch.error:.2%}")


def _train_on_functions(output: Path) -> None:
    require_scikit_learn()
    corpus = _CORPUS.selected(_CORPUS.load())
    if _VALIDATION_PATH.value is None:
        raise ConfigError("expected --validation_path, a corpus of other projects; see --help")
    validation = _CORPUS.load_other(_VALIDATION_PATH.value)
    if shared := set(corpus.projects()) & set(validation.projects()):
        raise ConfigError(
            f"--validation_path={_VALIDATION_PATH.value}: has the project {min(shared)}, which --data_path has, too; "
            "give a corpus of other projects"
        )
    toolchain = shared_flags.compiler(_CLANG_PATH.value, corpus, validation)
    inliner_plugin(toolchain)
    settings = TrainingSettings(
        trees=TreeSettings(iterations=_TREES.value),
        network=NetworkSettings(epochs=_EPOCHS.value or NetworkSettings.epochs),
        folds=_FOLDS.value,
        seed=_SEED.value,
    )
    steps = ["reading functions"]

    def say(step: str) -> None:
        steps.append(step)
        entry_point.say(step)

    def how_far() -> str:
        return f"no model yet; last: {steps[-1]}; the same command reads only what is not in {output / 'dataset'}"

    with exclusive_directory(output, "--output_dir"), told_if_interrupted(how_far):
        workers = entry_point.num_workers(_NUM_WORKERS.value)
        data: list[Dataset] = []
        for name, each in (("training", corpus), ("validation", validation)):
            sample = each.sample(_SAMPLE.value, _SEED.value)
            read, failures = read_corpus(sample, toolchain, output / "dataset", name, num_workers=workers)
            for line in entry_point.first_of(f"{name}: not compiled", failures):
                entry_point.warn(line)
            data.append(read)
        fitted, held = data
        about = {
            "projects": sorted(set(fitted.projects().tolist())),
            "modules": len(fitted.modules),
            "modules_per_project": _SAMPLE.value,
        }
        model = train(fitted, toolchain, settings, about, say)
        predicted = model.predict_all(held)
        errors = {kind: evaluation.measure(held, predicted[kind], seed=_SEED.value) for kind in KINDS}
        chosen = min(("trees", "network", "mean"), key=lambda kind: errors[kind].mean_median_error.value)
        dataclasses.replace(model, chosen=chosen).save(output / "model")
        write_json(output / "validation.json", {kind: each.to_json() for kind, each in errors.items()})
    for line in evaluation.table(errors[chosen]).lines():
        echo(line)
    for kind in KINDS:
        echo(f"{kind}{' (chosen)' if kind == chosen else ''}:")
        for line in evaluation.summary(errors[kind]):
            echo(f"  {line}")
    echo(f"{output / 'model'}: the model, chosen on {_VALIDATION_PATH.value}")


if __name__ == "__main__":
    entry()
