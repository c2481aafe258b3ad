"""Measures how well the register allocator's remarks approximate LLVM's RegAllocScore, and what each of them costs.

    D, the definition: 0.2 copies + 4 loads + stores + 5 loads-and-stores + 0.2 cheap + expensive rematerialisations
    R, from remarks:   0.2 copies + 4 (reloads + folded reloads) + spills + folded spills
    R5, likewise:      0.2 copies + 4 (reloads + folded reloads) + spills + 5 folded spills

Each term is weighted by the frequency of its block relative to the function's entry. D counts every instruction of the
function after `virtregrewriter` (`llvm/lib/CodeGen/RegAllocScore.cpp`), R what the greedy allocator reports that it has
added (`RAGreedy::computeStats`). Both come from one compilation, which stops after `virtregrewriter` and writes remarks
and machine IR; a small program, linked against libLLVM, scores the machine IR with LLVM's own function.

Modules are sampled from a corpus until they have enough functions. Each is compiled with clang's own evictions and
under other policies. A function that several modules of a project have counts once.
"""

import dataclasses
import os
import platform
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from absl import flags

from compiler_opt.corpus.command_lines.command_line import compile_command
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.errors import CompileError, ConfigError, ToolchainError
from compiler_opt.llvm import processes
from compiler_opt.llvm.advisors import REGALLOC_EVICTION, mllvm
from compiler_opt.llvm.interactive import Decide, StartDeciding, compile_interactively, llvm_channel
from compiler_opt.llvm.plugin import FLAGS
from compiler_opt.llvm.remarks import REGALLOC_PASS, RegallocCosts, options, parse_costs
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.llvm.training_log import Header
from compiler_opt.progress_bar import progress_bar
from compiler_opt.tools import entry_point, shared_flags
from studies.regalloc_score_agreement import R_KINDS, Costs, print_changes, print_levels, spread, stack

_DATA_PATH = flags.DEFINE_string("data_path", "demo/corpus/train", "The corpus.")
_CLANG_PATH = shared_flags.clang_path()
_SPEED = flags.DEFINE_bool("speed", True, "Compile at -O2 instead of the corpus's own level.")
_NUM_FUNCTIONS = flags.DEFINE_integer("num_functions", 3000, "Functions, of sampled modules.", 1)
_NUM_TIMED = flags.DEFINE_integer("num_timed_modules", 40, "Number of these modules to time.", 1)
_REPETITIONS = flags.DEFINE_integer("repetitions", 5, "Repetitions of each of them and way.", 1)
_SEED = shared_flags.seed("the sample of modules, and of the policies", 1)

_SOURCE = Path(__file__).with_name("regalloc_score_reference.cpp")
_TIMEOUT_S = 600.0
_STOP = mllvm(["-stop-after=virtregrewriter"])
# A module that was compiled for size says so in its functions' attributes.
_SPEED_OPTIONS = [
    "-O2",
    "-vectorize-loops",
    *mllvm(f"-force-remove-attribute={name}" for name in ("minsize", "optsize")),
]

Functions = dict[tuple[str, str], Costs]
"""By project and name."""


def _evict(deviate: float, seed: int) -> StartDeciding:
    """Evicts the legal candidate of least weight; in a share of the decisions, a random legal one."""

    def start(header: Header) -> Decide:
        rng = np.random.default_rng(seed)

        def decide(observation: bytes) -> int:
            features = header.decode(observation)
            legal = np.flatnonzero(features["mask"].reshape(-1))
            if rng.random() < deviate:
                return int(rng.choice(legal))
            return int(legal[np.argmin(features["use_def_density"].reshape(-1)[legal])])

        return decide

    return start


_DEFAULT, _ANY, _LIGHTEST, _DEVIATES, _DEVIATES_TOO = "default", "any legal", "lightest", "90% lightest", "again"
_COMPARISONS = (
    (_DEFAULT, _ANY, "clang's own against any legal candidate"),
    (_DEFAULT, _LIGHTEST, "clang's own against the lightest legal candidate"),
    (_DEVIATES, _DEVIATES_TOO, "the lightest, one in ten at random: two draws"),
)


