"""Trains a model that predicts the cycles of basic blocks.

    python -m compiler_opt.tools.train_throughput --blocks_dir=$BLOCKS --model=graph --output_dir=$MODEL

trains with $BLOCKS/train.npz of collect_blocks, keeps the epoch that is best on $BLOCKS/validation.npz, and writes it
to $MODEL. After an interruption, the same command continues with the epoch that was interrupted. With --tflite, it also
writes $MODEL/model.tflite; a model that is trained already is only exported. docs/throughput.md describes the models.
"""

from absl import flags

from compiler_opt.cost_models.throughput import model as models
from compiler_opt.cost_models.throughput.datasets import LabelledBlocks, load_labelled
from compiler_opt.cost_models.throughput.instructions import Decoder
from compiler_opt.cost_models.throughput.tflite import TFLITE_FILE, check_exportable, tflite_model
from compiler_opt.cost_models.throughput.training import Epoch, Examples, Trainer, TrainingConfig
from compiler_opt.files import check_folder_writable, exclusive_directory, write_atomically
from compiler_opt.progress_bar import progress_bar
from compiler_opt.tensorflow_loading import load_tensorflow, require_tensorflow
from compiler_opt.tools import entry_point, shared_flags

_BLOCKS_DIR = shared_flags.required_path("blocks_dir", "Folder with train.npz and validation.npz of collect_blocks.")
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for the model and its checkpoint.")
_MODEL = flags.DEFINE_enum("model", "graph", sorted(models.NETWORKS), "The kind of network.")
_LABEL_SOURCE = flags.DEFINE_string("label_source", None, "Which labels, if the blocks have those of several sources.")
_EPOCHS = flags.DEFINE_integer("epochs", TrainingConfig.epochs, "Passes over the blocks.", 1)
_UNITS = flags.DEFINE_integer("units", None, "Width of the network.", 2)
_ROUNDS = flags.DEFINE_integer("rounds", None, "Rounds of messages, of the graph network.", 1)
_BATCH_BLOCKS = flags.DEFINE_integer("batch_blocks", TrainingConfig.batch_blocks, "Blocks in each step.", 1)
_LEARNING_RATE = flags.DEFINE_float("learning_rate", TrainingConfig.learning_rate, "At the beginning.", 0.0)
_MAX_BLOCKS = flags.DEFINE_integer("max_blocks", None, "Train with the first blocks only.", 1)
_THREADS = flags.DEFINE_integer("num_threads", 1, "Threads of TensorFlow.", 1)
_TFLITE = flags.DEFINE_bool("tflite", False, "Also write a TFLite file of the model, which must be a graph network.")
_SEED = shared_flags.seed("the weights and the order of the blocks")


@entry_point.command
def entry() -> None:
    require_tensorflow("training a model of blocks")
    decoder = Decoder()
    if _TFLITE.value:
        check_exportable(_MODEL.value)
    check_folder_writable(_OUTPUT_DIR.value)
    train = load_labelled(_BLOCKS_DIR.value / "train.npz", decoder, _LABEL_SOURCE.value).first(_MAX_BLOCKS.value)
    validation = load_labelled(_BLOCKS_DIR.value / "validation.npz", decoder, train.source)
    given = {"units": _UNITS.value, "rounds": _ROUNDS.value if _MODEL.value == "graph" else None}
    with exclusive_directory(_OUTPUT_DIR.value, "--output_dir"):
        load_tensorflow()
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(_THREADS.value)
        tf.config.threading.set_inter_op_parallelism_threads(_THREADS.value)
        tf.keras.utils.set_random_seed(_SEED.value)
        network = models.network_of(_MODEL.value)
        vocabulary = network.vocabulary(train.instructions)
        size = {name: value for name, value in given.items() if value is not None}
        model = models.ThroughputModel(models.new_description(_MODEL.value, size, vocabulary, train.source))
        config = TrainingConfig(
            epochs=_EPOCHS.value,
            batch_blocks=_BATCH_BLOCKS.value,
            learning_rate=_LEARNING_RATE.value,
            seed=_SEED.value,
        )
        trainer = Trainer(model, config, _examples(model, train), _examples(model, validation))
        if trainer.restore(_OUTPUT_DIR.value):
            entry_point.note(f"continues after epoch {len(trainer.history)} of {config.epochs}")
        left = (config.epochs - len(trainer.history)) * trainer.steps_per_epoch
        with progress_bar(total=left, description="training", unit="step") as bar:
            trainer.train(_OUTPUT_DIR.value, lambda _: bar.update(), _say)
        if _TFLITE.value:
            write_atomically(_OUTPUT_DIR.value / TFLITE_FILE, tflite_model(model))
        entry_point.echo(
            f"{_OUTPUT_DIR.value}: {_MODEL.value} network of epoch {trainer.best.number}, mean absolute percentage "
            f"error on {len(validation.cycles)} validation blocks {trainer.best.error:.2%}"
        )


def _examples(model: models.ThroughputModel, found: LabelledBlocks) -> Examples:
    return Examples(model.network.encode(found.instructions), models.annotation_inputs(found.blocks), found.cycles)


def _say(epoch: Epoch) -> None:
    entry_point.echo(f"epoch {epoch.number}: loss {epoch.loss:.4f}, error on validation {epoch.error:.2%}")


if __name__ == "__main__":
    entry()
