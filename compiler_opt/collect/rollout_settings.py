"""Limits and ways of one compilation."""

import dataclasses

from compiler_opt.errors import ConfigError
from compiler_opt.llvm import processes

AUTO = "auto"
"""The setting that takes the first backend that applies."""

NAMES = ("embedded", "plugin", "development", "channel")
"""The modules of `collect.backends`, in the order in which they are tried; the last one takes every policy."""


@dataclasses.dataclass(frozen=True)
class RolloutSettings:
    """Limits of one compilation.

    Attributes:
      timeout_s: wall-clock seconds; a compilation that takes longer is a failure.
      memory_bytes: address space of the compiler.
      file_bytes: size of each file that the compiler writes; less where the disk is nearly full.
      record_call_sites: for inlining, also record caller and callee of each decision (over the channel this costs
        some 10% of the compilation).
      record_default: for inlining by a policy in the plugin, also record what the default would decide (this costs a
        second cost analysis of each call). Under the default it is always recorded.
      backend: how decisions get into the compiler. `plugin`: networks decide in the compiler's process; the register
        allocator's plugin asks other policies over pipes and adds its default decision as a feature. `channel`:
        policies decide in our process, over LLVM's own pipes; for inlining, both give the same decisions.
        `development`: a compiler built with TFLite decides; the same, except for what is sampled. `embedded`: the model
        built into the compiler. `auto`: the plugin if it can be built and the policy can run in it; otherwise
        development mode for the compiler's own decisions, if available; otherwise the channel.
      inliner: the program that inlines: `clang`, which does all of the compilation, or `opt`, over the channel, whose
        output clang compiles to an object.
      opt_passes: the pipeline that `opt` runs; by default, of the module's `-O` level. For modules that were
        captured right before inlining: `scc-oz-module-inliner`.
    """

    timeout_s: float = 120.0
    memory_bytes: int = processes.DEFAULT_MEMORY_BYTES
    file_bytes: int = 1 << 29
    record_call_sites: bool = False
    record_default: bool = False
    backend: str = AUTO
    inliner: str = "clang"
    opt_passes: str = ""

    def __post_init__(self) -> None:
        check_name(self.backend)
        if self.inliner not in ("clang", "opt"):
            raise ConfigError(f"inliner: expected one of clang, opt; found {self.inliner!r}")
        if self.inliner == "opt" and self.backend not in (AUTO, "channel"):
            raise ConfigError(f"inliner: opt is driven over the channel only; found the backend {self.backend!r}")


def check_name(name: str) -> None:
    """Raises ConfigError unless `RolloutSettings.backend` can have this value."""
    if name not in (AUTO, *NAMES):
        raise ConfigError(f"backend: expected one of {', '.join((AUTO, *NAMES))}; found {name!r}")
