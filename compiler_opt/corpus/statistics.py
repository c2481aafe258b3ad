"""Statistics of a corpus: modules, functions, call sites, languages, optimisation levels, targets, copies, sizes.

Functions, instructions and call sites are counted by `opt -passes='print<func-properties>'`. For each function, opt
prints a line with its name and one `Property: number` per property on stderr (LLVM's `FunctionPropertiesAnalysis.cpp`).
The numbers describe the bitcode as it is, before optimisation.
"""

import concurrent.futures
import dataclasses
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt.corpus.command_lines.command_line import optimization_level
from compiler_opt.corpus.module import Module
from compiler_opt.corpus.validation import REMAKE, reading
from compiler_opt.errors import CompileError, CorpusError, ProtocolError
from compiler_opt.files import size_and_sha256
from compiler_opt.llvm import processes
from compiler_opt.llvm.sandbox import Sandbox

QUANTILES: Mapping[str, float] = {"min": 0.0, "25%": 0.25, "median": 0.5, "75%": 0.75, "95%": 0.95, "max": 1.0}

MAX_OUTPUT_BYTES = 1 << 28
"""Of opt: at some 300 bytes per function, a million functions, a mistake."""

_PROPERTIES = (
    re.compile(rb"^TotalInstructionCount: (\d{1,18})$", re.MULTILINE),
    re.compile(rb"^DirectCallsToDefinedFunctions: (\d{1,18})$", re.MULTILINE),
)
_FUNCTION = re.compile(rb"^Printing analysis results of CFA for function '", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class ModuleCounts:
    """Numbers of defined functions, of their instructions, and of their calls of defined functions (call sites)."""

    functions: int
    instructions: int
    call_sites: int


@dataclasses.dataclass(frozen=True)
class ModuleFacts:
    """Statistics of one module.

    Attributes:
      name: the module's name.
      project: the project that it is linked into.
      language: the source language; `?` if unknown.
      level: the optimisation level, e.g. `-Oz`; `?` if its options cannot be read.
      target: the target triple.
      bitcode_bytes: size of its bitcode file.
      sha256: hash of that file; modules with the same hash are copies.
      counts: None if the bitcode cannot be read.
      decisions: number of decisions of the default policy; None if not counted, or counting failed.
      failure: why there are no counts or decisions; one line.
    """

    name: str
    project: str
    language: str
    level: str
    target: str
    bitcode_bytes: int
    sha256: str
    counts: ModuleCounts | None
    decisions: int | None = None
    failure: str | None = None

    def numbers(self) -> dict[str, int | None]:
        """The counts by name."""
        counts = self.counts
        return {
            "bitcode_bytes": self.bitcode_bytes,
            "functions": counts.functions if counts else None,
            "instructions": counts.instructions if counts else None,
            "call_sites": counts.call_sites if counts else None,
            "decisions": self.decisions,
        }

    def to_json(self) -> dict[str, Any]:
        """All fields, flat."""
        labels = {field: getattr(self, field) for field in ("name", "project", "language", "level", "target")}
        return {**labels, **self.numbers(), "sha256": self.sha256, "failure": self.failure}


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Statistics of a corpus, whose modules keep their order."""

    modules: tuple[ModuleFacts, ...]

    def total(self, number: str, project: str | None = None) -> int | None:
        """The sum of one of `ModuleFacts.numbers` over the modules that have it; None if none has."""
        values = [
            value
            for module in self.modules
            if (project is None or module.project == project) and (value := module.numbers()[number]) is not None
        ]
        return sum(values) if values else None

    def values(self, number: str) -> np.ndarray:
        """One of `ModuleFacts.numbers` for each module that has it: int64, at most `[modules]`."""
        values = (module.numbers()[number] for module in self.modules)
        return np.array([value for value in values if value is not None], np.int64)

    def distribution(self, number: str) -> dict[str, float]:
        """Quantiles over the modules, by the names in `QUANTILES`; empty if no module has the number."""
        values = self.values(number)
        if not len(values):
            return {}
        return {name: float(np.quantile(values, share)) for name, share in QUANTILES.items()}

    def count_by(self, field: str) -> dict[str, int]:
        """The number of modules by project, language, level or target, the most frequent first."""
        return dict(Counter(str(getattr(module, field)) for module in self.modules).most_common())

    def copies(self) -> list[tuple[str, ...]]:
        """Groups of modules with identical bitcode, by name, the largest group first."""
        groups: dict[str, list[str]] = {}
        for module in self.modules:
            groups.setdefault(module.sha256, []).append(module.name)
        return sorted(
            (tuple(group) for group in groups.values() if len(group) > 1), key=lambda group: (-len(group), group)
        )

    def failures(self) -> dict[str, str]:
        """Failures by module name."""
        return {module.name: module.failure for module in self.modules if module.failure is not None}

    def to_json(self) -> dict[str, Any]:
        """Totals, shares, distributions over the modules, copies, and every module."""
        numbers = list(self.modules[0].numbers()) if self.modules else []
        return {
            "num_modules": len(self.modules),
            "totals": {number: self.total(number) for number in numbers},
            **{f"modules_by_{field}": self.count_by(field) for field in ("project", "language", "level", "target")},
            "distributions": {number: self.distribution(number) for number in numbers},
            "copies": [list(group) for group in self.copies()],
            "modules": [module.to_json() for module in self.modules],
        }


def gather(modules: Sequence[Module], opt: Path, default_target: str, num_workers: int = 1) -> Iterator[ModuleFacts]:
    """Yields the statistics of each module, in order; a module that cannot be read has a `failure`.

    `opt` must be at least as new as the bitcode. Modules whose options name no target have `default_target`, the
    compiler's. `num_workers` modules are processed at a time.

    Raises:
      ToolchainError: `opt` cannot be run.
    """
    with concurrent.futures.ThreadPoolExecutor(max(1, num_workers)) as pool:
        # When one fails, or the caller wants no more, `map` cancels the rest.
        yield from pool.map(lambda module: _facts(module, opt, default_target), modules)


def with_decisions(facts: ModuleFacts, decisions: int | None, failure: str | None) -> ModuleFacts:
    """The facts with the outcome of a compilation; an earlier failure stays."""
    return dataclasses.replace(facts, decisions=decisions, failure=facts.failure or failure)


def _facts(module: Module, opt: Path, default_target: str) -> ModuleFacts:
    counts, failure = None, None
    level, target = "?", default_target
    path = module.bitcode_path
    with reading(path, REMAKE):
        size_bytes, digest = size_and_sha256(path)
    try:
        level = optimization_level(module.options())
        target = module.target() or default_target
        counts = count_module(opt, path)
    except (CompileError, CorpusError, ProtocolError) as error:
        failure = str(error)
    return ModuleFacts(
        name=module.name,
        project=module.project,
        language=module.language(),
        level=level,
        target=target,
        bitcode_bytes=size_bytes,
        sha256=digest,
        counts=counts,
        failure=failure,
    )


def count_module(opt: Path, bitcode: Path, *, timeout_s: float = processes.DEFAULT_TIMEOUT_S) -> ModuleCounts:
    """Counts the contents of a bitcode file by LLVM's `opt`, which must be at least as new as the bitcode.

    Raises:
      CompileError: opt fails or times out.
      ProtocolError: its output is not as expected.
      ToolchainError: it cannot be run.
    """
    command = [str(opt), "-passes=print<func-properties>", "-disable-output", "--", str(bitcode.absolute())]
    sandbox = Sandbox.for_folder(None)
    with (
        os.fdopen(os.memfd_create("properties", os.MFD_CLOEXEC), "w+b") as output,
        processes.start(command, stderr=output, max_stderr_bytes=MAX_OUTPUT_BYTES, sandbox=sandbox) as child,
    ):
        in_time = processes.wait_for_exit(child, time.monotonic() + timeout_s)
        if not in_time:
            child.kill()
        result = child.wait(timed_out=not in_time)
        if result.overflowed:
            raise ProtocolError(f"{bitcode}: {opt} printed more than {MAX_OUTPUT_BYTES} bytes about its functions")
        if not result.ok:
            raise CompileError(f"{bitcode}: {result.describe()}")
        output.seek(0)
        return parse_counts(output.read())


def parse_counts(text: bytes) -> ModuleCounts:
    """Sums the printed properties; raises ProtocolError if one is not printed for every function."""
    functions = len(_FUNCTION.findall(text))
    instructions, calls = ([int(value) for value in pattern.findall(text)] for pattern in _PROPERTIES)
    if not functions == len(instructions) == len(calls):
        raise ProtocolError(
            f"function properties: expected TotalInstructionCount and DirectCallsToDefinedFunctions of {functions} "
            f"functions, found {len(instructions)} and {len(calls)}; use the opt of this LLVM"
        )
    return ModuleCounts(functions, sum(instructions), sum(calls))
