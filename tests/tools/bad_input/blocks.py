"""Files of basic blocks that are missing or damaged, and models of them."""

from tests.tools.bad_input.mistake import Mistake

REMEDY = "make it again with collect_blocks"

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
    Mistake(
        "another kind of model",
        ("evaluate_throughput",),
        {"model_dir": "model-other"},
        ("model-other/model.json: damaged: ", "train it again"),
    ),
    Mistake(
        "native processor",
        ("collect_blocks",),
        {"cpu": "native"},
        ("--cpu=native", "name a processor"),
    ),
    Mistake("unknown processor", ("collect_blocks",), {"cpu": "x987"}, ("llvm-mca cannot simulate x987", "--cpu")),
    Mistake(
        "corpus to collect blocks from missing",
        ("collect_blocks",),
        {"data_path": "no/such/corpus"},
        ("no/such/corpus/corpus_description.json: no such file", "fetch_corpus.py"),
    ),
    Mistake(
        "program to profile missing",
        ("profile_blocks",),
        {"benchmark": "no/such/bench 10"},
        ("--benchmark=no/such/bench 10: expected a program, found none at no/such/bench",),
    ),
    Mistake(
        "program without an address map",
        ("profile_blocks",),
        {"benchmark": "programs/plain 10"},
        ("programs/plain: expected an address map of its blocks", "compile it with -fbasic-block-address-map"),
    ),
    Mistake(
        "program that fails",
        ("profile_blocks",),
        {"benchmark": "programs/bench -1"},
        ("programs/bench -1: expected exit status 0, found: exit status 3",),
    ),
    Mistake(
        "samples of another program",
        ("profile_blocks",),
        {"perf_script": "samples-other.txt"},
        (
            "samples-other.txt: expected samples of the program with the build id",
            "found 0123456789abcdef of /elsewhere",
        ),
    ),
    Mistake(
        "samples missing",
        ("profile_blocks",),
        {"perf_script": "no/such/samples"},
        ("no/such/samples: cannot be read: No such file",),
    ),
)
