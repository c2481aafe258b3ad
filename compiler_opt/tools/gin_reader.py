"""Reads gin files and bindings as values by name; the last value of a name counts.

    reader = GinReader({"network": ("fc_layer_params",)})
    reader.read_file("common.gin")
    reader.read_binding("network.fc_layer_params = (32,)")
    reader.values()  # {"network": {"fc_layer_params": (32,)}}

The syntax is gin's: literals, macros (`size = 32`, then `%size`), blocks and includes. Nothing is imported, called or
skipped: a name that is not a parameter, a macro that nothing uses, a scope, an import or a reference to a function is
an error.
"""

import dataclasses
import tokenize
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gin import config_parser

from compiler_opt.errors import ConfigError
from compiler_opt.files import check_plain, one_line, read_regular
from compiler_opt.tools import gin_files, ml_compiler_opt

_MAX_FILE_BYTES = 1 << 20
_EXPECTED = "expected name.parameter=value, both of which exist"


@dataclasses.dataclass(frozen=True)
class _Macro:
    """A value `%name`."""

    name: str


@dataclasses.dataclass(frozen=True)
class _Reference:
    """A value `@name`."""

    name: str


class _Delegate(config_parser.ParserDelegate):
    """Makes values of what the parser cannot know."""

    def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> _Reference:
        del evaluate
        return _Reference(scoped_configurable_name)

    def macro(self, macro_name: str) -> _Macro:
        return _Macro(macro_name)


