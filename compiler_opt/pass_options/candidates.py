"""Which options of a compiler to try, and which values of them: by rules about names and kinds.

Left out are options that only print, check or trace something, options of other targets, options of instrumentation
that a compilation asks for by other means, and those whose value is text, which may name a file.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from compiler_opt.errors import ToolchainError
from compiler_opt.llvm import processes
from compiler_opt.llvm.pass_options import INTEGER, REAL, PassOption
from compiler_opt.llvm.sandbox import Sandbox
from compiler_opt.llvm.scratch import scratch_directory

_OBSERVES = re.compile(
    r"(^|[-.])(print\w*|dump\w*|view|dot|debug\w*|verif\w*|stats?|statistics|time|timer|times|trace\w*|track|report\w*|remarks?|"
    r"help|version|quiet|verbose|log|logging|graph|check\w*|test|testing|bugpoint|opt-bisect\w*|stop|start|crash|diagnostics?|"
    r"expensive|color|annotate|comment\w*|preserve-\w*|discard|info\w*|stress|random\w*|shuffle\w*|counter|fuzz\w*|show\w*)([-.]|$)"
)
_INSTRUMENTS = re.compile(
    r"^(asan|hwasan|msan|tsan|dfsan|nsan|tysan|rtsan|kmsan|kcfi|cfi|memprof|sancov|sanitizer|sanitize|sample-profile|"
    r"sampleprof|pgo|icp|instrprof|instrument|vp-|profile|ctx-prof|runtime-counter|do-counter|lto|thinlto|summary|"
    r"memop|polly|wholeprogramdevirt|orc|jit|irpgo|mcfg|ir2vec|mir2vec|regalloc-(enable|evict)|ml-|"
    r"interactive|enable-ml|inliner-interactive|dataflow|verify|cgp?-data|codegen-data|bounds-checking|propeller)"
)
_TARGET = re.compile(r"^    ([\w.+-]+) +- ", re.MULTILINE)
_MORE_PREFIXES = {"amdgcn": ("amdgpu", "si"), "arm": ("arm", "thumb"), "wasm": ("wasm", "webassembly"), "x86": ("x86",)}
"""How names of options begin for a target, where that is not its own name."""

_LARGE = 100
"""Instead of a multiple of a default of 0."""
_MOST = 1 << 31


def candidates(options: Iterable[PassOption], other_targets: Iterable[str]) -> list[str]:
    """What to try first of each option, as `-NAME=VALUE`: both values of a flag, a small and a large number.

    Args:
      options: those of a compiler.
      other_targets: prefixes of names of options of targets that are not compiled for.
    """
    prefixes = tuple(f"{target}-" for target in other_targets)
    return [
        f"-{option.name}={value}"
        for option in options
        if not (_OBSERVES.search(option.name) or _INSTRUMENTS.match(option.name))
        and not option.help.startswith("Alias for ")
        and not option.name.startswith(prefixes)
        for value in _extremes(option)
    ]


def further(option: PassOption) -> list[str]:
    """All values to try of a number of which an extreme changes something, as `-NAME=VALUE`."""
    if option.kind not in (INTEGER, REAL):
        return []
    number = _default(option)
    values = [0.0, 1.0, 2.0, number / 4, number / 2, number * 2, number * 4] if number else [1.0, 2.0, 4.0, 8.0, 16.0]
    return [f"-{option.name}={value}" for value in _shown(option, values)]


def other_target_prefixes(clang: Path, target: str) -> list[str]:
    """How names of options begin that belong to other targets of the compiler than that of a triple.

    Raises:
      ToolchainError: the compiler prints no list of its targets.
    """
    with scratch_directory() as scratch:
        result = processes.run([str(clang), "-print-targets"], timeout_s=60.0, sandbox=Sandbox.for_folder(scratch))
    names = _TARGET.findall(result.stdout.decode(errors="replace"))
    if not result.ok or not names:
        raise ToolchainError(f"{clang}: expected a list of targets from -print-targets, found none")
    own = _family(target.partition("-")[0])
    prefixes = {prefix for name in names if _family(name) != own for prefix in _prefixes(_family(name))}
    return sorted(prefixes - set(_prefixes(own)))


def _family(name: str) -> str:
    """A target without what tells its variants apart: `x86` for x86-64 and x86_64, `aarch64` for aarch64_be."""
    for family in (
        "aarch64",
        "x86",
        "arm",
        "thumb",
        "ppc",
        "mips",
        "riscv",
        "sparc",
        "hexagon",
        "wasm",
        "loongarch",
        "spirv",
    ):
        if name.startswith(family):
            return "arm" if family == "thumb" else family
    return name


def _prefixes(family: str) -> Iterator[str]:
    yield from _MORE_PREFIXES.get(family, (family,))


def _default(option: PassOption) -> float:
    try:
        return float(option.default or 0)
    except ValueError:
        return 0.0


def _extremes(option: PassOption) -> list[str]:
    match option.kind:
        case "flag":
            return ["true", "false"]
        case "choice":
            return [choice for choice in option.choices if choice != option.default]
        case "integer" | "real":
            number = _default(option)
            return _shown(option, [0.0, number * 8 if number else _LARGE])
        case _:
            return []


def _shown(option: PassOption, values: Iterable[float]) -> list[str]:
    """Numbers as text, without repetitions and the default."""
    shown = [f"{int(value)}" if option.kind == INTEGER else f"{value:g}" for value in values if abs(value) < _MOST]
    default = f"{int(_default(option))}" if option.kind == INTEGER else f"{_default(option):g}"
    return [value for value in dict.fromkeys(shown) if value != default and "e" not in value]
