"""What collecting costs: CPU seconds of plain compilation over CPU seconds of the same modules' rollouts.

Both are done in turn, module by module, on one thread, so that a machine whose speed drifts treats them alike. A
rollout is what training does: the network samples every decision, call sites are recorded, the object is measured; the
compiler's and our own CPU time are added. 1.0 would be collecting for free.
"""

import os
import platform
import statistics
from pathlib import Path

import numpy as np
from absl import flags
from tqdm import tqdm

from compiler_opt.collect.rollout import RolloutSettings, rollout
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import probe
from compiler_opt.policies.network import NetworkPolicy
from compiler_opt.problems import problem as problems
from compiler_opt.tools import entry_point

_DATA_PATH = flags.DEFINE_string("data_path", "demo/corpus/train", "The corpus.")
_POLICY_PATH = flags.DEFINE_string("policy_path", "demo/training/policy", "A trained policy.")
_CLANG_PATH = flags.DEFINE_string("clang_path", None, "The compiler; by default the newest that is installed.")
_NUM_MODULES = flags.DEFINE_integer("num_modules", 60, "Modules, drawn at random.", 1)
_REPETITIONS = flags.DEFINE_integer("repetitions", 3, "Times that each module is compiled either way.", 1)
_SEED = flags.DEFINE_integer("seed", 1, "Of the draw of modules and of the decisions.", 0)


def main(argv: list[str]) -> None:
    del argv
    for path in (_DATA_PATH.value, _POLICY_PATH.value):
        if not Path(path).exists():
            raise ConfigError(f"{path}: not there; run ./run_demo.sh first, or give --data_path and --policy_path")
    corpus, toolchain, problem = Corpus.load(_DATA_PATH.value), probe(_CLANG_PATH.value), problems.load("inlining")
    corpus.check_compiler(toolchain.version, toolchain.clang)
    policy = NetworkPolicy.load(Path(_POLICY_PATH.value), temperature=1.0)
    rng = np.random.default_rng(_SEED.value)
    chosen = rng.permutation(len(corpus.modules))[: _NUM_MODULES.value]
    settings = RolloutSettings(record_call_sites=True)
    plain_cpu_s, compiler_cpu_s, host_cpu_s = (np.zeros(_REPETITIONS.value) for _ in range(3))
    decisions = failures = 0
    with scratch_directory() as scratch:
        for module in tqdm([corpus.modules[index] for index in chosen], unit="module", disable=None):
            # The first run of each reads the module into the page cache and is not counted.
            rollout(module, None, problem, toolchain, scratch=scratch)
            for repetition in range(_REPETITIONS.value):
                plain = rollout(module, None, problem, toolchain, scratch=scratch)
                collected = rollout(
                    module, policy, problem, toolchain, scratch=scratch, seed=_SEED.value, settings=settings
                )
                if plain.failure or collected.failure:
                    failures += 1
                    continue
                plain_cpu_s[repetition] += plain.cpu_s
                compiler_cpu_s[repetition] += collected.cpu_s
                host_cpu_s[repetition] += collected.host_cpu_s
                if collected.trajectory is not None:
                    decisions += len(collected.trajectory)
    ratios = plain_cpu_s / (compiler_cpu_s + host_cpu_s)
    decisions //= _REPETITIONS.value
    print(f"plain / collecting, CPU seconds: {statistics.median(ratios):.3f}")
    print(f"  of each repetition: {', '.join(f'{ratio:.3f}' for ratio in ratios)}")
    print(
        f"  plain clang {np.median(plain_cpu_s):.2f} s; collecting {np.median(compiler_cpu_s):.2f} s in clang "
        f"and {np.median(host_cpu_s):.2f} s in Python"
    )
    print(f"  {len(chosen)} modules, {decisions} decisions, {failures} failures")
    print(f"  {toolchain.version_text}, -Oz; Python {platform.python_version()}; {os.cpu_count()} threads")


def entry() -> None:
    entry_point.run(main)


if __name__ == "__main__":
    entry()
