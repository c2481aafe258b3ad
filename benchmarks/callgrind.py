"""Measures how a register-allocation policy changes running programs: instructions, loads and stores, by callgrind.

For each program of `benchmarks/programs/`, the modules of its project are compiled plainly and under the policy, linked
with the program's own file, which is always compiled plainly, and run under valgrind. Both programs must print the
same. The counts include library functions and program start, which are the same in both.

    python -m benchmarks.callgrind --data_path=$HELD_OUT --policy_path=$POLICY

Requires valgrind (`apt-get install valgrind`).
"""

import collections
import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from absl import flags

from benchmarks.corpus_programs import ProgramSource, programs_of
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import CompileError
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.measure.callgrind import run_profiled, valgrind
from compiler_opt.problems import problem as problems
from compiler_opt.progress_bar import progress_bar
from compiler_opt.tools import entry_point, shared_flags

_DATA_PATH = flags.DEFINE_string("data_path", None, "The corpus of the held-out projects.", required=True)
_POLICY_PATH = flags.DEFINE_string("policy_path", None, "The policy.", required=True)
_COMPILE_TASK = flags.DEFINE_string("compile_task", "regalloc_eviction", "Problem of the policy.")
_CLANG_PATH = shared_flags.clang_path()
_NUM_WORKERS = shared_flags.num_workers()

_TIMEOUT_S = 900.0
_PLAIN, _POLICY = "plain", "policy"


@dataclasses.dataclass(frozen=True)
class Counts:
    """Counts of one run: instructions, loads, stores; and the program's output."""

    instructions: int
    loads: int
    stores: int
    printed: str


@entry_point.command
def entry() -> int:
    problem, toolchain = problems.load(_COMPILE_TASK.value), probe(_CLANG_PATH.value)
    policy = problem.load_policy(Path(_POLICY_PATH.value))
    corpus = Corpus.load(_DATA_PATH.value)
    corpus.check_compiler(toolchain.version, toolchain.clang)
    valgrind()
    programs = programs_of(corpus)
    projects = {program.project for program in programs}
    modules = [module for module in corpus.modules if module.project in projects]
    results: dict[str, dict[str, Counts]] = {}
    with scratch_directory() as scratch, WorkerPool(toolchain, problem, _NUM_WORKERS.value) as pool:
        jobs = [
            Job(module, chosen, keep_object=scratch / name / f"{index}.o")
            for index, module in enumerate(modules)
            for name, chosen in ((_PLAIN, None), (_POLICY, policy))
        ]
        objects: dict[tuple[str, str], list[Path]] = collections.defaultdict(list)
        for job, result in progress_bar(pool.rollouts(jobs), "modules", len(jobs), unit="compile"):
            if result.failure is not None or job.keep_object is None:
                raise CompileError(result.failure or job.module.name)
            objects[job.keep_object.parent.name, job.module.project].append(job.keep_object)
        for program in progress_bar(programs, "programs", unit="program"):
            results[program.name] = {
                name: _count(program, sorted(objects[name, program.project]), toolchain, scratch)
                for name in (_PLAIN, _POLICY)
            }
    _report(results)
    return 0 if all(run[_PLAIN].printed == run[_POLICY].printed for run in results.values()) else 1


def _count(source: ProgramSource, objects: Sequence[Path], toolchain: Toolchain, scratch: Path) -> Counts:
    program, place = scratch / "program", scratch / "place"
    source.link(objects, toolchain, program)
    place.mkdir()
    run = run_profiled([str(program), str(place)], scratch=scratch, timeout_s=_TIMEOUT_S)
    shutil.rmtree(place)
    if run.profile is None:
        raise CompileError(f"{source.path.name}: {run.result.describe()}")
    total = run.profile.total
    return Counts(total.instructions, total.reads, total.writes, run.result.stdout.decode(errors="replace"))


def _report(results: Mapping[str, Mapping[str, Counts]]) -> None:
    print("program                instructions            loads           stores  (plain in thousands, change)")
    for name, run in results.items():
        plain, policy = run[_PLAIN], run[_POLICY]
        columns = [
            f"{before / 1e3:9,.0f} {100 * (after / before - 1):+6.2f}%"
            for before, after in zip(dataclasses.astuple(plain)[:3], dataclasses.astuple(policy)[:3], strict=True)
        ]
        print(f"{name:18} {' '.join(columns)}{'' if plain.printed == policy.printed else '  DIFFERENT OUTPUT'}")


if __name__ == "__main__":
    entry()
