"""Collects what flips of inlining decisions save in programs that run, for the algorithm `flips` to learn from.

    python -m benchmarks.speed_flips --data_path=$CORPUS_O2/train --store=$STORE --output_dir=$OUT --rounds=20
    python compiler_opt/rl/train_locally.py --root_dir=$RESULT --data_path=$CORPUS_O2/train --vocab_path=$VOCABULARY \
      --gin_files=gin_configs/inlining/flips_nn_agent.gin --gin_bindings=train_eval.num_iterations=0 \
      --gin_bindings="flips.stores=('$STORE',)" --gin_bindings=flips.largest_gain_bytes=2000

A gain is what a program's text shrinks by, plus what it runs less, priced in bytes as in `speed_by_heart`: one percent
of the instructions is worth a twentieth of the text. Programs are those of `benchmarks/programs/`; --program chooses.
Each round compiles all modules of a program, links it and runs it under callgrind. With --profiled, flips are those of
a build with clang's PGO, for policies that are to observe how hot calls are. Programs that are complete are not
measured again.
"""

from pathlib import Path

from absl import flags

from benchmarks.corpus_programs import PROGRAM_FLAG, programs_of
from benchmarks.program_builds import PLAIN, ProgramBuilds, TrialRun
from compiler_opt.collect.flip_store import FlipStore
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.files import check_folder_writable, exclusive_directory
from compiler_opt.llvm import plugin_features
from compiler_opt.llvm.inliner_plugin import with_plugin_features
from compiler_opt.llvm.object_file import read_text_bytes
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import probe
from compiler_opt.measure.callgrind import valgrind
from compiler_opt.optimize.speed import DEFAULT_BYTES_PER_PERCENT, METRICS
from compiler_opt.problems import problem as problems
from compiler_opt.progress_bar import progress_bar
from compiler_opt.search.measured import Cost
from compiler_opt.search.measured_flips import measured_flips
from compiler_opt.tools import entry_point, shared_flags

_DATA_PATH = shared_flags.required_path("data_path", "The corpus.")
_STORE = shared_flags.required_path("store", "Store of flips to add to; see collect/flip_store.py.")
_OUTPUT_DIR = shared_flags.required_path("output_dir", "Folder for builds.")
_PROGRAM = flags.DEFINE_multi_string("program", [], PROGRAM_FLAG)
_METRIC = flags.DEFINE_enum("speed_metric", "instructions", sorted(METRICS), "What gains are about, beside text.")
_ROUNDS = flags.DEFINE_integer("rounds", 20, "Measurements of each program with flips.", 1)
_PROFILED = flags.DEFINE_bool(
    "profiled",
    False,
    "Flips of builds with the profile of the same run (clang's PGO), which the features of hotness come from.",
)
_SEED = shared_flags.seed("what is flipped together")
_CLANG_PATH = shared_flags.clang_path()
_NUM_WORKERS = shared_flags.num_workers()


@entry_point.command
def entry() -> None:
    toolchain = with_plugin_features(probe(_CLANG_PATH.value), plugin_features.ALL)
    corpus = Corpus.load(str(_DATA_PATH.value))
    corpus.check_compiler(toolchain.version, toolchain.clang)
    valgrind()
    output: Path = _OUTPUT_DIR.value
    check_folder_writable(output)
    problem = problems.load("inlining")
    programs = programs_of(corpus, _PROGRAM.value)
    with exclusive_directory(output, "--output_dir"):
        for program in programs:
            kind = "profiled-flips" if _PROFILED.value else "flips"
            done = output / program.name / f"{kind}-{_METRIC.value}-{_ROUNDS.value}-{_SEED.value}.txt"
            if done.exists():
                entry_point.echo(f"{program.name}: {done.read_text().strip()}, done before")
                continue
            modules = [module for module in corpus.modules if module.project == program.project]
            builds = ProgramBuilds(program, modules, toolchain, output / program.name)
            if _PROFILED.value:
                modules = builds.profiled
            text_bytes = read_text_bytes(builds.program(PLAIN))
            with (
                scratch_directory() as scratch,
                WorkerPool(toolchain, problem, _NUM_WORKERS.value) as pool,
                progress_bar(total=_ROUNDS.value, description=program.name, unit="round") as bar,
            ):
                found = measured_flips(
                    modules,
                    pool,
                    problem,
                    toolchain,
                    TrialRun(builds, kind, scratch, simulate=_METRIC.value != "instructions"),
                    Cost(METRICS[_METRIC.value], DEFAULT_BYTES_PER_PERCENT * text_bytes, builds.is_own),
                    scratch,
                    rounds=_ROUNDS.value,
                    seed=_SEED.value,
                    on_round=bar.update,
                )
            path = FlipStore(_STORE.value).add(found)
            gains = found.gains
            said = f"{len(found)} flips, of which {(gains > 0).sum()} gain {gains[gains > 0].sum():,.0f} bytes"
            done.write_text(f"{said}\n")
            entry_point.echo(f"{program.name}: {said}; in {path}")


if __name__ == "__main__":
    entry()
