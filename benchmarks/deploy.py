"""Measures the cost of a deployed policy: CPU seconds and memory of `mlgo-clang` against plain `clang`, at its level.

Modules are compiled from bitcode: the front end costs the same either way, and would only hide the policy's share. Both
ways alternate, module by module, so that changes of the machine's speed affect both alike. CPU seconds are user and
system time of the driver and all its children.
"""

import os
import platform
import statistics
from pathlib import Path

import numpy as np
from absl import flags

from benchmarks.spawned import spawn
from compiler_opt.corpus.description import Corpus
from compiler_opt.deploy.deployment import deploy
from compiler_opt.deploy.policies import PolicyRequest
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import probe
from compiler_opt.progress_bar import progress_bar
from compiler_opt.tools import entry_point, shared_flags

_DATA_PATH = flags.DEFINE_string("data_path", "demo/corpus/train", "The corpus.")
_POLICY_PATH = flags.DEFINE_string("policy_path", "demo/training/policy", "A trained policy.")
_CLANG_PATH = shared_flags.clang_path()
_NUM_MODULES = flags.DEFINE_integer("num_modules", 100, "Modules to sample.", 1)
_REPETITIONS = flags.DEFINE_integer("repetitions", 5, "Repetitions of each module and way.", 1)
_NEVER_WORSE = flags.DEFINE_bool("never_worse", False, "Measure a deployment that compiles both ways.")
_SEED = shared_flags.seed("the sample of modules", 1)

_PLAIN, _POLICY = 0, 1


@entry_point.command
def entry() -> None:
    for path in (_DATA_PATH.value, _POLICY_PATH.value):
        if not Path(path).exists():
            raise ConfigError(f"{path}: not there; run ./run_demo.sh first, or give --data_path and --policy_path")
    corpus, toolchain = Corpus.load(_DATA_PATH.value), probe(_CLANG_PATH.value)
    corpus.check_compiler(toolchain.version, toolchain.clang)
    chosen = np.random.default_rng(_SEED.value).permutation(len(corpus.modules))[: _NUM_MODULES.value]
    modules = [corpus.modules[index] for index in chosen]
    # Legend: [module, repetition, way].
    cpu_s = np.zeros((len(modules), _REPETITIONS.value, 2))
    peak_bytes = np.zeros_like(cpu_s)
    text_changed = 0
    with scratch_directory() as scratch:
        request = PolicyRequest(Path(_POLICY_PATH.value))
        deployment = deploy(
            [request], scratch / "prefix", [toolchain.clang], never_worse=_NEVER_WORSE.value, strict=True
        )
        level = deployment.policies[0].levels[0]
        compilers = {_PLAIN: toolchain.clang, _POLICY: deployment.driver()}
        start_s = statistics.median(spawn([str(deployment.driver()), "--mlgo-info"], scratch)[0] for _ in range(200))
        for row, module in enumerate(progress_bar(modules, unit="module")):
            objects = {way: scratch / f"{way}.o" for way in compilers}
            for repetition in range(-1, _REPETITIONS.value):
                for way, compiler in compilers.items():
                    command = [str(compiler), f"-{level}", "-w", "-x", "ir", "-c", str(module.bitcode_path)]
                    measured = spawn([*command, "-o", str(objects[way])], scratch)
                    # The first run of each loads the module into the page cache and does not count.
                    if repetition >= 0:
                        cpu_s[row, repetition, way], peak_bytes[row, repetition, way] = measured
            text_changed += objects[_PLAIN].read_bytes() != objects[_POLICY].read_bytes()
    module_cpu_s, module_peak_bytes = np.median(cpu_s, axis=1), np.median(peak_bytes, axis=1)
    ratios = module_cpu_s[:, _POLICY] / module_cpu_s[:, _PLAIN]
    totals = cpu_s.sum(axis=0)
    added_mb = (module_peak_bytes[:, _POLICY] - module_peak_bytes[:, _PLAIN]) / 1e6
    print(f"CPU seconds, mlgo-clang over plain clang, median of {len(modules)} modules: {np.median(ratios):.3f}")
    print(f"  half of the modules within {np.quantile(ratios, 0.25):.3f} and {np.quantile(ratios, 0.75):.3f}")
    print(f"  sums of each repetition: {', '.join(f'{plain:.2f} to {policy:.2f} s' for plain, policy in totals)}")
    print(f"added peak memory, median: {np.median(added_mb):.2f} MB, at most {added_mb.max():.2f} MB")
    print(f"  plain clang's, median: {np.median(module_peak_bytes[:, _PLAIN]) / 1e6:.1f} MB")
    print(f"starting the driver: {start_s * 1e3:.2f} ms of CPU time")
    print(f"  {text_changed} objects differ from plain clang's; {'never worse; ' if _NEVER_WORSE.value else ''}strict")
    print(f"  {_REPETITIONS.value} repetitions; {toolchain.version_text}, -{level}; policy {_POLICY_PATH.value}")
    print(f"  {platform.machine()}, {os.cpu_count()} threads, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    entry()
