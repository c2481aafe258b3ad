"""The plugins of a deployment: with a policy, or options of functions, built in."""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from compiler_opt.deploy.decision_files import DeployedDecisions
from compiler_opt.deploy.driver import NO_PLUGIN, DriverFile, DriverPlugin, DriverPolicy
from compiler_opt.deploy.policies import LoadedPolicy
from compiler_opt.llvm.options_plugin import OPTIONS, FunctionOptions
from compiler_opt.llvm.plugin import PluginKind, user_cache
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.spaces.native import embedded_source


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeployedPolicy(DriverPolicy):
    """A policy in a prefix.

    Attributes:
      name: of its files there.
      kind: the plugin that it is built into.
      origin: its folder, or `pretrained:NAME` if nobody named a policy; empty for the compiler's own heuristic.
    """

    name: str
    kind: PluginKind
    origin: str


def policy_plugins(
    name: str,
    policy: LoadedPolicy,
    replayed: Mapping[int, DeployedDecisions],
    toolchains: Mapping[int, Toolchain],
    files: dict[Path, bytes],
    scratch: Path,
) -> Iterator[tuple[int, DriverPlugin]]:
    """Builds a policy's plugin for each version, and adds it and its decision file to the files of the prefix."""
    sources = []
    if policy.base.native:
        sources = [scratch / f"{name}.cpp"]
        sources[0].write_text(embedded_source(policy.base.native), encoding="ascii")
    for major, toolchain in toolchains.items():
        library = f"mlgo-{name}-{major}.so"
        user_cache().build(toolchain, policy.kind, scratch / library, sources)
        content = files[Path("lib") / library] = (scratch / library).read_bytes()
        plugin = DriverPlugin(DriverFile.of(library, content))
        if major in replayed:
            decisions, content = DeployedDecisions.file_name(major), replayed[major].content
            files[Path("lib") / decisions] = content
            plugin = DriverPlugin(plugin.library, DriverFile.of(decisions, content), replayed[major].summary)
        yield major, plugin


def deployed_options(
    by_compiler: Mapping[int, FunctionOptions],
    toolchains: Mapping[int, Toolchain],
    files: dict[Path, bytes],
    scratch: Path,
) -> DeployedPolicy:
    """Builds the plugins with options of functions for one level, and adds them to the files of the prefix.

    A compiler without such options has the constant ones.
    """
    [level] = {options.level for options in by_compiler.values()}
    plugins = dict.fromkeys(toolchains, NO_PLUGIN)
    for major, options in by_compiler.items():
        source, library = scratch / f"options-{major}.cpp", f"mlgo-options-{level}-{major}.so"
        source.write_text(options.embedded_source(), encoding="ascii")
        user_cache().build(toolchains[major], OPTIONS, scratch / library, [source])
        content = files[Path("lib") / library] = (scratch / library).read_bytes()
        plugins[major] = DriverPlugin(DriverFile.of(library, content))
        if options.plugin is not None:
            files[Path("lib") / options.deployed_plugin()] = options.plugin.read_bytes()
    texts = "".join(options.text() for _, options in sorted(by_compiler.items()))
    return DeployedPolicy(
        problem="pass_options",
        checksum=hashlib.sha256(texts.encode("utf-8", "surrogateescape")).hexdigest(),
        levels=(level,),
        is_for_size=True,
        plugins=plugins,
        name=f"options-{level}",
        kind=OPTIONS,
        origin="",
    )
