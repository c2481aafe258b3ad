"""The four commands about basic blocks, one after the other, as a user runs them."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from compiler_opt.cost_models.throughput.address_map import FLAGS
from compiler_opt.cost_models.throughput.blocks import load_blocks
from tests import programs
from tests.small_corpus import BUSY_SOURCES, SOURCES, make_corpus

CLANG = "/usr/bin/clang-22"
LABELS = r"llvm-mca 22\.\d+\.\d+ skylake"


def run(tool: str, *arguments: str) -> str:
    result = programs.run(f"compiler_opt.tools.cost_model.{tool}", *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(name="place", scope="module")
def place_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Corpora of three splits; a function of `train` is in all of them."""
    place = tmp_path_factory.mktemp("place")
    common = {f"{name}/common.c": BUSY_SOURCES["loops/alone.c"] for name in ("one", "two", "three")}
    for split, name, sources in (
        ("train", "one", BUSY_SOURCES),
        ("validation", "two", {"two/list.c": SOURCES["plain/list.c"]}),
        ("held_out", "three", {"three/area.cpp": SOURCES["shapes/area.cpp"]}),
    ):
        (place / "corpora" / split).mkdir(parents=True)
        own = {f"{name}/common.c": common[f"{name}/common.c"]}
        make_corpus(place / "corpora" / split, CLANG, {**sources, **own}, level="O2")
    return place


@pytest.mark.slow
def test_from_corpora_to_cycles_of_functions(place: Path) -> None:
    blocks, model = place / "blocks", place / "model"
    collect = (f"--clang_path={CLANG}", f"--data_path={place / 'corpora'}", f"--output_dir={blocks}")
    said = run("blocks", *collect)
    for split in ("train", "validation", "held_out"):
        assert re.search(rf"blocks/{split}\.npz: \d+ blocks of \d modules; read \d+, not decoded 0, distinct \d+", said)
    codes = {
        split: [block.code for block in load_blocks(blocks / f"{split}.npz")]
        for split in ("train", "validation", "held_out")
    }
    together = [code for each in codes.values() for code in each]
    assert len(set(together)) == len(together) and all(codes.values())
    modules = {block.module for block in load_blocks(blocks / "held_out.npz")}
    assert "three/common.c.o" in modules
    assert "two/common.c.o" not in {block.module for block in load_blocks(blocks / "validation.npz")}
    before = {path: path.read_bytes() for path in blocks.glob("*.npz")}
    assert run("blocks", *collect) == said
    assert {path: path.read_bytes() for path in blocks.glob("*.npz")} == before

    train = (f"--blocks_dir={blocks}", f"--output_dir={model}", "--units=8", "--rounds=1", "--epochs=2")
    said = run("train", *train)
    assert re.search(r"epoch 2: loss [\d.]+, error on validation [\d.]+%", said)
    assert re.search(
        r"model: graph network of epoch [12], mean absolute percentage error on \d+ validation blocks", said
    )
    assert "epoch 1:" not in run("train", *train, "--tflite")
    assert (model / "model.tflite").read_bytes()[4:8] == b"TFL3"
    result = programs.run("compiler_opt.tools.cost_model.train", *train, "--tflite", "--model=sequence")
    assert result.returncode == 2 and "error: TFLite: only the graph network can be exported" in result.stderr

    said = run("evaluate", f"--blocks_dir={blocks}", "--split=held_out", f"--model_dir={model}")
    assert re.search(rf"\d+ blocks, labels of {LABELS}", said)
    assert re.search(
        r"project +blocks +constant per instruction +linear in the histogram +boosted trees +graph network", said
    )
    ending = r"mean over projects [\d.]+% \(no interval: one project\)\n$"
    assert re.search(rf"\ngraph network: median error [\d.]+% \(.* to .*%\); {ending}", said)
    assert re.search(r"\nthree +\d+ ( +[\d.]+%){4}\n", said) and re.search(
        r"\nall +\d+ ( +[\d.]+% \([\d.]+%\)){4}\n", said
    )

    printed = json.loads(run("evaluate", f"--blocks_dir={blocks}", f"--model_dir={model}", "--json"))
    assert (printed["split"], list(printed["blocks"])) == ("validation", ["two"])
    errors = printed["models"]["graph network"]
    assert errors["mean_error"] == pytest.approx(errors["mean_error_by_project"]["two"])
    assert errors["median_error"]["low"] <= errors["median_error"]["value"] <= errors["median_error"]["high"]
    assert errors["mean_median_error"]["low"] is None  # Of one project.

    predict = (f"--model_dir={model}", f"--clang_path={CLANG}")
    corpus = f"--data_path={place / 'corpora/train'}"
    said = run("predict", *predict, corpus, "--module_filter=sums", "--functions=1")
    assert re.search(r"\n(sums|more) +mixed/sums.c.o +\d+ +[\d.]+\n2 functions, \d+ blocks, of which 0 cannot", said)
    (place / "x.c").write_text("int f(int x) { return x / 3; }")
    options = ["-O2", "-fbasic-block-address-map", *FLAGS[1:]]
    subprocess.run([CLANG, *options, "-c", "x.c"], cwd=place, check=True)
    printed = json.loads(run("predict", *predict, f"--object={place / 'x.o'}", "--json"))
    [function] = printed["functions"]
    assert (function["function"], function["module"], function["num_blocks"]) == ("f", "x.o", 1)
    assert function["cycles"] > 0 and printed["num_blocks"] == 1 and printed["left_out"] == []

    result = programs.run("compiler_opt.tools.cost_model.predict", *predict)
    assert (result.returncode, result.stderr) == (2, "error: expected either --object or --data_path\n")
    (place / "x.o").write_bytes((place / "x.o").read_bytes()[:200])
    result = programs.run("compiler_opt.tools.cost_model.predict", *predict, f"--object={place / 'x.o'}")
    assert result.returncode == 2 and re.fullmatch(r"error: .*x\.o: .*\n", result.stderr)