class GinReader:
    """Values by name and parameter.

    Attributes:
      notes: what spellings of google/ml-compiler-opt are called here, one line each.
      bindings: the bindings, as they were given, that set a parameter, by its name and parameter.
    """

    def __init__(
        self, parameters: Mapping[str, Collection[str]], elsewhere: Mapping[str, Collection[str]] = MappingProxyType({})
    ):
        """Makes a reader of settings of a command.

        Args:
          parameters: names of all parameters by name, such as `fc_layer_params` of `network`.
          elsewhere: the same for settings of other commands, for messages.
        """
        self._parameters = parameters
        self._elsewhere = elsewhere
        self._values: dict[str, dict[str, Any]] = {name: {} for name in parameters}
        self._macros: dict[str, tuple[Any, str]] = {}
        self._origins: dict[tuple[str, str], str] = {}
        self.notes: list[str] = []
        self.bindings: dict[tuple[str, str], str] = {}

    def read_file(self, path: str) -> None:
        """Reads a file; raises ConfigError if it is missing, is not gin or sets something unknown."""
        try:
            file, note = gin_files.find(path)
        except ValueError as error:
            raise ConfigError(f"--gin_files={path}: {error}") from None
        self.notes += [note] if note else []
        self._read_file(file, f"--gin_files={path}", ())

    def read_binding(self, text: str) -> None:
        """Reads a binding; raises ConfigError if it is not gin or sets something unknown."""
        origin = f"--gin_bindings={text}"
        self._read(text, origin, None, ())
        self.bindings |= {key: text for key, where in self._origins.items() if where == origin}

    def values(self) -> dict[str, dict[str, Any]]:
        """The values that were set, by name and parameter; raises ConfigError for a macro that is unknown or unused."""
        used: set[str] = set()
        values: dict[str, dict[str, Any]] = {}
        for name, parameters in self._values.items():
            values[name] = {}
            for parameter, value in parameters.items():
                try:
                    check_plain(value)
                    values[name][parameter] = self._resolved(value, used)
                except (ValueError, RecursionError) as error:
                    where = self._origins[name, parameter]
                    raise ConfigError(f"{where}: {error}; {_EXPECTED}") from None
        for name, (_, where) in self._macros.items():
            if name not in used:
                raise ConfigError(f"{where}: nothing uses {name!r}; {_EXPECTED}")
        return values

    def _read_file(self, path: Path, where: str, including: tuple[Path, ...]) -> None:
        """Reads a file; `where` begins messages, `including` are the files that it is included by."""
        if path.resolve() in including:
            raise ConfigError(f"{where}: {path} includes itself; fix the file")
        try:
            text = read_regular(path, _MAX_FILE_BYTES).decode()
        except FileNotFoundError:
            raise ConfigError(f"{where}: no such file") from None
        except OSError as error:
            raise ConfigError(f"{where}: cannot be read ({error.strerror}); fix the file") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{where}: expected text, found something else; fix the file") from None
        self._read(text, where, path, including)

    def _read(self, text: str, where: str, path: Path | None, including: tuple[Path, ...]) -> None:
        """Reads the text of a file or, without a path, of a binding."""
        remedy = _EXPECTED if path is None else "fix the file"
        place = ""
        try:
            for statement in config_parser.ConfigParser(text, _Delegate()):
                if path is not None:
                    place = f" (line {statement.location.line_num} of {path})"
                if isinstance(statement, config_parser.BindingStatement):
                    self._bind(statement, f"{where}{place}")
                elif isinstance(statement, config_parser.ImportStatement):
                    raise ValueError(
                        f"import {statement.module}: gin files only set parameters here, see {ml_compiler_opt.PAGE}"
                    )
                elif isinstance(statement, config_parser.IncludeStatement):
                    if path is None:
                        raise ValueError("include: give the file by --gin_files")
                    self._include(statement.filename, path, f"{where}{place}", including)
        except (SyntaxError, tokenize.TokenError) as error:  # Their messages say where.
            raise ConfigError(f"{where}: {one_line(str(error))}; {remedy}") from None
        except (ValueError, TypeError, RecursionError) as error:
            raise ConfigError(f"{where}: {one_line(str(error))}{place}; {remedy}") from None

    def _include(self, name: str, path: Path, where: str, including: tuple[Path, ...]) -> None:
        """Reads a file: its path relative to the including file, else as `--gin_files` takes it."""
        beside = path.parent / name
        try:
            found, note = (beside, "") if beside.is_file() else gin_files.find(name)
        except ValueError:
            raise ValueError(f"include {name!r}: no such file") from None
        self.notes += [note] if note else []
        self._read_file(found, where, (*including, path.resolve()))

    def _bind(self, statement: Any, where: str) -> None:
        """Sets a parameter or defines a macro; raises ValueError if there is no such parameter."""
        name, parameter, value = statement.selector, statement.arg_name, statement.value
        if statement.scope:
            raise ValueError(f"{statement.scope}/{name}: scopes have no meaning here; leave out '{statement.scope}/'")
        full = f"{name}.{parameter}" if parameter else name
        if parameter in self._parameters.get(name, ()):
            self._set(name, parameter, value, where)
            return
        found = ml_compiler_opt.setting(full, value, value.name if isinstance(value, _Reference) else "")
        if found is not None:
            self.notes.append(found.note)
            if found.name is not None:
                ours, _, field = found.name.rpartition(".")
                if field not in self._parameters.get(ours, ()):
                    raise ValueError(f"{full} has no use in this command")
                self._set(ours, field, found.value, where)
            return
        reason = ml_compiler_opt.refusal(full)
        # What begins with `train_eval` may be a setting of ours, of another command.
        if reason is not None and (name in self._parameters or name != "train_eval"):
            raise ValueError(f"{full} {reason}")
        if not parameter:
            self._macros[name] = (value, where)
        elif parameter in self._elsewhere.get(name, ()):
            raise ValueError(f"{full} is a setting of other commands, which this one does not have")
        elif name in self._parameters:
            raise ValueError(f"{name!r} has no parameter {parameter!r}")
        else:
            raise ValueError(f"there is no {name!r}, so it has no parameter {parameter!r}")

    def _set(self, name: str, parameter: str, value: object, where: str) -> None:
        self._values[name][parameter] = value
        self._origins[name, parameter] = where

    def _resolved(self, value: Any, used: set[str]) -> Any:
        """A value with macros replaced, whose names are added to `used`; raises ValueError for an unknown one."""
        if isinstance(value, _Macro):
            if value.name not in self._macros:
                raise ValueError(f"there is no macro %{value.name}")
            used.add(value.name)
            return self._resolved(self._macros[value.name][0], used)
        if isinstance(value, _Reference):
            raise ValueError(f"@{value.name}: expected a value, found a reference to a function")
        if isinstance(value, list | tuple):
            return type(value)(self._resolved(item, used) for item in value)
        if isinstance(value, dict):
            return {self._resolved(key, used): self._resolved(item, used) for key, item in value.items()}
        return value
