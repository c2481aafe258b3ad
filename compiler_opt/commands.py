"""The commands by task: what `compiler_opt VERB` starts, its help and its completion follow from this table."""

import ast
from collections.abc import Sequence
from pathlib import Path

TASKS = {
    "one program": ("optimize", "search", "explain", "evaluate", "deploy", "doctor"),
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
        "generate_ir2vec_vocab",
        "train_bc",
        "train_locally",
        "compare_trainers",
        "merge_best_trajectory",
    ),
    "policies": (
        "policy average|combine|margin|release",
        "export_policy",
        "import_policy",
        "feature_importance",
        "reduce_decisions",
        "generate_test_model",
    ),
    "cost models": ("cost_model blocks|profile|train|evaluate|predict",),
    "pass options": ("screen_options",),
}
"""The verbs of each task, the most used first, those of a group together. Each is a module in `tools/`, of a group in a
folder, with its function `entry`."""

VERBS = tuple(
    f"{group} {word}".strip()
    for verbs in TASKS.values()
    for group, _, words in (each.rpartition(" ") for each in verbs)
    for word in words.split("|")
)


def verb_of(words: Sequence[str]) -> str | None:
    """The verb, of one or two words, that a command line begins with; None if there is none."""
    return next((verb for verb in (" ".join(words[:1]), " ".join(words[:2])) if verb in VERBS), None)


def module_of(verb: str) -> str:
    """The name of the verb's module."""
    return f"compiler_opt.tools.{verb.replace(' ', '.')}"


def summary(verb: str) -> str:
    """The first line of the docstring of the verb's module, which is not imported."""
    source = Path(__file__).parent / "tools" / f"{verb.replace(' ', '/')}.py"
    return (ast.get_docstring(ast.parse(source.read_text())) or "").partition("\n")[0]
