"""The register allocator's plugin (`native/regalloc_plugin.cpp`): policies within, and the default's decisions.

LLVM's channel does not tell what its default advisor would evict, or which priority it would give. With this plugin an
unmodified clang asks that one first, and sends its answer as one more feature (`AdvisorFlags.plugin_default_feature`).
Everything else on the channel is as LLVM has it, and so are the objects. A greedy policy can also decide in the
compiler's own process. Built once for each LLVM, see `plugin`.
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

SOURCES = tuple(
    NATIVE / name
    for name in (
        "regalloc_plugin.cpp",
        "regalloc_advisors.h",
        "plugin_environment.h",
        "regalloc_policy.h",
        "policy_network.h",
    )
)
"""What it is made of."""

NOWHERE = ("mlgo-nowhere.in", "mlgo-nowhere.out")
"""What LLVM's own channel is to open: links to `/dev/null`."""


def regalloc_plugin(toolchain: Toolchain) -> Path:
    """The register allocator's plugin, from the user's cache; see `PluginCache.get`."""
    return user_cache().get(toolchain, REGALLOC)


def options(plugin: Path, advisor: AdvisorFlags, nowhere: Path) -> list[str]:
    """Clang arguments that have it asked, instead of LLVM's own channel.

    Args:
      plugin: the library.
      advisor: what is decided.
      nowhere: base name of two files `.in` and `.out` that lead to `/dev/null`, see `make_nowhere`.
    """
    return [*llvm_channel(advisor)(nowhere).arguments, load_option(plugin)]


def make_nowhere(folder: Path) -> Path:
    """The files that LLVM's own channel is to open, as nobody is there; made when they are missing.

    A plugin with a policy built in looks for them beside itself.

    Returns:
      their base name, see `options`.
    """
    for name in NOWHERE:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(os.devnull)
    return folder / Path(NOWHERE[0]).stem


def environment(
    *, channel: Path | None = None, policy: Path | None = None, log: Path | None = None, strict: bool = True
) -> dict[str, str]:
    """All environment variables of a compiler that loads the plugin: ours, and what the plugin is to do.

    Args:
      channel: converse over `channel`.in and `channel`.out.
      policy: without a channel, the native form of the policy that decides; None decides as the compiler itself would.
      log: without a channel, where to write the training log to.
      strict: what cannot be done as told ends the compilation, instead of going on without the policy.
    """
    return {
        **os.environ,
        "MLGO_REGALLOC_CHANNEL": str(channel or ""),
        "MLGO_REGALLOC_MODE": "default" if policy is None else "policy",
        "MLGO_REGALLOC_POLICY": str(policy or ""),
        "MLGO_REGALLOC_LOG": str(log or ""),
        "MLGO_REGALLOC_STRICT": str(int(strict)),
    }


def plugin_channel(plugin: Path, advisor: AdvisorFlags, nowhere: Path) -> Connect:
    """The channel of the plugin; see `options` for the arguments."""
    return lambda base: Connection(options(plugin, advisor, nowhere), environment(channel=base))


def _try_out(toolchain: Toolchain, plugin: Path, scratch: Path) -> None:
    """See `PluginKind.try_out`: what was built must leave objects alone, and tell of each decision."""
    source, log = scratch / "probe.ll", scratch / "probe.log"
    source.write_text(probe_module())
    command = [str(toolchain.clang), "-Wno-override-module", "-O2", "-x", "ir", str(source), "-c", "-o"]
    plain, told = scratch / "plain.o", scratch / "told.o"
    advisors = (REGALLOC_EVICTION, REGALLOC_PRIORITY)
    runs = [processes.run([*command, str(plain)], timeout_s=TIMEOUT_S)]
    for advisor in advisors:
        support = toolchain.problems.get(advisor.problem)
        if support is None or not support.interactive:
            raise ToolchainError(f"{toolchain.clang}: has no channel for {advisor.problem}")
        runs.append(
            processes.run(
                [*command, str(told), *options(plugin, advisor, make_nowhere(scratch))],
                timeout_s=TIMEOUT_S,
                environment=environment(log=log),
            )
        )
        failed = next((result for result in runs if not result.ok), None)
        if failed is not None:
            raise ToolchainError(
                f"{toolchain.clang}: does not work with the register-allocation plugin: {failed.describe()}"
            )
        if not log.exists():
            raise ToolchainError(f"{toolchain.clang}: loads the register-allocation plugin, but does not ask it")
        decided = decode_log(log.read_bytes())
        log.unlink()
        names = [spec.name for spec in decided.features]
        if names[:-1] != [*(spec.name for spec in support.features), advisor.plugin_default_feature]:
            raise ToolchainError(f"{toolchain.clang}: tells the register-allocation plugin other features")
        if plain.read_bytes() != told.read_bytes():
            raise ToolchainError(f"{toolchain.clang}: compiles otherwise with the register-allocation plugin")


REGALLOC = PluginKind("regalloc", SOURCES, _try_out, oldest=19, newest=22)
