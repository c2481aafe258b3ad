"""Measures the cost of collecting: CPU seconds of plain compilation over CPU seconds of the same modules' rollouts.

Plain compilation, plugin and channel alternate, module by module, on one thread, so that changes of the machine's speed
affect all alike. A rollout does what training does: the network samples every decision, call sites are recorded, the
object is measured. Its CPU time is that of the compiler and of this process. 1.0 means that collecting is free; a
higher value means that it is faster than compiling: a worker forks compilers from a loaded one (`llvm/fork_server.py`),
whereas plain compilation starts clang each time, as a build does.

Beside this ratio stands clang's share of all CPU time of collecting, clang's and Python's, which leaves plain
compilation out: 1.0 means that Python costs nothing.

A network that explores makes different objects, mostly larger ones, which take the compiler longer; this is included.
Three more ways are measured: the plugin with the default's decisions, whose objects are those of plain compilation;
forked compilation without a policy; and the same without a sandbox. The first two differ by the cost of features and
log, the last two by that of the sandbox.
"""

import dataclasses
import os
import platform
import statistics
from pathlib import Path

import numpy as np
from absl import flags

from benchmarks.spawned import spawn
from compiler_opt import problem as problems
from compiler_opt.collect.compilation import Compilation
from compiler_opt.collect.rollout import DefaultPolicy, Rollout, RolloutSettings, rollout
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import ConfigError, ToolchainError
from compiler_opt.llvm import processes, sandbox
from compiler_opt.llvm.fork_server import ForkServers, find_library
from compiler_opt.llvm.inliner_plugin import inliner_plugin
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.policies.policy import Policy
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.progress_bar import progress_bar
from compiler_opt.spaces.binary import BinaryPolicy
from compiler_opt.tools import entry_point, shared_flags

_DATA_PATH = flags.DEFINE_string("data_path", "demo/corpus/train", "The corpus.")
_POLICY_PATH = flags.DEFINE_string("policy_path", "demo/training/policy", "A trained policy.")
_CLANG_PATH = shared_flags.clang_path()
_NUM_MODULES = flags.DEFINE_integer("num_modules", 60, "Modules to sample.", 1)
_REPETITIONS = flags.DEFINE_integer("repetitions", 3, "Repetitions of each module and way.", 1)
_BRIEF = flags.DEFINE_bool("brief", False, "Measure plugin and channel only.")
_SEED = shared_flags.seed("the sample of modules, and of the decisions", 1)

_UNRESTRICTED = "only compiling, without a sandbox"


@entry_point.command
def entry() -> None:
    for path in (_DATA_PATH.value, _POLICY_PATH.value):
        if not Path(path).exists():
            raise ConfigError(f"{path}: not there; run ./run_demo.sh first, or give --data_path and --policy_path")
    corpus, toolchain, problem = Corpus.load(_DATA_PATH.value), probe(_CLANG_PATH.value), problems.load("inlining")
    corpus.check_compiler(toolchain.version, toolchain.clang)
    policy = BinaryPolicy(NetworkWeights.load(Path(_POLICY_PATH.value)), temperature=1.0)
    rng = np.random.default_rng(_SEED.value)
    chosen = rng.permutation(len(corpus.modules))[: _NUM_MODULES.value]
    modules = [corpus.modules[index] for index in chosen]
    ways: dict[str, tuple[Policy | None, str]] = {
        "channel": (policy, "channel"),
        "only compiling": (None, "auto"),
        _UNRESTRICTED: (None, "auto"),
    }
    if _has_plugin(toolchain):
        ways = {
            "plugin": (policy, "plugin"),
            "plugin, the default's decisions": (DefaultPolicy(problem), "plugin"),
            **ways,
        }
    if _BRIEF.value:
        ways = {way: decided for way, decided in ways.items() if way in ("plugin", "channel")}
    costs = {way: _Cost.zeros(_REPETITIONS.value) for way in ways}
    failures = 0
    # Like a worker.
    library = find_library(toolchain.clang)
    processes.use_spawner(None if library is None else ForkServers(library).start)
    with scratch_directory() as scratch:
        for module in progress_bar(modules, unit="module"):
            settings = RolloutSettings(record_call_sites=True)
            command = Compilation(module, problem.task, toolchain, scratch, _SEED.value, settings).command()
            # The first run of each loads the module into the page cache and does not count.
            spawn(command, scratch)
            for repetition in range(_REPETITIONS.value):
                plain_cpu_s, _ = spawn(command, scratch)
                collected = {}
                for way, (decider, backend) in ways.items():
                    os.environ[sandbox.VARIABLE] = str(int(way != _UNRESTRICTED))
                    collected[way] = rollout(
                        module,
                        decider,
                        problem,
                        toolchain,
                        scratch=scratch,
                        seed=_SEED.value,
                        settings=dataclasses.replace(settings, backend=backend),
                    )
                if any(result.failure for result in collected.values()):
                    failures += 1
                    continue
                for way, result in collected.items():
                    costs[way].add(repetition, plain_cpu_s, result)
    print("plain compilation / collecting, CPU seconds; clang's share of collecting; medians over the repetitions")
    for way, cost in costs.items():
        cost.report(way)
    print(f"  {len(chosen)} modules, {failures} failures")
    print(f"  {toolchain.version_text}, -Oz; Python {platform.python_version()}; {os.cpu_count()} threads")


def _has_plugin(toolchain: Toolchain) -> bool:
    try:
        inliner_plugin(toolchain)
    except ToolchainError as error:
        print(f"no plugin: {error}")
        return False
    return True


@dataclasses.dataclass
class _Cost:
    """CPU seconds `[repetitions]`, and the decisions of all of them."""

    plain_cpu_s: np.ndarray
    compiler_cpu_s: np.ndarray
    host_cpu_s: np.ndarray
    decisions: int = 0

    @classmethod
    def zeros(cls, repetitions: int) -> "_Cost":
        return cls(np.zeros(repetitions), np.zeros(repetitions), np.zeros(repetitions))

    def add(self, repetition: int, plain_cpu_s: float, collected: Rollout) -> None:
        self.plain_cpu_s[repetition] += plain_cpu_s
        self.compiler_cpu_s[repetition] += collected.cpu_s
        self.host_cpu_s[repetition] += collected.host_cpu_s
        self.decisions += len(collected.trajectory or ())

    def report(self, way: str) -> None:
        collecting_cpu_s = self.compiler_cpu_s + self.host_cpu_s
        ratios = self.plain_cpu_s / collecting_cpu_s
        shares = self.compiler_cpu_s / collecting_cpu_s
        print(f"{way}: {_median_and_all(ratios)}; clang's share {_median_and_all(shares)}")
        print(
            f"  plain clang {np.median(self.plain_cpu_s):.2f} s; collecting {np.median(self.compiler_cpu_s):.2f} s in "
            f"clang and {np.median(self.host_cpu_s):.2f} s in Python; {self.decisions // len(ratios)} decisions"
        )


def _median_and_all(values: np.ndarray) -> str:
    return f"{statistics.median(values):.3f} ({', '.join(f'{value:.3f}' for value in values)})"


if __name__ == "__main__":
    entry()