@entry_point.command
def entry() -> None:
    if not Path(_DATA_PATH.value).exists():
        raise ConfigError(f"{_DATA_PATH.value}: not there; run ./run_demo.sh first, or give --data_path")
    corpus, toolchain = Corpus.load(_DATA_PATH.value), probe(_CLANG_PATH.value)
    corpus.check_compiler(toolchain.version, toolchain.clang)
    toolchain.require(REGALLOC_EVICTION.problem)
    order = np.random.default_rng(_SEED.value).permutation(len(corpus.modules))
    with scratch_directory() as scratch:
        measurement = _Measurement(
            toolchain, _build_reference(toolchain, scratch), _build_plugin(toolchain, scratch), scratch
        )
        modules = _compare([corpus.modules[index] for index in order], measurement)
        cpu = measurement.cpu_s(modules[: _NUM_TIMED.value], _REPETITIONS.value)
    _print_cpu(cpu)
    how = "-O2, size attributes removed" if _SPEED.value else "options as recorded"
    print(f"  {toolchain.version_text}, {how}; corpus {_DATA_PATH.value}")
    print(f"  {platform.machine()}, {os.cpu_count()} threads, load {os.getloadavg()[0]:.1f}")


def _compare(candidates: Sequence[Module], measurement: "_Measurement") -> list[Module]:
    """Scores both ways under every policy and prints their agreement; returns the modules used."""
    policies: Mapping[str, StartDeciding | None] = {
        _DEFAULT: None,
        _ANY: _evict(1.0, _SEED.value),
        _LIGHTEST: _evict(0.0, _SEED.value),
        _DEVIATES: _evict(0.1, _SEED.value),
        _DEVIATES_TOO: _evict(0.1, _SEED.value + 1),
    }
    functions: dict[str, Functions] = {policy: {} for policy in policies}
    failures = dict.fromkeys(policies, 0)
    modules: list[Module] = []
    unreadable: list[str] = []
    with progress_bar(total=_NUM_FUNCTIONS.value, unit="function") as bar:
        for module in candidates:
            if len(functions[_DEFAULT]) >= _NUM_FUNCTIONS.value:
                break
            for policy, decide in policies.items():
                try:
                    costs = measurement.costs(module, decide)
                except CompileError:
                    if decide is None:
                        raise
                    failures[policy] += 1
                    continue
                except _UnreadableError:
                    unreadable.append(module.name)
                    break
                if decide is None:
                    modules.append(module)
                for name, cost in costs.items():
                    functions[policy].setdefault((module.project, name), cost)
            bar.update(len(functions[_DEFAULT]) - bar.n)
    projects = {module.project for module in modules}
    print(f"{len(functions[_DEFAULT])} functions with D > 0, of {len(modules)} modules, {len(projects)} projects")
    print(f"  machine IR that LLVM cannot read, left out: {', '.join(unreadable) or 'none'}")
    print_levels(stack(functions[_DEFAULT].values()))
    for before, after, title in _COMPARISONS:
        common = functions[before].keys() & functions[after].keys()
        former, latter = (stack(functions[policy][key] for key in sorted(common)) for policy in (before, after))
        print_changes(title, former, latter, failures[before] + failures[after])
    return modules


def _build_reference(toolchain: Toolchain, scratch: Path) -> Path:
    """Compiles the program that scores machine IR with LLVM's own function."""
    config = str(toolchain.tool("llvm-config"))
    libraries = _checked([config, "--cxxflags", "--ldflags", "--libs", "--link-shared"]).stdout.decode().split()
    program = scratch / "regalloc_score_reference"
    compiler = [str(toolchain.clang), "--driver-mode=g++", "-O2", "-w", str(_SOURCE), "-o", str(program)]
    _checked([*compiler, *libraries])
    return program


