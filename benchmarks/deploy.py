"""Measures the cost of a deployed policy at its level: `mlgo-clang` against plain `clang`.

Modules are compiled from bitcode: the front end costs the same either way, and would only hide the policy's share. With
`--compile_commands`, a project's sources are compiled, as users do. CPU seconds are user and system time of the driver
and all its children; both ways alternate, file by file, so that changes of the machine's speed affect both alike.

With `--instructions`, callgrind counts the instructions of these processes, whatever else the machine does, but not
those of the kernel, which starts and ends processes.
"""

import os
import platform
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from absl import flags

from benchmarks.spawned import spawn
from compiler_opt import pretrained
from compiler_opt.corpus.builds.commands import Command
from compiler_opt.corpus.builds.database import read_database
from compiler_opt.corpus.description import Corpus
from compiler_opt.deploy.deployment import Deployment, deploy
from compiler_opt.deploy.policies import PolicyRequest
from compiler_opt.errors import CompileError, ConfigError
from compiler_opt.llvm import processes
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.measure.callgrind import valgrind
from compiler_opt.progress_bar import progress_bar
from compiler_opt.tools import entry_point, shared_flags
from compiler_opt.tools.options_flag import OptionsFlag

_DATA_PATH = flags.DEFINE_string("data_path", "demo/corpus/train", "The corpus.")
_COMPILE_COMMANDS = shared_flags.path("compile_commands", "A compile_commands.json, in place of a corpus.")
_POLICY_PATH = shared_flags.policy("policy_path", "A trained policy; by default that of the demo.")
_OPTIONS = OptionsFlag(
    "Options of LLVM's passes that are deployed, too: {forms}.", default=shared_flags.NONE, has_trials=True
)
_CLANG_PATH = shared_flags.clang_path()
_NUM_FILES = flags.DEFINE_integer("num_modules", 100, "Modules or sources to sample.", 1)
_REPETITIONS = flags.DEFINE_integer("repetitions", 5, "Repetitions of each file and way.", 1)
_INSTRUCTIONS = flags.DEFINE_bool("instructions", False, "Count instructions, in place of seconds and memory.")
_NEVER_WORSE = flags.DEFINE_bool("never_worse", False, "Measure a deployment that compiles both ways.")
_SEED = shared_flags.seed("the sample of files", 1)

_PLAIN, _POLICY = 0, 1
_TIMEOUT_S = 1800.0


@entry_point.command
def entry() -> None:
    policy = pretrained.folder(_POLICY_PATH.value or "demo/training/policy")
    for path in (policy, Path(_COMPILE_COMMANDS.value or _DATA_PATH.value)):
        if not path.exists():
            raise ConfigError(f"{path}: not there; run ./run_demo.sh first, or give --data_path and --policy_path")
    toolchain = probe(_CLANG_PATH.value)
    commands = _commands(toolchain)
    chosen = np.random.default_rng(_SEED.value).permutation(len(commands))[: _NUM_FILES.value]
    with scratch_directory() as scratch:
        deployment = deploy(
            [PolicyRequest(policy)],
            scratch / "prefix",
            [toolchain.clang],
            options=_OPTIONS.read(),
            option_trials=_OPTIONS.trials,
            pass_plugin=_OPTIONS.pass_plugin,
            never_worse=_NEVER_WORSE.value,
            strict=True,
        )
        measure = _count if _INSTRUCTIONS.value else _time
        measure([commands[index] for index in chosen], toolchain, deployment, scratch)
    options = f"options {_OPTIONS.value}, {_OPTIONS.trials} further sets tried"
    print(f"  {toolchain.version_text}; policy {_POLICY_PATH.value or policy}, {options}")


def _commands(toolchain: Toolchain) -> Sequence[Command]:
    """The compilations to choose from, without outputs and levels."""
    if _COMPILE_COMMANDS.value:
        return read_database(_COMPILE_COMMANDS.value).commands
    corpus = Corpus.load(_DATA_PATH.value)
    corpus.check_compiler(toolchain.version, toolchain.clang)
    words = [("clang", "-x", "ir", "-c", str(module.bitcode_path.absolute())) for module in corpus.modules]
    return [Command(Path.cwd(), each) for each in words]


