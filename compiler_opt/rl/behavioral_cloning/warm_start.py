"""The warm start of reinforcement learning: a saved policy that imitates a default trace."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from tqdm import tqdm

from compiler_opt.corpus.command_lines.problem_config import ProblemConfig
from compiler_opt.export.saved_model import save_policy
from compiler_opt.policies.weights import NetworkConfig
from compiler_opt.problems.problem import Problem
from compiler_opt.rl.behavioral_cloning import BehavioralCloningConfig
from compiler_opt.rl.behavioral_cloning.cloner import Cloner, load_examples
from compiler_opt.rl.config import POLICY_DIR
from compiler_opt.rl.history import History
from compiler_opt.rl.trace_files import Trace


def clone(
    root_dir: Path,
    trace_path: Path,
    problem: Problem,
    quantiles: Mapping[str, np.ndarray],
    network: NetworkConfig,
    config: BehavioralCloningConfig,
    echo: Callable[[str], object],
) -> Path:
    """Clones a trace under a vocabulary, see `pipeline.clone_default`; returns the policy's folder."""
    trace = Trace(trace_path)
    head = problem.head(quantiles, trace.features)
    with tqdm(total=trace.num_decisions, desc="reading", unit="decision", unit_scale=True, disable=None) as progress:
        training, held_out = load_examples(trace, head, config, progress.update)
    echo(f"{len(training)} decisions of {training.num_modules} modules; {held_out.num_modules} modules held out")
    history = History(root_dir, 0)

    def record(entry: Mapping[str, float]) -> None:
        history.add(entry)
        echo(
            f"epoch {entry['iteration']}: loss {entry['training_loss']:.4f}, held out {entry['loss']:.4f}, "
            f"accuracy {entry['accuracy']:.2%} (always the same answer: {entry['majority_rate']:.2%})"
        )

    cloned = Cloner(head, trace.advice.name, network, config).clone(training, held_out, record)
    metadata = {
        "problem": problem.name,
        "toolchain": trace.about.get("toolchain"),
        "corpus": trace.about.get("corpus"),
        **ProblemConfig.from_json(trace.about).to_json(),
        "method": "behavioral cloning",
        "examples": len(training),
        "accuracy": cloned.best["accuracy"],
        "majority_rate": cloned.best["majority_rate"],
        "seed": config.seed,
    }
    policy_dir = root_dir / POLICY_DIR
    weights = dataclasses.replace(cloned.weights, metadata=metadata)
    save_policy(policy_dir, weights, problem.action_space, trace.advice.name, trace.features)
    echo(
        f"{policy_dir}: accuracy {cloned.best['accuracy']:.2%} on held-out modules, "
        f"{cloned.best['majority_rate']:.2%} by always giving the same answer"
    )
    return policy_dir
