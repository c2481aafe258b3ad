"""Screening of a small corpus with real compilers."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.array_files import load_arrays
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.pass_options import list_pass_options
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.pass_options.measuring import WHOLE_OBJECTS
from compiler_opt.pass_options.screening import (
    DETECTED_FILE,
    MEASURED_FILE,
    PLAIN_FILE,
    Detected,
    Screening,
    functions_file,
    read_measured,
    worth_measuring,
    worth_refining,
)
from compiler_opt.progress_bar import progress_bar
from tests import programs
from tests.small_corpus import make_small_corpus

NOTHING, UNKNOWN = "-enable-load-pre=true", "-no-such-option=true"
FAST, TWO = "-regalloc=fast", "-regalloc=fast -enable-load-pre=false"


@pytest.fixture(scope="module")
def corpus(clang_path: str, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_small_corpus(tmp_path_factory.mktemp("corpus"), clang_path)


@pytest.fixture(scope="module")
def pool(toolchain: Toolchain) -> Iterator[WorkerPool]:
    with WorkerPool(toolchain, WHOLE_OBJECTS, 2) as pool:
        yield pool


@pytest.mark.ci
def test_what_changes_is_detected_and_measured_by_function(
    corpus: Corpus, pool: WorkerPool, toolchain: Toolchain, tmp_path: Path
) -> None:
    bar = progress_bar(unit="compile")
    screening = Screening(corpus, pool, toolchain.identity(), tmp_path, progress=bar)
    assert (bar.n, bar.total) == (len(corpus.modules),) * 2
    detected = screening.detect([FAST, NOTHING, UNKNOWN])
    assert [bool(each.changed) for each in detected] == [True, False, False]
    assert len(detected[2].failures) == len(screening.detecting)
    assert worth_measuring(detected, len(screening.detecting)) == [FAST]
    (fast,) = screening.measure([FAST])
    assert fast.text("shapes") > 0.02 and fast.code("shapes") > fast.text("shapes")

    plain, changes = (load_arrays(path, 1 << 20) for path in (tmp_path / PLAIN_FILE, functions_file(tmp_path, FAST)))
    assert len(plain["bytes"]) == len(changes["change"]) > 3 and (plain["bytes"] > 0).all()
    # Both objects of `shapes` carry the same functions, of which the linker keeps one.
    assert plain["weight"].min() == 0.5 and plain["weight"].max() == 1
    grown = float((changes["change"] * plain["weight"]).sum())
    before, after, _, _ = np.sum([*fast.projects.values()], axis=0)
    assert grown == pytest.approx(after - before, abs=64)  # of unwind tables, what no function has alone

    # It goes on where it was, with a line that a killed process has left incomplete.
    with (tmp_path / MEASURED_FILE).open("a") as file:
        file.write('{"option": "-disable-l')
    again = Screening(corpus, pool, toolchain.identity(), tmp_path, progress=bar)
    assert again.detect([FAST, NOTHING, UNKNOWN]) == detected and again.measure([FAST]) == [fast]
    assert bar.n == bar.total == 0
    (both,) = again.measure([TWO])
    assert [each.option for each in read_measured(tmp_path)] == [FAST, TWO]
    assert both.projects.keys() == fast.projects.keys()

    with pytest.raises(ConfigError, match=r"its results are of other conditions \(corpus, projects\)"):
        Screening(corpus.select(["plain"]), pool, toolchain.identity(), tmp_path)
    (tmp_path / DETECTED_FILE).write_text('{"option": 3}\n')
    with pytest.raises(ConfigError, match=r"detected\.jsonl: damaged .*remove it"):
        again.detect([FAST])


def test_numbers_that_change_something_are_refined(toolchain: Toolchain) -> None:
    options = list_pass_options(toolchain.clang)
    detected = [
        Detected("-min-jump-table-entries=0", 1, 0.001, 1.0),
        Detected("-min-jump-table-entries=32", 1, -0.001, 1.0),
        Detected("-bonus-inst-threshold=0", 1, 0.00001, 1.0),
        Detected("-enable-load-pre=false", 1, -0.01, 1.0),
    ]
    assert worth_refining(detected, options) == [f"-min-jump-table-entries={n}" for n in (0, 1, 2, 8, 16)]


@pytest.mark.ci
def test_the_command(corpus: Corpus, clang_path: str, tmp_path: Path) -> None:
    flags = [f"--data_path={corpus.root}", f"--clang_path={clang_path}", f"--output_dir={tmp_path / 'out'}"]
    result = programs.run("compiler_opt.tools.screen_options", *flags, f"--option={FAST}", f"--option={NOTHING}")
    assert result.returncode == 0, result.stderr
    assert (
        "2 settings of them tried on 2 modules; with 1 something changes, with 0 a compilation fails" in result.stdout
    )
    assert (tmp_path / "out" / "options.csv").read_text().startswith("option,")
    entry = json.loads((tmp_path / "out" / MEASURED_FILE).read_text())
    assert entry["option"] == FAST

    result = programs.run("compiler_opt.tools.screen_options", *flags, f"--option={UNKNOWN}")
    assert result.returncode == 2 and "has no such option" in result.stderr
