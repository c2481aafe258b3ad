"""The register allocator's plugin (`native/regalloc_plugin.cpp`): default decisions over the channel, native policies.

LLVM's channel does not send which live range the default advisor would evict, or which priority it would assign. With
this plugin, a stock clang asks the default advisor first and sends its decision as one more feature
(`AdvisorFlags.plugin_default_feature`); everything else on the channel is the same, and so are the objects. A greedy
policy can also decide in the compiler's own process.
"""

import os
from pathlib import Path

from compiler_opt.errors import ToolchainError
from compiler_opt.llvm import processes
from compiler_opt.llvm.advisors import REGALLOC_EVICTION, REGALLOC_PRIORITY, AdvisorFlags
from compiler_opt.llvm.interactive import Connect, Connection, llvm_channel
from compiler_opt.llvm.plugin import NATIVE, PluginKind, load_option, user_cache
from compiler_opt.llvm.probe import TIMEOUT_S, probe_module
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.llvm.training_log_reader import decode_log

_NAMES = """
regalloc_plugin.cpp regalloc_wrappers.h regalloc_decider.h regalloc_advisors.h regalloc_policy.h model_runner.h
plugin_environment.h policy_network.h
"""
SOURCES = tuple(NATIVE / name for name in _NAMES.split())
"""What it is built from."""

NOWHERE = ("mlgo-nowhere.in", "mlgo-nowhere.out")
"""Links to `/dev/null` that LLVM opens as its own channel, which is not used."""


def regalloc_plugin(toolchain: Toolchain) -> Path:
    """The register allocator's plugin, from the user's cache; see `PluginCache.get`."""
    return user_cache().get(toolchain, REGALLOC)


def options(plugin: Path, advisor: AdvisorFlags, nowhere: Path) -> list[str]:
    """Clang arguments that ask the plugin for decisions, rather than LLVM's own channel; see `make_nowhere`."""
    return [*llvm_channel(advisor)(nowhere).arguments, load_option(plugin)]


def make_nowhere(folder: Path) -> Path:
    """Creates the links `NOWHERE` if they are missing, and returns their base name.

    A plugin with a policy built in expects them in its own folder.
    """
    for name in NOWHERE:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(os.devnull)
    return folder / Path(NOWHERE[0]).stem


def environment(
    *, channel: Path | None = None, policy: Path | None = None, log: Path | None = None, strict: bool = True
) -> dict[str, str]:
    """All environment variables of a compiler that loads the plugin: those of this process, and the plugin's settings.

    Args:
      channel: base name of the pipes over which decisions are made.
      policy: without a channel, the file of a native policy; None for the compiler's default decisions.
      log: without a channel, the file for the training log.
      strict: fail the compilation, rather than continue without the policy, if these settings cannot be followed.
    """
    return {
        **os.environ,
        "MLGO_REGALLOC_CHANNEL": str(channel or ""),
        "MLGO_REGALLOC_LEVELS": "",
        "MLGO_REGALLOC_MODE": "default" if policy is None else "policy",
        "MLGO_REGALLOC_POLICY": str(policy or ""),
        "MLGO_REGALLOC_LOG": str(log or ""),
        "MLGO_REGALLOC_STRICT": str(int(strict)),
        "MLGO_LLVM_VERSION": "",
    }


def plugin_channel(plugin: Path, advisor: AdvisorFlags, nowhere: Path) -> Connect:
    """The plugin's channel; `nowhere` is what `make_nowhere` returns."""
    return lambda base: Connection(options(plugin, advisor, nowhere), environment(channel=base))


def _try_out(toolchain: Toolchain, plugin: Path, scratch: Path) -> None:
    """See `PluginKind.try_out`: default decisions must not change the object, and all must be logged."""
    source, log = scratch / "probe.ll", scratch / "probe.log"
    source.write_text(probe_module())
    command = [str(toolchain.clang), "-Wno-override-module", "-O2", "-x", "ir", str(source), "-c", "-o"]
    plain, rebuilt = scratch / "plain.o", scratch / "rebuilt.o"
    runs = [processes.run([*command, str(plain)], timeout_s=TIMEOUT_S)]
    for advisor in (REGALLOC_EVICTION, REGALLOC_PRIORITY):
        support = toolchain.problems.get(advisor.problem)
        if support is None or not support.interactive:
            raise ToolchainError(f"{toolchain.clang}: has no channel for {advisor.problem}")
        runs.append(
            processes.run(
                [*command, str(rebuilt), *options(plugin, advisor, make_nowhere(scratch))],
                timeout_s=TIMEOUT_S,
                environment=environment(log=log),
            )
        )
        failed = next((result for result in runs if not result.ok), None)
        if failed is not None:
            raise ToolchainError(f"{toolchain.clang}: does not work with the regalloc plugin: {failed.describe()}")
        if not log.exists():
            raise ToolchainError(f"{toolchain.clang}: loads the regalloc plugin but does not ask it for decisions")
        decided = decode_log(log.read_bytes())
        log.unlink()
        names = [spec.name for spec in decided.features]
        if names[:-1] != [*(spec.name for spec in support.features), advisor.plugin_default_feature]:
            raise ToolchainError(f"{toolchain.clang}: offers the regalloc plugin other features than the channel")
        if plain.read_bytes() != rebuilt.read_bytes():
            raise ToolchainError(f"{toolchain.clang}: generates other code with the regalloc plugin")


REGALLOC = PluginKind("regalloc", SOURCES, _try_out, oldest=19, newest=22)