def _build_plugin(toolchain: Toolchain, scratch: Path) -> Path | None:
    """Compiles the plugin that scores inside clang; None where plugins cannot add passes to code generation."""
    headers = toolchain.plugin_headers
    if headers is None or not (headers / "llvm/Target/RegisterTargetPassConfigCallback.h").exists():
        return None
    plugin = scratch / "regalloc_score.so"
    command = [str(toolchain.clang), "--driver-mode=g++", *FLAGS, "-shared", "-DPLUGIN", "-w"]
    _checked([*command, "-isystem", str(headers), str(_SOURCE), "-o", str(plugin)])
    return plugin


def _checked(command: list[str], environment: Mapping[str, str] | None = None) -> processes.ProcessResult:
    result = processes.run(command, timeout_s=_TIMEOUT_S, environment=environment)
    if not result.ok:
        raise ToolchainError(result.describe())
    return result


class _UnreadableError(ToolchainError):
    """LLVM cannot parse the machine IR that it wrote."""


@dataclasses.dataclass(frozen=True)
class _Measurement:
    """Compiles modules and reads the compiler's remarks and scores."""

    toolchain: Toolchain
    reference: Path
    plugin: Path | None
    scratch: Path

    def costs(self, module: Module, decide: StartDeciding | None) -> dict[str, Costs]:
        """Returns both scores of a module's functions, by name, without functions of D = 0.

        Raises:
          CompileError: it does not compile, as may happen when evictions leave no register.
          _UnreadableError: LLVM does not parse its own machine IR.
        """
        machine_ir, remarks = self.scratch / "module.mir", self.scratch / "remarks"
        remarks.unlink(missing_ok=True)
        extra = [*_STOP, *options(str(remarks), REGALLOC_PASS)]
        if decide is None:
            result = processes.run(self._command(module, machine_ir, extra))
        else:
            result = compile_interactively(
                self._command(module, machine_ir, extra),
                connect=llvm_channel(REGALLOC_EVICTION),
                start_deciding=decide,
                scratch=self.scratch,
            ).process
        if not result.ok:
            raise CompileError(result.describe())
        by_remarks = parse_costs(remarks.read_bytes())
        scored = processes.run([str(self.reference), str(machine_ir)], timeout_s=_TIMEOUT_S)
        if not scored.ok:
            raise _UnreadableError(scored.describe())
        by_definition = dict(_scores(scored.stdout))
        unknown = by_remarks.keys() - by_definition.keys()
        if unknown:
            raise CompileError(f"{module.name}: remarks about {min(unknown)}, which the machine IR has not")
        costs = {}
        for name, sums in by_definition.items():
            added = by_remarks.get(name, RegallocCosts())
            costs[name] = Costs(sums, np.array([getattr(added, kind) for kind in R_KINDS]))
        return {name: cost for name, cost in costs.items() if cost.d() > 0}

    def cpu_s(self, modules: Sequence[Module], repetitions: int) -> "_Cpu":
        """Measures the cost of each way, and checks the plugin's scores and all objects."""
        plain, output, remarks, machine_ir, scores = (
            self.scratch / name for name in ("plain.o", "module.o", "remarks", "module.mir", "scores")
        )
        yaml = options(str(remarks), REGALLOC_PASS)
        # An ELF object has no section for bitstream remarks: clang-19 crashes, clang-22 warns.
        bitstream = [*yaml[:-1], "bitstream", *mllvm(["-remarks-section=false"])]
        ways: dict[str, tuple[list[str], Path, Path | None]] = {
            _PLAIN: ([], plain, None),
            _YAML: (yaml, output, remarks),
            _BITSTREAM: (bitstream, output, remarks),
            _MACHINE_IR: (_STOP, machine_ir, machine_ir),
        }
        if self.plugin is not None:
            ways[_PLUGIN] = (["-load", str(self.plugin)], output, scores)
        environment = {**os.environ, "REGALLOC_SCORES": str(scores)}
        cpu = _Cpu({way: np.zeros((len(modules), repetitions)) for way in (*ways, _PARSE, _REFERENCE)})
        for row, module in enumerate(progress_bar(modules, unit="module")):
            # The first run of each loads the module into the page cache and does not count.
            for repetition in range(-1, repetitions):
                seconds = {}
                for way, (extra, path, written) in ways.items():
                    command = self._command(module, path, extra)
                    seconds[way] = _checked(command, environment=environment).cpu_s
                    if way == _YAML:
                        start_s = time.process_time()
                        parse_costs(remarks.read_bytes())
                        seconds[_PARSE] = time.process_time() - start_s
                    if repetition < 0 and path == output:
                        cpu.different_objects += output.read_bytes() != plain.read_bytes()
                    if repetition < 0 and written is not None:
                        cpu.written[way] = cpu.written.get(way, 0) + written.stat().st_size
                scored = _checked([str(self.reference), str(machine_ir)])
                seconds[_REFERENCE] = scored.cpu_s
                if repetition < 0 and self.plugin is not None:
                    by_plugin = dict(_scores(scores.read_bytes()))
                    by_reference = dict(_scores(scored.stdout))
                    cpu.functions += len(by_reference)
                    cpu.equal += sum(
                        name in by_plugin and np.array_equal(sums, by_plugin[name])
                        for name, sums in by_reference.items()
                    )
                if repetition >= 0:
                    for way, value in seconds.items():
                        cpu.cpu_s[way][row, repetition] = value
        cpu.start_s = statistics.median(_checked([str(self.reference)]).cpu_s for _ in range(20))
        return cpu

    def _command(self, module: Module, output: Path, extra: Sequence[str]) -> list[str]:
        # -stop-after writes machine IR in place of the object.
        extra = [*(_SPEED_OPTIONS if _SPEED.value else ()), *extra]
        return compile_command(self.toolchain.clang, module.options(), module.bitcode_path, output, extra)


