"""Chooses options of LLVM's passes for each function of a program: the compiler tries each set of a menu.

with WorkerPool(toolchain, task(len(menu)), num_workers) as pool:
    measured = measure(modules, policy, pool, menu)
save(measured.choose(menu, "Oz", MAX_INSTRUCTIONS["Oz"]), path); load(path)

Options differ in the code generator, where they change no function but the one that they are set for. So the functions'
bytes add up, and the best set of each function is known after its code was generated with each set.

What makes a loop smaller may make it slower. So a set is chosen for a function only if this executes about as many
instructions as with the first set, by the frequencies of blocks that the compiler estimates.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from compiler_opt.checked_values import read_json
from compiler_opt.collect.rollout import Rollout
from compiler_opt.collect.rollout_settings import RolloutSettings
from compiler_opt.collect.schedule import Job
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.module import Module
from compiler_opt.decisions.inlining import DECISION
from compiler_opt.errors import ConfigError
from compiler_opt.files import write_json
from compiler_opt.llvm.object_file import read_object_sizes
from compiler_opt.llvm.options_plugin import Body, FunctionOptions, read_costs, read_functions
from compiler_opt.llvm.pass_options import parse_option
from compiler_opt.objectives.objective import Reader
from compiler_opt.policies.policy import Policy
from compiler_opt.problem import CompileTask

FORMAT = 1
SETTINGS = RolloutSettings(timeout_s=600.0)
"""Of compilations with trials of many sets."""

_MAX_FILE_BYTES = 1 << 28
_TOO_LARGE = 1 << 40  # bytes of a function that is too slow, or not there, with a set


@dataclasses.dataclass(frozen=True)
class MeasuredFunctions:
    """The functions of an object, by symbol: bytes, bodies before any inlining, and `read_costs` of trials."""

    functions: Mapping[str, int]
    bodies: Mapping[str, int]
    costs: Mapping[str, np.ndarray]


def _read(num_sets: int, object_path: Path, remarks: bytes) -> MeasuredFunctions:
    del remarks
    folder = object_path.parent
    return MeasuredFunctions(
        read_object_sizes(object_path).functions, read_functions(folder), read_costs(folder, num_sets)
    )


def task(num_sets: int) -> CompileTask[MeasuredFunctions]:
    """For compilations of modules that have `function_options` of so many sets."""
    return CompileTask(DECISION, Reader(functools.partial(_read, num_sets)))


@dataclasses.dataclass(frozen=True)
class BytesBySet:
    """The functions of a program, of modules that compile with the first set of a menu.

    Attributes:
      bodies: of F functions, and for each, the first module that has it.
      bytes: `[F, K]` int64, with each set, in all modules together.
      instructions: `[F, K]` float64, that an execution takes, as the compiler estimates.
      calls: `[F, K]` float64, those of them that are calls, or repeat themselves.
      failures: why modules failed; no function in them has a choice.
    """

    bodies: Mapping[Body, str]
    bytes: np.ndarray
    instructions: np.ndarray
    calls: np.ndarray
    failures: Mapping[str, str]

    def is_slow(self, max_instructions: float) -> np.ndarray:
        """With which sets functions execute more than so many times what they do with the first, `[F, K]`."""
        with np.errstate(invalid="ignore"):  # Without a limit, of what is not executed.
            is_slow: np.ndarray = np.logical_or.reduce(
                [executed > max_instructions * executed[:, :1] for executed in (self.instructions, self.calls)]
            )
        is_slow[:, 0] = False
        return is_slow

    def best(self, max_instructions: float) -> np.ndarray:
        """The number of each function's smallest set of those that are not slow, `[F]`."""
        best: np.ndarray = np.where(self.is_slow(max_instructions), _TOO_LARGE, self.bytes).argmin(axis=1)
        return best

    def choose(self, menu: Sequence[tuple[str, ...]], level: str, max_instructions: float) -> FunctionOptions:
        """The smallest set for each function, where that is smaller than with the first one; see `best`."""
        best = zip(self.bodies, self.best(max_instructions), strict=True)
        return FunctionOptions(tuple(menu), {body: int(number) for body, number in best if number}, level=level)

    def rows(self, menu: Sequence[tuple[str, ...]], max_instructions: float) -> list[dict[str, Any]]:
        """Rows of a table of the functions whose best set is not the first one, those first that it saves most in.

        `options` is what sets it apart from the first one; `instructions` is the relative change.
        """
        rows = []
        for (name, _), module, number, bytes_, instructions in zip(
            self.bodies, self.bodies.values(), self.best(max_instructions), self.bytes, self.instructions, strict=True
        ):
            if number:
                rows.append(
                    {
                        "function": name,
                        "module": module,
                        "options": difference(menu, int(number)),
                        "first_bytes": int(bytes_[0]),
                        "bytes": int(bytes_[number]),
                        "instructions": f"{instructions[number] / instructions[0] - 1 if instructions[0] else 0:.6f}",
                    }
                )
        return sorted(rows, key=lambda row: row["bytes"] - row["first_bytes"])

    @property
    def before(self) -> int:
        """Bytes of all functions with the first set."""
        return int(self.bytes[:, 0].sum())

    def after(self, max_instructions: float) -> int:
        """Bytes of all functions, each with its best set."""
        return int(np.take_along_axis(self.bytes, self.best(max_instructions)[:, None], axis=1).sum())


