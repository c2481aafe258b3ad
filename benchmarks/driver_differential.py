"""Compares mlgo-clang with clang on generated command lines: exit status, output, and every file that is written.

The deployment's decisions are the compiler's own, so that nothing may differ but our own messages. A second deployment,
whose decisions differ at -Oz, shows where a policy decides: there, and nowhere else. What is not compared exactly, and
why, is in tests/deploy/differential.py, and what is generated in tests/deploy/command_lines.py.

    python -m benchmarks.driver_differential --cases=5000

A case that differs is reduced, and printed as the lines of a shell that show it in a folder with the files of
tests/deploy/command_lines.py, which --sources writes. A case depends on --seed and its number only: --start=N continues
a run. Exit status: 1 if any case differs.
"""

import concurrent.futures
import queue
from collections import Counter
from pathlib import Path

from absl import flags

from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import probe
from compiler_opt.progress_bar import progress_bar
from compiler_opt.tools import entry_point, shared_flags
from tests.deploy.command_lines import Case, generate, shell_script
from tests.deploy.differential import Drivers, Place, Verdict, write_sources
from tests.deploy.reduction import reduced

_CASES = flags.DEFINE_integer("cases", 5000, "Command lines to compare.", 1)
_START = flags.DEFINE_integer("start", 0, "The number of the first one.", 0)
_SEED = shared_flags.seed("the command lines", 1)
_CLANG_PATH = flags.DEFINE_string("clang_path", "clang-22", "The compiler.")
_SHOWN = flags.DEFINE_integer(
    "shown", 3, "Cases to reduce and print for each kind of difference, the worst of a case.", 0
)
_SOURCES = flags.DEFINE_string("sources", None, "A folder for the files with which the printed lines work.")
_NUM_WORKERS = shared_flags.num_workers()


@entry_point.command
def entry() -> int:
    toolchain = probe(_CLANG_PATH.value)
    if _SOURCES.value:
        write_sources(Path(_SOURCES.value))
    seed, numbers = _SEED.value, range(_START.value, _START.value + _CASES.value)
    found: Counter[str] = Counter()
    messages: Counter[str] = Counter()
    checked: Counter[bool | None] = Counter()
    with scratch_directory() as scratch:
        drivers = Drivers.deploy(toolchain, scratch / "drivers")
        num_workers = entry_point.num_workers(_NUM_WORKERS.value)
        places: queue.SimpleQueue[Place] = queue.SimpleQueue()
        for index in range(num_workers):
            places.put(Place(scratch / str(index), drivers))

        def compared(number: int) -> tuple[int, Case, Verdict]:
            place, case = places.get(), generate(seed, number)
            try:
                return number, case, place.compare(case)
            finally:
                places.put(place)

        with concurrent.futures.ThreadPoolExecutor(num_workers) as pool:
            results = pool.map(compared, numbers)
            for number, case, verdict in progress_bar(results, total=len(numbers), unit="case"):
                messages.update(set(verdict.messages))
                checked[verdict.uses_policy] += 1
                if verdict.differences:
                    found[verdict.kinds[0]] += 1
                    if found[verdict.kinds[0]] <= _SHOWN.value:
                        place = places.get()
                        _show(number, case, verdict.kinds[0], drivers, place)
                        places.put(place)
    entry_point.echo(
        f"{toolchain.version_text}: {len(numbers)} command lines from number {numbers.start} with seed {seed}; "
        f"{found.total()} differ; the policy had to decide in {checked[True]}, and not in {checked[False]}"
    )
    for kind, count in found.most_common():
        entry_point.echo(f"{count:6} differ in {kind}")
    for message, count in messages.most_common():
        entry_point.echo(f"{count:6} say: {message}")
    return int(bool(found))


def _show(number: int, case: Case, kind: str, drivers: Drivers, place: Place) -> None:
    """Prints the case, reduced to a difference of this kind."""
    case = reduced(case, lambda smaller: kind in place.compare(smaller, checks_use=kind == "policy").kinds)
    differences = place.compare(case).differences
    command = drivers.program(case.name, "default").name
    lines = [f"# case {number}", *(f"# {line}" for line in differences), shell_script(case, command), ""]
    entry_point.echo("\n".join(lines))


if __name__ == "__main__":
    entry()
