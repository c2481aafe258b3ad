"""Changes to the recorded options of a corpus: adds, deletes and replaces flags of all modules.

    problem_config.flags_to_add = ['-mllvm', '-inline-threshold=100']
    problem_config.flags_to_delete = ['-vectorize-slp', '-mllvm -enable-gvn-hoist']
    problem_config.flags_to_replace = {'-target-cpu': 'x86-64-v3', '-Os': '-Oz'}

in gin. They are cc1 options, as in a `.cmd` file, and must be on the same allow-list (`command_line.py`).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from compiler_opt.checked_values import convert
from compiler_opt.corpus.command_lines import command_line
from compiler_opt.errors import ConfigError, CorpusError

_MLLVM = "-mllvm"


@dataclasses.dataclass(frozen=True)
class ProblemConfig:
    """Changes to the recorded options: deletes and replaces first, then adds.

    Attributes:
      flags_to_add: appended arguments: `'-mllvm', '-inline-threshold=100'`.
      flags_to_delete: names, with or without `=value`: `-target-cpu` also deletes its value, `-mframe-pointer` matches
        any value, `-mframe-pointer=all` only that one; `-mllvm -inline-threshold` matches that LLVM option.
      flags_to_replace: new values by name: `-target-cpu`, `-mframe-pointer`, `-mllvm -inline-threshold`; a flag without
        a value, such as `-Os`, is replaced as a whole. Options that a module lacks are not added.
    """

    flags_to_add: tuple[str, ...] = ()
    flags_to_delete: tuple[str, ...] = ()
    flags_to_replace: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)

    def __bool__(self) -> bool:
        """Whether anything is changed."""
        return bool(self.flags_to_add or self.flags_to_delete or self.flags_to_replace)

    def apply(self, options: tuple[str, ...]) -> tuple[str, ...]:
        """Applies the changes to a module's options; raises CorpusError if the last option's value is missing."""
        if not self:
            return options
        changed: list[str] = []
        for words in command_line.split_options(options):
            if any(_is_named(words, name) for name in self.flags_to_delete):
                continue
            for name, value in self.flags_to_replace.items():
                if _is_named(words, name):
                    words = _replaced(name, value, words)
                    break
            changed += words
        return (*changed, *self.flags_to_add)

    def check(self, *, trusted: bool = False) -> None:
        """Checks the flags; `trusted` accepts flags that are not on the allow-list.

        Raises:
          ConfigError: a flag is not on the allow-list, or does not affect the compilation of bitcode.
        """
        _check("flags_to_add", self.flags_to_add, trusted)
        for name, value in self.flags_to_replace.items():
            _check("flags_to_replace", _replaced(name, value), trusted)
        for name in self.flags_to_delete:
            if not name.startswith("-") or name == "-cc1":
                raise ConfigError(f"problem_config.flags_to_delete: expected options, found {name!r:.80}")

    def to_json(self) -> dict[str, Any]:
        """The entry in the metadata of traces and policies; empty if nothing is changed."""
        if not self:
            return {}
        return {"problem_config": {**dataclasses.asdict(self), "flags_to_replace": dict(self.flags_to_replace)}}

    @classmethod
    def from_json(cls, about: Mapping[str, Any]) -> "ProblemConfig":
        """Reads `to_json`'s entry in the metadata of a trace or policy; raises ConfigError if it is invalid."""
        try:
            return convert(about.get("problem_config", {}), cls)
        except ValueError as error:
            raise ConfigError(f"problem_config: {error}; train the policy again") from None


def _is_named(words: Sequence[str], name: str) -> bool:
    """Whether `name` refers to an option, given with its value."""
    if words[0] == _MLLVM and name != _MLLVM:
        first, _, name = name.partition(" ")
        # LLVM accepts one dash or two.
        option, name = words[-1].lstrip("-"), name.lstrip("-")
        return first == _MLLVM and (option == name or option.startswith(f"{name}="))
    return words[0] == name or words[0].startswith(f"{name}=")


def _replaced(name: str, value: str, recorded: Sequence[str] = ()) -> tuple[str, ...]:
    """The option of that name with another value; an unlisted option keeps the form in which it was recorded."""
    if name.startswith(f"{_MLLVM} "):
        return (_MLLVM, f"{name.removeprefix(_MLLVM).strip()}={value}")
    if command_line.takes_separate_value(name):
        return (name, value)
    if command_line.takes_value_after_equals(name):
        return (f"{name}={value}",)
    if len(recorded) > 1:
        return (name, value)
    is_value = recorded[0].startswith(f"{name}=") if recorded else not value.startswith("-")
    return (f"{name}={value}",) if is_value else (value,)


def _check(field: str, words: tuple[str, ...], trusted: bool) -> None:
    try:
        kept = command_line.checked_options(("-cc1", *words), trusted)
    except CorpusError as error:
        reason = str(error).partition("; ")[0].removeprefix("command line: ")
        raise ConfigError(f"problem_config.{field}: {reason}; leave it out, or give --trust_corpus") from None
    if kept != words:
        lost = next(iter([word for word in words if word not in kept] or words))
        raise ConfigError(
            f"problem_config.{field}: {lost!r:.80} does nothing to bitcode, or names an input or output; leave it out"
        )
