"""A program made faster by fitted decisions, beside thresholds and PGO: all builds are right, hot calls are inlined."""

import re
from pathlib import Path

import pytest

from benchmarks.corpus_programs import ProgramSource
from benchmarks.program_builds import ProgramBuilds, llvm_options
from compiler_opt import pretrained
from compiler_opt.corpus.description import Corpus
from compiler_opt.llvm.object_file import read_parts
from compiler_opt.llvm.toolchain import probe
from compiler_opt.policies.decisions import Decisions
from studies.speed_run import Results, Row, SpeedRun, print_means, print_table
from tests.hot_calls import MAIN, WARM_WORK
from tests.small_corpus import make_corpus


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clang", "variants"),
    [
        ("clang-19", ["-inline-threshold=3000 -inline-cold-callsite-threshold=45"]),
        ("clang-22", ["inline-3000", "policy", "pgo", "pgo+search", "pgo+policy"]),
    ],
)
def test_builds_are_compared(
    tmp_path: Path, clang: str, variants: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """PGO needs clang's runtime library, a package that ./run_tests.sh installs for the newest compiler."""
    toolchain = probe(clang)
    (tmp_path / "corpus").mkdir()
    make_corpus(tmp_path / "corpus", clang, {"mine/work.c": WARM_WORK}, level="O2")
    (tmp_path / "mine_bench.c").write_text(MAIN)
    builds = ProgramBuilds(
        ProgramSource(tmp_path / "mine_bench.c"),
        Corpus.load(str(tmp_path / "corpus")).modules,
        toolchain,
        tmp_path / "out",
    )
    policy = pretrained.folder("pretrained:inlining-Oz-plugin")
    run = SpeedRun(toolchain, 0.1, text_percent=1000.0, rounds=6, seed=0, num_workers=1, policy_dir=policy)
    results = run.measure(builds, variants)
    rows = results.rows
    assert list(rows) == ["plain", *variants]
    assert rows["plain"].instructions == rows["plain"].text == 0
    for name in variants:
        # The libraries, and the start of the program, run the same.
        assert rows[name].instructions == pytest.approx(rows[name].own_instructions, abs=0.005)
        assert rows[name].wall is not None
    assert rows[variants[0]].instructions < -0.001
    if "pgo" in variants:
        assert (tmp_path / "out" / "run.profdata").stat().st_size > 0
        assert rows["pgo+search"].instructions < rows["pgo"].instructions - 0.0005
        found = Decisions.load(tmp_path / "out" / "pgo+search-1000-percent-0.1-minutes-0" / "decisions.json")
        assert len(found) == rows["pgo+search"].decisions
        assert ("often", 1) in {(site.callee, advice) for site, advice in found.items()}

    print_table("mine_bench", results)
    printed = capsys.readouterr().out.splitlines()
    table = printed[-len(rows) :]
    assert [line.split("  ")[0] for line in table] == list(rows)
    assert re.match(r"mine_bench: [0-9,]+ instructions, [0-9]+% of them the program's own", printed[-len(rows) - 3])


def test_programs_count_alike_in_the_means(capsys: pytest.CaptureFixture[str]) -> None:
    def results(instructions: int, change: float) -> Results:
        return Results({}, instructions, instructions, 1000, {"inline-7": Row(change, change / 2, 0.0, 0.0, 0.1)})

    print_means([results(1_000_000, -0.03), results(10, 0.01)])
    assert [line.split() for line in capsys.readouterr().out.splitlines()[-1:]] == [
        # (-3 + 1) / 2, half of that, and the worse one of -1.5 and 0.5
        ["inline-7", "\N{MINUS SIGN}1.00%", "\N{MINUS SIGN}0.50%", "+0.50%", "0.00%", "+10.00%"]
    ]


def test_a_variant_may_be_options_of_llvms() -> None:
    assert llvm_options("inline-500") == ("-mllvm", "-inline-threshold=500")
    assert llvm_options("-a-b=1 -c=2.5") == ("-mllvm", "-a-b=1", "-mllvm", "-c=2.5")
    for other in ("pgo", "inline-", "inline-a", "-a", "-a=1  -b=2", "-a=1 b=2", "-a=/tmp/x.so", ""):
        assert llvm_options(other) is None


@pytest.mark.slow
def test_a_variant_may_be_the_options_that_ship(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    make_corpus(tmp_path / "corpus", "clang-22", {"mine/work.c": WARM_WORK})
    (tmp_path / "mine_bench.c").write_text(MAIN)
    modules = Corpus.load(str(tmp_path / "corpus")).modules
    builds = ProgramBuilds(ProgramSource(tmp_path / "mine_bench.c"), modules, probe("clang-22"), tmp_path / "out")
    sizes = []
    for variant in ("plain", "shipped", "shipped-trials-11"):
        if variant != "plain":
            builds.build(variant)
        builds.measure(variant, simulate=False)  # which compares what it prints
        sizes.append(read_parts(builds.program(variant)).total)
    assert sizes[2] < min(sizes[:2])
