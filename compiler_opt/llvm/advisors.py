"""Which LLVM options hand each decision over to us: the one table of them, by problem.

Sources: `llvm/lib/Analysis/{InlineAdvisor,MLInlineAdvisor,DevelopmentModeInlineAdvisor}.cpp` and
`llvm/lib/CodeGen/MLRegAlloc{Evict,Priority}Advisor.cpp`. That an option stands here says nothing about a given
compiler: `toolchain.probe` finds out by using it.
"""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from types import MappingProxyType


def mllvm(options: Iterable[str]) -> list[str]:
    """The clang arguments that pass each option on to LLVM."""
    return [argument for option in options for argument in ("-mllvm", option)]


@dataclasses.dataclass(frozen=True)
class AdvisorFlags:
    """The options of one problem.

    Attributes:
      problem: its name in this project.
      enable: takes `default`, `release` (decisions over the interactive channel, or without one by a model that is
        built in) or `development` (built with TFLite).
      channel_base: takes the base name of the interactive channel's two pipes.
      include_default: makes the channel carry what LLVM itself would have decided, where that exists.
      default_feature: the feature that then carries it.
      default_slot: the feature that carries it instead on compilers with the bug that `probe` describes.
      plugin_default_feature: the feature by which our plugin tells it, see `regalloc_plugin`, where LLVM does not.
      training_log: development mode: takes the file that observations and decisions are logged to.
      model_under_training: development mode: takes the folder of the TFLite model that decides.
    """

    problem: str
    enable: str
    channel_base: str
    training_log: str
    model_under_training: str
    include_default: str | None = None
    default_feature: str | None = None
    default_slot: str | None = None
    plugin_default_feature: str | None = None

    def interactive_options(self, *, include_default: bool = False) -> list[str]:
        """Clang arguments for the interactive mode, but for the channel itself (see `interactive`).

        Args:
          include_default: also ask for the default decision; without effect where LLVM does not offer it.
        """
        options = [f"{self.enable}=release"]
        if include_default and self.include_default is not None:
            options.append(self.include_default)
        return mllvm(options)

    def embedded_options(self) -> list[str]:
        """Clang arguments for the release mode without a channel: decisions by the model that is built in."""
        return self.interactive_options()

    def development_options(self, training_log: Path, model: Path | None = None) -> list[str]:
        """Clang arguments for the development mode.

        Args:
          training_log: the file to log to.
          model: folder of the TFLite model that decides; without one the default heuristic does.
        """
        options = [f"{self.enable}=development", f"{self.training_log}={training_log}"]
        if model is not None:
            options.append(f"{self.model_under_training}={model}")
        return mllvm(options)


INLINING = AdvisorFlags(
    problem="inlining",
    enable="-enable-ml-inliner",
    channel_base="-inliner-interactive-channel-base",
    training_log="-training-log",
    model_under_training="-ml-inliner-model-under-training",
    include_default="-inliner-interactive-include-default",
    default_feature="inlining_default",
    default_slot="callee_basic_block_count",
)

REGALLOC_EVICTION = AdvisorFlags(
    problem="regalloc_eviction",
    enable="-regalloc-enable-advisor",
    channel_base="-regalloc-evict-interactive-channel-base",
    training_log="-regalloc-training-log",
    model_under_training="-regalloc-model",
    plugin_default_feature="eviction_default",
)

REGALLOC_PRIORITY = AdvisorFlags(
    problem="regalloc_priority",
    enable="-regalloc-enable-priority-advisor",
    channel_base="-regalloc-priority-interactive-channel-base",
    training_log="-regalloc-priority-training-log",
    model_under_training="-regalloc-priority-model",
    plugin_default_feature="priority_default",
)

ADVISORS = MappingProxyType({flags.problem: flags for flags in (INLINING, REGALLOC_EVICTION, REGALLOC_PRIORITY)})
"""Every problem's options, by its name."""
