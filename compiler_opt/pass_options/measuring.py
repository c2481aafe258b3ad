"""Compiles modules under options of LLVM's passes, and measures the objects: bytes, and whether they are plain ones."""

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from compiler_opt.collect.rollout import RolloutSettings
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.module import Module
from compiler_opt.decisions.inlining import DECISION
from compiler_opt.llvm.elf import ElfFile
from compiler_opt.llvm.object_file import ObjectSizes, object_sizes, text_parts
from compiler_opt.objectives.objective import Reader
from compiler_opt.problem import CompileTask

SETTINGS = RolloutSettings(timeout_s=30.0)


@dataclasses.dataclass(frozen=True)
class MeasuredObject:
    """An object: a hash of its bytes, its sizes, and the bytes of its executable sections."""

    digest: bytes
    sizes: ObjectSizes
    code_bytes: int


def _read(object_path: Path, remarks: bytes) -> MeasuredObject:
    del remarks
    file = ElfFile.read(object_path)
    digest = hashlib.sha256(object_path.read_bytes()).digest()
    return MeasuredObject(digest, object_sizes(file), text_parts(file).code)


WHOLE_OBJECTS = CompileTask(DECISION, Reader(_read))
"""For plain compilations, in which nobody is asked for decisions."""


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A module under options: the object, or why there is none; CPU seconds of the compiler."""

    module: str
    options: tuple[str, ...]
    object: MeasuredObject | None
    failure: str | None
    cpu_s: float


def compile_all(pool: WorkerPool, modules: Sequence[Module], sets: Iterable[Sequence[str]]) -> Iterator[Compiled]:
    """Compiles each module under each set of options; yields them in no particular order, sets roughly in turn."""
    jobs = (
        Job(dataclasses.replace(module, pass_options=tuple(options)), None, settings=SETTINGS)
        for options in sets
        for module in modules
    )
    for job, result in pool.rollouts(jobs):
        yield Compiled(result.module, job.module.pass_options, result.measurement, result.failure, result.cpu_s)
