"""Measures how often following the default reproduces the plain compilation, function by function, and the score.

Compiles each module plainly, and with every decision taken by the default policy, each function in a section of its
own. A function is identical if the bytes and relocations of its section are. Only functions with decisions count. Our
plugin reports the default decision (`llvm.regalloc_plugin`); with --rebuilt, it is rebuilt from what LLVM's own channel
sends. In some decisions a value that the rebuilt rules need is missing: for evictions, how weights compare if an
interval must not be spilled (`decisions.regalloc_eviction.signature.spill_weights`). Functions without such decisions
are also reported separately.
"""

import concurrent.futures
import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from absl import flags
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection

from compiler_opt import problem as problems
from compiler_opt.corpus.command_lines.command_line import compile_command
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.decisions.regalloc_eviction import signature
from compiler_opt.decisions.regalloc_eviction.signature import spill_weights
from compiler_opt.errors import ConfigError
from compiler_opt.llvm import processes, regalloc_plugin, remarks
from compiler_opt.llvm.advisors import REGALLOC_EVICTION
from compiler_opt.llvm.interactive import compile_interactively, llvm_channel
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.policies.policy import FeaturePolicy
from compiler_opt.problem import Problem
from compiler_opt.progress_bar import progress_bar
from compiler_opt.tools import entry_point, shared_flags

_DATA_PATH = flags.DEFINE_string("data_path", None, "Corpus at -O2, such as fetch_corpus makes.", required=True)
_COMPILE_TASK = flags.DEFINE_string("compile_task", "regalloc_eviction", "Problem; a register-allocation one.")
_CLANG_PATH = shared_flags.clang_path()
_NUM_MODULES = flags.DEFINE_integer("num_modules", 200, "Modules to sample.", 1)
_NUM_WORKERS = shared_flags.num_workers()
_SEED = shared_flags.seed("the sample of modules", 1)
_REBUILT = flags.DEFINE_bool("rebuilt", False, "Rebuild the default from the features, as without the plugin.")
_NUM_NAMED = 10


@dataclasses.dataclass(frozen=True)
class Function:
    """A function with decisions; `is_complete`: no decision lacked a value."""

    module: str
    name: str
    num_decisions: int
    is_complete: bool
    identical: bool


@dataclasses.dataclass(frozen=True)
class Compared:
    """A module, compiled both ways; with the problem's scores (lower is better)."""

    functions: list[Function]
    plain_score: float
    rebuilt_score: float


@entry_point.command
def entry() -> None:
    problem = problems.load(_COMPILE_TASK.value)
    if problem.decision.default_policy is None or problem.decision.advisor.plugin_default_feature is None:
        raise ConfigError(f"--compile_task={problem.name}: the compiler tells its own decisions")
    corpus, toolchain = Corpus.load(_DATA_PATH.value), probe(_CLANG_PATH.value)
    corpus.check_compiler(toolchain.version, toolchain.clang)
    toolchain.require(problem.decision.advisor.problem)
    plugin = None if _REBUILT.value else regalloc_plugin.regalloc_plugin(toolchain)
    order = np.random.default_rng(_SEED.value).permutation(len(corpus.modules))[: _NUM_MODULES.value]
    modules = [corpus.modules[index] for index in order]
    compared: list[Compared] = []
    with concurrent.futures.ThreadPoolExecutor(entry_point.num_workers(_NUM_WORKERS.value)) as pool:
        results = pool.map(lambda module: compare(module, problem, toolchain, plugin), modules)
        compared += [found for found in progress_bar(results, total=len(modules), unit="module") if found]
    functions = [function for found in compared for function in found.functions]
    _report("functions with decisions", functions)
    if not all(function.is_complete for function in functions):
        _report("  all values known", [function for function in functions if function.is_complete])
        _report("  some values missing", [function for function in functions if not function.is_complete])
    _report_scores(problem, compared)
    failures = len(modules) - len(compared)
    print(f"  {len(modules)} modules, {failures} failures, {sum(f.num_decisions for f in functions)} decisions")
    print(f"  the default is {'rebuilt' if plugin is None else 'reported'}; {toolchain.version_text}")
    different = sorted((f for f in functions if not f.identical and f.is_complete), key=lambda f: f.num_decisions)
    for function in different[:_NUM_NAMED]:
        print(f"  complete, and different: {function.module}: {function.name}, {function.num_decisions} decisions")


