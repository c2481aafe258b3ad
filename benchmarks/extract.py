"""Measures objects per second: `extract_ir`, against a script that starts `llvm-objcopy` twice for each object.

The objects are compiled on the spot: C++ with containers of the standard library, at -O2, some with debug information,
all with bitcode. There are as many different objects as sources; copies make up the number, and all of them are in the
page cache. The two ways alternate, with equally many workers, and write to fresh directories.

The script is as fast as possible: it runs `llvm-objcopy --dump-section` for `.llvmbc`, then for `.llvmcmd`, writes to
the final place, and checks nothing. `extract_ir` checks bitcode and options, and writes the description. Both must
write the same bytes. CPU time is that of this process and its children; compare it when other programs use the machine,
whose load is printed.
"""

import concurrent.futures
import dataclasses
import os
import platform
import resource
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import flags

from compiler_opt.corpus.builds.objects import ObjectFile
from compiler_opt.corpus.making.extract import extract
from compiler_opt.errors import CompileError
from compiler_opt.llvm import processes
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.tools import entry_point, shared_flags

_CLANG_PATH = shared_flags.clang_path()
_NUM_OBJECTS = flags.DEFINE_integer("num_objects", 504, "Objects to extract.", 1)
_NUM_SOURCES = flags.DEFINE_integer("num_sources", 24, "Different objects among them.", 1)
_NUM_WORKERS = shared_flags.num_workers("Threads")
_REPETITIONS = flags.DEFINE_integer("repetitions", 5, "Repetitions of each way.", 1)

_SOURCE = """
#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>
struct item%(number)d { std::string name; std::vector<int> values; };
int total%(number)d(const std::map<std::string, item%(number)d> &items) {
  int total = 0;
  for (const auto &[key, item] : items)
    if (key != item.name) total += std::accumulate(item.values.begin(), item.values.end(), int(key.size()));
  return total;
}
"""
_FUNCTION = """
std::vector<item%(number)d> sorted%(number)d_%(part)d(std::vector<item%(number)d> items) {
  std::sort(items.begin(), items.end(), [](const auto &a, const auto &b) {
    return a.values.size() %% %(modulus)d < b.values.size() %% %(modulus)d || a.name < b.name;
  });
  return items;
}
"""


@dataclasses.dataclass(frozen=True)
class Cost:
    """Seconds of one run."""

    cpu_s: float
    wall_s: float


@entry_point.command
def entry() -> None:
    toolchain = probe(_CLANG_PATH.value)
    num_workers = entry_point.num_workers(_NUM_WORKERS.value)
    objcopy = toolchain.tool("llvm-objcopy")
    with scratch_directory() as scratch:
        objects = _make_objects(toolchain, scratch / "objects", num_workers)
        ways: dict[str, Callable[[Path], object]] = {
            "extract_ir": lambda output: extract(objects, output, num_workers=num_workers),
            "llvm-objcopy twice": lambda output: _dump(objects, output, objcopy, num_workers),
        }
        costs: dict[str, list[Cost]] = {way: [] for way in ways}
        for _ in range(_REPETITIONS.value):
            for way, run in ways.items():
                costs[way].append(_measured(run, scratch / way))
            _check_same(objects, *(scratch / way for way in ways))
            for way in ways:
                shutil.rmtree(scratch / way)
        sizes = sorted(item.path.stat().st_size for item in objects)
        _report(costs, toolchain, num_workers, sizes)


def _make_objects(toolchain: Toolchain, folder: Path, num_workers: int) -> list[ObjectFile]:
    folder.mkdir()

    def compile_one(number: int) -> Path:
        source, target = folder / f"{number}.cpp", folder / f"{number}.o"
        parts = (_FUNCTION % {"number": number, "part": part, "modulus": part + 2} for part in range(number % 8))
        source.write_text(_SOURCE % {"number": number} + "".join(parts), encoding="utf-8")
        debug = ["-g"] if number % 4 == 0 else []
        command = [str(toolchain.clang), "-std=c++17", "-O2", *debug, "-Xclang", "-fembed-bitcode=all"]
        result = processes.run([*command, "-c", str(source), "-o", str(target)])
        if not result.ok:
            raise CompileError(f"{source.name}: {result.describe()}")
        return target

    with concurrent.futures.ThreadPoolExecutor(num_workers) as pool:
        originals = list(pool.map(compile_one, range(_NUM_SOURCES.value)))
    objects = []
    for number in range(_NUM_OBJECTS.value):
        name = f"folder{number % 16}/module{number}.o"
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        shutil.copy(originals[number % len(originals)], path)
        objects.append(ObjectFile(path, name))
    return objects


def _dump(objects: Sequence[ObjectFile], output: Path, objcopy: Path, num_workers: int) -> None:
    def dump_one(item: ObjectFile) -> None:
        target = output / item.name
        target.parent.mkdir(parents=True, exist_ok=True)
        for section, suffix in ((".llvmbc", "bc"), (".llvmcmd", "cmd")):
            command = [str(objcopy), f"--dump-section={section}={target}.{suffix}", str(item.path), os.devnull]
            subprocess.run(command, check=True)

    with concurrent.futures.ThreadPoolExecutor(num_workers) as pool:
        list(pool.map(dump_one, objects))


def _measured(run: Callable[[Path], object], output: Path) -> Cost:
    wall_s, cpu_s = time.perf_counter(), _cpu_s()
    run(output)
    return Cost(_cpu_s() - cpu_s, time.perf_counter() - wall_s)


def _cpu_s() -> float:
    """CPU seconds of this process and its finished children."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _check_same(objects: Sequence[ObjectFile], one: Path, other: Path) -> None:
    for item in objects:
        for suffix in ("bc", "cmd"):
            name = f"{item.name}.{suffix}"
            assert (one / name).read_bytes() == (other / name).read_bytes(), name


def _report(costs: dict[str, list[Cost]], toolchain: Toolchain, num_workers: int, sizes: Sequence[int]) -> None:
    print(f"{'':20} {'objects/CPU s':>14} {'objects/s':>10} {'CPU ms/object':>14}")
    for way, runs in costs.items():
        cpu_s = statistics.median(run.cpu_s for run in runs)
        wall_s = statistics.median(run.wall_s for run in runs)
        print(f"{way:20} {len(sizes) / cpu_s:14,.0f} {len(sizes) / wall_s:10,.0f} {1000 * cpu_s / len(sizes):14.2f}")
    ours, theirs = costs.values()
    for what, ratios in (
        ("CPU", [b.cpu_s / a.cpu_s for a, b in zip(ours, theirs, strict=True)]),
        ("wall", [b.wall_s / a.wall_s for a, b in zip(ours, theirs, strict=True)]),
    ):
        print(
            f"{what}: {statistics.median(ratios):.1f} times the objects per second "
            f"({min(ratios):.1f} to {max(ratios):.1f} in {len(ratios)} pairs of runs)"
        )
    print(
        f"{len(sizes)} objects of {min(sizes):,} to {max(sizes):,} bytes (median {sizes[len(sizes) // 2]:,}), "
        f"{_NUM_SOURCES.value} different; {num_workers} workers; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
    )
    print(f"Python {platform.python_version()}, {toolchain.version_text}")


if __name__ == "__main__":
    entry()
