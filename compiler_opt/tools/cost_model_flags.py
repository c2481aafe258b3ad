"""`--cost_model`: scores decisions by what a cost model says that the code costs."""

import dataclasses
from pathlib import Path

from absl import flags

from compiler_opt.errors import ConfigError
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.problem import AnyProblem
from compiler_opt.tensorflow_loading import require_tensorflow
from compiler_opt.tools import shared_flags


class CostModelFlags:
    """`--cost_model`, and what it needs to know: `--block_profile`, `--profdata`, `--text_percent` and `--mca_cpu`."""

    def __init__(self) -> None:
        self._model = flags.DEFINE_string(
            "cost_model",
            None,
            "The score is what this model says that the code costs and, for inlining, the text. One of instructions, "
            "RegAllocScore and llvm-mca, the folder of a model of `cost_model train`, or MODULE:COSTS of your own "
            "(docs/cost_models_reward.md).",
        )
        self._profile = shared_flags.path(
            "block_profile",
            "With --cost_model, for register allocation: a file of `cost_model profile`. Blocks count as often as they "
            "ran there, instead of as often as the compiler estimates.",
        )
        self._profdata = shared_flags.path(
            "profdata",
            "With --cost_model, for inlining: a file that llvm-profdata merged from runs of programs that were built "
            "with -fprofile-generate. All modules are compiled with it, and blocks count as often as it says.",
        )
        self._text_percent = flags.DEFINE_float(
            "text_percent",
            5.0,
            "With --profdata: percent of a project's text that one percent of its cost counts as.",
            0,
        )
        self._cpu = flags.DEFINE_string(
            "mca_cpu", "skylake", "The processor that llvm-mca simulates for --cost_model=llvm-mca."
        )

    def with_cost_model(self, problem: AnyProblem, toolchain: Toolchain) -> AnyProblem:
        """The problem, scored by the cost model if one is given.

        Raises:
          ConfigError: there is no such model, or the problem cannot be scored so.
          CorpusError: the profile cannot be read.
          MissingPackageError: a package is not installed.
          PolicyError: the model is damaged.
          ToolchainError: a tool of LLVM is missing.
        """
        if self._model.value is None:
            for flag in (self._profile, self._profdata):
                if flag.value is not None:
                    raise ConfigError(
                        f"--{flag.name}: says how often blocks count for a cost model, found none; give --cost_model, "
                        "or leave it out"
                    )
            return problem
        from compiler_opt.cost_models import block_costs
        from compiler_opt.cost_models.function_costs import BlockProfile, CompiledProfile
        from compiler_opt.cost_models.objectives import BlockCost, TextAndCost

        profdata, block_profile = self._profdata.value, self._profile.value
        moves_code = problem.decision.moves_code
        if moves_code and (profdata is None or block_profile is not None):
            raise ConfigError(
                "--cost_model: inlining changes how often functions are called, so it needs --profdata, an LLVM "
                "profile that the modules are compiled with, and no --block_profile; for a single program "
                "that runs, there is also optimize --objective=speed"
            )
        if not moves_code and profdata is not None:
            raise ConfigError(
                f"--profdata: is for inlining, found {problem.name}; use --block_profile, or leave it out"
            )
        if Path(self._model.value).is_dir():
            require_tensorflow("a model of blocks")
        costs = block_costs.load(self._model.value, toolchain, self._cpu.value)
        if profdata is not None:
            compiled = CompiledProfile(profdata, toolchain)
            return dataclasses.replace(
                problem, objective=TextAndCost(costs, toolchain, compiled, self._text_percent.value)
            )
        profile = None if block_profile is None else BlockProfile.load(block_profile)
        return dataclasses.replace(problem, objective=BlockCost(costs, toolchain, profile))
