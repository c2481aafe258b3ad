"""LLVM's options for its ML advisors, by problem.

Sources: `llvm/lib/Analysis/{InlineAdvisor,MLInlineAdvisor,DevelopmentModeInlineAdvisor}.cpp` and
`llvm/lib/CodeGen/MLRegAlloc{Evict,Priority}Advisor.cpp`. Not every compiler has all of them: `toolchain.probe` finds
out by trying.
"""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from types import MappingProxyType

TFLITE_FILE, OUTPUT_SPEC_FILE = "model.tflite", "output_spec.json"
"""The files of a model for the development mode, see `spaces.heads.tflite`."""

LOGITS = "logits"
"""The name, in the log, of the second output of a model that samples: float `[1, A]`."""

SEED_MARKS = (0x6B3D91C75AE2F084, 0x5C0E7A29D4F18B36)
"""The places, in such a model, of the seed and of a number that is never 0: given two zeros, TFLite chooses its own."""


def mllvm(options: Iterable[str]) -> list[str]:
    """The clang arguments that pass each option on to LLVM."""
    return [argument for option in options for argument in ("-mllvm", option)]


@dataclasses.dataclass(frozen=True)
class AdvisorFlags:
    """The options of one problem's advisor.

    Attributes:
      problem: the problem's name in this project.
      enable: selects the mode: `default`, `release` (decisions over the interactive channel or, without one, by an
        embedded model) or `development` (requires a compiler built with TFLite).
      channel_base: the base name of the interactive channel's two pipes.
      training_log: development mode: the file for observations and decisions.
      model_under_training: development mode: the folder of the TFLite model that decides.
      plugin_default_feature: the feature that holds the default decision if our plugin sends it (see
        `regalloc_plugin`), where LLVM does not.
      include_default: makes the channel also send the default decision, if LLVM offers that.
      default_feature: the feature that then holds it.
      default_slot: the feature that holds it instead in compilers with the bug that `probe` detects.
      settings: options of the modes in which we decide, whatever decides.
    """

    problem: str
    enable: str
    channel_base: str
    training_log: str
    model_under_training: str
    plugin_default_feature: str | None = None
    include_default: str | None = None
    default_feature: str | None = None
    default_slot: str | None = None
    settings: tuple[str, ...] = ()

    def interactive_options(self, *, include_default: bool = False) -> list[str]:
        """Clang arguments for the interactive mode, except the channel itself (see `interactive.llvm_channel`).

        `include_default` has no effect if LLVM does not offer the default decision.
        """
        options = [f"{self.enable}=release", *self.settings]
        if include_default and self.include_default is not None:
            options.append(self.include_default)
        return mllvm(options)

    def embedded_options(self) -> list[str]:
        """Clang arguments for the release mode without a channel: the embedded model decides."""
        return mllvm([f"{self.enable}=release"])

    def development_options(self, training_log: Path, model: Path | None = None) -> list[str]:
        """Clang arguments for the development mode; `model` is the folder of a TFLite model, None for the default."""
        options = [f"{self.enable}=development", f"{self.training_log}={training_log}", *self.settings]
        if model is not None:
            options.append(f"{self.model_under_training}={model}")
        return mllvm(options)


def _regalloc(name: str, enable: str, channel: str, prefix: str) -> AdvisorFlags:
    return AdvisorFlags(
        problem=f"regalloc_{name}",
        enable=enable,
        channel_base=f"-regalloc-{channel}-interactive-channel-base",
        training_log=f"{prefix}-training-log",
        model_under_training=f"{prefix}-model",
        plugin_default_feature=f"{name}_default",
    )


INLINING = AdvisorFlags(
    problem="inlining",
    enable="-enable-ml-inliner",
    channel_base="-inliner-interactive-channel-base",
    training_log="-training-log",
    model_under_training="-ml-inliner-model-under-training",
    include_default="-inliner-interactive-include-default",
    default_feature="inlining_default",
    default_slot="callee_basic_block_count",
    # How far a module may grow. At LLVM's own limit, 2, advisors inline less than the default heuristic. The plugin
    # has this one, too (native/inline_advisor.h).
    settings=("-ml-advisor-size-increase-threshold=5",),
)
REBUILT_DEFAULT = ("cost_estimate", "threshold")
"""Features from which the default's inlining decision is rebuilt where LLVM does not send it: whether the first is
below the second. At -Oz, this is right in 99.7% of the decisions (docs/validation.md)."""

REGALLOC_EVICTION = _regalloc("eviction", "-regalloc-enable-advisor", "evict", "-regalloc")
REGALLOC_PRIORITY = _regalloc("priority", "-regalloc-enable-priority-advisor", "priority", "-regalloc-priority")

ADVISORS = MappingProxyType({flags.problem: flags for flags in (INLINING, REGALLOC_EVICTION, REGALLOC_PRIORITY)})
"""Every problem's options, by its name."""


def rebuilds_default(features: Iterable[str]) -> bool:
    """Whether the default decision can be rebuilt from what a policy observes, see `REBUILT_DEFAULT`."""
    return set(REBUILT_DEFAULT) <= set(features)
