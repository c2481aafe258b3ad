"""Runs the situations of public bug reports with clang and with mlgo-clang, and compares what the two leave and print.

    python -m benchmarks.public_reports --clang_paths=clang-22,clang-19
    python -m benchmarks.public_reports --never_worse --only='sccache|icecream'

The reports are of other compiler launchers, caches, build tools, and clang: each once broke something that calls a
compiler. benchmarks/public_reports.yaml has a script for each, in our own words, with the compilers as $CC and $CXX.
Exit statuses, output, and every file, temporary ones included, are compared as in tests/deploy/differential.py. The
deployment's decisions are the compiler's own, so that nothing may differ. A second one, whose decisions differ at -Oz,
shows in how many of the scripts a policy decides at all.

Prints a Markdown table. Exit status: 1 if anything differs that is not marked as known.
"""

import concurrent.futures
import queue
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import yaml
from absl import flags

from compiler_opt.checked_values import convert
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.progress_bar import progress_bar
from compiler_opt.report.table import Table
from compiler_opt.tools import entry_point, shared_flags
from tests.deploy.command_lines import Case
from tests.deploy.differential import Drivers, Place

_CLANG_PATHS = flags.DEFINE_list("clang_paths", "clang-22", "The compilers.")
_NEVER_WORSE = flags.DEFINE_bool("never_worse", False, "Set MLGO_NEVER_WORSE=1.")
_ONLY = flags.DEFINE_string("only", "", "Only entries with a match of this regular expression in where or what.")
_TIMEOUT_S = flags.DEFINE_float("timeout_s", 120.0, "Time limit of a script.", 1)
_NUM_WORKERS = shared_flags.num_workers()


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A situation.

    Attributes:
      what: a few words.
      script: for bash, in a folder with the files that the YAML file names and those of `TEMPLATE`.
      where: the public report, as `owner/repository#number`; empty if there is none.
      mended: what mlgo-clang once did wrong.
      known: what it still does wrong.
    """

    what: str
    script: str
    where: str = ""
    mended: str = ""
    known: str = ""

    def result(self, differences: Sequence[str]) -> str:
        """What the table says."""
        if differences:
            return f"differs: {self.known or '; '.join(differences)}"
        return f"mended: {self.mended}" if self.mended else "right"


class _Reports(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    files: Mapping[str, str]
    reports: Sequence[Report]


@entry_point.command
def entry() -> int:
    found = convert(yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")), _Reports)
    reports = [report for report in found.reports if re.search(_ONLY.value, f"{report.where} {report.what}")]
    if not reports:
        raise ConfigError(f"--only={_ONLY.value}: no entry of {Path(__file__).stem}.yaml matches")
    files = {name: text.encode() for name, text in found.files.items()}
    toolchains = [probe(path) for path in _CLANG_PATHS.value]
    results: list[list[str]] = [[] for _ in reports]
    for toolchain in toolchains:
        for differences, verdict in zip(results, _verdicts(toolchain, reports, files), strict=True):
            differences += [f"clang-{toolchain.version[0]}: {line}" for line in verdict]
    rows = [(report.where, report.what, report.result(lines)) for report, lines in zip(reports, results, strict=True)]
    entry_point.echo("\n".join(Table(("where", "what", "result"), rows, num_text_columns=3).markdown()))
    return int(any(lines and not report.known for report, lines in zip(reports, results, strict=True)))


def _verdicts(toolchain: Toolchain, reports: Sequence[Report], files: Mapping[str, bytes]) -> Sequence[Sequence[str]]:
    """What differs in each report with this compiler."""
    variables = {"MLGO_NEVER_WORSE": "1"} if _NEVER_WORSE.value else {}
    with scratch_directory() as scratch:
        drivers = Drivers.deploy(toolchain, scratch / "drivers")
        num_workers = entry_point.num_workers(_NUM_WORKERS.value)
        places: queue.SimpleQueue[Place] = queue.SimpleQueue()
        for index in range(num_workers):
            places.put(Place(scratch / str(index), drivers, _TIMEOUT_S.value))

        def compared(report: Report) -> tuple[Sequence[str], bool]:
            case, place = Case(files=files, variables=variables, shell=f"{report.script}\nexit"), places.get()
            try:
                return place.compare(case, checks_use=False).differences, place.decides(case)
            finally:
                places.put(place)

        with concurrent.futures.ThreadPoolExecutor(num_workers) as pool:
            results = list(progress_bar(pool.map(compared, reports), total=len(reports), unit="report"))
    entry_point.echo(
        f"{toolchain.version_text}{', MLGO_NEVER_WORSE=1' * _NEVER_WORSE.value}: {len(reports)} entries, "
        f"{sum(bool(report.where) for report in reports)} of public reports; "
        f"{sum(bool(differences) for differences, _ in results)} differ; "
        f"a policy decides in {sum(decides for _, decides in results)}"
    )
    return [differences for differences, _ in results]


if __name__ == "__main__":
    entry()
