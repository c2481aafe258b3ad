"""Sets of options of LLVM's passes, one for each optimisation level, and the files that hold them.

    {"format": 1,
     "about": {"compiler": "clang 22.1.8", ...},
     "levels": {"Oz": ["-enable-load-pre=false", ...], "O2": [...]},
     "targets": {"riscv64": {"Oz": [...]}},
     "menus": {"x86_64": {"Oz": [["-disable-lsr=true"], ...]}}}

`targets` replaces the sets of levels for an architecture: the first part of a target triple, but `arm` for all triples
of 32-bit Arm (`armv7`, `thumbv7em`, ...) and `aarch64` for `arm64`. `menus` has what single functions may have
besides, those first that gain most: `optimize` measures which is best for each, and a deployment with trials lets the
compiler do so. Only `format` and `levels` are required. Of an option that a set has twice, the first counts. Those
that ship are in `shipped/`, one file for each major version of clang.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from compiler_opt.checked_values import Json, read_json
from compiler_opt.corpus.command_lines.command_line import optimization_level
from compiler_opt.corpus.module import Module
from compiler_opt.errors import ConfigError, CorpusError
from compiler_opt.files import shown, write_json
from compiler_opt.llvm.options_plugin import MAX_INSTRUCTIONS, FunctionOptions
from compiler_opt.llvm.pass_options import parse_option
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.report.formatting import count_text

FORMAT = 1
LEVELS = ("O2", "O3", "Os", "Oz")

_SHIPPED = Path(__file__).parent / "shipped"
_FILE_NAME = re.compile(r"clang-(\d+)\.json")
_MAX_BYTES = 1 << 20
_ARCHITECTURE = re.compile(r"\w{1,30}", re.ASCII)

_Set = Annotated[tuple[str, ...], msgspec.Meta(max_length=200)]
_Menu = Annotated[tuple[_Set, ...], msgspec.Meta(max_length=200)]


@dataclasses.dataclass(frozen=True)
class _File:
    format: Literal[1]
    levels: dict[str, _Set]
    targets: dict[str, dict[str, _Set]] = dataclasses.field(default_factory=dict)
    menus: dict[str, dict[str, _Menu]] = dataclasses.field(default_factory=dict)
    about: dict[str, Json] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class OptionSets:
    """A set of options for each level.

    Attributes:
      levels: by level such as `Oz`, the options, each as `-NAME` or `-NAME=VALUE`, no name twice.
      targets: by architecture such as `riscv64`, the levels whose sets are others there.
      about: facts for people, such as the compiler that they were chosen for.
      repeated: what a file also had in a set that has an option of the same name before: architecture (empty for
        `levels`), level, option.
      menus: by architecture and level, what single functions may have besides, or in place of the same options.
      trials: how many of these the compiler tries on each function; those of a file are 0.
      plugin: a pass plugin of the user's own, whose options and passes menus may have, see `FunctionOptions`; a file
        has none.
    """

    levels: Mapping[str, tuple[str, ...]]
    targets: Mapping[str, Mapping[str, tuple[str, ...]]] = dataclasses.field(default_factory=dict)
    about: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    repeated: tuple[tuple[str, str, str], ...] = ()
    menus: Mapping[str, Mapping[str, tuple[tuple[str, ...], ...]]] = dataclasses.field(default_factory=dict)
    trials: int = 0
    plugin: Path | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError: a level, an architecture or an option cannot be one, or an option is given twice."""
        for architecture in (*self.targets, *self.menus):
            if not _ARCHITECTURE.fullmatch(architecture):
                raise ConfigError(f"expected an architecture such as aarch64, found {shown(architecture)}")
            if (known := architecture_of(architecture)) != architecture:
                raise ConfigError(f"expected the architecture {known} for all of its kind, found {architecture}")
        sets = [each for levels in (self.levels, *self.targets.values()) for each in levels.items()]
        sets += [(level, each) for levels in self.menus.values() for level, menu in levels.items() for each in menu]
        for level, options in sets:
            if level not in LEVELS:
                raise ConfigError(f"levels: expected one of {', '.join(LEVELS)}; found {shown(level)}")
            _check_set(level, options)

    def __bool__(self) -> bool:
        """Whether there is any option."""
        return self.has_constants or any(any(levels.values()) for levels in self.menus.values())

    @property
    def has_constants(self) -> bool:
        """Whether there is any option that all functions have."""
        return any(any(levels.values()) for levels in (self.levels, *self.targets.values()))

    def options(self, level: str, architecture: str) -> tuple[str, ...]:
        """The options for a level on an architecture; none if there is no set."""
        levels = {**self.levels, **self.targets.get(architecture, {})}
        return levels.get(level, ())

    def menu(self, level: str, architecture: str) -> tuple[tuple[str, ...], ...]:
        """The sets of which a function may have one: `options`, and these with each entry of its menu, if any."""
        constant = self.options(level, architecture)
        changes = self.menus.get(architecture, {}).get(level, ())
        return (constant, *(changed(constant, each) for each in changes)) if changes else ()

    def by_function(self, level: str, architecture: str) -> FunctionOptions | None:
        """The sets of `menu` that the compiler is to try, after `options`; None if there are none."""
        menu = self.menu(level, architecture)[: self.trials + 1]
        if not (self.trials and menu):
            return None
        return FunctionOptions(menu, level=level, trial=MAX_INSTRUCTIONS[level], plugin=self.plugin)

    def at(self, level: str) -> "OptionSets":
        """The sets of one level alone; equal to `OptionSets({})` if there are none."""

        def only(levels: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
            return {level: levels[level]} if level in levels else {}

        targets = {name: only(each) for name, each in self.targets.items() if level in each}
        menus = {name: {level: each[level]} for name, each in self.menus.items() if level in each}
        return OptionSets(only(self.levels), targets, menus=menus, plugin=self.plugin if menus else None)

    def of_module(self, module: Module, toolchain: Toolchain) -> tuple[str, ...]:
        """Those for a module's level and target; none if its own options are missing, so that it cannot compile."""
        place = _place(module, toolchain)
        return self.options(*place) if place is not None else ()

    def apply(self, module: Module, toolchain: Toolchain) -> Module:
        """The module compiled with those of `by_function` or, without trials or for another target, of `of_module`."""
        place = _place(module, toolchain)
        is_native = place is not None and place[1] == architecture_of(toolchain.target)
        options = self.by_function(*place) if place is not None and is_native else None
        if options is not None:
            return module.with_function_options(options)
        return dataclasses.replace(module, pass_options=self.of_module(module, toolchain))

    @classmethod
    def load(cls, path: Path) -> "OptionSets":
        """Reads a file, of an option that is given twice the first; raises ConfigError if it is none, or as above."""
        remedy = "docs/pass_options.md describes the file"
        try:
            file = read_json(path, _File, max_bytes=_MAX_BYTES, error=ConfigError, remedy=remedy)
        except FileNotFoundError:
            raise ConfigError(f"{path}: no such file; {remedy}") from None
        repeated: list[tuple[str, str, str]] = []
        try:
            levels, *others = (
                {level: _first_of_each(options, (architecture, level), repeated) for level, options in sets.items()}
                for architecture, sets in (("", file.levels), *file.targets.items())
            )
            targets = dict(zip(file.targets, others, strict=True))
            return cls(levels, targets, file.about, tuple(repeated), file.menus)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    def save(self, path: Path) -> None:
        """Writes the file."""
        content = {"format": FORMAT, "about": self.about, "levels": self.levels, "targets": self.targets}
        if self.menus:
            content["menus"] = self.menus
        write_json(path, content)


def changed(options: Sequence[str], changes: Sequence[str]) -> tuple[str, ...]:
    """A set with further options, in place of those of the same name."""
    names = {parse_option(option)[0] for option in changes}
    return (*(option for option in options if parse_option(option)[0] not in names), *changes)


def architecture_of(target: str) -> str:
    """The architecture of a target triple: its first part, but `arm` for all of 32-bit Arm, such as `thumbv7em`."""
    first = target.partition("-")[0]
    if first.startswith("arm64"):
        return "aarch64"
    return "arm" if first.startswith(("arm", "thumb")) else first


def _place(module: Module, toolchain: Toolchain) -> tuple[str, str] | None:
    """Level and architecture that a module is compiled for; None if its own options are missing."""
    try:
        level, target = optimization_level(module.options()), module.target() or toolchain.target
    except CorpusError:
        return None
    return level.removeprefix("-"), architecture_of(target)


def shipped(major: int) -> OptionSets:
    """The sets that ship for a major version of clang, or for the nearest one; none if nothing ships."""
    found = {int(match[1]): path for path in _SHIPPED.iterdir() if (match := _FILE_NAME.fullmatch(path.name))}
    if not found:
        return OptionSets({})
    return OptionSets.load(found[min(found, key=lambda other: (abs(other - major), -other))])


def describe_sets(modules: Iterable[Module]) -> str:
    """The sets that modules are compiled with, such as `-enable-load-pre=false (12 modules); none (3 modules)`."""
    by_set = Counter(_describe(module) for module in modules)
    return "; ".join(f"{options or 'none'} ({count_text(count, 'module')})" for options, count in by_set.items())


def _describe(module: Module) -> str:
    if module.function_options is None:
        return " ".join(module.pass_options)
    constant, *others = module.function_options.menu
    return f"{' '.join(constant) or 'none'}, and trials of {count_text(len(others), 'set')} by function"


def _first_of_each(
    options: Sequence[str], place: tuple[str, str], repeated: list[tuple[str, str, str]]
) -> tuple[str, ...]:
    first: dict[str, str] = {}
    for option in options:
        name = _name(option, place[1])
        if name in first:
            repeated.append((*place, option))
        else:
            first[name] = option
    return tuple(first.values())


def _name(option: str, level: str) -> str:
    try:
        return parse_option(option)[0]
    except ConfigError as error:
        raise ConfigError(f"{level}: {error}") from None


def _check_set(level: str, options: Sequence[str]) -> None:
    names = [_name(option, level) for option in options]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{level}: -{name} is given twice")
