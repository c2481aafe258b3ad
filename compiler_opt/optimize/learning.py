"""From a program's corpus to a policy for it: default trace, vocabulary, warm start, reinforcement learning.

The same steps as the entry points of those names, with the results in one folder. TensorFlow is imported when the first
step needs it.
"""

import contextlib
import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from compiler_opt import rl
from compiler_opt.collect import traces
from compiler_opt.collect.advantages import AdvantagesConfig
from compiler_opt.collect.baseline import BaselineBuilder
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import ConfigError
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.optimize.changes import DecisionHashes
from compiler_opt.policies.vocabulary import load_vocabulary, save_vocabulary
from compiler_opt.problems.problem import Problem
from compiler_opt.rl import vocabularies
from compiler_opt.rl.config import BehavioralCloningConfig, PPOConfig, TrainingConfig
from compiler_opt.spaces.network_config import NetworkConfig

if TYPE_CHECKING:
    from compiler_opt.rl.trace_files import TraceWriter

TRACE, VOCABULARY, WARM_START, TRAINING, POLICY = (
    "default_trace.tfrecord",
    "vocabulary",
    "warm_start",
    "training",
    "policy",
)
"""What the steps leave in their folder; the last is in `TRAINING`."""

NUM_QUANTILES = 64


@dataclasses.dataclass(frozen=True)
class LearningSettings:
    """How to learn.

    Attributes:
      cloning: of the warm start.
      training: of reinforcement learning; with a `warmstart_policy_dir`, it starts from that policy.
      network: shape of the policy.
      ppo: how it learns.
      advantages: what decisions are worth.
      given: what the user has changed of it, as text; an optimisation is only continued under the same.
    """

    cloning: BehavioralCloningConfig
    training: TrainingConfig
    network: NetworkConfig
    ppo: PPOConfig
    advantages: AdvantagesConfig
    given: str = ""


def see_decisions(
    corpus: Corpus, problem: Problem, toolchain: Toolchain, trace_path: Path | None = None
) -> tuple[DecisionHashes, dict[str, Any]]:
    """Compiles each module as the compiler's own heuristic would have it, and remembers what was decided.

    Args:
      corpus: the program.
      problem: what is decided.
      toolchain: the compiler.
      trace_path: where to write the default trace; None for nowhere.

    Returns:
      what the decisions looked like, and counts: `modules`, `decisions`, `failed`.

    Raises:
      ConfigError: there are not two modules in which anything is decided.
      CorpusError: most modules fail.
    """
    seen = DecisionHashes()
    builder = BaselineBuilder(problem)
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(_trace_writer(trace_path)) if trace_path is not None else None
        pool = stack.enter_context(WorkerPool(toolchain, problem.name))
        rollouts = traces.default_trace(corpus.modules, problem, pool)
        for rollout in tqdm(rollouts, "default", len(corpus.modules), unit="module", disable=None):
            builder.add(rollout)
            for context in traces.contexts(rollout, problem) if rollout.failure is None else ():
                seen.add(context, problem.feature_names)
                if writer is not None:
                    writer.add(context)
        baseline = builder.build()
        if seen.num_modules < 2:
            raise ConfigError(
                f"the program has {seen.num_modules} modules with inlining decisions, of {len(corpus.modules)}; "
                "learning takes at least 2"
            )
        if writer is not None:
            about = {
                "problem": problem.name,
                "toolchain": toolchain.identity(),
                "corpus": {"name": corpus.root.name, "num_modules": len(corpus.modules)},
                "num_modules": len(corpus.modules),
                "failed_modules": sorted(baseline.failures),
            }
            writer.finish({key: baseline.scores[key[0]] for key in writer.keys}, about)
    counts = {
        "modules": len(corpus.modules),
        "decisions": seen.num_decisions,
        "failed": len(baseline.failures),
        "first_failure": next(iter(baseline.failures.values()), ""),
    }
    return seen, counts


def _trace_writer(path: Path) -> "TraceWriter":
    rl.load_tensorflow()
    from compiler_opt.rl.trace_files import TraceWriter

    return TraceWriter(path)


def make_vocabulary(folder: Path, problem: Problem) -> None:
    """The quantiles of the default trace's features."""
    rl.load_tensorflow()
    from compiler_opt.rl.quantiles import trace_quantiles
    from compiler_opt.rl.trace_files import Trace

    quantiles = trace_quantiles(Trace(folder / TRACE), problem.action_space, NUM_QUANTILES)
    save_vocabulary(folder / VOCABULARY, quantiles)


def warm_start(folder: Path, problem: Problem, settings: LearningSettings) -> None:
    """A policy that decides as the default does."""
    rl.load_tensorflow()
    from compiler_opt.rl.warm_start import clone_default

    quantiles = load_vocabulary(folder / VOCABULARY, problem.feature_names)
    lines: list[str] = []
    clone_default(
        folder / WARM_START, folder / TRACE, problem, quantiles, settings.network, settings.cloning, lines.append
    )
    print(lines[-1])


def train(
    folder: Path, corpus: Corpus, problem: Problem, toolchain: Toolchain, settings: LearningSettings
) -> Mapping[str, Any]:
    """Reinforcement learning; goes on where it was.

    Returns:
      the last line of the history: `iteration`, `compiles`, `reward_mean`, ...
    """
    rl.load_tensorflow()
    from compiler_opt.rl import methods
    from compiler_opt.rl.history import HISTORY_FILE, read_history
    from compiler_opt.rl.training import Run

    start = settings.training.warmstart_policy_dir or str(folder / WARM_START / POLICY)
    config = dataclasses.replace(settings.training, warmstart_policy_dir=start)
    sent = [spec.name for spec in toolchain.require(problem.advisor.problem).features]
    quantiles: Mapping[str, np.ndarray] = vocabularies.of_run(None, start, problem.feature_names, sent)
    logging.getLogger("compiler_opt").setLevel(logging.INFO)
    with WorkerPool(toolchain, problem.name) as pool:
        run = Run(folder / TRAINING, corpus, toolchain, problem, pool, quantiles, config, settings.network)
        methods.train(run, methods.Methods(settings.ppo, settings.advantages))
    history = read_history(folder / TRAINING / HISTORY_FILE)
    return history[-1] if history else {}