def _report(what: str, functions: list[Function]) -> None:
    identical = sum(function.identical for function in functions)
    print(f"{what}: {identical} of {len(functions)} identical ({identical / max(1, len(functions)):.1%})")


def _report_scores(problem: Problem, compared: list[Compared]) -> None:
    plain = sum(found.plain_score for found in compared)
    changes = [found.rebuilt_score / found.plain_score - 1 for found in compared if found.plain_score > 0]
    if plain > 0:
        total = sum(found.rebuilt_score for found in compared) / plain - 1
        name, mean = problem.objective.score_name, np.mean(changes)
        print(f"{name}: {total:+.2%} against the plain compiler, mean of modules {mean:+.2%}")


def compare(module: Module, problem: Problem, toolchain: Toolchain, plugin: Path | None) -> Compared | None:
    """Returns the module's functions with decisions and its scores; None if it does not compile.

    Args:
      module: to compile.
      problem: whose decisions are answered.
      toolchain: the compiler.
      plugin: tells the default's decisions; without one they are rebuilt.
    """
    advisor = problem.decision.advisor
    default = (
        problem.decision.default_policy
        if plugin is None
        else FeaturePolicy(advisor.plugin_default_feature or "", name="default")
    )
    assert default is not None
    with scratch_directory() as scratch:
        plain, rebuilt = scratch / "plain.o", scratch / "rebuilt.o"
        remarks_path = scratch / "remarks.yaml"
        options = ["-ffunction-sections"]
        reader = problem.objective.reader
        if reader.remark_pass is not None:
            options += remarks.options(str(remarks_path), reader.remark_pass)

        def command(output: Path) -> list[str]:
            return compile_command(toolchain.clang, module.options(), module.bitcode_path, output, options)

        def score(output: Path) -> float:
            measured = reader.read(output, remarks_path.read_bytes() if remarks_path.exists() else b"")
            remarks_path.unlink(missing_ok=True)
            return problem.score(measured, problem.objective.project_context([measured]))

        if not processes.run(command(plain)).ok:
            return None
        plain_score = score(plain)
        result = compile_interactively(
            command(rebuilt),
            connect=llvm_channel(advisor)
            if plugin is None
            else regalloc_plugin.plugin_channel(plugin, advisor, regalloc_plugin.make_nowhere(scratch)),
            start_deciding=lambda header: default.start(header, 0),
            scratch=scratch,
        )
        if not result.process.ok:
            return None
        rebuilt_score = score(rebuilt)
        sites = result.functions()
        if result.header is None or sites is None or not result.advice:
            return Compared([], plain_score, rebuilt_score)
        complete = _has_all_values(problem, result.header.decode(result.observations), len(result.advice))
        before, after = function_contents(plain), function_contents(rebuilt)
        functions = [
            Function(
                module.name,
                name,
                int((sites.indices == index).sum()),
                bool(complete[sites.indices == index].all()),
                before[name] == after.get(name),
            )
            for index, name in enumerate(sites.functions)
            if name in before and (sites.indices == index).any()
        ]
        return Compared(functions, plain_score, rebuilt_score)


def _has_all_values(problem: Problem, features: Mapping[str, np.ndarray], num_decisions: int) -> np.ndarray:
    """`[T]` bool, whether the decision has all values that the rules need."""
    if problem.decision.advisor != REGALLOC_EVICTION:
        return np.ones(num_decisions, bool)
    mask = features[signature.MASK].reshape(num_decisions, -1) != 0
    complete: np.ndarray = ~(np.isinf(spill_weights(features)) & mask).any(axis=-1)
    return complete


def function_contents(path: Path) -> dict[str, tuple[bytes, list[tuple[int, int, str, int]]]]:
    """Bytes and relocations (offset, type, symbol, addend) of every function of an object."""
    with path.open("rb") as file:
        elf = ELFFile(file)
        symbols = elf.get_section_by_name(".symtab")
        relocations = {
            section["sh_info"]: [
                (r["r_offset"], r["r_info_type"], symbols.get_symbol(r["r_info_sym"]).name, r.entry.get("r_addend", 0))
                for r in section.iter_relocations()
            ]
            for section in elf.iter_sections()
            if isinstance(section, RelocationSection)
        }
        return {
            symbol.name: (elf.get_section(symbol["st_shndx"]).data(), relocations.get(symbol["st_shndx"], []))
            for symbol in symbols.iter_symbols()
            if symbol["st_info"]["type"] == "STT_FUNC" and isinstance(symbol["st_shndx"], int)
        }


if __name__ == "__main__":
    entry()
