"""Files of basic blocks that are missing or damaged, and models of them."""

from tests.tools.bad_input.mistake import Mistake

REMEDY = "collect the blocks again"

MISTAKES = (
    Mistake(
        "blocks missing",
        ("train_throughput", "evaluate_throughput"),
        {"blocks_dir": "no/such/blocks"},
        ("no/such/blocks/train.npz: cannot be read: No such file", REMEDY),
    ),
    Mistake(
        "blocks truncated",
        ("train_throughput", "evaluate_throughput"),
        {"blocks_dir": "blocks-truncated"},
        ("blocks-truncated/train.npz: damaged", REMEDY),
    ),
    Mistake(
        "no blocks but other arrays",
        ("train_throughput", "evaluate_throughput"),
        {"blocks_dir": "blocks-other"},
        ("blocks-other/train.npz: no file of blocks: it lacks 'format'", REMEDY),
    ),
    Mistake(
        "labels of another source",
        ("train_throughput", "evaluate_throughput"),
        {"label_source": "a stopwatch"},
        ("blocks/train.npz: has no labels of 'a stopwatch', but of llvm-mca 22.1.0 skylake",),
    ),
    Mistake(
        "model missing",
        ("evaluate_throughput",),
        {"model_dir": "no/such/model"},
        ("no/such/model/model.json: no such file", "train_throughput.py"),
    ),
    Mistake("native processor", ("collect_blocks",), {"cpu": "native"}, ("--cpu=native", "name a processor")),
    Mistake("unknown processor", ("collect_blocks",), {"cpu": "x987"}, ("llvm-mca cannot simulate x987", "--cpu")),
    Mistake(
        "corpus to collect blocks from missing",
        ("collect_blocks",),
        {"data_path": "no/such/corpus"},
        ("no/such/corpus/corpus_description.json: no such file", "fetch_corpus.py"),
    ),
)
