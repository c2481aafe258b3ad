"""Compiles a program and measures it: what its functions cost when they run counts as bytes.

To the bytes of each function, those are added that its changed cost is worth (`Cost`, `Attribution`), so one run of the
benchmark tells for dozens of changed decisions what each of them saves.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path

from compiler_opt.errors import BenchmarkError
from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.measure.attribution import Attribution, Metric
from compiler_opt.measure.callgrind import Profile
from compiler_opt.policies.decisions import Site
from compiler_opt.search.builds import Compiled
from compiler_opt.search.compiling import PoolCompiler

Run = Callable[[Mapping[int, Path]], Profile]
"""Links a program with other objects for some of its modules, and measures it; raises BenchmarkError if it is wrong."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """What counts as the cost of a program.

    Attributes:
      metric: of a run.
      bytes_per_percent: text bytes that one percent of the metric is worth.
      is_own: whether an object file, by its path in a profile, is part of the program, and not of a library.
    """

    metric: Metric
    bytes_per_percent: float
    is_own: Callable[[str], bool]


class MeasuredCompiler:
    """Compiles modules of a program and measures it; a `Compiler` whose sizes have what the functions cost.

    Modules that are not compiled are as under the base policy. The first call has to compile all of them so.
    """

    def __init__(self, compiler: PoolCompiler, run: Run, cost: Cost, scratch: Path):
        """`scratch` is a folder for objects."""
        self._compiler, self._run, self._cost, self._scratch = compiler, run, cost, scratch
        self._base: Profile | None = None
        self._homes: dict[str, int] = {}
        self._base_sizes: dict[int, Mapping[str, int]] = {}

    @property
    def base(self) -> Profile:
        """The profile under the base policy, once it is measured."""
        if self._base is None:
            raise RuntimeError("nothing is compiled yet")
        return self._base

    @functools.cached_property
    def _attribution(self) -> Attribution:
        return Attribution(self.base, self._cost.metric, self._cost.is_own)

    @property
    def _bytes_per_unit(self) -> float:
        """Bytes that one instruction, or one cycle, is worth."""
        return 100 * self._cost.bytes_per_percent / max(1, self._cost.metric(self.base.total))

    def compile(self, requests: Mapping[int, Mapping[Site, int]]) -> dict[int, Compiled | str]:
        """See `Compiler`. If the program is wrong, all modules have failed.

        Raises:
          BenchmarkError: it is wrong under the base policy.
        """
        if not requests:
            return {}
        is_base = self._base is None
        compiled = self._compiler.compile(requests, self._object)
        objects = {module: self._object(module) for module, each in compiled.items() if isinstance(each, Compiled)}
        if is_base:
            self._base = self._run(objects)
            for module in sorted(objects):
                sizes = _sizes(compiled[module])
                self._base_sizes[module] = sizes.functions
                for name in sizes.functions.keys() - sizes.function_comdats.keys():
                    self._homes.setdefault(name, module)
        try:
            profile = self.base if is_base else self._run(objects)
        except BenchmarkError as error:
            return dict.fromkeys(requests, str(error))
        changes = self._attribution.changes(profile, self._unchanged(compiled))
        return {
            module: dataclasses.replace(each, sizes=self._priced(module, each.sizes, changes))
            if isinstance(each, Compiled)
            else each
            for module, each in compiled.items()
        }

    def _unchanged(self, compiled: Mapping[int, Compiled | str]) -> frozenset[str]:
        """Functions that the linker takes from a module that was not compiled, or that have the size of the base."""
        changed: set[str] = set()
        unchanged: set[str] = set()
        for module, base in sorted(self._base_sizes.items()):
            each = compiled.get(module)
            sizes = each.sizes.functions if isinstance(each, Compiled) else base
            changed |= {name for name, size in sizes.items() if base.get(name) != size} - unchanged
            unchanged |= {name for name, size in sizes.items() if base.get(name) == size} - changed
        return frozenset(unchanged)

    def _object(self, module: int) -> Path:
        return self._scratch / f"{module}.o"

    def _priced(self, module: int, sizes: ObjectSizes, changes: Mapping[str, float]) -> ObjectSizes:
        """The sizes with the bytes that changed costs of functions are worth."""
        worth = {
            name: round(changes[name] * self._bytes_per_unit)
            for name in sizes.functions.keys() & changes.keys()
            # Several modules may have a local function of this name; the profile does not tell them apart.
            if name in sizes.function_comdats or self._homes.setdefault(name, module) == module
        }
        return sizes.with_worth(worth)


def _sizes(compiled: Compiled | str) -> ObjectSizes:
    assert isinstance(compiled, Compiled)
    return compiled.sizes
