"""How often the rebuilt default eviction makes what the compiler makes by itself, function by function.

Each module is compiled plainly and with the rebuilt default over the channel, every function into a section of its own;
a function is identical when the bytes of its section and its relocations are. Only functions in which there was
something to decide count. In some decisions an interval that must not be spilled makes all other weights arrive as 0
(see `problems.regalloc_eviction.inputs.spill_weights`), so that they cannot be compared; functions without such a
decision are reported apart.
"""

import concurrent.futures
import dataclasses
import os
from pathlib import Path

import numpy as np
from absl import flags
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from tqdm import tqdm

from compiler_opt.corpus.command_line import compile_command
from compiler_opt.corpus.description import Corpus, Module
from compiler_opt.llvm import processes
from compiler_opt.llvm.advisors import REGALLOC_EVICTION
from compiler_opt.llvm.interactive import compile_interactively
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.problems.regalloc_eviction import signature
from compiler_opt.problems.regalloc_eviction.default_eviction import DefaultEviction
from compiler_opt.problems.regalloc_eviction.inputs import spill_weights
from compiler_opt.tools import entry_point

_DATA_PATH = flags.DEFINE_string("data_path", None, "The corpus, such as fetch_corpus makes at O2.", required=True)
_CLANG_PATH = flags.DEFINE_string("clang_path", None, "The compiler; by default the newest that is installed.")
_NUM_MODULES = flags.DEFINE_integer("num_modules", 200, "Modules, drawn at random.", 1)
_NUM_WORKERS = flags.DEFINE_integer("num_workers", None, "Compilers at a time; by default one per CPU.", 1)
_SEED = flags.DEFINE_integer("seed", 1, "Of the draw of modules.", 0)
_NUM_NAMED = 10


@dataclasses.dataclass(frozen=True)
class Function:
    """A function in which evictions were decided."""

    module: str
    name: str
    num_decisions: int
    all_weights_told: bool
    identical: bool


def main(argv: list[str]) -> None:
    del argv
    corpus, toolchain = Corpus.load(_DATA_PATH.value), probe(_CLANG_PATH.value)
    corpus.check_compiler(toolchain.version, toolchain.clang)
    toolchain.require(REGALLOC_EVICTION.problem)
    order = np.random.default_rng(_SEED.value).permutation(len(corpus.modules))[: _NUM_MODULES.value]
    modules = [corpus.modules[index] for index in order]
    functions: list[Function] = []
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(_NUM_WORKERS.value or len(os.sched_getaffinity(0))) as pool:
        results = pool.map(lambda module: compare(module, toolchain), modules)
        for found in tqdm(results, total=len(modules), unit="module", disable=None):
            if found is None:
                failures += 1
            else:
                functions += found
    _report("functions with decisions", functions)
    _report("  all weights told", [function for function in functions if function.all_weights_told])
    _report("  some weights lost", [function for function in functions if not function.all_weights_told])
    print(f"  {len(modules)} modules, {failures} failures, {sum(f.num_decisions for f in functions)} decisions")
    print(f"  {toolchain.version_text}")
    different = sorted((f for f in functions if not f.identical and f.all_weights_told), key=lambda f: f.num_decisions)
    for function in different[:_NUM_NAMED]:
        print(
            f"  all weights told, and different: {function.module}: {function.name}, {function.num_decisions} decisions"
        )


def _report(what: str, functions: list[Function]) -> None:
    identical = sum(function.identical for function in functions)
    print(f"{what}: {identical} of {len(functions)} identical ({identical / max(1, len(functions)):.1%})")


def compare(module: Module, toolchain: Toolchain) -> list[Function] | None:
    """The module's functions with decisions; None when it does not compile."""
    with scratch_directory() as scratch:
        plain, rebuilt = scratch / "plain.o", scratch / "rebuilt.o"
        sections = ["-ffunction-sections"]
        paths = (toolchain.clang, module.options(), module.bitcode_path)
        if not processes.run(compile_command(*paths, plain, sections)).ok:
            return None
        result = compile_interactively(
            compile_command(*paths, rebuilt, [*sections, *REGALLOC_EVICTION.interactive_options()]),
            channel_flag=REGALLOC_EVICTION.channel_base,
            start_deciding=lambda header: DefaultEviction().start(header, 0),
            scratch=scratch,
        )
        sites = result.functions()
        if not result.process.ok:
            return None
        if result.header is None or sites is None or not result.advice:
            return []
        features = result.header.decode(result.observations)
        mask = features[signature.MASK].reshape(len(result.advice), -1) != 0
        told = ~(np.isinf(spill_weights(features)) & mask).any(axis=-1)
        before, after = function_contents(plain), function_contents(rebuilt)
        return [
            Function(
                module.name,
                name,
                int((sites.indices == index).sum()),
                bool(told[sites.indices == index].all()),
                before[name] == after.get(name),
            )
            for index, name in enumerate(sites.functions)
            if name in before and (sites.indices == index).any()
        ]


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


def entry() -> None:
    entry_point.run(main)


if __name__ == "__main__":
    entry()
