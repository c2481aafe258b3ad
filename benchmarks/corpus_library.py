"""Measures the cost of a large corpus before anything is compiled: loading, sampling, filtering, memory.

Makes a corpus of 10,000 modules from one real module, compiled by the newest clang, under many names (hard links), in
20 projects. Each repetition is a process of its own, like a training; its CPU seconds count from the end of its
imports, and its peak memory includes everything.

    python -m benchmarks.corpus_library
"""

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from absl import flags

from compiler_opt.corpus.command_lines.command_line import compile_command
from compiler_opt.corpus.description import DESCRIPTION_NAME, Corpus
from compiler_opt.corpus.module import format_options
from compiler_opt.corpus.sampling import SAMPLERS, make_sampler
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import probe
from compiler_opt.tools import entry_point, shared_flags

_NUM_MODULES = flags.DEFINE_integer("num_modules", 10_000, "Modules of the corpus.", 1)
_NUM_ITERATIONS = flags.DEFINE_integer("num_iterations", 100, "Samples of 16 modules, for each sampler.", 1)
_REPETITIONS = flags.DEFINE_integer("repetitions", 7, "Processes to measure.", 1)
_CLANG_PATH = shared_flags.clang_path("Compiler of the module; by default the newest installed clang.")

_NUM_PROJECTS = 20
_NUM_DRAWN = 16
_SEED = 1
_SOURCE = "int g(int); int f(int x) { return g(x) + g(x + 1); } int h(int x) { return f(f(x)); }\n"

LIMIT_S, LIMIT_MB = 1.0, 200.0
"""Limits for 10,000 modules."""


@entry_point.command
def entry() -> None:
    with scratch_directory() as scratch:
        corpus = scratch / "corpus"
        _make_corpus(corpus, probe(_CLANG_PATH.value).clang)
        code = (
            f"from benchmarks import corpus_library; corpus_library.measure({str(corpus)!r}, {_NUM_ITERATIONS.value})"
        )
        runs = []
        for _ in range(_REPETITIONS.value):
            output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
            runs.append(json.loads(output))
    print(f"{_NUM_MODULES.value} modules in {_NUM_PROJECTS} projects; {_REPETITIONS.value} processes; median (range)")
    for name in runs[0]:
        values = [run[name] for run in runs]
        print(f"  {name:<28} {statistics.median(values):8.3f}  ({min(values):.3f} to {max(values):.3f})")
    together_s = statistics.median(run["together, CPU s"] for run in runs)
    peak_mb = statistics.median(run["peak memory, MB"] for run in runs)
    if _NUM_MODULES.value == 10_000:
        for what, value, limit, unit in (("CPU", together_s, LIMIT_S, "s"), ("memory", peak_mb, LIMIT_MB, "MB")):
            verdict = "within" if value < limit else "OVER"
            print(f"  {what}: {value:.3f} {unit}, {verdict} the limit of {limit:g} {unit}")
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    print(
        f"Python {platform.python_version()}, {platform.platform()}, {os.cpu_count()} CPUs, load {load}; "
        "files in the page cache"
    )


def measure(path: str, num_iterations: int) -> None:
    """Does what training does with a corpus before it compiles; prints the costs as JSON."""
    start_s = time.process_time()
    corpus = Corpus.load(path)
    loaded_s = time.process_time()
    times = {"load, CPU s": loaded_s - start_s}
    counts = {module.name: 1 + number % 100 for number, module in enumerate(corpus.modules)}
    for kind in SAMPLERS:
        sampler = make_sampler(kind, corpus.modules, _SEED, lambda: counts)
        for position in range(0, _NUM_DRAWN * num_iterations, _NUM_DRAWN):
            sampler.draw(position, _NUM_DRAWN)
    sampled_s = time.process_time()
    times["sample, CPU s"] = sampled_s - loaded_s
    corpus.filter("m[0-9]*7[.]o$")
    corpus.filter(lambda module: module.project == "p3")
    corpus.select(list(corpus.projects())[::7])
    end_s = time.process_time()
    times["filter, CPU s"] = end_s - sampled_s
    times["together, CPU s"] = end_s - start_s
    for module in corpus.modules:
        compile_command("clang", module.options(), module.bitcode_path, "m.o")
    times["command lines, CPU s"] = time.process_time() - end_s
    times["peak memory, MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(times))


def _make_corpus(root: Path, clang: Path | str) -> None:
    root.mkdir()
    (root / "m.c").write_text(_SOURCE)
    options = ["-Oz", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c", "m.c", "-o", "m.bc"]
    subprocess.run([str(clang), *options], cwd=root, check=True)
    (root / "m.cmd").write_bytes(format_options(["-cc1", "-triple", "x86_64-pc-linux-gnu", "-Oz"]))
    names = [f"p{number % _NUM_PROJECTS}/m{number}.o" for number in range(_NUM_MODULES.value)]
    for project in range(_NUM_PROJECTS):
        (root / f"p{project}").mkdir()
    for number, name in enumerate(names):
        # A file can have some 65,000 names.
        if number and number % 50_000 == 0:
            for file in (root / "m.bc", root / "m.cmd"):
                content = file.read_bytes()
                file.unlink()
                file.write_bytes(content)
        for ending in ("bc", "cmd"):
            os.link(root / f"m.{ending}", root / f"{name}.{ending}")
    projects = [f"p{project}" for project in range(min(_NUM_PROJECTS, len(names)))]
    description = {"modules": names, "has_thinlto": False, "projects": projects}
    (root / DESCRIPTION_NAME).write_text(json.dumps(description))


if __name__ == "__main__":
    entry()
