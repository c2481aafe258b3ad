"""Verifies that a corpus rebuilds the objects of the build it was extracted from, byte for byte.

Each module is compiled from its bitcode by its recorded command, as in training, and the object is compared with the
build's, section by section, except for embedded bitcode and options, which a rebuilt object does not have.

A difference comes from the build (another compiler made the object), from how clang treats bitcode, or from a defect of
the corpus or this code. The first two are recognised by the options that cause them and the sections that they change;
an explanation is only given if it covers all differences.
"""

import dataclasses
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from compiler_opt.collect.rollout import RolloutSettings
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus import bitcode
from compiler_opt.corpus.making.extract import BITCODE_SECTION, COMMAND_SECTION
from compiler_opt.corpus.making.original_objects import OriginalObject, OriginalObjects
from compiler_opt.corpus.module import Module
from compiler_opt.errors import ConfigError, CorpusError, ProtocolError
from compiler_opt.files import printable
from compiler_opt.llvm.elf import ElfFile
from compiler_opt.llvm.object_comparison import SectionDifference, compare
from compiler_opt.llvm.toolchain import Toolchain

IGNORED_SECTIONS = (BITCODE_SECTION, COMMAND_SECTION)
"""Sections that embedding adds to the original; ignored with their relocations and names in the string table."""

_DEBUG_SECTIONS = (".debug_", ".rela.debug_", ".rel.debug_", ".symtab", ".llvm_addrsig")
_CODE_SECTIONS = (".text", ".rela.text", ".rel.text", ".eh_frame", ".rela.eh_frame", ".symtab", ".gcc_except_table")
_NAMING_SECTIONS = (".rodata", ".data", ".rela.", ".symtab", ".group")
_FIRST_NOT_TO_FUSE = 22
_SHOWN_SECTIONS = 6


@dataclasses.dataclass(frozen=True)
class Verification:
    """The result for one module.

    Attributes:
      module: its name.
      differences: the sections that differ.
      explanation: why they differ, if known.
      failure: why they could not be compared; one line.
    """

    module: str
    differences: tuple[SectionDifference, ...] = ()
    explanation: str | None = None
    failure: str | None = None

    @property
    def is_identical(self) -> bool:
        return self.failure is None and not self.differences

    @property
    def is_good(self) -> bool:
        """Whether the object is identical, or it is known why not."""
        return self.is_identical or self.explanation is not None

    def describe(self) -> str:
        """Describes the result in one line, without the module's name."""
        if self.failure is not None:
            return self.failure
        if not self.differences:
            return "identical"
        shown = "; ".join(difference.describe() for difference in self.differences[:_SHOWN_SECTIONS])
        more = len(self.differences) - _SHOWN_SECTIONS
        shown += f"; and {more} more sections" if more > 0 else ""
        return f"{self.explanation} ({shown})" if self.explanation else shown


def sample(modules: Sequence[Module], count: int | None, seed: int) -> list[Module]:
    """Draws `count` modules at random, all if None; keeps their order.

    Raises:
      ConfigError: the count is not positive.
    """
    if count is None or count >= len(modules):
        return list(modules)
    if count < 1:
        raise ConfigError(f"sample: expected a number of modules of at least 1, found {count}")
    chosen = random.Random(seed).sample(range(len(modules)), count)
    return [modules[index] for index in sorted(chosen)]


def verify(
    modules: Sequence[Module],
    original_dir: Path,
    toolchain: Toolchain,
    pool: WorkerPool,
    settings: RolloutSettings = RolloutSettings(),
) -> Iterator[Verification]:
    """Compiles modules and compares them with the objects, in `original_dir`, that they were extracted from.

    Yields a verification per module as they are done, including failures. `original_objects.py` finds the objects.
    """
    # Numbers, because names of modules may be as long as paths.
    kept = {module.name: pool.scratch / f"verified-{number}.o" for number, module in enumerate(modules)}
    recorded_objects = OriginalObjects(original_dir)
    jobs = []
    for module in modules:
        try:
            recorded_objects.find(module.name)
        except CorpusError as error:
            yield Verification(module.name, failure=str(error))
        else:
            jobs.append(Job(module, None, settings=settings, keep_object=kept[module.name]))
    for job, rollout in pool.rollouts(jobs):
        path = kept[job.module.name]
        try:
            if rollout.failure is not None:
                yield Verification(job.module.name, failure=rollout.failure.removeprefix(f"{job.module.name}: "))
            else:
                yield _compared(job.module, recorded_objects.read(job.module.name), path, toolchain.version)
        except (CorpusError, ProtocolError) as error:
            yield Verification(job.module.name, failure=str(error))
        finally:
            path.unlink(missing_ok=True)


def _compared(
    module: Module, original: OriginalObject, rebuilt_path: Path, version: tuple[int, int, int]
) -> Verification:
    rebuilt = ElfFile.read(rebuilt_path)
    code = module.bitcode_path.read_bytes()
    if original.code and code not in original.code:
        raise CorpusError(
            f"{printable(original.file.path)}: has other bitcode than the corpus: it was rebuilt after extraction"
        )
    differences = compare(original.file, rebuilt, IGNORED_SECTIONS)
    explanation = explain(module.options(), code, version, original.file, rebuilt, differences) if differences else None
    return Verification(module.name, differences, explanation)


def explain(
    options: Sequence[str],
    code: bytes,
    version: tuple[int, int, int],
    original: ElfFile,
    rebuilt: ElfFile,
    differences: Sequence[SectionDifference],
) -> str | None:
    """Why a rebuilt object differs from the original; None unless a known reason covers all differences.

    `options` are the recorded cc1 options, `code` the bitcode, and `version` that of the compiler that compiled it.
    """
    # Section .comment names the front end that wrote the bitcode, so it is the same in both.
    writer = bitcode.producer_version(code[: bitcode.HEAD_BYTES])
    if writer is not None and writer != version:
        first, second = (".".join(map(str, numbers)) for numbers in (writer, version))
        return f"made by another compiler: LLVM {first}, compiled again by LLVM {second}"

    def only(*prefixes: str) -> bool:
        return all(difference.section.startswith(prefixes) for difference in differences)

    if not compare(original, rebuilt, IGNORED_SECTIONS, private_numbers=False):
        return "the compiler numbers its private symbols (such as .Lstr.3) differently; nothing else differs"
    if any(option.startswith("-split-dwarf") for option in options) and only(*_DEBUG_SECTIONS):
        return "-gsplit-dwarf puts debug information into another file, which a corpus may not write"
    if _names_module(options) and only(*_NAMING_SECTIONS):
        return "AddressSanitizer records the name of the compiled file, which for bitcode is the .bc file"
    if version[0] >= _FIRST_NOT_TO_FUSE and "-ffp-contract=fast" in options and only(*_CODE_SECTIONS):
        return f"clang >= {_FIRST_NOT_TO_FUSE} ignores -ffp-contract=fast for bitcode"
    return None


def _names_module(options: Sequence[str]) -> bool:
    sanitizers = [option.partition("=")[2].split(",") for option in options if option.startswith("-fsanitize=")]
    return any("address" in kinds or "kernel-address" in kinds for kinds in sanitizers)