def difference(menu: Sequence[tuple[str, ...]], number: int) -> str:
    """What a set of a menu has that the first one lacks, and what it lacks, such as `-disable-lsr=true`."""
    first, other = menu[0], menu[number]
    without = [f"without {option}" for option in first if option not in other and not _replaced(option, other)]
    return " ".join([*(option for option in other if option not in first), *without])


def _replaced(option: str, options: Sequence[str]) -> bool:
    return parse_option(option)[0] in {parse_option(other)[0] for other in options}


def measure(
    modules: Sequence[Module],
    policy: Policy | None,
    pool: WorkerPool,
    menu: Sequence[tuple[str, ...]],
    on_progress: Callable[[], object] = lambda: None,
) -> BytesBySet:
    """Compiles every module once, with trials of each set.

    Args:
      modules: of the program; what several of them have with the same body is one function, with all of its bytes.
      policy: who decides about inlining; None for the compiler.
      pool: compiles `task` of the menu's length.
      menu: the sets; the optimiser runs under the first one.
      on_progress: called after each compilation.
    """
    options = FunctionOptions(tuple(menu), trial=math.inf)
    found: dict[str, MeasuredFunctions] = {}
    failures: dict[str, str] = {}
    for result in _compile(modules, policy, pool, options):
        on_progress()
        if result.measurement is None:
            failures[result.module] = result.failure or "unknown"
        else:
            found[result.module] = result.measurement
    # A set may be what they fail with.
    failed = [module for module in modules if module.name in failures]
    again = (result.measurement for result in _compile(failed, policy, pool, FunctionOptions(tuple(menu[:1]))))
    refused = {body for each in again if each is not None for body in each.bodies.items()}
    bodies: dict[Body, str] = {}
    rows: dict[Body, np.ndarray] = {}  # [K, 3] each
    for module in modules:
        if module.name not in found:
            continue
        measured = found[module.name]
        for name, costs in measured.costs.items():
            body = (name, measured.bodies.get(name, -1))
            if body[1] < 0 or body in refused or not costs[0, 0]:
                continue
            bodies.setdefault(body, module.name)
            rows[body] = rows.get(body, 0) + np.where(costs[:, :1] > 0, costs, _TOO_LARGE)
    table = np.array([rows[body] for body in bodies], np.float64).reshape(len(bodies), len(menu), 3)
    return BytesBySet(bodies, table[:, :, 0].astype(np.int64), table[:, :, 1], table[:, :, 2], failures)


def bodies(
    modules: Sequence[Module],
    pool: WorkerPool[MeasuredFunctions],
    names: Collection[str],
    on_progress: Callable[[], object] = lambda: None,
) -> list[Body]:
    """The bodies of functions of these names, in all modules that compile; `pool` compiles `task(1)`."""
    found: dict[Body, None] = {}
    for result in _compile(modules, None, pool, FunctionOptions(((),))):
        on_progress()
        if result.measurement is not None:
            found |= {body: None for body in result.measurement.bodies.items() if body[0] in names}
    return list(found)


def _compile(
    modules: Iterable[Module], policy: Policy | None, pool: WorkerPool, options: FunctionOptions
) -> Iterator[Rollout]:
    jobs = (Job(module.with_function_options(options), policy, settings=SETTINGS) for module in modules)
    return (result for _, result in pool.rollouts(jobs))


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
