"""Files of basic blocks that are missing or damaged, and models of them."""

from tests.tools.bad_input.mistake import Mistake

REMEDY = "make it again with compiler_opt cost_model blocks"

MISTAKES = (
    Mistake(
        "blocks missing",
        ("cost_model train", "cost_model evaluate"),
        {"blocks_dir": "no/such/blocks"},
        ("no/such/blocks/train.npz: cannot be read: No such file", REMEDY),
    ),
    Mistake(
        "blocks truncated",
        ("cost_model train", "cost_model evaluate"),
        {"blocks_dir": "blocks-truncated"},
        ("blocks-truncated/train.npz: damaged", REMEDY),
    ),
    Mistake(
        "no blocks but other arrays",
        ("cost_model train", "cost_model evaluate"),
        {"blocks_dir": "blocks-other"},
        ("blocks-other/train.npz: no file of blocks: it lacks 'format'", REMEDY),
    ),
    Mistake("no blocks", ("cost_model train",), {"blocks_dir": None}, ("expected --blocks_dir",)),
    Mistake(
        "a model of functions from blocks",
        ("cost_model train",),
        {"model": "ir2native"},
        ("--blocks_dir: not with --model=ir2native; leave it out",),
    ),
    Mistake(
        "neither blocks nor functions",
        ("cost_model evaluate",),
        {"blocks_dir": None},
        ("expected either --blocks_dir, for models of blocks, or --data_path, for one of ir2native",),
    ),
    Mistake(
        "labels of another source",
        ("cost_model train", "cost_model evaluate"),
        {"label_source": "a stopwatch"},
        ("blocks/train.npz: has no labels of 'a stopwatch', but of llvm-mca 22.1.0 skylake",),
    ),
    Mistake(
        "model missing",
        ("cost_model evaluate",),
        {"model_dir": "no/such/model"},
        ("no/such/model/model.json: no such file", "compiler_opt cost_model train"),
    ),
    Mistake(
        "another kind of model",
        ("cost_model evaluate",),
        {"model_dir": "model-other"},
        ("model-other/model.json: damaged: ", "train it again"),
    ),
    Mistake(
        "native processor",
        ("cost_model blocks",),
        {"cpu": "native"},
        ("--cpu=native", "name a processor"),
    ),
    Mistake("unknown processor", ("cost_model blocks",), {"cpu": "x987"}, ("llvm-mca cannot simulate x987", "--cpu")),
    Mistake(
        "corpus to collect blocks from missing",
        ("cost_model blocks",),
        {"data_path": "no/such/corpus"},
        ("no/such/corpus/corpus_description.json: no such file", "compiler_opt fetch_corpus"),
    ),
    Mistake(
        "program to profile missing",
        ("cost_model profile",),
        {"benchmark": "no/such/bench 10"},
        ("--benchmark=no/such/bench 10: expected a program, found none at no/such/bench",),
    ),
    Mistake(
        "program without an address map",
        ("cost_model profile",),
        {"benchmark": "programs/plain 10"},
        ("programs/plain: expected an address map of its blocks", "compile it with -fbasic-block-address-map"),
    ),
    Mistake(
        "program that fails",
        ("cost_model profile",),
        {"benchmark": "programs/bench -1"},
        ("programs/bench -1: expected exit status 0, found: exit status 3",),
    ),
    Mistake(
        "samples of another program",
        ("cost_model profile",),
        {"perf_script": "samples-other.txt"},
        (
            "samples-other.txt: expected samples of the program with the build id",
            "found 0123456789abcdef of /elsewhere",
        ),
    ),
    Mistake(
        "samples missing",
        ("cost_model profile",),
        {"perf_script": "no/such/samples"},
        ("no/such/samples: cannot be read: No such file",),
    ),
)
