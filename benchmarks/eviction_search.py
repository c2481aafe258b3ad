"""Searches for rules of eviction for a benchmark program, and describes what was found; see `eviction_by_heart`."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from benchmarks.corpus_programs import ProgramSource
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.evaluation.statistics import relative_change
from compiler_opt.files import write_json
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.measure.attribution import Metric
from compiler_opt.measure.benchmark import Benchmark, Reference
from compiler_opt.measure.callgrind import Counts, Profile
from compiler_opt.optimize import speed
from compiler_opt.progress_bar import progress_bar
from compiler_opt.report.table import Cell, Change, Table
from compiler_opt.search.measured_rules import (
    ONE_RULE,
    OWN_RULES,
    OWN_RULES_SUM,
    RULE_BY_FUNCTION,
    RULE_BY_MODULE,
    RuleSearch,
    RuleSearchSettings,
    search_rules,
)

METRICS: Mapping[str, Metric] = {"accesses": lambda counts: counts.accesses, **speed.METRICS}
"""What can be made less, by name: loads and stores, instructions, and callgrind's estimate of cycles."""

PROBLEM = "regalloc_eviction"
_PLACE = "place"
_ROWS = (ONE_RULE, RULE_BY_MODULE, RULE_BY_FUNCTION, OWN_RULES_SUM, OWN_RULES)


def search_program(
    program: ProgramSource,
    corpus: Corpus,
    pool: WorkerPool,
    toolchain: Toolchain,
    settings: RuleSearchSettings,
    metric: Metric,
    folder: Path,
) -> RuleSearch:
    """Searches for rules for one program, in a folder where measurements are kept, and writes the rules there.

    Raises:
      CompilerOptError: see `search_rules`, `Benchmark.reference` and `ProgramSource.link`.
    """
    folder = folder.resolve()
    folder.mkdir(exist_ok=True)
    path, place = folder / "program", folder / _PLACE
    benchmark = Benchmark.of([f"./{path.name} {_PLACE}"])
    reference: Reference | None = None

    def run(objects: Mapping[int, Path]) -> Profile:
        nonlocal reference
        program.link([objects[module] for module in sorted(objects)], toolchain, path)
        if reference is None:
            # The first program is the plain one.
            _make_empty(place)
            reference = benchmark.reference(folder)
        _make_empty(place)
        return benchmark.measure(folder, reference)

    modules = corpus.projects()[program.project]
    with scratch_directory() as scratch, progress_bar(total=settings.measurements, unit="run") as bar:

        def show(change: float) -> None:
            bar.set_description(f"{program.name} {100 * change:+.2f}%", refresh=False)
            bar.update(2)

        found = search_rules(
            modules,
            pool,
            run,
            metric,
            lambda file: file == str(path),
            settings,
            folder=folder,
            scratch=scratch,
            identity={"compiler": toolchain.version_text, "benchmark": program.path.read_text()},
            on_measured=show,
        )
    write_json(folder / "rules.json", found.rules)
    return found


def _make_empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


def _changes(plain: Counts, other: Counts) -> list[Cell]:
    return [Change(relative_change(metric(plain), metric(other))) for metric in METRICS.values()]


def describe(found: RuleSearch) -> list[str]:
    """Lines with the costs of one program: loads and stores, instructions and cycles, in the program and in all."""
    plain = found.plain
    rows: list[list[Cell]] = [
        [name, *_changes(plain.own, costs.own), *_changes(plain.total, costs.total)]
        for name in _ROWS
        if (costs := found.choices.get(name)) is not None
    ]
    head = ["rules", *(f"own {name}" for name in METRICS), *METRICS]
    counts = [f"{metric(counts):,}" for counts in (plain.own, plain.total) for metric in METRICS.values()]
    lines = Table(head, [["plain", *counts], *rows]).lines()
    lines += [
        f"{found.hot_functions} hot functions in {found.hot_modules} modules; rules change what "
        f"{found.changed_functions} of them do, and {len(found.rules)} have one",
        f"{found.rules_tried} rules in all functions; {found.measurements} measurements, {len(found.failures)} failed",
    ]
    return lines + [f"failed: {reason}" for reason in found.failures[:3]]


def summary(found: Mapping[str, RuleSearch]) -> Table:
    """A row for each program: the metrics of its own functions with what is kept, and of the whole."""
    rows: list[list[Cell]] = [
        [name, *_changes(each.plain.own, each.best.own), *_changes(each.plain.total, each.best.total)]
        for name, each in found.items()
    ]
    return Table(["program", *(f"own {name}" for name in METRICS), *METRICS], rows)
