"""The commands by task: what `compiler_opt VERB` starts, its help and its completion follow from this table."""

import ast
from pathlib import Path

TASKS = {
    "one program": ("optimize", "search", "headroom", "explain", "evaluate", "deploy", "doctor"),
    "corpora": (
        "fetch_corpus",
        "extract_ir",
        "make_corpus",
        "combine_training_corpus",
        "verify_corpus",
        "corpus_stats",
    ),
    "training": (
        "generate_default_trace",
        "generate_vocab",
        "train_bc",
        "train_locally",
        "compare_trainers",
        "merge_best_trajectory",
    ),
    "policies": (
        "average_policies",
        "combine_policies",
        "choose_margin",
        "release_policy",
        "export_policy",
        "import_policy",
        "feature_importance",
        "reduce_decisions",
        "generate_test_model",
    ),
    "cost models": (
        "collect_blocks",
        "profile_blocks",
        "train_throughput",
        "evaluate_throughput",
        "predict_throughput",
        "train_ir2native",
        "evaluate_ir2native",
    ),
    "pass options": ("screen_options",),
}
"""The verbs of each task, the most used first. Each is a module in `tools/`, with its function `entry`."""

VERBS = tuple(verb for verbs in TASKS.values() for verb in verbs)


def module_of(verb: str) -> str:
    """The name of the verb's module."""
    return f"compiler_opt.tools.{verb}"


def summary(verb: str) -> str:
    """The first line of the docstring of the verb's module, which is not imported."""
    source = Path(__file__).parent / "tools" / f"{verb}.py"
    return (ast.get_docstring(ast.parse(source.read_text())) or "").partition("\n")[0]
