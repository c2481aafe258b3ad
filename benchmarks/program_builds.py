"""The builds of a benchmark program, each in a folder of its own: plain, with options of LLVM's, with a profile.

FOLDER/VARIANT/program        and a folder `place`, in which it may write
FOLDER/objects/               of all variants, by content
FOLDER/run.profdata           of a run of the plain program
"""

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.corpus_programs import ProgramSource, compile_objects
from compiler_opt.corpus.module import Module
from compiler_opt.cost_models.function_costs import CompiledProfile
from compiler_opt.evaluation.results import DEFAULT
from compiler_opt.llvm.profile import check_runtime, merge, use_options
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.measure.benchmark import Benchmark, Reference
from compiler_opt.measure.callgrind import Counts, Profile
from compiler_opt.measure.wall_time import WallTimes, wall_times
from compiler_opt.pass_options.sets import shipped

PLAIN, PGO = "plain", "pgo"

SHIPPED = re.compile(r"shipped(?:-trials-(\d{1,2}))?")
"""A variant with the options that ship: `shipped`, or `shipped-trials-3` with trials of so many further sets."""

_PROGRAM_FILE, _PLACE = "program", "place"
_COMMAND = f"./{_PROGRAM_FILE} {_PLACE}"
_TIMEOUT_S = 300.0


def llvm_options(variant: str) -> tuple[str, ...] | None:
    """Options of cc1 for a variant that is a threshold of the inliner, e.g. `inline-500`, or a list of LLVM's options.

    Such a list is `-NAME=VALUE`, several of them with spaces between them. None for another kind of variant.
    """
    match = re.fullmatch(r"inline-(\d{1,6})", variant)
    options = variant.split(" ") if match is None else [f"-inline-threshold={match[1]}"]
    if not all(re.fullmatch(r"-[a-z-]+=[\w.]+", option) for option in options):
        return None
    return tuple(word for option in options for word in ("-mllvm", option))


class ProgramBuilds:
    """The builds of one program, each in a folder of its own."""

    def __init__(self, program: ProgramSource, modules: Sequence[Module], toolchain: Toolchain, folder: Path):
        """Builds the program plainly."""
        self.benchmark = Benchmark.of([_COMMAND], timeout_s=_TIMEOUT_S)
        # Programs run elsewhere, and write their profile where they were told to.
        self.folder = folder.resolve()
        self.modules = modules
        self._program, self._toolchain = program, toolchain
        self.link(PLAIN, compile_objects(modules, toolchain, self.folder / "objects"))

    @functools.cached_property
    def reference(self) -> Reference:
        """What the plain build prints."""
        return self.benchmark.reference(self.folder / PLAIN)

    def link(self, variant: str, objects: Sequence[Path], added: Sequence[str] = ()) -> None:
        """Links the objects of all modules."""
        path = self.program(variant)
        (path.parent / _PLACE).mkdir(parents=True, exist_ok=True)
        self._program.link(objects, self._toolchain, path, added)

    def program(self, variant: str) -> Path:
        """The program of a build."""
        return self.folder / variant / _PROGRAM_FILE

    def measure(self, variant: str, *, simulate: bool = True) -> Profile:
        """Runs a build under callgrind; raises BenchmarkError if it is wrong."""
        return self.benchmark.measure(self.folder / variant, self.reference, simulate=simulate)

    def build(self, variant: str) -> None:
        """Builds the program with LLVM's options, with those that ship, or with the profile."""
        modules, added = (self.profiled, ()) if variant == PGO else (self.modules, llvm_options(variant))
        if match := SHIPPED.fullmatch(variant):
            sets = dataclasses.replace(shipped(self._toolchain.version[0]), trials=int(match[1] or 0))
            modules, added = [sets.apply(module, self._toolchain) for module in self.modules], ()
        if added is None:
            raise ValueError(f"unknown variant: {variant}")
        self.link(variant, compile_objects(modules, self._toolchain, self.folder / "objects", added))

    @functools.cached_property
    def profile_path(self) -> Path:
        """LLVM's profile of a run of the benchmark, by instrumentation of IR; recorded at first use."""
        path = self.folder / "run.profdata"
        if not path.exists():
            raw = self.folder / "run.profraw"
            raw.unlink(missing_ok=True)
            added = ("-fprofile-instrument=llvm", f"-fprofile-instrument-path={raw}")
            objects = compile_objects(self.modules, self._toolchain, self.folder / "objects", added)
            check_runtime(self._toolchain)
            linked = [f"-fprofile-generate={raw.parent}", "-Xclang", f"-fprofile-instrument-path={raw}"]
            self.link("instrumented", objects, linked)
            self.benchmark.wall_s(self.folder / "instrumented", self.reference)
            merge([raw], path, self._toolchain)
        return path

    @functools.cached_property
    def profiled(self) -> list[Module]:
        """The modules, compiled with the profile."""
        used = use_options(self.profile_path, self._toolchain.version)
        # Corpora of others may not name files.
        return [dataclasses.replace(module, trusted=True).with_flags(*used) for module in self.modules]

    def compiled_profile(self) -> CompiledProfile:
        """The profile, as estimates of costs need it."""
        return CompiledProfile(self.profile_path, self._toolchain)

    def is_own(self, file: str) -> bool:
        """Whether an object file in a profile is the program, in any of its builds."""
        return file.startswith(f"{self.folder}/")


def measure_builds(
    program: ProgramSource, objects: Mapping[str, Sequence[Path]], toolchain: Toolchain, wall_rounds: int = 0
) -> tuple[dict[str, Counts], dict[str, WallTimes]]:
    """Links objects of several builds, of which one is plain, and runs the programs under callgrind; keeps nothing.

    Args:
      program: what is linked with them.
      objects: by build, those of all modules.
      toolchain: the compiler that links.
      wall_rounds: timed runs of each build; 0 for none.

    Returns:
      By build, counts, and wall times if they are asked for.

    Raises:
      BenchmarkError: a build prints something else than the plain one, or is not deterministic.
      CompileError: it cannot be linked.
    """
    benchmark = Benchmark.of([_COMMAND], _TIMEOUT_S)
    with scratch_directory() as scratch:
        for name, paths in objects.items():
            (scratch / name / _PLACE).mkdir(parents=True)
            program.link(paths, toolchain, scratch / name / _PROGRAM_FILE)
        reference = benchmark.reference(scratch / DEFAULT)
        counts = {name: benchmark.measure(scratch / name, reference).total for name in objects}
        if not wall_rounds:
            return counts, {}
        folders = [scratch / name for name in objects]
        timed = wall_times(benchmark, folders, reference, rounds=wall_rounds)
        return counts, dict(zip(objects, timed, strict=True))
