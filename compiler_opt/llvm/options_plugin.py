"""The plugin that sets options of LLVM's passes for single functions (`native/options_plugin.cpp`).

options = FunctionOptions(menu=(("-enable-pre=false",), ("-enable-pre=false", "-disable-machine-cse=true")), default=1)
plugin = options_plugin(toolchain)                                  # ToolchainError says what is missing
processes.run([..., load_option(plugin)], environment={**os.environ, **environment(options, scratch)})
read_functions(scratch)                                             # whose bodies `choices` may name
read_costs(scratch, len(options.menu))                              # of trials
"""

import dataclasses
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np

from compiler_opt.errors import ConfigError, ProtocolError, ToolchainError
from compiler_opt.files import shown
from compiler_opt.llvm import processes
from compiler_opt.llvm.advisors import mllvm
from compiler_opt.llvm.pass_options import parse_option
from compiler_opt.llvm.plugin import NATIVE, PluginKind, c_literal, load_option, user_cache
from compiler_opt.llvm.probe import TIMEOUT_S, probe_module
from compiler_opt.llvm.toolchain import Toolchain

_NAMES = (
    "options_plugin.cpp function_options.h function_passes.h option_trials.h body_fingerprints.h plugin_environment.h"
)
SOURCES = tuple(NATIVE / name for name in _NAMES.split())
"""What it is built from."""

MAX_INSTRUCTIONS = {"Oz": 1.02, "Os": 1.02, "O2": 1.0, "O3": 1.0}
"""By level, how many times the instructions of the first set a function may execute, as the compiler estimates."""

FOR_SIZE = "-force-attribute=optsize"
"""Of single functions only: the code generator takes the function for one with that attribute."""

PASSES = "passes"
"""`-passes=NAME` in a set runs this function pass of the optimiser on a function before its code is generated."""

_FUNCTIONS_FILE, _COSTS_FILE = "functions.txt", "costs.txt"
_MAX_FUNCTIONS_BYTES = 1 << 28
_PROBED = ("-disable-machine-cse=true", "-min-jump-table-entries=64", "-disable-lsr=true")

Body: TypeAlias = tuple[str, int]
"""A function's symbol name, and the fingerprint of its IR before any inlining, in 64 bits; the same in all modules."""


@dataclasses.dataclass(frozen=True)
class FunctionOptions:
    """Options of LLVM's passes for each function.

    Attributes:
      menu: sets of options such as `-disable-machine-cse=true`. The first one also holds when pipelines are built, and
        in the optimiser; only what the code generator reads for each function can differ between functions.
      choices: the number of a function's set.
      default: the number of the set of all other functions, without trials.
      trial: for all other functions, the compiler tries each set on the module, and takes that with which the function
        is smallest and executes at most so many times the instructions of the first set, as the compiler estimates; 0
        for no trials.
      level: the optimisation level that they are for.
      plugin: a pass plugin of the user's own, whose options sets may have, and passes after `-passes=`.

    Raises:
      ConfigError: there is no set, a number is not that of a set, or a name has a line break or a NUL.
    """

    menu: tuple[tuple[str, ...], ...]
    choices: Mapping[Body, int] = dataclasses.field(default_factory=dict)
    default: int = 0
    level: str = "Oz"
    trial: float = 0.0
    plugin: Path | None = None

    def __post_init__(self) -> None:
        for option in (option for options in self.menu for option in options):
            parse_option(option)
        for number in {self.default, *self.choices.values()}:
            if not 0 <= number < len(self.menu):
                raise ConfigError(f"expected the number of a set of options below {len(self.menu)}, found {number}")
        for name, body in self.choices:
            if not name or "\n" in name or "\0" in name or not 0 <= body < 1 << 64:
                raise ConfigError(f"expected a function and the fingerprint of its body, found {shown(name)}, {body}")

    def menu_text(self) -> str:
        """The menu as the plugin reads it."""
        return "".join(f"{' '.join(options)}\n" for options in self.menu)

    def choices_text(self) -> str:
        """The choices as the plugin reads them."""
        return "".join(f"{number} {body:016x} {name}\n" for (name, body), number in sorted(self.choices.items()))

    def deployed_plugin(self) -> str:
        """A file name for `plugin` that identifies its content; empty without one. Raises ConfigError if it is gone."""
        if self.plugin is None:
            return ""
        try:
            digest = hashlib.sha256(self.plugin.read_bytes()).hexdigest()
        except OSError as error:
            raise ConfigError(f"{self.plugin}: {error.strerror}") from None
        return f"mlgo-pass-{digest[:16]}.so"

    def text(self) -> str:
        """All of it; equal texts mean equal options."""
        plugin = f"{self.deployed_plugin()}\n" if self.plugin is not None else ""
        return f"{self.level}\n{self.menu_text()}{self.default}\n{self.trial!r}\n{plugin}{self.choices_text()}"

    def embedded_source(self) -> str:
        """C++ that builds them into our plugin, where the first set is the default.

        It loads the user's plugin, if any, from the file `deployed_plugin` beside it.
        """
        texts = {"menu": self.menu_text(), "choices": self.choices_text()}
        if self.trial:
            texts["trial"] = repr(self.trial)
        if self.plugin is not None:
            texts["plugin"] = self.deployed_plugin()
        definitions = (
            f'extern "C" extern const char mlgo_options_{name}[];\nconst char mlgo_options_{name}[] =\n'
            + "".join(f"  {c_literal(_bytes(line))}\n" for line in ("", *re.findall(r".*\n|.+$", text)))
            + ";\n"
            for name, text in texts.items()
        )
        return "// Options of functions, generated by compiler_opt.tools.deploy.\n" + "".join(definitions)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def options_plugin(toolchain: Toolchain) -> Path:
    """The plugin, from the user's cache; see `PluginCache.get`."""
    return user_cache().get(toolchain, OPTIONS)


