"""Predicts the cycles of each function of an object, or of the modules of a corpus.

    compiler_opt cost_model predict --model_dir=$MODEL --object=x.o

needs an object with an address map of its blocks: compile with -fbasic-block-address-map -mllvm
-pgo-analysis-map=func-entry-count,bb-freq,br-prob, which leaves the code as it is. With --data_path=$CORPUS (and
--module_filter) instead of --object, modules are compiled so. A function's cycles are those of its blocks, weighted by
the compiler's estimate of how often each runs per call; what it calls is not included.
"""

import dataclasses

from absl import flags

from compiler_opt.cost_models.throughput.address_map import read_object
from compiler_opt.cost_models.throughput.blocks import Block
from compiler_opt.cost_models.throughput.extraction import compile_module
from compiler_opt.cost_models.throughput.function_cycles import cycles_by_function
from compiler_opt.cost_models.throughput.instructions import Decoder
from compiler_opt.errors import CompileError, ConfigError, CorpusError, ProtocolError
from compiler_opt.llvm.toolchain import probe
from compiler_opt.progress_bar import progress_bar
from compiler_opt.report.formatting import aligned
from compiler_opt.tensorflow_loading import require_tensorflow
from compiler_opt.tools import entry_point, shared_flags

_MODEL_DIR = shared_flags.required_path("model_dir", "Folder of a model of blocks, of `cost_model train`.")
_OBJECT = shared_flags.path("object", "An x86-64 object with an address map of its blocks.")
_CORPUS = shared_flags.CorpusFlags(required=False)
_FUNCTIONS = flags.DEFINE_integer("functions", 20, "Functions to print, the most expensive ones first; 0 for all.", 0)
shared_flags.json()
_CLANG_PATH = shared_flags.clang_path("The clang whose tools to use; by default the newest one installed.")


@entry_point.command
def entry() -> None:
    require_tensorflow("a model of blocks")
    decoder = Decoder()
    if (_OBJECT.value is None) == (_CORPUS.data_path.value is None):
        raise ConfigError("expected either --object or --data_path")
    failures: list[str] = []
    blocks: list[Block] = []
    if _OBJECT.value is not None:
        blocks = read_object(_OBJECT.value, probe(_CLANG_PATH.value), _OBJECT.value.name)
    else:
        corpus, toolchain = _CORPUS.read(_CLANG_PATH.value)
        for module in progress_bar(corpus.modules, "compiling", unit="module"):
            try:
                blocks += compile_module(module, toolchain)
            except (CompileError, CorpusError, ProtocolError) as error:
                failures.append(str(error))
        if not blocks and failures:
            raise CorpusError(f"{corpus.root}: gives no blocks: {failures[0]}")

    from compiler_opt.cost_models.throughput.model import ThroughputModel

    model = ThroughputModel.load(_MODEL_DIR.value)
    found = cycles_by_function(blocks, model.predict(blocks, decoder))
    shown = found[: _FUNCTIONS.value or None]
    rows = [("function", "module", "blocks", "cycles per call")]
    rows += [(each.function, each.module, str(each.num_blocks), f"{each.cycles:.1f}") for each in shown]
    for line in aligned(rows, 2, (1,)):
        entry_point.echo(line)
    num_unknown = sum(each.num_unknown for each in found)
    entry_point.echo(
        f"{len(found)} functions, {len(blocks)} blocks, of which {num_unknown} cannot be decoded and count nothing; "
        f"model of labels of {model.description.label_source}"
    )
    for line in entry_point.first_of("left out", failures):
        entry_point.warn(line)
    entry_point.print_json(
        {
            "functions": [dataclasses.asdict(each) for each in shown],
            "num_functions": len(found),
            "num_blocks": len(blocks),
            "num_unknown": num_unknown,
            "label_source": model.description.label_source,
            "left_out": failures,
        }
    )


if __name__ == "__main__":
    entry()
