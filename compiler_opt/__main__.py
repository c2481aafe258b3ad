"""`compiler_opt VERB`, also as `python -m compiler_opt VERB`: starts a command, or shows which there are.

`--flags VERB`, for completion, prints the flags of a verb, with `=` where a value follows.
"""

import difflib
import importlib
import itertools
import re
import signal
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from compiler_opt import __version__
from compiler_opt.commands import TASKS, VERBS, module_of, summary, verb_of

_HELP = """\
Usage: compiler_opt VERB [--FLAG=VALUE ...]

{verbs}

  compiler_opt VERB --help        what a verb does, and its flags
  compiler_opt --list             what each verb does, in one line
  compiler_opt --version          the version
  compiler_opt --completion=bash  completion of verbs and flags, also for zsh:
                                  source <(compiler_opt --completion=bash)
"""


def main() -> int:
    """Runs the command line; returns the exit status, 2 for a mistake of the user's."""
    words = sys.argv[1:]
    if verb := verb_of(words):
        sys.argv[: 2 + verb.count(" ")] = [f"compiler_opt {verb}"]
        importlib.import_module(module_of(verb)).entry()  # exits
    match words:
        case [] | ["-h" | "--help"]:
            text = _help()
        case ["--version"]:
            text = f"compiler_opt {__version__}\n"
        case ["--list"]:
            text = _list(VERBS)
        case [group] | [group, "-h" | "--help"] if verbs := [verb for verb in VERBS if verb.startswith(f"{group} ")]:
            text = _list(verbs)
        case ["--completion=bash" | "--completion=zsh" as option]:
            text = Path(__file__).with_name(f"completion.{option.partition('=')[2]}").read_text()
        case ["--flags", *rest] if verb := verb_of(rest):
            text = "".join(f"{flag}\n" for flag in _flags(verb))
        case [word, *_]:
            typed = " ".join(itertools.takewhile(lambda each: not each.startswith("-"), words[:2]))
            close = difflib.get_close_matches(typed, VERBS) or difflib.get_close_matches(word, VERBS)
            nearest = close or _related(word)
            guess = f"did you mean {' or '.join(nearest)}? See" if nearest else "see"
            print(f"error: expected a verb, found {word!r}; {guess} compiler_opt --help", file=sys.stderr)
            return 2
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # ends quietly if nobody reads
    print(text, end="")
    return 0


def _list(verbs: Sequence[str]) -> str:
    """A line for each verb: what it does, after at least two spaces."""
    width = max(map(len, verbs))
    return "".join(f"{verb:{width}}  {summary(verb)}\n" for verb in verbs)


def _related(word: str) -> list[str]:
    """Up to three verbs that have words in common with an unknown one, the most first."""
    parts = set(word.split("_"))
    common = {verb: len(parts & set(re.split("[ _]", verb))) for verb in VERBS}
    return [verb for verb in sorted(VERBS, key=lambda verb: -common[verb]) if common[verb]][:3]


def _help() -> str:
    """The verbs by task, on one screen of 24 lines and 80 columns."""
    width = max(map(len, TASKS))
    lines = []
    for task, verbs in TASKS.items():
        start, indent = f"  {task:{width}}  ", " " * (width + 4)
        lines += textwrap.wrap("  ".join(verbs), 79, initial_indent=start, subsequent_indent=indent)
    return _HELP.format(verbs="\n".join(lines))


def _flags(verb: str) -> list[str]:
    """The flags that the help of a verb shows, as they are typed."""
    from absl import flags

    module = importlib.import_module(module_of(verb))
    names = []
    for flag in flags.FLAGS.get_key_flags_for_module(module):
        names += [f"--{flag.name}", f"--no{flag.name}"] if flag.boolean else [f"--{flag.name}="]
    return sorted(names)


if __name__ == "__main__":
    sys.exit(main())
