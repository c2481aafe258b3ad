"""The options of LLVM's passes, which clang takes after `-mllvm`: what a compiler has, and what they may be set to.

Most are hidden, for developers of LLVM; some change the code that a compiler makes. Each is `-NAME` or `-NAME=VALUE`,
and most may be given once only.
"""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

from compiler_opt.errors import ConfigError, ToolchainError
from compiler_opt.files import shown
from compiler_opt.llvm import processes
from compiler_opt.llvm.sandbox import Sandbox
from compiler_opt.llvm.scratch import scratch_directory

FLAG, INTEGER, REAL, CHOICE, TEXT = "flag", "integer", "real", "choice", "text"

_TIMEOUT_S = 60.0
_OPTION = re.compile(r"-{1,2}([A-Za-z0-9][\w.-]*)(?:=([\w+-][\w.+-]*))?")
_MAX_CHARACTERS = 200
_LISTED = re.compile(r"  --?([A-Za-z0-9][\w.-]*)(?:=(<[^>]*>)| <[^>]*>|\[=<[^>]*>\])? +- ?(.*)")
_CHOICE = re.compile(r"    =(\S+) +-")
_VALUE = re.compile(r" +--?([A-Za-z0-9][\w.-]*) += (\S*) +\(default: (.*)\)")
_KINDS = {
    **dict.fromkeys(("<int>", "<uint>", "<long>", "<ulong>", "<N>", "<x>"), INTEGER),
    "<number>": REAL,
    "<value>": CHOICE,
}


@dataclasses.dataclass(frozen=True)
class PassOption:
    """An option that a compiler has.

    Attributes:
      name: without dashes, such as `enable-load-pre`.
      kind: `FLAG` (true or false), `INTEGER`, `REAL`, `CHOICE` or `TEXT` (also names of files).
      default: its value without the option, as the compiler prints it; None if it prints none.
      choices: the values of a `CHOICE`.
      help: what the compiler says of it.
    """

    name: str
    kind: str
    default: str | None
    choices: tuple[str, ...]
    help: str

    def accepts(self, value: str | None) -> bool:
        """Whether the option can have a value; None for a flag without one."""
        match self.kind:
            case "flag":
                return value in (None, "true", "false")
            case "integer":
                return value is not None and re.fullmatch(r"[+-]?\d{1,19}", value) is not None
            case "real":
                return value is not None and re.fullmatch(r"[+-]?\d{1,19}(\.\d{1,19})?", value) is not None
            case "choice":
                return value in self.choices
            case _:
                return False  # Its value may name a file.


def option_name(text: str) -> str:
    """The name in an option, which LLVM takes with one dash or two, and with or without a value."""
    return text.lstrip("-").partition("=")[0]


def parse_option(text: str) -> tuple[str, str | None]:
    """Name and value of `-enable-load-pre=false`; the value of a flag without one is None.

    Raises:
      ConfigError: it is not of this form.
    """
    match = _OPTION.fullmatch(text) if len(text) <= _MAX_CHARACTERS else None
    if match is None:
        raise ConfigError(f"expected an option of LLVM's such as -enable-load-pre=false, found {shown(text)}")
    return match[1], match[2]


def list_pass_options(clang: Path, plugin: Path | None = None) -> dict[str, PassOption]:
    """All options of a compiler by name, also those of a pass plugin, for its default target; takes some 50 ms.

    Raises:
      ToolchainError: it cannot be run, does not load the plugin, or prints no list.
    """
    with scratch_directory() as scratch:
        source = scratch / "empty.c"
        source.write_text("")
        printed = []
        for option in ("-help-list-hidden", "-print-all-options"):
            command = [str(clang), "-c", str(source), "-o", str(scratch / "empty.o"), "-mllvm", option]
            if plugin is not None:
                command += ["-Xclang", "-load", "-Xclang", str(plugin.absolute())]
            result = processes.run(command, timeout_s=_TIMEOUT_S, sandbox=Sandbox.for_folder(scratch))
            if not result.ok:
                raise ToolchainError(f"{clang}: -mllvm {option}: {result.describe()}")
            printed.append(result.stdout.decode(errors="replace"))
    options = _parse_list(printed[0], _parse_values(printed[1]))
    if not options:
        raise ToolchainError(f"{clang}: expected a list of options from -mllvm -help-list-hidden, found none")
    return options


def _parse_list(text: str, defaults: Mapping[str, str]) -> dict[str, PassOption]:
    """The options in what `-help-list-hidden` prints."""
    options: dict[str, PassOption] = {}
    last = None
    for line in text.splitlines():
        if match := _LISTED.fullmatch(line):
            name, value, about = match.groups()
            kind = FLAG if value is None else _KINDS.get(value, TEXT)
            if f"--{name} <" in line or f"{name}[=" in line:
                kind = TEXT
            last = options[name] = PassOption(name, kind, defaults.get(name), (), about.strip())
        elif (match := _CHOICE.match(line)) and last is not None and last.kind == CHOICE:
            last = options[last.name] = dataclasses.replace(last, choices=(*last.choices, match[1]))
        elif not line.startswith("   "):
            last = None
    return options


def _parse_values(text: str) -> dict[str, str]:
    """The values in what `-print-all-options` prints, which are the defaults; without those that have none."""
    values = {}
    for line in text.splitlines():
        if match := _VALUE.fullmatch(line):
            values[match[1]] = match[2]
    return values
