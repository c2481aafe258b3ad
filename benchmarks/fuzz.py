"""Looks for memory errors and crashes: fuzzes all parsers of untrusted bytes, and compiles a corpus under sanitizers.

Fuzzed are the C++ parsers (policies, decision files, and mlgo-clang's command lines, configuration files and objects)
by libFuzzer with AddressSanitizer and UBSan, and the Python readers by mutation of valid files. With --data_path, both
plugins are built with AddressSanitizer and UBSan, and with ThreadSanitizer, and decide in compilations of a sample of
modules; with ThreadSanitizer also in links that generate code in several threads.

Whatever is found is printed, its input is kept below --output_dir, and the exit status is 1. --update replaces the
inputs in tests/fuzz/corpora by those with which this run reached most.
"""

import concurrent.futures
import dataclasses
import functools
import itertools
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from absl import flags

from compiler_opt import problem as problems
from compiler_opt.collect.rollout import RolloutSettings
from compiler_opt.corpus.command_lines.command_line import compile_command, is_thinlto
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.errors import ConfigError, ToolchainError
from compiler_opt.llvm import inliner_plugin, processes, regalloc_plugin
from compiler_opt.llvm.plugin import load_option
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.progress_bar import progress_bar
from compiler_opt.report.table import Table
from compiler_opt.spaces.native import native_blob
from compiler_opt.tools import entry_point, shared_flags
from tests.deploy.sources import save_policy
from tests.fuzz import native, readers
from tests.fuzz.seeds import seeds as make_seeds
from tests.native import sanitized
from tests.regalloc_networks import random_network

_INPUTS = flags.DEFINE_integer("inputs", 1_000_000, "Inputs for each target.", 1)
_TARGETS = flags.DEFINE_list("targets", [*native.TARGETS, *readers.READERS], "What to fuzz; empty for nothing.")
_OUTPUT_DIR = flags.DEFINE_string("output_dir", "fuzzing", "Folder for logs, and for inputs at which a target fails.")
_UPDATE = flags.DEFINE_bool("update", False, "Keep the inputs that reach most in tests/fuzz/corpora.")
_DATA_PATH = flags.DEFINE_string("data_path", None, "A corpus to compile under sanitizers.")
_CLANG_PATHS = flags.DEFINE_list("clang_paths", "clang-19,clang-22", "Compilers for the corpus.")
_FUZZER_CLANG = flags.DEFINE_string("fuzzer_clang", "clang-22", "A clang with compiler-rt, which builds the fuzzers.")
_NUM_MODULES = flags.DEFINE_integer("num_modules", 100, "Modules to sample.", 1)
_NUM_WORKERS = shared_flags.num_workers()
_SEED = shared_flags.seed("the mutations, and of the sample of modules", 1)

_TARGET_TIMEOUT_S = 4 * 3600.0
_COMPILE_TIMEOUT_S = 1200.0
_LINKED_MODULES = 10


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to compile a module with a plugin.

    Attributes:
      name: for messages.
      plugin: the plugin.
      options: clang's options that load it.
      environment: returns all environment variables, given the keyword argument `log`, a path or None.
      logs: whether decisions are logged.
    """

    name: str
    plugin: sanitized.SanitizedPlugin
    options: Sequence[str]
    environment: Callable[..., dict[str, str]]
    logs: bool = True


@entry_point.command
def entry() -> int:
    unknown = sorted({*_TARGETS.value} - {*native.TARGETS, *readers.READERS})
    if unknown:
        expected = ", ".join((*native.TARGETS, *readers.READERS))
        raise ConfigError(f"--targets: expected some of {expected}; found {', '.join(unknown)}")
    output = Path(_OUTPUT_DIR.value)
    output.mkdir(parents=True, exist_ok=True)
    found: list[str] = []
    with scratch_directory() as scratch:
        if _TARGETS.value:
            found += _fuzz(output, scratch)
        if _DATA_PATH.value:
            corpus = Corpus.load(_DATA_PATH.value)
            order = np.random.default_rng(_SEED.value).permutation(len(corpus.modules))[: _NUM_MODULES.value]
            modules = [corpus.modules[index] for index in order]
            for clang in _CLANG_PATHS.value:
                toolchain = probe(clang)
                corpus.check_compiler(toolchain.version, toolchain.clang)
                found += _compile(corpus, modules, toolchain, scratch)
    for finding in found:
        entry_point.echo(f"found: {finding}")
    return int(bool(found))


def _fuzz(output: Path, scratch: Path) -> list[str]:
    clang = shutil.which(_FUZZER_CLANG.value)
    if clang is None:
        raise ToolchainError(f"{_FUZZER_CLANG.value}: no such program; give --fuzzer_clang")
    seeds = make_seeds(Path(clang), scratch)
    program = native.build(Path(clang), scratch / "fuzzers")
    rows, found = [], []
    for target in _TARGETS.value:
        if target in native.TARGETS:
            corpus = scratch / "inputs" / target
            native.unpack(target, corpus)
            for index, seed in enumerate(seeds[target]):
                (corpus / f"seed-{index}").write_bytes(seed)
            fuzzed = native.run(
                program,
                target,
                corpus,
                output,
                inputs=_INPUTS.value,
                seed=_SEED.value,
                timeout_s=_TARGET_TIMEOUT_S,
            )
            reached = f"{fuzzed.coverage} edges"
            if _UPDATE.value:
                _keep(program, target, corpus, scratch / "kept" / target)
        else:
            read = readers.READERS[target]
            fuzzed = readers.run(target, read, seeds[target], output, inputs=_INPUTS.value, seed=_SEED.value)
            reached = f"{fuzzed.coverage:,} read"
        rows.append([target, f"{fuzzed.inputs:,}", reached, f"{fuzzed.cpu_s:.0f}", "yes" if fuzzed.finding else "none"])
        found += [f"{target}: {fuzzed.finding}"] * bool(fuzzed.finding)
    entry_point.echo("\n".join(Table(("target", "inputs", "reached", "CPU s", "found"), rows).lines()))
    return found


def _keep(program: Path, target: str, corpus: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    native.minimise(program, target, corpus, folder)
    native.pack(target, (path.read_bytes() for path in folder.iterdir()))


def _compile(corpus: Corpus, modules: Sequence[Module], toolchain: Toolchain, scratch: Path) -> list[str]:
    """Compiles modules in all ways; returns the sanitizers' reports, and the compilations that failed."""
    folder = scratch / f"clang-{toolchain.version[0]}"
    folder.mkdir()
    modules = [module for module in modules if not is_thinlto(module.options(toolchain.clang))]
    ways = list(_ways(corpus, modules, toolchain, folder))
    jobs = [(number, *job) for number, job in enumerate(itertools.product(modules, ways))]
    with concurrent.futures.ThreadPoolExecutor(entry_point.num_workers(_NUM_WORKERS.value)) as pool:
        results = pool.map(functools.partial(_compiled, toolchain, folder), jobs)
        failures = [result for result in progress_bar(results, total=len(jobs), unit="compilation") if result]
    failures += _link(modules, ways, toolchain, folder)
    reports = [
        f"{toolchain.version_text}, {plugin.library.name}: {report}"
        for plugin in {id(way.plugin): way.plugin for way in ways}.values()
        for report in plugin.findings()
    ]
    entry_point.echo(
        f"{toolchain.version_text}: {len(modules)} modules in {len(ways)} ways: {len(failures)} failures, "
        f"{len(reports)} reports"
    )
    return failures + reports


