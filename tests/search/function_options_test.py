"""Choosing options by function on a small corpus, with real compilers."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from compiler_opt.collect.schedule import Job
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.options_plugin import FunctionOptions
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.search.function_options import load, measure, save, task
from tests.small_corpus import make_small_corpus

FIRST = ("-enable-pre=false", "-disable-branch-fold=true", "-disable-machine-cse=true")
MENU = (FIRST, (*FIRST, "-disable-peephole=true"), FIRST[:2], (FIRST[0], FIRST[2]))
"""The first one is not a good one, so that there is something to choose in functions as small as these."""


@pytest.fixture(scope="module")
def corpus(clang_path: str, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_small_corpus(tmp_path_factory.mktemp("corpus"), clang_path)


@pytest.fixture(scope="module")
def pool(toolchain: Toolchain) -> Iterator[WorkerPool]:
    with WorkerPool(toolchain, task(toolchain), 2) as pool:
        yield pool


def test_each_function_gets_its_smallest_set(corpus: Corpus, pool: WorkerPool, tmp_path: Path) -> None:
    compiled: list[None] = []
    measured = measure(corpus.modules, None, pool, MENU, lambda: compiled.append(None))
    assert len(compiled) == len(MENU) * len(corpus.modules) and not measured.failures
    assert measured.bytes.shape == (len(measured.bodies), len(MENU)) and measured.bytes.shape[0] > 3
    chosen = measured.choose(MENU, "Oz")
    assert chosen.choices and measured.after() < measured.before
    assert (measured.instructions[:, 0] > 0).all()
    rows = zip(measured.bodies, measured.bytes, measured.instructions, strict=True)
    for body, sizes, instructions in rows:
        number = chosen.choices.get(body, 0)
        assert instructions[number] <= 1.02 * instructions[0]
        assert sizes[number] == sizes[instructions <= 1.02 * instructions[0]].min()
        assert (body in chosen.choices) == (sizes[number] < sizes[0])
    # The fewer instructions functions may execute, the less there is to choose from.
    after = [measured.after(limit) for limit in (math.inf, 1.02, 0.0)]
    assert after[0] <= after[1] <= after[2] == measured.before
    assert after[0] == measured.bytes.min(axis=1).sum()

    # Compiled with these, that is what the functions have, up to what their distance from each other changes.
    jobs = (Job(module.with_function_options(chosen), None) for module in corpus.modules)
    results = [result.measurement for _, result in pool.rollouts(jobs)]
    whole = [each for each in results if each is not None]
    together = sum(size for each in whole for name, size in each.functions.items() if name in each.bodies)
    assert together == pytest.approx(measured.after(), abs=8 * len(corpus.modules))
    assert abs(together - measured.before) > 2 * abs(together - measured.after())

    save(chosen, tmp_path / "options.json")
    assert load(tmp_path / "options.json") == chosen


def test_a_set_that_fails_is_chosen_for_no_function(corpus: Corpus, pool: WorkerPool) -> None:
    menu = (*MENU[:2], ("-no-such-option=true",))
    measured = measure(corpus.modules, None, pool, menu)
    # The plugin reads the menu before anything is compiled: no set of it can be used.
    assert measured.bytes.size == 0 and len(measured.failures) == len(menu) * len(corpus.modules)
    assert all("this LLVM has no option -no-such-option" in each for each in measured.failures.values())
    assert measured.choose(menu, "Oz") == FunctionOptions(menu)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "options.json: "),
        ({"format": 2, "level": "Oz", "menu": [[]], "functions": []}, "format"),
        ({"format": 1, "level": "Oz", "menu": [[]], "functions": [["f", "12", 0]]}, "functions"),
        ({"format": 1, "level": "Oz", "menu": [[]], "functions": [["f", "0123456789abcdef", 1]]}, "below 1, found 1"),
        ({"format": 1, "level": "Oz", "menu": [["x"]], "functions": []}, "expected an option of LLVM's"),
        ({"format": 1, "level": "Oz", "menu": [], "functions": []}, r"options.json: .*below 0, found 0; make it again"),
        ({"format": 1, "level": "O2; rm", "menu": [[]], "functions": []}, "level"),
    ],
)
def test_malformed_files(tmp_path: Path, content: object, message: str) -> None:
    path = tmp_path / "options.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ConfigError, match=message):
        load(path)
    with pytest.raises(ConfigError, match="no such file; make it again by optimize"):
        load(tmp_path / "missing.json")
