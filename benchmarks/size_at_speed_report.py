"""What `benchmarks.size_at_speed` keeps of a program, and its tables."""

import dataclasses
from collections.abc import Callable, Sequence

from compiler_opt.evaluation.statistics import mean_interval, relative_change
from compiler_opt.measure.wall_time import Median
from compiler_opt.report.formatting import bytes_text, change_text, interval_text
from compiler_opt.report.table import Table


@dataclasses.dataclass(frozen=True)
class Build:
    """A build, measured on the measuring input.

    Attributes:
      instructions, cycles: by callgrind; cycles are an estimate.
      text_bytes, code_bytes: of the program, Berkeley text and the executable sections in it.
      wall_s: seconds of a run.
      wall_ratio: to the plain build's run in the same round.
    """

    instructions: int
    cycles: int
    text_bytes: int
    code_bytes: int
    wall_s: Median
    wall_ratio: Median


@dataclasses.dataclass(frozen=True)
class Record:
    """A program.

    Attributes:
      version: of the source package.
      kept: what `optimize` kept, in words; empty if that is the build which it starts from.
      training_s: seconds that the commands of the training input take together.
      plain, profiled, optimized: -O2, with the profile alone, and what `optimize` kept.
    """

    program: str
    version: str
    language: str
    kept: str
    training_s: float
    plain: Build
    profiled: Build
    optimized: Build


METRICS: dict[str, Callable[[Build, Build], float]] = {
    "instructions": lambda plain, build: relative_change(plain.instructions, build.instructions),
    "cycles": lambda plain, build: relative_change(plain.cycles, build.cycles),
    "text": lambda plain, build: relative_change(plain.text_bytes, build.text_bytes),
    "code": lambda plain, build: relative_change(plain.code_bytes, build.code_bytes),
    "wall time": lambda plain, build: build.wall_ratio.value - 1,
}
"""Relative changes."""


def report(records: Sequence[Record]) -> list[Table]:
    """A table of the programs, and one of means over them, with intervals by Student's t, and of the worst."""
    head = ["program", "build", *METRICS, "(95%)", "text, bytes"]
    rows = []
    for record in records:
        for build, label in ((record.profiled, "profile"), (record.optimized, "optimised")):
            is_first = label == "profile"
            ratio = build.wall_ratio
            rows.append(
                [
                    f"{record.program} ({record.language})" if is_first else "",
                    label if is_first or record.kept else "nothing is kept",
                    *(change_text(change(record.plain, build)) for change in METRICS.values()),
                    interval_text(ratio.low - 1, ratio.high - 1),
                    bytes_text(build.text_bytes),
                ]
            )
    groups = {"all": records}
    groups |= {language: [each for each in records if each.language == language] for language in ("c", "c++")}
    means = [
        row
        for name, members in groups.items()
        for label in ("profile", "optimised")
        if members
        for row in _means(f"{len(members)}, {name}" if label == "profile" else "", label, members)
    ]
    worst = ["worst", "optimised", *(_worst(records, metric) for metric in METRICS)]
    return [
        Table(head, rows, num_text_columns=2),
        Table(["mean of", "build", *METRICS], means, total=worst, num_text_columns=2),
    ]


def _means(name: str, label: str, records: Sequence[Record]) -> list[list[str]]:
    """The mean of each metric in one build, and its interval, if there is one."""
    builds = [(each.plain, each.profiled if label == "profile" else each.optimized) for each in records]
    means = [mean_interval([change(*pair) for pair in builds]) for change in METRICS.values()]
    rows = [[name, label, *(change_text(mean.value) for mean in means)]]
    return rows + [["", "(95%)", *(interval_text(mean.low, mean.high) for mean in means)]] * means[0].has_interval


def _worst(records: Sequence[Record], metric: str) -> str:
    """The largest change by what was kept, and the program that has it."""
    change = METRICS[metric]
    value, name = max((change(each.plain, each.optimized), each.program) for each in records)
    return f"{change_text(value)} {name}"
