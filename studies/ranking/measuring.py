"""Measures the builds of programs: under callgrind one by one, and their wall time in turn.

A folder of builds has a folder for each variant, and in each the same paths of programs:

    BUILDS/default/h3/h3_cells            the base build
    BUILDS/inline-500/h3/h3_cells

Commands run in the folder of a variant. What is measured is kept, by content of the programs:

    FOLDER/parts/*.npz                    a build, see `builds`
    FOLDER/parts/*.json                   wall times of the builds of a program, all measured together
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from compiler_opt.checked_values import convert
from compiler_opt.errors import BenchmarkError, ConfigError, ProtocolError
from compiler_opt.files import read_checked_json, write_checked_json
from compiler_opt.kept_results import find_kept, key_of
from compiler_opt.measure.benchmark import Benchmark, Reference
from compiler_opt.measure.wall_time import WallTimes, wall_times
from studies.ranking.builds import Build, BuildProfiler, file_digest

_PARTS = "parts"
_VERSION = "1"
"""Renew when what is kept has other contents."""


@dataclasses.dataclass(frozen=True)
class ProgramBuilds:
    """The builds of a program that do what its base build does.

    Attributes:
      name: path of the program in the folder of a variant.
      builds: by variant, the base first.
      wall: of each build, in the same order; None if it was not measured.
      left_out: why a variant is not among them.
    """

    name: str
    builds: Mapping[str, Build]
    wall: Mapping[str, WallTimes] | None
    left_out: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class _KeptTimes:
    times: tuple[WallTimes, ...]


class BuildMeasurer:
    """Measures all builds of a program."""

    def __init__(self, folder: Path, profiler: BuildProfiler, builds_dir: Path, base: str, rounds: int):
        """Starts nothing.

        Args:
          folder: where wall times are kept; it must belong to this process alone.
          profiler: runs builds under callgrind.
          builds_dir: of the variants.
          base: the variant that the others are compared with.
          rounds: of wall time; 0 for none.
        """
        self._folder = folder
        self._profiler = profiler
        self._builds_dir = builds_dir
        self._base = base
        self._rounds = rounds

    def measure(
        self,
        program: str,
        benchmark: Benchmark,
        variants: Sequence[str],
        on_step: Callable[[], object] = lambda: None,
    ) -> ProgramBuilds:
        """Measures the builds of one program.

        Args:
          program: its path in the folder of a variant.
          benchmark: its commands.
          variants: beside the base.
          on_step: called after each build, and after each round of wall time.

        Raises:
          BenchmarkError: the base build fails or is not deterministic, or a build fails that succeeded before.
          ProtocolError: the base build has no address map.
          ToolchainError: valgrind or llvm-readobj is missing.
        """
        base = self._builds_dir / self._base
        reference = functools.cache(functools.partial(benchmark.reference, base))
        builds: dict[str, Build] = {}
        left_out: dict[str, str] = {}
        for variant in (self._base, *variants):
            folder = self._builds_dir / variant
            try:
                builds[variant] = self._profiler.profile(folder, program, benchmark, base / program, reference)
            except (BenchmarkError, ProtocolError) as error:
                if variant == self._base:
                    raise
                left_out[variant] = str(error)
            on_step()
        wall = self._wall(program, benchmark, list(builds), reference, on_step) if self._rounds else None
        return ProgramBuilds(program, builds, wall, left_out)

    def _wall(
        self,
        program: str,
        benchmark: Benchmark,
        variants: Sequence[str],
        reference: Callable[[], Reference],
        on_step: Callable[[], object],
    ) -> dict[str, WallTimes]:
        folders = [self._builds_dir / variant for variant in variants]
        programs = [(variant, file_digest(self._builds_dir / variant / program)) for variant in variants]
        key = key_of(repr((_VERSION, programs, benchmark.commands, self._rounds)))
        path = self._folder / _PARTS / f"{key}.json"
        kept = find_kept(path, lambda path: convert(read_checked_json(path), _KeptTimes).times)
        if kept is None or len(kept) != len(variants):
            kept = tuple(wall_times(benchmark, folders, reference(), rounds=self._rounds, on_round=on_step))
            write_checked_json(path, dataclasses.asdict(_KeptTimes(kept)))
        return dict(zip(variants, kept, strict=True))


def variants_with(builds_dir: Path, base: str, programs: Sequence[str], given: Sequence[str] = ()) -> list[str]:
    """The variants beside the base: the given ones, by default all folders with one of the programs, by name.

    Raises:
      ConfigError: a folder is missing, or given twice, or there is no variant beside the base.
    """
    if not (builds_dir / base).is_dir():
        raise ConfigError(
            f"{builds_dir}: expected a folder {base} with the base builds, found none; name another by --base"
        )
    if not given:
        folders = sorted(path for path in builds_dir.iterdir() if path.is_dir() and path.name != base)
        found = [folder.name for folder in folders if any((folder / program).is_file() for program in programs)]
        if not found:
            raise ConfigError(
                f"{builds_dir}: expected folders beside {base} with {' or '.join(programs)}, found none; put each "
                "variant's builds into a folder of its own"
            )
        return found
    for variant in given:
        if variant == base or given.count(variant) > 1:
            raise ConfigError(f"--variant={variant}: is there twice; the base, {base}, is always there")
        if "/" in variant or not (builds_dir / variant).is_dir():
            raise ConfigError(f"--variant={variant}: expected a folder in {builds_dir}, found none")
    return list(given)
