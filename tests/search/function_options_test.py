"""Choosing options by function on a small corpus, with real compilers."""

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

import pytest

from compiler_opt.collect.rollout import Rollout
from compiler_opt.collect.schedule import Job
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.options_plugin import MAX_INSTRUCTIONS, FunctionOptions
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.search.function_options import load, measure, save, task
from tests.small_corpus import make_small_corpus

FIRST = ("-enable-pre=false", "-disable-branch-fold=true", "-disable-machine-cse=true")
LIMIT = MAX_INSTRUCTIONS["Oz"]
MENU = (FIRST, (*FIRST, "-disable-peephole=true"), FIRST[:2], (FIRST[0], FIRST[2]))
"""The first one is not a good one, so that there is something to choose in functions as small as these."""


@pytest.fixture(scope="module")
def corpus(clang_path: str, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_small_corpus(tmp_path_factory.mktemp("corpus"), clang_path)


@pytest.fixture(scope="module")
def pool(toolchain: Toolchain) -> Iterator[WorkerPool]:
    with WorkerPool(toolchain, task(len(MENU)), 2) as pool:
        yield pool


def test_each_function_gets_its_smallest_set(corpus: Corpus, pool: WorkerPool, tmp_path: Path) -> None:
    compiled: list[None] = []
    measured = measure(corpus.modules, None, pool, MENU, lambda: compiled.append(None))
    assert len(compiled) == len(corpus.modules) and not measured.failures
    assert measured.bytes.shape == (len(measured.bodies), len(MENU)) and measured.bytes.shape[0] > 3
    chosen = measured.choose(MENU, "Oz", LIMIT)
    assert chosen.choices and measured.after(LIMIT) < measured.before
    assert (measured.instructions[:, 0] > 0).all()
    rows = zip(measured.bodies, measured.bytes, measured.instructions, strict=True)
    for body, sizes, instructions in rows:
        number = chosen.choices.get(body, 0)
        assert instructions[number] <= 1.02 * instructions[0]
        assert sizes[number] == sizes[instructions <= 1.02 * instructions[0]].min()
        assert (body in chosen.choices) == (sizes[number] < sizes[0])
    rows_of_table = measured.rows(MENU, LIMIT)
    assert {(row["function"], row["module"]) for row in rows_of_table} == {
        (body[0], measured.bodies[body]) for body in chosen.choices
    }
    saved = [row["first_bytes"] - row["bytes"] for row in rows_of_table]
    assert sum(saved) == measured.before - measured.after(LIMIT) and saved == sorted(saved, reverse=True)
    assert {row["options"] for row in rows_of_table} <= {
        "-disable-peephole=true",
        "without -disable-machine-cse=true",
        "without -disable-branch-fold=true",
    }
    assert all(float(row["instructions"]) <= LIMIT - 1 for row in rows_of_table)

    # The fewer instructions functions may execute, the less there is to choose from.
    after = [measured.after(limit) for limit in (math.inf, 1.02, 0.0)]
    assert after[0] <= after[1] <= after[2] == measured.before
    assert after[0] == measured.bytes.min(axis=1).sum()

    # Compiled with these, that is what the functions have, up to what their distance from each other changes.
    jobs = (Job(module.with_function_options(chosen), None) for module in corpus.modules)
    results = [result.measurement for _, result in pool.rollouts(jobs)]
    whole = [each for each in results if each is not None]
    together = sum(size for each in whole for name, size in each.functions.items() if name in each.bodies)
    assert together == pytest.approx(measured.after(LIMIT), abs=8 * len(corpus.modules))
    assert abs(together - measured.before) > 2 * abs(together - measured.after(LIMIT))

    save(chosen, tmp_path / "options.json")
    assert load(tmp_path / "options.json") == chosen


def _functions(pool: WorkerPool, corpus: Corpus, options: FunctionOptions) -> dict[tuple[str, str], int]:
    """Bytes of each function, by module and name, in objects that were compiled with these options."""
    jobs = (Job(module.with_function_options(options), None) for module in corpus.modules)
    found = {}
    for _, result in pool.rollouts(jobs):
        assert result.measurement is not None, result.failure
        for name, size in result.measurement.functions.items():
            if name in result.measurement.bodies:
                found[result.module, name] = size
    return found


@pytest.mark.ci
def test_the_compiler_finds_what_one_compilation_with_each_set_finds(corpus: Corpus, pool: WorkerPool) -> None:
    by_set = [_functions(pool, corpus, FunctionOptions(MENU, default=number)) for number in range(len(MENU))]
    best = {key: min(sizes[key] for sizes in by_set) for key in by_set[0]}
    assert sum(best.values()) < sum(by_set[0].values())
    # Up to the padding of entries for unwinding, and short jumps, which depend on the functions beside.
    tried = _functions(pool, corpus, FunctionOptions(MENU, trial=math.inf))
    assert sum(tried.values()) == pytest.approx(sum(best.values()), abs=8 * len(corpus.modules))
    assert all(abs(tried[key] - best[key]) <= 4 for key in best)
    # And it reports them.
    measured = measure(corpus.modules, None, pool, MENU)
    assert measured.before == pytest.approx(sum(by_set[0].values()), abs=8 * len(corpus.modules))
    assert measured.after(math.inf) == pytest.approx(sum(best.values()), abs=8 * len(corpus.modules))
    assert _functions(pool, corpus, FunctionOptions((MENU[0],) * len(MENU), trial=LIMIT)) == by_set[0]


def test_modules_that_fail_have_no_choices(corpus: Corpus, pool: WorkerPool) -> None:
    menu = (*MENU[:3], ("-no-such-option=true",))
    measured = measure(corpus.modules, None, pool, menu)
    # The plugin reads the menu before anything is compiled: no set of it can be used.
    assert measured.bytes.size == 0 and set(measured.failures) == set(corpus.by_name)
    assert all("this LLVM has no option -no-such-option" in each for each in measured.failures.values())
    assert measured.choose(menu, "Oz", LIMIT) == FunctionOptions(menu)


class _Crashing:
    """A real pool in which one module crashes in trials."""

    def __init__(self, pool: WorkerPool, module: str):
        self._pool, self._module = pool, module

    def rollouts(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Rollout]]:
        for job, result in self._pool.rollouts(jobs):
            assert job.module.function_options is not None
            if job.module.name == self._module and job.module.function_options.trial:
                result = dataclasses.replace(result, measurement=None, failure="SIGSEGV")
            yield job, result


def test_what_a_failing_module_shares_has_no_choice(corpus: Corpus, pool: WorkerPool) -> None:
    """A set that one module cannot be compiled with may not reach it through a function of another one."""
    menu = (MENU[1], MENU[0], *MENU[2:])
    chosen = measure(corpus.modules, None, pool, menu).choose(menu, "Oz", LIMIT)
    failing = next(module for module in corpus.modules if module.project == "shapes")
    crashing = cast(WorkerPool, _Crashing(pool, failing.name))
    measured = measure(corpus.modules, None, crashing, menu)
    assert measured.failures == {failing.name: "SIGSEGV"}
    kept = measured.choose(menu, "Oz", LIMIT).choices
    [result] = [result for _, result in pool.rollouts([Job(failing.with_function_options(chosen), None)])]
    assert result.measurement is not None
    of_failing = set(result.measurement.bodies.items())
    assert of_failing & set(chosen.choices) and not of_failing & set(kept)
    assert kept == {body: number for body, number in chosen.choices.items() if body not in of_failing}


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
