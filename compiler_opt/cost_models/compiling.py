"""Compiles the modules that cost models learn from, with the limits and the sandbox of every compilation."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from compiler_opt.corpus.command_lines.command_line import compile_command
from compiler_opt.corpus.module import Module, explain_failure
from compiler_opt.errors import CompileError, CorpusError
from compiler_opt.llvm import options_plugin, processes
from compiler_opt.llvm.plugin import load_option
from compiler_opt.llvm.sandbox import Sandbox
from compiler_opt.llvm.toolchain import Toolchain


def compile_object(
    module: Module,
    toolchain: Toolchain,
    output: Path,
    added: Sequence[str] = (),
    *,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = processes.DEFAULT_TIMEOUT_S,
) -> float:
    """Compiles a module with its own options, and returns the CPU seconds of clang.

    Args:
      module: what to compile.
      toolchain: the compiler.
      output: the object; a module that is not trusted may write to its folder only.
      added: further options of cc1.
      environment: of clang; by default, that of this process.
      timeout_s: wall-clock limit.

    Raises:
      CompileError, CorpusError: clang fails, or the module's options are not such as can be used.
      ToolchainError: clang cannot be run.
    """
    options = module.options(toolchain.clang)
    flags = [*added, *module.pass_flags((*options, *added))]
    if module.function_options is not None:
        flags.append(load_option(options_plugin.options_plugin(toolchain)))
        variables = options_plugin.environment(module.function_options, output.parent)
        environment = {**(os.environ if environment is None else environment), **variables}
    command = compile_command(toolchain.clang, options, module.bitcode_path, output, flags, trusted=module.trusted)
    sandbox = None if module.trusted else Sandbox.for_folder(output.parent)
    result = processes.run(
        command, timeout_s=timeout_s, max_stdout_bytes=1 << 20, sandbox=sandbox, environment=environment
    )
    if not result.ok:
        reason = explain_failure(result.stderr_tail)
        if reason is not None:
            raise CorpusError(f"{module.bitcode_path}: {reason}")
        raise CompileError(f"{module.name}: {result.describe()}")
    return result.cpu_s
