"""Variants of a corpus's objects, which differ in how they are compiled; see `build_variants`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from benchmarks.corpus_programs import compile_objects
from compiler_opt import problem as problems
from compiler_opt.collect.rollout import RolloutSettings
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.module import Module
from compiler_opt.cost_models.throughput.address_map import FLAGS
from compiler_opt.errors import CompileError
from compiler_opt.evaluation.evaluate import baselines
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.tools import entry_point

BASE = "default"
OPTIONS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        BASE: (),
        "inline-never": ("-inline-threshold=-1000000",),
        "inline-25": ("-inline-threshold=25",),
        "inline-100": ("-inline-threshold=100",),
        "inline-500": ("-inline-threshold=500",),
        "inline-1000": ("-inline-threshold=1000",),
        "regalloc-basic": ("-regalloc=basic",),
        "regalloc-split-size": ("-split-spill-mode=size",),
        "regalloc-csr": ("-regalloc-csr-first-time-cost=100000",),
        "regalloc-uncoalesced": ("-join-liveintervals=false",),
    }
)
"""LLVM's options by variant."""

POLICIES = ("random", "first", "most_expensive")
"""Baselines of `_PROBLEM`; the variant `evict-NAME` takes their evictions."""

_PROBLEM = "regalloc_eviction"
PLACE, OBJECTS = "place", "objects"
_SETTINGS = RolloutSettings(timeout_s=300.0)


def objects_of(
    variant: str, modules: Sequence[Module], toolchain: Toolchain, folder: Path, progress: Callable[[int], object]
) -> list[Path]:
    """The modules' objects in a variant; raises CompileError if one cannot be compiled."""
    if variant in OPTIONS:
        added = [word for option in OPTIONS[variant] for word in ("-mllvm", option)]
        return compile_objects(modules, toolchain, folder, (*FLAGS, *added), progress)
    return objects_under(variant.removeprefix("evict-"), modules, toolchain, folder, progress)


def objects_under(
    baseline: str,
    modules: Sequence[Module],
    toolchain: Toolchain,
    folder: Path,
    progress: Callable[[int], object] = lambda _: None,
    num_workers: int | None = None,
) -> list[Path]:
    """Compiles modules, with an address map, under a baseline policy of evictions; keeps their objects by name.

    Raises:
      CompileError: one cannot be compiled.
    """
    problem = problems.load(_PROBLEM)
    (policy,) = baselines(problem, [baseline])
    paths = {module.name: folder / module.name.replace("/", "+") for module in modules}
    jobs = [
        Job(module.with_flags(*FLAGS), policy, settings=_SETTINGS, keep_object=_unfinished(paths[module.name]))
        for module in modules
        if not paths[module.name].exists()
    ]
    progress(len(modules) - len(jobs))
    with WorkerPool(toolchain, problem, entry_point.num_workers(num_workers)) as pool:
        for job, rollout in pool.rollouts(jobs):
            if rollout.failure is not None:
                raise CompileError(rollout.failure)
            path = paths[job.module.name]
            _unfinished(path).replace(path)
            progress(1)
    return list(paths.values())


def _unfinished(path: Path) -> Path:
    return path.with_name(f"{path.name}.unfinished")
