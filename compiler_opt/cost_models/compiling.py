"""Compiles the modules that cost models learn from, with the limits and the sandbox of every compilation."""

import os
from collections.abc import Sequence
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
    timeout_s: float = processes.DEFAULT_TIMEOUT_S,
) -> float:
    """Compiles a module with its own options, and returns the CPU seconds of clang.

    Args:
      module: what to compile.
      toolchain: the compiler.
      output: the object; a module that is not trusted may write to its folder only.
      added: further options of cc1.
      timeout_s: wall-clock limit.

    Raises:
      CompileError, CorpusError: clang fails, or the module's options are not such as can be used.
      ToolchainError: clang cannot be run.
    """
    options = module.options(toolchain.clang)
    flags = [*added, *module.pass_flags((*options, *added))]
    variables = None
    if module.function_options is not None:
        flags.append(load_option(options_plugin.options_plugin(toolchain)))
        variables = {**os.environ, **options_plugin.environment(module.function_options, output.parent)}
    command = compile_command(toolchain.clang, options, module.bitcode_path, output, flags, trusted=module.trusted)
    sandbox = None if module.trusted else Sandbox.for_folder(output.parent)
    result = processes.run(
        command, timeout_s=timeout_s, max_stdout_bytes=1 << 20, sandbox=sandbox, environment=variables
    )
    if not result.ok:
        raise failure_of(module, result)
    return result.cpu_s


def failure_of(module: Module, result: processes.ProcessResult, program: str = "") -> CompileError | CorpusError:
    """Why a process that read a module's bitcode failed; `program` names it, if it is not clang."""
    reason = explain_failure(result.stderr_tail)
    if reason is not None:
        return CorpusError(f"{module.bitcode_path}: {reason}")
    return CompileError(f"{module.name}: {program}{': ' if program else ''}{result.describe()}")