def _ways(
    commands: Sequence[Command], toolchain: Toolchain, deployment: Deployment, scratch: Path
) -> Iterator[Mapping[int, list[str]]]:
    """How to compile each of the files plainly and with the policy, in its folder; objects are named by the way."""
    level = deployment.policies[0].levels[0]
    for command in progress_bar(commands, unit="file"):
        os.chdir(command.directory)
        plain = [str(toolchain.clang), *(["--driver-mode=g++"] if command.is_cxx else [])]
        compilers = {_PLAIN: plain, _POLICY: [str(deployment.driver(cpp=command.is_cxx))]}
        yield {
            way: [*compiler, *command.words[1:], f"-{level}", "-w", "-o", str(scratch / f"{way}.o")]
            for way, compiler in compilers.items()
        }


def _count(commands: Sequence[Command], toolchain: Toolchain, deployment: Deployment, scratch: Path) -> None:
    tool = [str(valgrind()), "--tool=callgrind", "-q", "--trace-children=yes"]
    # Legend: [file, way].
    counts = np.zeros((len(commands), 2))
    for row, ways in enumerate(_ways(commands, toolchain, deployment, scratch)):
        for way, words in ways.items():
            result = processes.run([*tool, f"--callgrind-out-file={scratch}/profile.%p", *words], timeout_s=_TIMEOUT_S)
            if not result.ok:
                raise CompileError(f"{' '.join(words)}: {result.describe()}")
            for profile in scratch.glob("profile.*"):
                totals = [line for line in profile.read_text().splitlines() if line.startswith("totals:")]
                counts[row, way] += sum(int(line.split()[1]) for line in totals)
                profile.unlink()
    _report("instructions", counts)


def _time(commands: Sequence[Command], toolchain: Toolchain, deployment: Deployment, scratch: Path) -> None:
    # Legend: [file, repetition, way].
    cpu_s = np.zeros((len(commands), _REPETITIONS.value, 2))
    peak_bytes = np.zeros_like(cpu_s)
    text_changed = 0
    start_s = statistics.median(spawn([str(deployment.driver()), "--mlgo-info"], scratch)[0] for _ in range(200))
    for row, ways in enumerate(_ways(commands, toolchain, deployment, scratch)):
        for repetition in range(-1, _REPETITIONS.value):
            for way, words in ways.items():
                measured = spawn(words, scratch)
                # The first run of each loads the files into the page cache and does not count.
                if repetition >= 0:
                    cpu_s[row, repetition, way], peak_bytes[row, repetition, way] = measured
        text_changed += (scratch / f"{_PLAIN}.o").read_bytes() != (scratch / f"{_POLICY}.o").read_bytes()
    _report("CPU seconds", np.median(cpu_s, axis=1))
    totals = cpu_s.sum(axis=0)
    print(f"  sums of each repetition: {', '.join(f'{plain:.2f} to {policy:.2f} s' for plain, policy in totals)}")
    peaks = np.median(peak_bytes, axis=1)
    added_mb = (peaks[:, _POLICY] - peaks[:, _PLAIN]) / 1e6
    print(f"added peak memory, median: {np.median(added_mb):.2f} MB, at most {added_mb.max():.2f} MB")
    print(f"  plain clang's, median: {np.median(peaks[:, _PLAIN]) / 1e6:.1f} MB")
    print(f"mlgo-clang --mlgo-info: {start_s * 1e3:.2f} ms of CPU time")
    print(f"  {text_changed} objects differ from plain clang's; {'never worse; ' if _NEVER_WORSE.value else ''}strict")
    print(f"  {_REPETITIONS.value} repetitions")
    print(f"  {platform.machine()}, {os.cpu_count()} threads, load {os.getloadavg()[0]:.1f}")


def _report(what: str, costs: np.ndarray) -> None:
    """Prints the ratios of costs `[file, way]`."""
    ratios = costs[:, _POLICY] / costs[:, _PLAIN]
    print(f"{what}, mlgo-clang over plain clang, median of {len(costs)} files: {np.median(ratios):.4f}")
    print(f"  half of the files within {np.quantile(ratios, 0.25):.4f} and {np.quantile(ratios, 0.75):.4f}")
    print(f"  of all together: {costs[:, _POLICY].sum() / costs[:, _PLAIN].sum():.4f}")


if __name__ == "__main__":
    entry()
