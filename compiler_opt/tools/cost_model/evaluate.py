"""Measures how far a cost model's predictions are from the labels, project by project.

    compiler_opt cost_model evaluate --blocks_dir=$BLOCKS --split=held_out --model_dir=$GRAPH --model_dir=$SEQUENCE

prints the mean absolute percentage error on $BLOCKS/held_out.npz of each model of blocks, and of baselines that are
fitted to $BLOCKS/train.npz (docs/throughput.md).

    compiler_opt cost_model evaluate --data_path=$CORPUS/held_out --model_dir=$OUTPUT/model --output_dir=$ERRORS

compiles each module once, and prints the errors of a model of ir2native: of functions, and the bias of module sums
(docs/cost_models.md). Writes `errors.json`, `functions.csv` with every prediction, and what was read of the modules, by
which a command that was interrupted goes on. Needs no TensorFlow.
"""

from pathlib import Path

import numpy as np
from absl import flags

from compiler_opt.cost_models.errors import median_error, relative_errors, shown
from compiler_opt.cost_models.ir2native import evaluation
from compiler_opt.cost_models.ir2native.dataset import Dataset, read_corpus
from compiler_opt.cost_models.ir2native.model import KINDS, Ir2NativeModel
from compiler_opt.cost_models.throughput.baselines import fit_all
from compiler_opt.cost_models.throughput.block_trees import BlockTrees
from compiler_opt.cost_models.throughput.datasets import LabelledBlocks, load_labelled
from compiler_opt.cost_models.throughput.extraction import projects_of
from compiler_opt.cost_models.throughput.instructions import Decoder
from compiler_opt.cost_models.trees import require_scikit_learn
from compiler_opt.errors import ConfigError
from compiler_opt.evaluation.statistics import mean_interval, to_json
from compiler_opt.files import exclusive_directory, write_json, write_text
from compiler_opt.report.formatting import aligned
from compiler_opt.report.table import csv_text
from compiler_opt.tensorflow_loading import load_tensorflow, require_tensorflow
from compiler_opt.tools import entry_point, shared_flags
from compiler_opt.tools.entry_point import echo

_MODEL_DIR = flags.DEFINE_multi_string(
    "model_dir", [], "Folder of a model of `cost_model train`; models of blocks may be several."
)

_BLOCKS_DIR = shared_flags.path("blocks_dir", "Folder with the files of `cost_model blocks`.")
_SPLIT = flags.DEFINE_string("split", "validation", "The file to measure on; held_out is for published figures.")
_LABEL_SOURCE = flags.DEFINE_string("label_source", None, "Which labels, if the blocks have those of several sources.")
_THREADS = flags.DEFINE_integer("num_threads", 1, "Threads of TensorFlow.", 1)

_CORPUS = shared_flags.CorpusFlags(required=False)
_OUTPUT_DIR = shared_flags.path("output_dir", "With --data_path: folder for errors.json, functions.csv and the rest.")
_KIND = flags.DEFINE_enum("kind", None, list(KINDS), "What corrects ir2native's sizes; by default what was chosen.")
_CLANG_PATH = shared_flags.clang_path()
_SAMPLE = flags.DEFINE_integer(
    "modules_per_project", None, "At most so many modules of each project, drawn at random; by default all.", 1
)
_SEED = shared_flags.seed("samples and intervals")
shared_flags.json()
_NUM_WORKERS = shared_flags.num_workers()


@entry_point.command
def entry() -> None:
    if (_BLOCKS_DIR.value is None) == (_CORPUS.data_path.value is None):
        raise ConfigError("expected either --blocks_dir, for models of blocks, or --data_path, for one of ir2native")
    if _BLOCKS_DIR.value is not None:
        _evaluate_on_blocks(_BLOCKS_DIR.value)
    elif _OUTPUT_DIR.value is None or len(_MODEL_DIR.value) != 1:
        raise ConfigError("expected one --model_dir, and --output_dir, with --data_path")
    else:
        _evaluate_on_functions(Path(_MODEL_DIR.value[0]), _OUTPUT_DIR.value)


