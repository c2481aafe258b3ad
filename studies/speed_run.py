"""Builds of a benchmark program that are to be faster than the plain one, measured beside it; see `fitted_speed`."""

import dataclasses
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.program_builds import PGO, PLAIN, ProgramBuilds
from compiler_opt.collect.rollout import DefaultPolicy
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.module import Module
from compiler_opt.cost_models import block_costs
from compiler_opt.decisions.inlining import PROBLEM
from compiler_opt.errors import CompileError
from compiler_opt.evaluation.statistics import relative_change
from compiler_opt.llvm.inliner_plugin import with_plugin_features
from compiler_opt.llvm.object_file import read_parts
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.measure.attribution import METRICS, Attribution
from compiler_opt.measure.wall_time import wall_times
from compiler_opt.policies.decisions import Decisions
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.report.formatting import aligned, change_text
from compiler_opt.search.compiling import PoolCompiler
from compiler_opt.search.profiled import CostWeights, profiled_pool, search_profiled
from compiler_opt.search.progress_bar import weighted_bar
from compiler_opt.search.search import SearchSettings
from compiler_opt.tools import entry_point

POLICY = "policy"
PGO_SEARCH, PGO_POLICY = f"{PGO}+search", f"{PGO}+{POLICY}"
"""On top of the profile of the same run."""

_BUDGET = 100_000
"""Compiles a module; the time ends a search before."""


@dataclasses.dataclass(frozen=True)
class Row:
    """A build of a program. Changes are to the plain build, relative to its whole.

    Attributes:
      instructions: executed, libraries included.
      own_instructions: by the program's functions.
      cycles: callgrind's estimate.
      own_cycles: the same, in the program's functions.
      text: of the program.
      decisions: that are replayed.
      compiles: of modules, in the search that has found them.
      wall: of the wall time, with its interval; None if it was not measured.
    """

    instructions: float
    own_instructions: float
    cycles: float
    own_cycles: float
    text: float
    decisions: int = 0
    compiles: int = 0
    wall: tuple[float, float, float] | None = None


@dataclasses.dataclass(frozen=True)
class Results:
    """The builds of a program.

    Attributes:
      settings: of the run that measured them.
      instructions: of the plain build.
      own_instructions: those in the program's functions.
      text_bytes: of the plain build.
      rows: by variant.
    """

    settings: dict[str, Any]
    instructions: int
    own_instructions: int
    text_bytes: int
    rows: dict[str, Row]


