"""Chooses options of LLVM's passes for each function of a program: each module is compiled with each set of a menu.

with WorkerPool(toolchain, task(toolchain), num_workers) as pool:
    measured = measure(modules, policy, pool, menu)
save(measured.choose(menu, "Oz"), path); load(path)

Options differ in the code generator, where they change no function but the one that they are set for. So the functions'
bytes add up, and the best set of each function is known after one compilation with each set.

What makes a loop smaller may make it slower. So a set is chosen for a function only if this executes about as many
instructions as with the first set, by the frequencies of blocks that the compiler estimates.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np

from compiler_opt.checked_values import read_json
from compiler_opt.collect.rollout_settings import RolloutSettings
from compiler_opt.collect.schedule import Job
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.module import Module
from compiler_opt.cost_models.block_costs import by_instructions
from compiler_opt.cost_models.function_costs import ObjectCode, costs_by_function
from compiler_opt.cost_models.throughput.address_map import FLAGS
from compiler_opt.decisions.inlining import DECISION
from compiler_opt.errors import ConfigError
from compiler_opt.files import write_json
from compiler_opt.llvm.object_file import read_object_sizes
from compiler_opt.llvm.options_plugin import MAX_INSTRUCTIONS, Body, FunctionOptions, read_functions
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.objectives.objective import Reader
from compiler_opt.policies.policy import Policy
from compiler_opt.problem import CompileTask

FORMAT = 1
SETTINGS = RolloutSettings(timeout_s=60.0)
"""Of compilations with options by function."""

_MAX_FILE_BYTES = 1 << 28
_TOO_LARGE = 1 << 40  # bytes of a function that cannot be compiled


@dataclasses.dataclass(frozen=True)
class MeasuredFunctions:
    """An object: bytes of each function, the functions' bodies before any inlining, by symbol, and their blocks."""

    functions: Mapping[str, int]
    bodies: Mapping[str, int]
    code: ObjectCode


def _read(toolchain: Toolchain, object_path: Path, remarks: bytes) -> MeasuredFunctions:
    del remarks
    functions, bodies = read_object_sizes(object_path).functions, read_functions(object_path.parent)
    return MeasuredFunctions(functions, bodies, ObjectCode.read(object_path, toolchain))


def task(toolchain: Toolchain) -> CompileTask[MeasuredFunctions]:
    """For compilations of modules that have `function_options`. Raises ToolchainError without llvm-readobj."""
    toolchain.tool("llvm-readobj")
    return CompileTask(DECISION, Reader(functools.partial(_read, toolchain), FLAGS))


@dataclasses.dataclass(frozen=True)
class BytesBySet:
    """The functions of a program, of modules that compile with the first set of a menu.

    Attributes:
      bodies: of F functions, and for each, the first module that has it.
      bytes: `[F, K]` int64, with each set, in all modules together; too many where a module fails.
      instructions: `[F, K]` float64, that a call executes, as the compiler estimates.
      failures: why modules failed, by module and number of the set.
    """

    bodies: Mapping[Body, str]
    bytes: np.ndarray
    instructions: np.ndarray
    failures: Mapping[tuple[str, int], str]

    def best(self, max_instructions: float = MAX_INSTRUCTIONS) -> np.ndarray:
        """The number of each function's set, `[F]`: of those that execute at most so many times what the first does."""
        is_fast = self.instructions <= max_instructions * self.instructions[:, :1]
        is_fast[:, 0] = True
        best: np.ndarray = np.where(is_fast, self.bytes, _TOO_LARGE).argmin(axis=1)
        return best

    def choose(
        self, menu: Sequence[tuple[str, ...]], level: str, max_instructions: float = MAX_INSTRUCTIONS
    ) -> FunctionOptions:
        """The smallest set for each function, where that is smaller than with the first one; see `best`."""
        best = zip(self.bodies, self.best(max_instructions), strict=True)
        return FunctionOptions(tuple(menu), {body: int(number) for body, number in best if number}, level=level)

    @property
    def before(self) -> int:
        """Bytes of all functions with the first set."""
        return int(self.bytes[:, 0].sum())

    def after(self, max_instructions: float = MAX_INSTRUCTIONS) -> int:
        """Bytes of all functions, each with its best set."""
        return int(np.take_along_axis(self.bytes, self.best(max_instructions)[:, None], axis=1).sum())


def measure(
    modules: Sequence[Module],
    policy: Policy | None,
    pool: WorkerPool,
    menu: Sequence[tuple[str, ...]],
    on_progress: Callable[[], object] = lambda: None,
) -> BytesBySet:
    """Compiles every module with each set for all of its functions.

    Args:
      modules: of the program; what several of them have with the same body is one function, with all of its bytes.
      policy: who decides about inlining; None for the compiler.
      pool: compiles `task`.
      menu: the sets; the optimiser runs under the first one.
      on_progress: called after each compilation.
    """
    found: dict[tuple[str, int], dict[Body, tuple[int, float]]] = {}  # by module and set, of each function
    failures: dict[tuple[str, int], str] = {}
    costs = by_instructions()
    sets = [FunctionOptions(tuple(menu), default=number) for number in range(len(menu))]
    jobs = (
        Job(module.with_function_options(options), policy, settings=SETTINGS) for options in sets for module in modules
    )
    for job, result in pool.rollouts(jobs):
        on_progress()
        assert job.module.function_options is not None
        key, measured = (result.module, job.module.function_options.default), result.measurement
        if measured is None:
            failures[key] = result.failure or "unknown"
            continue
        executed = costs_by_function(measured.code, costs, None)
        found[key] = {
            (name, measured.bodies[name]): (num_bytes, executed.get(name, 0.0))
            for name, num_bytes in measured.functions.items()
            if name in measured.bodies
        }
    bodies: dict[Body, str] = {}
    rows: dict[Body, np.ndarray] = {}  # [K, 2] each
    for module in modules:
        with_sets = [found.get((module.name, number), {}) for number in range(len(menu))]
        for body in with_sets[0]:
            bodies.setdefault(body, module.name)
            rows[body] = rows.get(body, 0) + np.array([each.get(body, (_TOO_LARGE, 0.0)) for each in with_sets])
    table = np.array([rows[body] for body in bodies], np.float64).reshape(len(bodies), len(menu), 2)
    return BytesBySet(bodies, table[:, :, 0].astype(np.int64), table[:, :, 1], failures)


@dataclasses.dataclass(frozen=True)
class _File:
    format: Literal[1]
    level: Literal["O2", "O3", "Os", "Oz"]
    menu: tuple[tuple[str, ...], ...]
    functions: tuple[tuple[str, Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")], int], ...]


def save(options: FunctionOptions, path: Path) -> None:
    """Writes a file; raises OutputError if it cannot."""
    functions = [(name, f"{body:016x}", number) for (name, body), number in sorted(options.choices.items())]
    write_json(path, {"format": FORMAT, "level": options.level, "menu": options.menu, "functions": functions})


def load(path: Path) -> FunctionOptions:
    """Reads a file; raises ConfigError if it is none."""
    remedy = "make it again by optimize"
    try:
        file = read_json(path, _File, max_bytes=_MAX_FILE_BYTES, error=ConfigError, remedy=remedy)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; {remedy}") from None
    choices = {(name, int(body, 16)): number for name, body, number in file.functions}
    try:
        return FunctionOptions(file.menu, choices, level=file.level)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}; {remedy}") from None
