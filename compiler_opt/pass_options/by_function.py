"""Chooses options of LLVM's passes for each function of a program: each module is compiled with each set of a menu.

with WorkerPool(toolchain, FUNCTIONS, num_workers) as pool:
    measured = measure(modules, policy, pool, menu)
save(measured.choose(menu, "Oz"), path); load(path)

Options differ in the code generator, where they change no function but the one that they are set for. So the functions'
bytes add up, and the best set of each function is known after one compilation with each set.
"""

import dataclasses
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
from compiler_opt.decisions.inlining import DECISION
from compiler_opt.errors import ConfigError
from compiler_opt.files import write_json
from compiler_opt.llvm.object_file import read_object_sizes
from compiler_opt.llvm.options_plugin import Body, FunctionOptions, read_functions
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
    """An object: its text bytes, those of each function, and the functions' bodies before any inlining, by symbol."""

    text_bytes: int
    functions: Mapping[str, int]
    bodies: Mapping[str, int]


def _read(object_path: Path, remarks: bytes) -> MeasuredFunctions:
    del remarks
    sizes = read_object_sizes(object_path)
    return MeasuredFunctions(sizes.text_bytes, sizes.functions, read_functions(object_path.parent))


FUNCTIONS = CompileTask(DECISION, Reader(_read))
"""For compilations of modules that have `function_options`."""


@dataclasses.dataclass(frozen=True)
class BytesBySet:
    """The functions of a program, of modules that compile with the first set of a menu.

    Attributes:
      bodies: of F functions, and for each, the first module that has it.
      bytes: `[F, K]` int64, with each set, in all modules together; too many where a module fails.
      failures: why modules failed, by module and number of the set.
    """

    bodies: Mapping[Body, str]
    bytes: np.ndarray
    failures: Mapping[tuple[str, int], str]

    def choose(self, menu: Sequence[tuple[str, ...]], level: str) -> FunctionOptions:
        """The smallest set for each function, where that is smaller than with the first one."""
        best = self.bytes.argmin(axis=1)
        choices = {body: int(number) for body, number in zip(self.bodies, best, strict=True) if number}
        return FunctionOptions(tuple(menu), choices, level=level)

    @property
    def before(self) -> int:
        """Bytes of all functions with the first set."""
        return int(self.bytes[:, 0].sum())

    @property
    def after(self) -> int:
        """Bytes of all functions, each with its smallest set."""
        return int(self.bytes.min(axis=1).sum())


def measure(
    modules: Sequence[Module],
    policy: Policy | None,
    pool: WorkerPool,
    menu: Sequence[tuple[str, ...]],
    on_progress: Callable[[], object] = lambda: None,
) -> BytesBySet:
    """Compiles every module with each set for all of its functions.

    Args:
      modules: of the program; a function that several of them have with the same body counts once.
      policy: who decides about inlining; None for the compiler.
      pool: compiles `FUNCTIONS`.
      menu: the sets; the optimiser runs under the first one.
      on_progress: called after each compilation.
    """
    measured: dict[tuple[str, int], MeasuredFunctions] = {}
    failures: dict[tuple[str, int], str] = {}
    sets = [FunctionOptions(tuple(menu), default=number) for number in range(len(menu))]
    jobs = (
        Job(module.with_function_options(options), policy, settings=SETTINGS) for options in sets for module in modules
    )
    for job, result in pool.rollouts(jobs):
        on_progress()
        assert job.module.function_options is not None
        key = result.module, job.module.function_options.default
        if result.measurement is not None:
            measured[key] = result.measurement
        else:
            failures[key] = result.failure or "unknown"
    bodies: dict[Body, str] = {}
    rows: dict[Body, np.ndarray] = {}  # [K] each
    for module in modules:
        plain = measured.get((module.name, 0))
        if plain is None:
            continue
        with_sets = [measured.get((module.name, number)) for number in range(len(menu))]
        for body in ((name, plain.bodies[name]) for name in plain.functions if name in plain.bodies):
            bodies.setdefault(body, module.name)
            sizes = [_TOO_LARGE if each is None else each.functions.get(body[0], _TOO_LARGE) for each in with_sets]
            rows[body] = rows.get(body, 0) + np.array(sizes, np.int64)
    table = np.array([rows[body] for body in bodies], np.int64).reshape(len(bodies), len(menu))
    return BytesBySet(bodies, table, failures)


@dataclasses.dataclass(frozen=True)
class _File:
    format: Literal[1]
    level: str
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
    return FunctionOptions(file.menu, choices, level=file.level)
