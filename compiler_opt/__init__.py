"""Trains machine-learned policies for decisions inside LLVM, evaluates them and deploys them with a stock clang.

The public names below are imported when they are first used; docs/api.md shows how to use them.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compiler_opt import pretrained as pretrained
    from compiler_opt.collect.compilation import DefaultPolicy as DefaultPolicy
    from compiler_opt.collect.rollout import Rollout as Rollout
    from compiler_opt.collect.rollout import RolloutSettings as RolloutSettings
    from compiler_opt.collect.rollout import rollout as rollout
    from compiler_opt.collect.workers import Job as Job
    from compiler_opt.collect.workers import WorkerPool as WorkerPool
    from compiler_opt.corpus.description import Corpus as Corpus
    from compiler_opt.decisions.decision import Decision as Decision
    from compiler_opt.evaluation.evaluate import evaluate as evaluate
    from compiler_opt.llvm.toolchain import Toolchain as Toolchain
    from compiler_opt.llvm.toolchain import probe as probe
    from compiler_opt.objectives.objective import Objective as Objective
    from compiler_opt.objectives.objective import Reader as Reader
    from compiler_opt.policies.policy import FunctionDecider as FunctionDecider
    from compiler_opt.policies.policy import Policy as Policy
    from compiler_opt.problem import Problem as Problem
    from compiler_opt.problem import load as load_problem  # noqa: F401 (ruff wants `load as load`)
    from compiler_opt.problem import load_policy as load_policy
    from compiler_opt.rl.config import TrainingConfig as TrainingConfig
    from compiler_opt.rl.default_trace import record_default_trace as record_default_trace
    from compiler_opt.rl.pipeline import PipelineSettings as PipelineSettings
    from compiler_opt.rl.pipeline import clone_default as clone_default
    from compiler_opt.rl.pipeline import run as run_pipeline  # noqa: F401 (ruff wants `run as run`)
    from compiler_opt.rl.pipeline import train as train
    from compiler_opt.rl.vocabularies import make_vocabulary as make_vocabulary

__version__ = "0.3.0"

_NAMES = {
    "collect.compilation": ["DefaultPolicy"],
    "collect.rollout": ["Rollout", "RolloutSettings", "rollout"],
    "collect.workers": ["Job", "WorkerPool"],
    "corpus.description": ["Corpus"],
    "decisions.decision": ["Decision"],
    "evaluation.evaluate": ["evaluate"],
    "llvm.toolchain": ["Toolchain", "probe"],
    "objectives.objective": ["Objective", "Reader"],
    "policies.policy": ["FunctionDecider", "Policy"],
    "problem": ["Problem", "load_policy", "load_problem"],
    "rl.config": ["TrainingConfig"],
    "rl.default_trace": ["record_default_trace"],
    "rl.pipeline": ["PipelineSettings", "clone_default", "run_pipeline", "train"],
    "rl.vocabularies": ["make_vocabulary"],
}
"""Public names by module."""

_OWN_NAMES = {"load_problem": "load", "run_pipeline": "run"}
"""Public name -> its name in its module, where that is another."""


_MODULES = ("pretrained",)
"""Public modules."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    for module, names in _NAMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), _OWN_NAMES.get(name, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *(name for names in _NAMES.values() for name in names)})