def _ways(corpus: Corpus, modules: Sequence[Module], toolchain: Toolchain, folder: Path) -> Iterator[Way]:
    inliner = folder / "inliner.mlgo"
    inliner.write_bytes(native_blob(save_policy(folder / "inliner")))
    few = dataclasses.replace(corpus, modules=tuple(modules[:4]))
    for sanitizers in sanitized.SANITIZERS:
        place = folder / sanitizers
        place.mkdir()
        plugin = sanitized.build(inliner_plugin.INLINER, sanitizers, toolchain, place)
        for name, policy, temperature in (("default", None, 0.0), ("greedy", inliner, 0.0), ("sampled", inliner, 1.0)):
            environment = functools.partial(
                inliner_plugin.environment,
                policy=policy,
                temperature=temperature,
                seed=1,
                log_default=name == "sampled",
            )
            options = [load_option(plugin.library)]
            yield Way(f"inliner, {name}, {sanitizers}", plugin, options, environment, logs=name != "greedy")
        plugin = sanitized.build(regalloc_plugin.REGALLOC, sanitizers, toolchain, place)
        nowhere = regalloc_plugin.make_nowhere(place)
        for name in ("regalloc_eviction", "regalloc_priority"):
            problem = problems.load(name)
            blob = folder / f"{name}.mlgo"
            if not blob.exists():
                (folder / name).mkdir()
                weights = random_network(problem, few, toolchain, folder / name, 1)
                blob.write_bytes(problem.decision.native_form(weights))
            for policy in (None, blob):
                environment = functools.partial(regalloc_plugin.environment, policy=policy)
                options = regalloc_plugin.options(plugin.library, problem.decision.advisor, nowhere)
                how = "default" if policy is None else "policy"
                yield Way(f"{name}, {how}, {sanitizers}", plugin, options, environment)


def _compiled(toolchain: Toolchain, folder: Path, job: tuple[int, Module, Way]) -> str:
    """Compiles a module in one way; returns how it failed, or an empty string."""
    number, module, way = job
    output, log = folder / f"{number}.o", folder / f"{number}.log"
    options = module.options(toolchain.clang)
    # The sanitizers reserve terabytes of address space.
    result = processes.run(
        compile_command(toolchain.clang, options, module.bitcode_path, output, way.options),
        timeout_s=_COMPILE_TIMEOUT_S,
        memory_bytes=None,
        file_bytes=RolloutSettings().file_bytes,
        environment={**way.environment(log=log if way.logs else None), **way.plugin.variables},
    )
    for path in folder.glob(f"{number}.*"):
        path.unlink()
    return "" if result.ok else f"{toolchain.version_text}, {module.name}, {way.name}: {result.describe()}"


def _link(modules: Sequence[Module], ways: Sequence[Way], toolchain: Toolchain, folder: Path) -> list[str]:
    """Generates code for groups of modules in several threads; returns failures."""
    failures = []
    lld, output = str(toolchain.tool("ld.lld")), str(folder / "linked")
    threaded = [way for way in ways if way.name.startswith("regalloc") and way.name.endswith("policy, thread")]
    for way in threaded:
        options = ["-r", "--lto-O2", "--lto-partitions=4", "-z", "muldefs"]
        for start in range(0, len(modules), _LINKED_MODULES):
            inputs = [str(module.bitcode_path) for module in modules[start : start + _LINKED_MODULES]]
            result = processes.run(
                [lld, *options, f"--load-pass-plugin={way.plugin.library}", *inputs, "-o", output],
                timeout_s=_COMPILE_TIMEOUT_S,
                memory_bytes=None,
                environment={**way.environment(log=None), **way.plugin.variables},
            )
            if not result.ok:
                failures.append(f"{toolchain.version_text}, {inputs[0]} ..., {way.name}: {result.describe()}")
    return failures


if __name__ == "__main__":
    entry()
