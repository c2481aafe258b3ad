"""Compiles modules under options of LLVM's passes, and measures the objects: bytes, and whether they are plain ones."""

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from elftools.elf.constants import SH_FLAGS

from compiler_opt.collect.rollout import RolloutSettings
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.module import Module
from compiler_opt.llvm.elf import ElfFile
from compiler_opt.llvm.object_file import ObjectSizes, object_sizes
from compiler_opt.problems.inlining import InliningForSize
from compiler_opt.problems.inlining.comdats import comdat_copies, function_weights, weighted_text_bytes

SETTINGS = RolloutSettings(timeout_s=30.0)


@dataclasses.dataclass(frozen=True)
class MeasuredObject:
    """An object: a hash of its bytes, its sizes, and the bytes of its executable sections."""

    digest: bytes
    sizes: ObjectSizes
    code_bytes: int


class WholeObjects(InliningForSize):
    """Inlining for size, but what is measured is a `MeasuredObject`; only for plain compilations."""

    def measure(self, object_path: Path, remarks: bytes) -> MeasuredObject:  # type: ignore[override]
        del remarks
        content = object_path.read_bytes()
        file = ElfFile.read(object_path)
        flags = file.sections["flags"]
        is_code = (flags & SH_FLAGS.SHF_ALLOC != 0) & (flags & SH_FLAGS.SHF_EXECINSTR != 0)
        code_bytes = int(file.sections["size"][is_code].sum())
        return MeasuredObject(hashlib.sha256(content).digest()[:16], object_sizes(file), code_bytes)


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A module under options: the object, or why there is none; CPU seconds of the compiler."""

    module: str
    options: tuple[str, ...]
    object: MeasuredObject | None
    failure: str | None
    cpu_s: float


def compile_all(
    pool: WorkerPool, modules: Sequence[Module], sets: Iterable[Sequence[str]], repetitions: int = 1
) -> Iterator[Compiled]:
    """Compiles each module under each set of options; yields them in no particular order, sets roughly in turn."""
    jobs = (
        Job(dataclasses.replace(module, pass_options=tuple(options)), None, settings=SETTINGS)
        for options in sets
        for _ in range(repetitions)
        for module in modules
    )
    for job, result in pool.rollouts(jobs):
        yield Compiled(result.module, job.module.pass_options, result.measurement, result.failure, result.cpu_s)


class ProjectCopies:
    """How often each COMDAT group of a project is emitted by plain compilations of all its modules.

    With these, bytes of single objects count as they do in the linked program (`problems.inlining.comdats`).
    """

    def __init__(self, objects: Mapping[str, Iterable[ObjectSizes]]):
        """Takes the plain objects of each project."""
        self._copies = {project: comdat_copies(each) for project, each in objects.items()}

    def weighted_bytes(self, project: str, sizes: ObjectSizes) -> float:
        """Bytes of text as they count in the linked program."""
        return weighted_text_bytes(sizes, self._copies[project])

    def function_weights(self, project: str, sizes: ObjectSizes) -> dict[str, float]:
        """What a byte of each function counts."""
        return function_weights(sizes, self._copies[project])
