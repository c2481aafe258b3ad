"""Chooses options of LLVM's passes for each function of a program: each module is compiled with each set of a menu.

with WorkerPool(toolchain, FUNCTIONS, num_workers) as pool:
    found = choose(modules, policy, pool, menu)
save(found.options, path); load(path)

What only the code generator reads changes no function but the one that it is set for, so the functions' bytes add up,
and the best set of each function is known after one compilation with each set.
"""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
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
_MAX_FILE_BYTES = 1 << 28
_SETTINGS = RolloutSettings(timeout_s=60.0)


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
class Chosen:
    """What was chosen for the functions of a program.

    Attributes:
      options: for each function that any set but the first makes smaller, the smallest.
      before, after: bytes of all functions with the first set, and with these.
      compiles: of modules.
      failures: why modules failed, by module and set; their functions keep the first set, or another one.
    """

    options: FunctionOptions
    before: int
    after: int
    compiles: int
    failures: Mapping[tuple[str, tuple[str, ...]], str]


def choose(
    modules: Sequence[Module],
    policy: Policy | None,
    pool: WorkerPool,
    menu: Sequence[tuple[str, ...]],
    level: str,
    on_progress: Callable[[], object] = lambda: None,
) -> Chosen:
    """Compiles every module with each set for all of its functions, and chooses for each function.

    Args:
      modules: of the program; a function that several of them have with the same body gets one set for all.
      policy: who decides about inlining; None for the compiler.
      pool: compiles `FUNCTIONS`.
      menu: sets that only the code generator reads differences of; functions keep the first one if none is better.
      level: the optimisation level of the modules, such as `Oz`.
      on_progress: called after each compilation.
    """
    number = {module.name: index for index, module in enumerate(modules)}
    measured: dict[tuple[int, int], MeasuredFunctions] = {}  # by module and set
    failures: dict[tuple[str, tuple[str, ...]], str] = {}
    sets = [FunctionOptions(tuple(menu), default=index) for index in range(len(menu))]
    jobs = (
        Job(module.with_function_options(options), policy, settings=_SETTINGS) for options in sets for module in modules
    )
    for job, result in pool.rollouts(jobs):
        on_progress()
        options = job.module.function_options
        assert options is not None
        if result.measurement is not None:
            measured[number[result.module], options.default] = result.measurement
        elif result.failure is not None:
            failures[result.module, options.menu[options.default]] = result.failure
    bytes_of: dict[Body, np.ndarray] = collections.defaultdict(lambda: np.zeros(len(menu), np.int64))  # [K]
    for index in range(len(modules)):
        if (index, 0) not in measured:
            continue
        plain = measured[index, 0]
        for name, body in plain.bodies.items():
            if name not in plain.functions:
                continue
            for k in range(len(menu)):
                with_set = measured.get((index, k))
                # What a set cannot compile, it must not be chosen for.
                size = with_set.functions.get(name) if with_set is not None else None
                bytes_of[name, body][k] += _TOO_LARGE if size is None else size
    best = {body: int(sizes.argmin()) for body, sizes in bytes_of.items()}
    choices = {body: k for body, k in best.items() if bytes_of[body][k] < bytes_of[body][0]}
    before = sum(int(sizes[0]) for sizes in bytes_of.values())
    after = sum(int(sizes[best[body]]) for body, sizes in bytes_of.items())
    options = FunctionOptions(tuple(menu), choices, level=level)
    return Chosen(options, before, after, len(menu) * len(modules), failures)


_TOO_LARGE = 1 << 40


@dataclasses.dataclass(frozen=True)
class _File:
    format: Literal[1]
    level: str
    menu: tuple[tuple[str, ...], ...]
    functions: tuple[tuple[str, Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")], int], ...]


def save(options: FunctionOptions, path: Path) -> None:
    """Writes a file; raises OutputError if it cannot."""
    functions: Iterable[tuple[str, str, int]] = (
        (name, f"{body:016x}", number) for (name, body), number in sorted(options.choices.items())
    )
    write_json(path, {"format": FORMAT, "level": options.level, "menu": options.menu, "functions": list(functions)})


def load(path: Path) -> FunctionOptions:
    """Reads a file; raises ConfigError if it is none."""
    remedy = "make it again by optimize"
    try:
        file = read_json(path, _File, max_bytes=_MAX_FILE_BYTES, error=ConfigError, remedy=remedy)
        choices = {(name, int(body, 16)): number for name, body, number in file.functions}
        return FunctionOptions(file.menu, choices, level=file.level)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; {remedy}") from None
