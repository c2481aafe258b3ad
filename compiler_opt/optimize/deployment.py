"""The compiler drivers that carry a policy, and how well they do it."""

import re
from pathlib import Path

from compiler_opt.deploy.deployment import deploy
from compiler_opt.errors import ToolchainError
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.optimize.program import Built, Compilers

_WARNING = re.compile(r"warning: mlgo.*")


def deploy_policy(policy_dir: Path, output: Path, toolchain: Toolchain) -> Compilers:
    """Puts a policy into drop-in compiler drivers for one clang.

    Args:
      policy_dir: a saved policy.
      output: gets `bin/mlgo-clang` and `bin/mlgo-clang++`, and what they need.
      toolchain: the clang.

    Raises:
      PolicyError: the policy does not fit the compiler.
      ToolchainError: the plugin cannot be built; the message names the package that is missing.
    """
    deploy(policy_dir, output, [toolchain.clang])
    return deployed(output, toolchain)


def deployed(output: Path, toolchain: Toolchain) -> Compilers:
    """The drivers in a folder that `deploy_policy` has filled.

    Raises:
      ToolchainError: they are gone.
    """
    compilers = Compilers(output / "bin" / "mlgo-clang", output / "bin" / "mlgo-clang++", toolchain.tool("llvm-ar"))
    for path in (compilers.c, compilers.cxx):
        if not path.is_file():
            raise ToolchainError(
                f"{path}: expected a compiler driver, found none; remove {output.parent} and start over"
            )
    return compilers


def warning(built: Built) -> str | None:
    """What the drivers complained of during a build, if they compiled anything without the policy."""
    match = _WARNING.search(built.log.read_text(errors="replace")) if built.log.is_file() else None
    return match[0] if match else None


def plain_compilers(toolchain: Toolchain) -> Compilers:
    """Without a policy; the C driver also for a user who gave `clang++`."""
    sibling = toolchain.clang.with_name(toolchain.clang.name.replace("clang++", "clang"))
    clang = sibling if sibling.is_file() else toolchain.clang
    return Compilers(clang, toolchain.tool("clang++"), toolchain.tool("llvm-ar"))
