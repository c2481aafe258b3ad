"""Makes a vocabulary, the quantiles of each feature, from a default trace.

    PYTHONPATH=. python3 compiler_opt/tools/generate_vocab.py --input=$DEFAULT_TRACE --output_dir=$VOCAB

Writes one text file per feature, `FEATURE.buckets`, with one number per line. Quantiles are exact unless a feature has
more than 262,144 different values (see `compiler_opt/rl/quantiles.py`).
"""

from absl import flags

from compiler_opt import problem as problems
from compiler_opt.rl.default_trace import describe_trace
from compiler_opt.rl.vocabularies import make_vocabulary
from compiler_opt.tools import entry_point, gin_settings, shared_flags

_INPUT = shared_flags.required_path("input", "The trace that generate_default_trace wrote.")
_OUTPUT_DIR = shared_flags.required_path("output_dir", "The folder for the vocabulary.")
_COMPILE_TASK = shared_flags.TaskFlag("the trace's")
_NUM_QUANTILES = flags.DEFINE_integer(
    "num_quantiles", None, "Number of quantiles of each feature; overrides gin's vocabulary.num_quantiles.", 2, 1 << 16
)
_SAMPLING_FRACTION = flags.DEFINE_float(
    "sampling_fraction", 1.0, "Fraction of the decisions to sample, from 0 to 1.", 0, 1
)
_GIN = gin_settings.GinFlags()
_NUM_WORKERS = shared_flags.num_workers("Threads")
_SEED = shared_flags.seed("the sample")


@entry_point.command
def entry() -> None:
    output_dir = _OUTPUT_DIR.value
    settings = _GIN.read(gin_settings.of_vocabulary(), unused=["network", "problem_config", "inlining"])
    config = gin_settings.override(settings["vocabulary"], num_quantiles=_NUM_QUANTILES.value)
    trace = describe_trace(_INPUT.value)
    problem = _COMPILE_TASK.load(
        settings["command"].compile_task, lambda: problems.recorded(trace.about, str(trace.path))
    )
    quantiles = make_vocabulary(
        trace.path,
        output_dir,
        config,
        problem=problem,
        sampling_fraction=_SAMPLING_FRACTION.value,
        seed=_SEED.value,
        num_threads=_NUM_WORKERS.value,
    )
    print(
        f"{output_dir}: {len(quantiles)} features, {config.num_quantiles} quantiles each, "
        f"from {trace.num_decisions} decisions of {trace.num_contexts} contexts"
    )


if __name__ == "__main__":
    entry()