def _evaluate_on_blocks(blocks_dir: Path) -> None:
    require_scikit_learn()
    decoder = Decoder()
    train = load_labelled(blocks_dir / "train.npz", decoder, _LABEL_SOURCE.value)
    test = load_labelled(blocks_dir / f"{_SPLIT.value}.npz", decoder, train.source)
    if _MODEL_DIR.value:
        require_tensorflow("a model of blocks")
        load_tensorflow(_THREADS.value)
    predicted: dict[str, np.ndarray] = {}
    for baseline in fit_all(train.instructions, train.cycles):
        predicted[baseline.name] = baseline.predict(test.instructions)
    trees = BlockTrees(train.instructions, _annotations(train), train.cycles)
    predicted[trees.name] = trees.predict(test.instructions, _annotations(test))
    for folder in _MODEL_DIR.value:
        from compiler_opt.cost_models.throughput.model import ThroughputModel, annotation_inputs

        model = ThroughputModel.load(Path(folder))
        if model.description.label_source != test.source:
            raise ConfigError(
                f"{folder}: was trained with labels of {model.description.label_source}; the blocks have {test.source}"
            )
        name = f"{model.description.kind} network"
        predicted[name if name not in predicted else f"{name}, {folder}"] = model.predict_encoded(
            model.network.encode(test.instructions), annotation_inputs(test.blocks)
        )
    echo(f"{len(test.cycles)} blocks, labels of {test.source}; mean absolute percentage error (median)")
    projects = np.array(projects_of(test.blocks))
    errors = {name: relative_errors(values, test.cycles) for name, values in predicted.items()}
    groups = {str(name): projects == name for name in np.unique(projects)}
    rows = [("project", "blocks", *errors)]
    for project, group in groups.items():
        rows.append((project, str(group.sum()), *(f"{each[group].mean():.2%}" for each in errors.values())))
    overall = (f"{each.mean():.2%} ({np.median(each):.2%})" for each in errors.values())
    rows.append(("all", str(len(projects)), *overall))
    for line in aligned(rows, 1, (1, len(rows) - 1)):
        echo(line)
    models: dict[str, dict[str, object]] = {}
    for name, each in errors.items():
        median = median_error(each, projects, np.random.default_rng(_SEED.value))
        medians = mean_interval([float(np.median(each[group])) for group in groups.values()])
        echo(f"{name}: median error {shown(median)}; mean over projects {shown(medians)}")
        models[name] = {
            "mean_error": float(each.mean()),
            "median_error": to_json(median),
            "mean_median_error": to_json(medians),
            "mean_error_by_project": {project: float(each[group].mean()) for project, group in groups.items()},
        }
    counts = {project: int(group.sum()) for project, group in groups.items()}
    entry_point.print_json({"split": _SPLIT.value, "label_source": test.source, "blocks": counts, "models": models})


def _annotations(found: LabelledBlocks) -> np.ndarray:
    return np.array([block.annotations for block in found.blocks])


def _evaluate_on_functions(model_dir: Path, output: Path) -> None:
    model = Ir2NativeModel.load(model_dir)
    corpus, toolchain = _CORPUS.read(_CLANG_PATH.value)
    model.check(toolchain)
    kind = _KIND.value or model.chosen
    with exclusive_directory(output, "--output_dir"):
        sample, workers = corpus.sample(_SAMPLE.value, _SEED.value), entry_point.num_workers(_NUM_WORKERS.value)
        data, failures = read_corpus(sample, toolchain, output / "dataset", "functions", num_workers=workers)
        predicted = model.predict(data, kind)
        errors = evaluation.measure(data, predicted, seed=_SEED.value, seen=model.seen)
        write_json(output / "errors.json", {"kind": kind, **errors.to_json()})
        write_text(output / "functions.csv", csv_text(_rows(data, predicted.tolist())))
    for line in entry_point.first_of("not compiled", failures):
        entry_point.warn(line)
    for line in [*evaluation.table(errors).lines(), *evaluation.summary(errors)]:
        echo(line)
    entry_point.print_json(output / "errors.json")


def _rows(data: Dataset, predicted: list[float]) -> list[dict[str, object]]:
    modules = data.module_of_function().tolist()
    return [
        {
            "module": data.modules[module].module,
            "function": symbol,
            "bytes": size if size >= 0 else None,
            "predicted": round(prediction, 1),
        }
        for module, symbol, size, prediction in zip(
            modules, data.symbols(), data.bytes().tolist(), predicted, strict=True
        )
    ]


if __name__ == "__main__":
    entry()
