"""Predicts the native size of the functions of a corpus, and compares with what compiling gives.

    python -m compiler_opt.tools.evaluate_ir2native --model_path=$OUTPUT/model --data_path=$CORPUS/held_out \
      --output_path=$ERRORS

compiles each module once, and prints by project the errors of functions and the bias of module sums
(docs/cost_models.md). Writes `errors.json`, `functions.csv` with every prediction, and what was read of the modules, by
which a command that was interrupted goes on. Needs no TensorFlow.
"""

from absl import flags

from compiler_opt.cost_models.ir2native import evaluation
from compiler_opt.cost_models.ir2native.dataset import Dataset
from compiler_opt.cost_models.ir2native.model import KINDS, Ir2NativeModel
from compiler_opt.files import check_folder_writable, exclusive_directory, write_json, write_text
from compiler_opt.llvm.toolchain import probe
from compiler_opt.report.table import csv_text
from compiler_opt.tools import entry_point, ir2native_data, shared_flags

_MODEL_PATH = shared_flags.required_path("model_path", "The folder of a model of train_ir2native.")
_CORPUS = shared_flags.CorpusFlags()
_OUTPUT_PATH = shared_flags.required_path("output_path", "Folder for errors.json, functions.csv and the dataset.")
_KIND = flags.DEFINE_enum("kind", None, list(KINDS), "The kind of model; by default the one that was chosen.")
_CLANG_PATH = shared_flags.clang_path()
_SAMPLE = ir2native_data.sample_flag()
_SEED = shared_flags.seed("samples and intervals")
_NUM_WORKERS = shared_flags.num_workers()


@entry_point.command
def entry() -> None:
    output = _OUTPUT_PATH.value
    check_folder_writable(output)
    model = Ir2NativeModel.load(_MODEL_PATH.value)
    corpus = _CORPUS.filtered(_CORPUS.load())
    toolchain = probe(_CLANG_PATH.value)
    model.check(toolchain)
    corpus.check_compiler(toolchain.version, toolchain.clang)
    kind = _KIND.value or model.chosen
    with exclusive_directory(output, "--output_path"):
        workers = entry_point.num_workers(_NUM_WORKERS.value)
        data = ir2native_data.collect(
            corpus, toolchain, output / "dataset", "functions", _SAMPLE.value, _SEED.value, num_workers=workers
        )
        predicted = model.predict(data, kind)
        errors = evaluation.measure(data, predicted, seed=_SEED.value, seen=model.seen)
        write_json(output / "errors.json", {"kind": kind, **errors.to_json()})
        write_text(output / "functions.csv", csv_text(_rows(data, predicted.tolist())))
    for line in evaluation.table(errors).lines():
        entry_point.echo(line)
    for line in evaluation.summary(errors):
        entry_point.echo(line)


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