def environment(options: FunctionOptions, folder: Path) -> dict[str, str]:
    """The plugin's environment variables, whose files are in a folder; compilations that cannot follow them fail."""
    menu, choices = folder / "options-menu.txt", folder / "options-choices.txt"
    for name in (_FUNCTIONS_FILE, _COSTS_FILE):  # of an earlier compilation
        (folder / name).unlink(missing_ok=True)
    menu.write_text(options.menu_text())
    choices.write_bytes(_bytes(options.choices_text()))
    return {
        "MLGO_OPTIONS_MENU": str(menu),
        "MLGO_OPTIONS_CHOICES": str(choices),
        "MLGO_OPTIONS_PLUGIN": str(options.plugin.absolute()) if options.plugin is not None else "",
        "MLGO_OPTIONS_DEFAULT": str(options.default),
        "MLGO_OPTIONS_TRIAL": repr(options.trial) if options.trial else "",
        "MLGO_OPTIONS_LOG": str(folder / _FUNCTIONS_FILE),
        "MLGO_OPTIONS_COSTS": str(folder / _COSTS_FILE),
        "MLGO_OPTIONS_STRICT": "1",
        "MLGO_LLVM_VERSION": "",
    }


def read_functions(folder: Path) -> dict[str, int]:
    """The functions of the module that was compiled with `environment` of this folder, and their bodies.

    Raises:
      ProtocolError: there is no such list, or it is damaged.
    """
    path = folder / _FUNCTIONS_FILE
    try:
        return {line[17:]: int(line[:16], 16) for line in _lines(path)}
    except ValueError as error:
        raise _damaged(path, error) from None


def read_costs(folder: Path, num_sets: int) -> dict[str, np.ndarray]:
    """What trials in a compilation with `environment` of this folder found: for each function, `[K, 3]` of K sets.

    Bytes, and what an execution takes, as the compiler estimates: instructions, and those of them that are calls or
    repeat themselves. Empty if nothing was tried.

    Raises:
      ProtocolError: the file is damaged.
    """
    path = folder / _COSTS_FILE
    if not path.exists():
        return {}
    try:
        split = [line.split(" ", 3 * num_sets) for line in _lines(path)]
        return {words[3 * num_sets]: np.array(words[:-1], np.float64).reshape(num_sets, 3) for words in split}
    except (IndexError, ValueError) as error:
        raise _damaged(path, error) from None


def _lines(path: Path) -> list[str]:
    try:
        if path.stat().st_size > _MAX_FUNCTIONS_BYTES:
            raise ProtocolError(f"{path}: expected at most {_MAX_FUNCTIONS_BYTES} bytes, found more")
        return path.read_bytes().decode("utf-8", "surrogateescape").split("\n")[:-1]
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> ProtocolError:
    return ProtocolError(f"{path}: expected the plugin's list of functions: {error}")


def _try_out(toolchain: Toolchain, plugin: Path, scratch: Path) -> None:
    """See `PluginKind.try_out`: one set for all functions must give the object of `-mllvm` options."""
    source, constant, by_function = scratch / "probe.ll", scratch / "constant.o", scratch / "by_function.o"
    source.write_text(probe_module())
    command = [str(toolchain.clang), "-Wno-override-module", "-O2", "-x", "ir", str(source), "-c", "-o"]
    for options in ((), _PROBED):
        variables = {**os.environ, **environment(FunctionOptions(((), options), default=1), scratch)}
        plain = processes.run([*command, str(constant), *mllvm(options)], timeout_s=TIMEOUT_S)
        loading = [*command, str(by_function), load_option(plugin)]
        loaded = processes.run(loading, timeout_s=TIMEOUT_S, environment=variables)
        if failed := next((result for result in (plain, loaded) if not result.ok), None):
            raise ToolchainError(f"{toolchain.clang}: does not work with the options plugin: {failed.describe()}")
        if constant.read_bytes() != by_function.read_bytes():
            raise ToolchainError(
                f"{toolchain.clang}: generates other code where the plugin sets {' '.join(options) or 'nothing'} for "
                "each function than where the command line does"
            )


OPTIONS = PluginKind("options", SOURCES, _try_out, oldest=19, newest=22)