@dataclasses.dataclass(frozen=True)
class SpeedRun:
    """How builds are made and measured.

    Attributes:
      toolchain: the compiler.
      minutes: of each search.
      text_percent: percent of the program's text that one percent of the instructions is worth in it.
      rounds: of wall time; 0 for none.
      seed: of the searches' random moves.
      num_workers: compilations at a time; None for one per CPU.
      policy_dir: folder of the policy that some variants decide by.
    """

    toolchain: Toolchain
    minutes: float
    text_percent: float
    rounds: int
    seed: int
    num_workers: int | None
    policy_dir: Path | None = None

    def settings(self, variants: Sequence[str]) -> dict[str, Any]:
        """Everything that results depend on, except the program."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        policy = None if self.policy_dir is None else NetworkWeights.load(self.policy_dir).checksum()
        fixed = {"toolchain": self.toolchain.version_text, "policy_dir": policy, "variants": list(variants)}
        return {**values, **fixed}

    def measure(self, builds: ProgramBuilds, variants: Sequence[str]) -> Results:
        """Makes the builds of a program, and compares them with the plain one.

        Raises:
          BenchmarkError: a build is wrong.
          CompileError: it cannot be built.
          ToolchainError: clang has no library for profiles.
        """
        plain = builds.measure(PLAIN)
        text_bytes = read_parts(builds.program(PLAIN)).total
        own = {name: Attribution(plain, metric, builds.is_own) for name, metric in METRICS.items()}

        def row(variant: str) -> Row:
            profile = builds.measure(variant)

            def changes(name: str) -> tuple[float, float]:
                total = METRICS[name](plain.total)
                saved = own[name].own_cost(profile) - own[name].own_cost(plain)
                return METRICS[name](profile.total) / total - 1, saved / total

            text = relative_change(text_bytes, read_parts(builds.program(variant)).total)
            return Row(*changes("instructions"), *changes("cycles"), text)

        rows = {PLAIN: row(PLAIN)}
        for variant in variants:
            entry_point.echo(f"{builds.folder.name}: {variant}")
            modules = builds.profiled if variant == PGO_POLICY else builds.modules
            if variant == PGO_SEARCH:
                own_share = own["instructions"].own_cost(plain) / plain.total.instructions
                decisions = self._search(builds, text_bytes, own_share)
                about: Any = decisions.about["search"]
                found = row(variant)
                rows[variant] = dataclasses.replace(found, decisions=len(decisions), compiles=about["compiles"])
            else:
                if variant in (POLICY, PGO_POLICY):
                    self._build_with_policy(builds, modules, variant)
                else:
                    builds.build(variant)
                rows[variant] = row(variant)
        if self.rounds:
            folders = [builds.folder / name for name in rows]
            times = wall_times(builds.benchmark, folders, builds.reference, rounds=self.rounds)
            walls = [(each.ratio.value - 1, each.ratio.low - 1, each.ratio.high - 1) for each in times]
            rows = {
                name: dataclasses.replace(each, wall=wall)
                for (name, each), wall in zip(rows.items(), walls, strict=True)
            }
        own_instructions = own["instructions"].own_cost(plain)
        return Results(self.settings(variants), plain.total.instructions, own_instructions, text_bytes, rows)

    def _build_with_policy(self, builds: ProgramBuilds, modules: Sequence[Module], variant: str) -> None:
        problem = PROBLEM
        assert self.policy_dir is not None
        policy = problem.decision.load_policy(self.policy_dir)
        toolchain = with_plugin_features(self.toolchain, policy.plugin_features)
        with scratch_directory() as scratch, WorkerPool(toolchain, problem, self.num_workers) as pool:
            paths = {module.name: scratch / f"{number}.o" for number, module in enumerate(modules)}
            jobs = [Job(module, policy, keep_object=paths[module.name]) for module in modules]
            for job, rollout in pool.rollouts(jobs):
                if rollout.failure is not None:
                    raise CompileError(f"{job.module.name}: {rollout.failure}")
            builds.link(variant, list(paths.values()))

    def _search(self, builds: ProgramBuilds, text_bytes: int, own_share: float) -> Decisions:
        """Searches on top of the profile, unless that was done, and links the program with what was found."""
        # Searches of other settings are others, and must not pass for this one.
        state = builds.folder / f"{PGO_SEARCH}-{self.text_percent:g}-percent-{self.minutes:g}-minutes-{self.seed}"
        path = state / "decisions.json"
        if not path.exists():
            state.mkdir(exist_ok=True)
            self._searched(builds, text_bytes, own_share, state).save(path)
        decisions = Decisions.load(path)
        with scratch_directory() as scratch, WorkerPool(self.toolchain, PROBLEM, self.num_workers) as pool:
            compiler = PoolCompiler(pool, builds.profiled, DefaultPolicy(PROBLEM))
            objects = {number: scratch / f"found-{number}.o" for number in range(len(builds.profiled))}
            for compiled in compiler.compile(dict.fromkeys(objects, decisions), objects.__getitem__).values():
                if isinstance(compiled, str):
                    raise CompileError(compiled)
            builds.link(PGO_SEARCH, list(objects.values()))
        return decisions

    def _searched(self, builds: ProgramBuilds, text_bytes: int, own_share: float, state: Path) -> Decisions:
        """The decisions that a search has found; none if it has found nothing that is worth its text."""
        costs, profile = block_costs.load(block_costs.INSTRUCTIONS, self.toolchain), builds.compiled_profile()
        weights = CostWeights(profile, costs, self.text_percent / 100 * text_bytes, own_share)
        with (
            profiled_pool(self.toolchain, weights, self.num_workers) as pool,
            weighted_bar(builds.folder.name, "instructions", weights.bytes_per_percent, self.minutes) as show,
        ):
            return search_profiled(
                [dataclasses.replace(module, trusted=True) for module in builds.modules],
                pool,
                self.toolchain,
                SearchSettings(budget=_BUDGET, max_minutes=self.minutes, seed=self.seed, min_modules=pool.num_workers),
                weights,
                name=builds.folder.name,
                folder=state,
                identity={"program": builds.folder.name, "profile": profile.identity},
                on_progress=show,
            ).decisions


def print_means(results: Sequence[Results]) -> None:
    """Prints the means over the programs, in which programs count alike, and the worst program by its own functions."""
    lines: list[tuple[str, ...]] = [("build", "instructions", "own", "worst own", "cycles", "text")]
    for variant in results[0].rows:
        rows = [each.rows[variant] for each in results]
        changes = (
            statistics.mean(row.instructions for row in rows),
            statistics.mean(row.own_instructions for row in rows),
            max(row.own_instructions for row in rows),
            statistics.mean(row.cycles for row in rows),
            statistics.mean(row.text for row in rows),
        )
        lines.append((variant, *map(change_text, changes)))
    entry_point.echo(f"mean of {len(results)} programs")
    for line in aligned(lines, 1, (1,)):
        entry_point.echo(line)


def print_table(name: str, results: Results) -> None:
    """Prints the table of a program."""
    entry_point.echo(
        f"{name}: {results.instructions:,} instructions, {results.own_instructions / results.instructions:.0%} of them "
        f"the program's own; {results.text_bytes:,} bytes of text"
    )
    lines: list[tuple[str, ...]] = [
        ("build", "instructions", "own", "cycles", "own", "text", "wall time (95%)", "decisions", "compiles")
    ]
    for variant, row in results.rows.items():
        changes = (row.instructions, row.own_instructions, row.cycles, row.own_cycles, row.text)
        wall = "" if row.wall is None else "{} ({} to {})".format(*map(change_text, row.wall))
        lines.append((variant, *map(change_text, changes), wall, str(row.decisions or ""), str(row.compiles or "")))
    for line in aligned(lines, 1, (1,)):
        entry_point.echo(line)
