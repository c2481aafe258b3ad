"""Trains a model that predicts the native size of functions from their IR right after inlining.

    python -m compiler_opt.tools.train_ir2native --data_path=$CORPUS/train --validation_path=$CORPUS/validation \
      --output_dir=$OUTPUT

compiles each module of the corpora once, reads features and sizes of its functions into $OUTPUT/dataset (a command that
was interrupted goes on there), fits boosted trees and a network, calibrates them by cross-validation over the projects
of the training, chooses between them by the validation's mean over projects, and saves the model as $OUTPUT/model.
Prints the errors on the validation corpus (docs/cost_models.md). Needs TensorFlow and scikit-learn.
"""

import dataclasses
from pathlib import Path

from absl import flags

from compiler_opt.corpus.description import Corpus
from compiler_opt.cost_models.ir2native import evaluation
from compiler_opt.cost_models.ir2native.dataset import Dataset
from compiler_opt.cost_models.ir2native.model import KINDS
from compiler_opt.cost_models.ir2native.network import NetworkSettings
from compiler_opt.cost_models.ir2native.training import TrainingSettings, train
from compiler_opt.cost_models.trees import TreeSettings, require_scikit_learn
from compiler_opt.errors import ConfigError
from compiler_opt.files import exclusive_directory, write_json
from compiler_opt.llvm.toolchain import probe
from compiler_opt.tensorflow_loading import require_tensorflow
from compiler_opt.tools import entry_point, ir2native_data, shared_flags

_CORPUS = shared_flags.CorpusFlags()
_VALIDATION_PATH = flags.DEFINE_string(
    "validation_path", None, "The corpus by which to choose: other projects, which are not fitted to.", required=True
)
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for dataset, model and errors.")
_CLANG_PATH = shared_flags.clang_path()
_SAMPLE = ir2native_data.sample_flag()
_TREES = flags.DEFINE_integer("trees", TreeSettings.iterations, "Boosted trees.", 1, 10_000)
_EPOCHS = flags.DEFINE_integer("epochs", NetworkSettings.epochs, "Epochs of the network.", 1, 10_000)
_FOLDS = flags.DEFINE_integer("folds", TrainingSettings.folds, "Parts of the cross-validation that calibrates.", 2, 100)
_SEED = shared_flags.seed("samples, folds, trees and network")
_NUM_WORKERS = shared_flags.num_workers()


@entry_point.command
def entry() -> None:
    require_tensorflow("training a cost model")
    require_scikit_learn()
    output: Path = _OUTPUT_DIR.value
    corpus = _CORPUS.filtered(_CORPUS.load())
    validation = _CORPUS.load_other(_VALIDATION_PATH.value)
    _check_apart(corpus, validation)
    toolchain = probe(_CLANG_PATH.value)
    toolchain.tool("opt")
    with exclusive_directory(output, "--output_dir"):
        workers = entry_point.num_workers(_NUM_WORKERS.value)
        data: list[Dataset] = []
        for name, each in (("training", corpus), ("validation", validation)):
            each.check_compiler(toolchain.version, toolchain.clang)
            data.append(
                ir2native_data.collect(
                    each, toolchain, output / "dataset", name, _SAMPLE.value, _SEED.value, num_workers=workers
                )
            )
        fitted, held = data
        settings = TrainingSettings(
            trees=TreeSettings(iterations=_TREES.value),
            network=NetworkSettings(epochs=_EPOCHS.value),
            folds=_FOLDS.value,
            seed=_SEED.value,
        )
        about = {
            "projects": sorted(set(fitted.projects().tolist())),
            "modules": len(fitted.modules),
            "modules_per_project": _SAMPLE.value,
        }
        model = train(fitted, toolchain, settings, about, entry_point.echo)
        predicted = model.predict_all(held)
        errors = {kind: evaluation.measure(held, predicted[kind], seed=_SEED.value) for kind in KINDS}
        chosen = min(("trees", "network", "mean"), key=lambda kind: errors[kind].mean_median_error.value)
        model = dataclasses.replace(model, chosen=chosen)
        model.save(output / "model")
        write_json(output / "validation.json", {kind: each.to_json() for kind, each in errors.items()})
    for line in evaluation.table(errors[chosen]).lines():
        entry_point.echo(line)
    for kind in KINDS:
        entry_point.echo(f"{kind}{' (chosen)' if kind == chosen else ''}:")
        for line in evaluation.summary(errors[kind]):
            entry_point.echo(f"  {line}")
    entry_point.echo(f"{output / 'model'}: the model, chosen on {_VALIDATION_PATH.value}")


def _check_apart(corpus: Corpus, validation: Corpus) -> None:
    shared = sorted(set(corpus.projects()) & set(validation.projects()))
    if shared:
        raise ConfigError(
            f"--validation_path={_VALIDATION_PATH.value}: has the project {shared[0]}, which --data_path has, too; "
            "give a corpus of other projects"
        )


if __name__ == "__main__":
    entry()
