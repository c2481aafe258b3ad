"""Trains machine-learned policies for decisions inside LLVM, evaluates them and deploys them with a stock clang.

The public names below are imported when they are first used; docs/api.md shows how to use them.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compiler_opt.collect.compilation import DefaultPolicy as DefaultPolicy
    from compiler_opt.collect.rollout import Rollout as Rollout
    from compiler_opt.collect.rollout import RolloutSettings as RolloutSettings
    from compiler_opt.collect.rollout import rollout as rollout
    from compiler_opt.collect.workers import Job as Job
    from compiler_opt.collect.workers import WorkerPool as WorkerPool
    from compiler_opt.corpus.description import Corpus as Corpus
    from compiler_opt.evaluation.evaluate import evaluate as evaluate
    from compiler_opt.llvm.toolchain import Toolchain as Toolchain
    from compiler_opt.llvm.toolchain import probe as probe
    from compiler_opt.policies.policy import FunctionDecider as FunctionDecider
    from compiler_opt.policies.policy import Policy as Policy
    from compiler_opt.problems.problem import Problem as Problem
    from compiler_opt.problems.problem import load as load_problem  # noqa: F401 (ruff wants `load as load`)
    from compiler_opt.problems.problem import load_policy as load_policy
    from compiler_opt.rl.default_trace import record_default_trace as record_default_trace
    from compiler_opt.rl.pipeline import PipelineSettings as PipelineSettings
    from compiler_opt.rl.pipeline import clone_default as clone_default
    from compiler_opt.rl.pipeline import make_vocabulary as make_vocabulary
    from compiler_opt.rl.pipeline import run as run_pipeline  # noqa: F401 (ruff wants `run as run`)
    from compiler_opt.rl.pipeline import train as train

__version__ = "0.2.0"

_PLACES = {
    "Corpus": "corpus.description:Corpus",
    "DefaultPolicy": "collect.compilation:DefaultPolicy",
    "FunctionDecider": "policies.policy:FunctionDecider",
    "Job": "collect.workers:Job",
    "PipelineSettings": "rl.pipeline:PipelineSettings",
    "Policy": "policies.policy:Policy",
    "Problem": "problems.problem:Problem",
    "Rollout": "collect.rollout:Rollout",
    "RolloutSettings": "collect.rollout:RolloutSettings",
    "Toolchain": "llvm.toolchain:Toolchain",
    "WorkerPool": "collect.workers:WorkerPool",
    "clone_default": "rl.pipeline:clone_default",
    "evaluate": "evaluation.evaluate:evaluate",
    "load_policy": "problems.problem:load_policy",
    "load_problem": "problems.problem:load",
    "make_vocabulary": "rl.pipeline:make_vocabulary",
    "probe": "llvm.toolchain:probe",
    "record_default_trace": "rl.default_trace:record_default_trace",
    "rollout": "collect.rollout:rollout",
    "run_pipeline": "rl.pipeline:run",
    "train": "rl.pipeline:train",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _PLACES[name].partition(":")
    return getattr(importlib.import_module(f"{__name__}.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
