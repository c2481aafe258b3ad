"""Makes a vocabulary, the quantiles of each feature, from a default trace.

    PYTHONPATH=. python3 compiler_opt/tools/generate_vocab.py --input=$DEFAULT_TRACE --output_dir=$VOCAB

Writes one text file per feature, `FEATURE.buckets`, one number per line. Exact, unless a feature has more than 262,144
different values (see `compiler_opt/rl/quantiles.py`).
"""

from pathlib import Path

from absl import flags

from compiler_opt.collect.traces import TraceDescription
from compiler_opt.errors import ConfigError
from compiler_opt.files import check_folder_writable
from compiler_opt.problems import problem as problems
from compiler_opt.rl import pipeline
from compiler_opt.tools import entry_point

_INPUT = flags.DEFINE_string("input", None, "The trace, as generate_default_trace writes it.")
_OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "The folder of the vocabulary.")
_COMPILE_TASK = flags.DEFINE_string(
    "compile_task", None, "What is decided; by default what the trace says. MODULE:PROBLEM for one of your own."
)
_NUM_QUANTILES = flags.DEFINE_integer("num_quantiles", 64, "Quantiles of each feature.", 2, 1 << 16)
_SAMPLING_FRACTION = flags.DEFINE_float("sampling_fraction", 1.0, "Share of the decisions to look at.", 0, 1)
_NUM_WORKERS = flags.DEFINE_integer("num_workers", None, "Threads; by default one per CPU.", 1)
_SEED = flags.DEFINE_integer("seed", 0, "Of the sample.", 0)


@entry_point.command
def entry() -> None:
    if not _INPUT.value or not _OUTPUT_DIR.value:
        raise ConfigError("--input and --output_dir are needed: the trace to read, and the folder of the vocabulary")
    output_dir = Path(_OUTPUT_DIR.value)
    check_folder_writable(output_dir)
    trace = TraceDescription(Path(_INPUT.value))
    quantiles = pipeline.make_vocabulary(
        trace.path,
        output_dir,
        _NUM_QUANTILES.value,
        problem=problems.load(_COMPILE_TASK.value) if _COMPILE_TASK.value else None,
        sampling_fraction=_SAMPLING_FRACTION.value,
        seed=_SEED.value,
        num_threads=_NUM_WORKERS.value,
    )
    print(
        f"{output_dir}: {len(quantiles)} features, {_NUM_QUANTILES.value} quantiles each, "
        f"from {trace.num_decisions} decisions of {trace.num_contexts} contexts"
    )


if __name__ == "__main__":
    entry()
