"""Changes to the options that a corpus was built with: flags added, deleted and replaced, for all of its modules.

    problem_config.flags_to_add = ['-mllvm', '-inline-threshold=100']
    problem_config.flags_to_delete = ['-vectorize-slp', '-mllvm -enable-gvn-hoist']
    problem_config.flags_to_replace = {'-target-cpu': 'x86-64-v3', '-Os': '-Oz'}

in gin. They are cc1 options, as a `.cmd` file holds them, and pass the same allow-list (`command_line.py`).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from compiler_opt.checked_values import convert
from compiler_opt.corpus.command_lines import command_line
from compiler_opt.errors import ConfigError, CorpusError

_OF_LLVM = "-mllvm"


@dataclasses.dataclass(frozen=True)
class ProblemConfig:
    """What is changed of the recorded options; deleted and replaced first, then added.

    Attributes:
      flags_to_add: at the end, a word each: `'-mllvm', '-inline-threshold=100'`.
      flags_to_delete: names, with or without `=value`: `-target-cpu` goes with its value, `-mframe-pointer` whatever
        its value, `-mframe-pointer=all` with that one; `-mllvm -inline-threshold` that one of LLVM's options.
      flags_to_replace: by name the new value, wherever there is one: `-target-cpu`, `-mframe-pointer`,
        `-mllvm -inline-threshold`; an option that has no value, such as `-Os`, is replaced as a whole.
    """

    flags_to_add: tuple[str, ...] = ()
    flags_to_delete: tuple[str, ...] = ()
    flags_to_replace: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)

    def __bool__(self) -> bool:
        """Whether anything is changed."""
        return bool(self.flags_to_add or self.flags_to_delete or self.flags_to_replace)

    def apply(self, options: tuple[str, ...]) -> tuple[str, ...]:
        """The options of a module with the changes.

        Raises:
          CorpusError: the value of the last option is missing.
        """
        if not self:
            return options
        changed: list[str] = []
        for words in command_line.split_options(options):
            if any(_is_named(words, name) for name in self.flags_to_delete):
                continue
            for name, value in self.flags_to_replace.items():
                if _is_named(words, name):
                    words = _replaced(name, value)
                    break
            changed += words
        return (*changed, *self.flags_to_add)

    def check(self, *, trusted: bool = False) -> None:
        """Finds out before the work whether the flags can be used.

        Args:
          trusted: whether they may be others than those on the allow-list.

        Raises:
          ConfigError: one is not on the allow-list, or does nothing to bitcode.
        """
        _check("flags_to_add", self.flags_to_add, trusted)
        for name, value in self.flags_to_replace.items():
            _check("flags_to_replace", _replaced(name, value), trusted)
        for name in self.flags_to_delete:
            if not name.startswith("-") or name == "-cc1":
                raise ConfigError(f"problem_config.flags_to_delete: expected options, found {name!r:.80}")

    def to_json(self) -> dict[str, Any]:
        """What traces and policies say of it; empty when nothing is changed."""
        if not self:
            return {}
        return {"problem_config": {**dataclasses.asdict(self), "flags_to_replace": dict(self.flags_to_replace)}}

    @classmethod
    def from_json(cls, about: Mapping[str, Any]) -> "ProblemConfig":
        """What `to_json` left in the description of a trace or policy.

        Raises:
          ConfigError: it is something else.
        """
        try:
            return convert(about.get("problem_config", {}), cls)
        except ValueError as error:
            raise ConfigError(f"problem_config: {error}; train the policy again") from None


def _is_named(words: Sequence[str], name: str) -> bool:
    """Whether an option with its value is the one of that name."""
    if words[0] == _OF_LLVM and name != _OF_LLVM:
        of_llvm, _, name = name.partition(" ")
        # LLVM takes one dash or two.
        option, name = words[-1].lstrip("-"), name.lstrip("-")
        return of_llvm == _OF_LLVM and (option == name or option.startswith(f"{name}="))
    return words[0] == name or words[0].startswith(f"{name}=")


def _replaced(name: str, value: str) -> tuple[str, ...]:
    """The option of that name with another value."""
    if name.startswith(f"{_OF_LLVM} "):
        return (_OF_LLVM, f"{name.removeprefix(_OF_LLVM).strip()}={value}")
    if command_line.takes_separate_value(name):
        return (name, value)
    if command_line.takes_value_after_equals(name):
        return (f"{name}={value}",)
    return (value,)


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
