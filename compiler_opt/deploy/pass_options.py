"""Options of LLVM's passes in a deployment: which of those of a file a compiler can take, tried by compiling."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

from compiler_opt.errors import ToolchainError
from compiler_opt.files import one_line, shown
from compiler_opt.llvm import processes
from compiler_opt.llvm.options_plugin import FOR_SIZE, PASSES
from compiler_opt.llvm.pass_options import TEXT, PassOption, list_pass_options, option_name, parse_option
from compiler_opt.llvm.sandbox import Sandbox
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.spawn import describe_exit
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.pass_options.sets import OptionSets, architecture_of, shipped

AUTO: Final = "auto"
"""Instead of a file: the options that ship for each compiler."""

NO_OPTIONS = OptionSets({})

_TIMEOUT_S = 30.0

_TRIPLES = {"arm": "thumbv7-none-eabi"}
"""What to compile for where the architecture alone makes clang warn."""

# Loops, a switch, recursion, values of many kinds, and calls that can be inlined, for any target and without headers.
_SOURCE = """
struct point { double x, y; long tag; char name[24]; };
extern int sink(const struct point *, int);
static int table[64];
static int gcd(int a, int b) { return b == 0 ? a : gcd(b, a % b); }
static int kind(int c) {
  switch (c) {
    case 'a': return 1; case 'b': return 7; case 'c': return 3; case 'd': return 9; case 'e': return 4;
    case 'f': return 2; case 'g': return 6; case 'h': return 5; case 'i': return 8; default: return gcd(c, 12);
  }
}
int scan(const unsigned char *text, int length, int (*visit)(int)) {
  int sum = 0;
  for (int i = 0; i < length; i++) {
    if (text[i] == ' ') continue;
    for (int j = i; j < length && text[j] != '\\n'; j += 2) sum += kind(text[j]) * table[j & 63];
    table[i & 63] = visit ? visit(sum) : sum;
  }
  return sum;
}
double mean(const struct point *points, unsigned long count) {
  struct point total = {0, 0, 0, "total"};
  for (unsigned long i = 0; i < count; i++) {
    total.x += points[i].x > 0 ? points[i].x : -points[i].x;
    total.y += points[i].y * points[i].x;
    if (points[i].tag % 7 == 3 && sink(&points[i], (int)i) < 0) return 0;
  }
  return count ? (total.x + total.y) / (double)count : sink(&total, gcd((int)total.tag, 5));
}
void reverse(float *restrict to, const float *restrict from, int n) {
  for (int i = 0; i < n; i++) to[n - 1 - i] = from[i] * 0.5f + (float)i;
}
"""


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """An option that is not deployed.

    Attributes:
      option: as the file has it.
      where: the level such as `-Oz`, or `-Oz for riscv64`.
      reason: why.
    """

    option: str
    where: str
    reason: str


@dataclasses.dataclass(frozen=True)
class UsableOptions:
    """The options that a compiler can take, and those that it cannot."""

    sets: OptionSets = NO_OPTIONS
    left_out: tuple[LeftOut, ...] = ()

    def summary(self) -> Iterator[str]:
        """A line for each option and reason."""
        wheres: dict[tuple[str, str], list[str]] = {}
        for each in self.left_out:
            wheres.setdefault((each.option, each.reason), []).append(each.where)
        for (option, reason), where in wheres.items():
            yield f"{option} is left out at {', '.join(where)}: {reason}"


def usable_options(
    source: OptionSets | Literal["auto"], toolchain: Toolchain, trials: int = 0, pass_plugin: Path | None = None
) -> UsableOptions:
    """Tries the options of a file, or those that ship, with a compiler, which is to try `trials` sets on functions.

    Menus may have options and passes of a pass plugin, if it is given.

    An option is left out if the compiler does not have it, if it takes text, or if a compilation with it fails, prints
    something, or writes other files than the object.

    Raises:
      ToolchainError: the compiler cannot compile without any options either, or does not load the plugin.
    """
    sets = shipped(toolchain.version[0]) if isinstance(source, str) else source
    if not sets:
        return UsableOptions()
    trial = _Trial(toolchain, pass_plugin)
    left_out = [
        LeftOut(option, _where(level, architecture), "it is given twice; the first counts")
        for architecture, level, option in sets.repeated
    ]
    levels, *others = (
        {level: tuple(trial.usable(options, level, architecture, left_out)) for level, options in of_levels.items()}
        for architecture, of_levels in (("", sets.levels), *sets.targets.items())
    )
    menus = {
        architecture: {
            level: tuple(trial.known(menu, level, architecture, left_out)) for level, menu in of_levels.items()
        }
        for architecture, of_levels in sets.menus.items()
    }
    targets = dict(zip(sets.targets, others, strict=True))
    return UsableOptions(OptionSets(levels, targets, menus=menus, trials=trials, plugin=pass_plugin), tuple(left_out))


def _where(level: str, architecture: str) -> str:
    return f"-{level} for {architecture}" if architecture else f"-{level}"


class _Trial:
    """Compiles with options of LLVM's passes, for nothing but to see whether that works."""

    def __init__(self, toolchain: Toolchain, plugin: Path | None) -> None:
        self._clang = toolchain.clang
        self._own_architecture = architecture_of(toolchain.target)
        self._known = self._known_by_function = list_pass_options(toolchain.clang)
        self._has_plugin = plugin is not None
        if plugin is not None:
            self._known_by_function = list_pass_options(toolchain.clang, plugin)

    def usable(self, options: Iterable[str], level: str, architecture: str, left_out: list[LeftOut]) -> Iterable[str]:
        """Those that work together, for a target (empty for the compiler's own); adds the others to `left_out`."""
        where = _where(level, architecture)
        left = {option: _refusal(option, self._known) for option in options}
        kept = [option for option, reason in left.items() if not reason]
        if kept and self._problem(kept, level, architecture):
            tried, kept = kept, []
            if problem := self._problem([], level, architecture):
                if not architecture:
                    raise ToolchainError(f"{self._clang}: cannot compile a plain source at {where}: it {problem}")
                left |= dict.fromkeys(tried, f"the compiler cannot compile for {architecture}")
                tried = []
            for option in tried:
                if problem := self._problem([*kept, option], level, architecture):
                    alone = self._problem([option], level, architecture)
                    pairs = (other for other in kept if self._problem([other, option], level, architecture))
                    left[option] = f"it {alone}" if alone else f"together with {next(pairs, 'others')}, it {problem}"
                else:
                    kept.append(option)
        left_out += [LeftOut(option, where, reason) for option, reason in left.items() if reason]
        return kept

    def known(
        self, menu: Iterable[Sequence[str]], level: str, architecture: str, left_out: list[LeftOut]
    ) -> Iterator[tuple[str, ...]]:
        """The sets for single functions of options that the compiler has; not tried, as that is what a search does."""
        for options in menu:
            refused = {option: reason for option in options if (reason := self._refusal_by_function(option))}
            if not refused:
                yield tuple(options)
            where = f"{_where(level, architecture)}, for single functions"
            left_out += [LeftOut(option, where, reason) for option, reason in refused.items()]

    def _refusal_by_function(self, option: str) -> str:
        """As `_refusal`, of what single functions may have."""
        if option_name(option) == PASSES:
            return "" if self._has_plugin else "it runs passes, which need --pass_plugin"
        return "" if option == FOR_SIZE else _refusal(option, self._known_by_function)

    def _problem(self, options: Sequence[str], level: str, architecture: str) -> str:
        """What is wrong with a compilation, such as "prints ..."; empty if nothing is."""
        triple = _TRIPLES.get(architecture, architecture)
        target = [f"--target={triple}"] if architecture not in ("", self._own_architecture) else []
        with scratch_directory() as scratch:
            folder = scratch / "probe"
            folder.mkdir()
            (folder / "probe.c").write_text(_SOURCE)
            command = [str(self._clang), *target, f"-{level}", "-fno-crash-diagnostics", "-c", "probe.c"]
            command += itertools.chain.from_iterable(("-mllvm", option) for option in options)
            sandbox = Sandbox.for_folder(folder)
            result = processes.run(command, timeout_s=_TIMEOUT_S, cwd=folder, sandbox=sandbox)
            printed = (result.stdout.decode(errors="replace") + result.stderr_tail).strip()
            names = {path.name for path in folder.iterdir()} - {"probe.c"}
        if result.timed_out:
            return f"takes the compiler over {_TIMEOUT_S:g} s"
        if not result.ok:
            errors = [one_line(line) for line in result.stderr_tail.splitlines() if "error: " in line]
            return ": ".join(("makes the compiler fail", describe_exit(result.returncode), *errors[:1]))
        if names - {"probe.o"}:
            return f"writes other files: {shown(' '.join(sorted(names - {'probe.o'})))}"
        if printed:
            return f"prints {shown(printed.splitlines()[0])}"
        return "" if names else "leaves no object"


def _refusal(option: str, known: "dict[str, PassOption]") -> str:
    """Why an option is not even tried, or empty."""
    name, value = parse_option(option)
    if name not in known:
        return "the compiler has no such option"
    if known[name].kind == TEXT:
        return "it takes text, which may name a file"
    if not known[name].accepts(value):
        choices = f" ({', '.join(known[name].choices)})" if known[name].choices else ""
        return f"expected a value of kind {known[name].kind}{choices}"
    return ""
