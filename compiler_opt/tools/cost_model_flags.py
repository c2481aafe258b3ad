"""`--cost_model`: scores register allocation by what a cost model says that the code costs."""

from pathlib import Path

from absl import flags

from compiler_opt.errors import ConfigError
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.problems.problem import AnyProblem
from compiler_opt.tensorflow_loading import require_tensorflow
from compiler_opt.tools import shared_flags


class CostModelFlags:
    """`--cost_model`, `--block_profile` and `--mca_cpu`."""

    def __init__(self) -> None:
        self._model = flags.DEFINE_string(
            "cost_model",
            None,
            "For register allocation: the score is what this model says that the code costs. One of instructions, "
            "RegAllocScore and llvm-mca, or the folder of a model of train_throughput (docs/cost_models.md).",
        )
        self._profile = shared_flags.path(
            "block_profile",
            "With --cost_model: a file of profile_blocks. Blocks count as often as they ran there, instead of as often "
            "as the compiler estimates.",
        )
        self._cpu = flags.DEFINE_string(
            "mca_cpu", "skylake", "The processor that llvm-mca simulates for --cost_model=llvm-mca."
        )

    def priced(self, problem: AnyProblem, toolchain: Toolchain) -> AnyProblem:
        """The problem, scored by the cost model if one is given.

        Raises:
          ConfigError: there is no such model, or the problem cannot be scored so.
          CorpusError: the profile cannot be read.
          MissingPackageError: a package is not installed.
          PolicyError: the model is damaged.
          ToolchainError: a tool of LLVM is missing.
        """
        if self._model.value is None:
            if self._profile.value is not None:
                raise ConfigError(
                    "--block_profile: says how often blocks count for a cost model, found none; give --cost_model, or "
                    "leave it out"
                )
            return problem
        from compiler_opt.cost_models import block_costs
        from compiler_opt.cost_models.function_costs import BlockProfile
        from compiler_opt.cost_models.priced_regalloc import check_priceable, priced

        check_priceable(problem)
        if Path(self._model.value).is_dir():
            require_tensorflow("a model of blocks")
        profile = None if self._profile.value is None else BlockProfile.load(self._profile.value)
        costs = block_costs.load(self._model.value, toolchain, self._cpu.value)
        return priced(problem, costs, toolchain, profile)