_PLAIN, _YAML, _BITSTREAM = "object alone", "object and YAML remarks", "object and bitstream remarks"
_PARSE, _MACHINE_IR, _REFERENCE = "reading the YAML", "machine IR, no object", "scoring the machine IR"
_PLUGIN = "object and the plugin's scores"


@dataclasses.dataclass
class _Cpu:
    """CPU seconds `[module, repetition]` of each way; bytes written beside the object; what was compared."""

    cpu_s: dict[str, np.ndarray]
    written: dict[str, int] = dataclasses.field(default_factory=dict)
    different_objects: int = 0
    functions: int = 0
    equal: int = 0
    start_s: float = 0.0


def _scores(output: bytes) -> Iterator[tuple[str, np.ndarray]]:
    for line in output.decode("utf-8", "surrogateescape").splitlines():
        name, _score, *sums = line.split("\t")
        yield name, np.array(sums, np.float64)


def _print_cpu(cpu: _Cpu) -> None:
    medians = {way: np.median(values, axis=1) for way, values in cpu.cpu_s.items()}
    plain = medians.pop(_PLAIN)
    print(f"CPU seconds over those of the {_PLAIN}, {len(plain)} modules:")
    for way, values in medians.items():
        size = f"; {cpu.written[way] / len(plain) / 1e3:.0f} kB a module" if way in cpu.written else ""
        print(f"  {way}: {spread(values / plain, '.3f')}{size}")
    print(f"  the {_PLAIN}: {spread(plain, '.3f')} s; {_REPETITIONS.value} repetitions")
    print(f"  of scoring, the program's start: {cpu.start_s:.3f} s, once for any number of files")
    print(f"  {cpu.different_objects} objects differ")
    if cpu.functions:
        print(f"  plugin and machine IR: the same score in {cpu.equal} of {cpu.functions} functions")


if __name__ == "__main__":
    entry()
