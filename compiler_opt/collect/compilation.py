"""One compilation of a module: the steps that all backends share, and its settings."""

import dataclasses
import functools
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt.collect.policy_folder import PolicyFolder
from compiler_opt.collect.rollout_settings import AUTO, RolloutSettings
from compiler_opt.corpus.command_lines.command_line import compile_command, is_thinlto, opt_command
from compiler_opt.corpus.module import Module, explain_failure
from compiler_opt.errors import CompileError, ConfigError, CorpusError, PolicyError, ProtocolError, ResourceError
from compiler_opt.llvm import ir2vec, options_plugin, plugin_features, processes, remarks
from compiler_opt.llvm.advisors import INLINING
from compiler_opt.llvm.plugin import load_option
from compiler_opt.llvm.sandbox import Sandbox
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.policy import FeaturePolicy
from compiler_opt.problem import AnyProblem, CompileTask
from compiler_opt.tensor_spec import TensorSpec

MAX_OUTPUT_BYTES = 1 << 20
"""Limit on what a compiler prints to stdout, which nobody reads."""
NUM_FILES = 4
"""Files that grow during a compilation: object or bitcode, remarks, and a log with names beside it."""


@dataclasses.dataclass(frozen=True)
class CompilerProcess:
    """A compiler process that has ended.

    Attributes:
      result: of the process.
      variables: of its environment; None for this process's.
    """

    result: processes.ProcessResult
    variables: Mapping[str, str] | None


class DefaultPolicy(FeaturePolicy):
    """Decides as the compiler's own heuristic; its trajectories are the default traces."""

    needs_default = True
    is_default = True

    def __init__(self, problem: AnyProblem | CompileTask[Any]):
        if problem.decision.advisor.default_feature is None:
            raise PolicyError(f"{problem.decision.name}: the compiler does not send its own decision as a feature")
        super().__init__(problem.decision.advisor.default_feature, name="default")


class Compilation:
    """One compilation, by one or several compiler processes, and its cost.

    Attributes:
      object_path: where the compiler writes the object.
      log_path: where a backend's log of decisions is written.
      embeddings: the vocabulary of the embeddings that the compiler sends, if any.
      file_bytes: limit on each file that the compiler writes.
      sandbox: what the compiler may do.
      cpu_s: CPU seconds of the compiler so far.
      processes: those of the compiler so far.
    """

    def __init__(
        self,
        module: Module,
        task: CompileTask[Any],
        toolchain: Toolchain,
        scratch: Path,
        seed: int,
        settings: RolloutSettings,
        scratch_bytes: int | None = None,
        policies: PolicyFolder | None = None,
    ):
        """See `rollout` for the arguments.

        Raises:
          ConfigError: the settings contradict each other, or `sandbox.VARIABLE` has an unknown value.
        """
        self.module = module
        self.task = task
        self.advisor = task.decision.advisor
        self.toolchain = toolchain
        self.support = toolchain.problems[self.advisor.problem]
        self.scratch = scratch
        if policies is None:
            policies = PolicyFolder(scratch / "policies")
            policies.prune()
        self.policies = policies
        self.file_bytes = settings.file_bytes
        if scratch_bytes is not None:
            self.file_bytes = min(settings.file_bytes, scratch_bytes // NUM_FILES)
        self.seed = seed
        self.settings = settings
        self.object_path = scratch / "module.o"
        self.log_path = scratch / "decisions.log"
        # Options of a trusted corpus may name other files to write.
        self.sandbox = None if module.trusted else Sandbox.for_folder(scratch)
        self.cpu_s = 0.0
        self.processes: list[CompilerProcess] = []
        self._remarks_path = scratch / "remarks.yaml"
        self._optimised_path = scratch / "optimised.bc"
        self.embeddings = toolchain.embeddings if self.advisor == INLINING else None
        if self.embeddings is not None and settings.backend not in ("auto", "channel"):
            raise ConfigError(
                f"backend: IR2Vec embeddings ({ir2vec.SETTING}) come over the channel only; found the backend "
                f"{settings.backend}; use auto, or leave {ir2vec.SETTING} out"
            )
        self.uses_opt = settings.inliner == "opt"
        if module.function_options is not None and (self.uses_opt or settings.backend not in ("auto", "plugin")):
            raise ConfigError(
                f"{module.name}: only our plugin sets options of single functions; found the "
                f"{'inliner opt' if self.uses_opt else f'backend {settings.backend}'}; use the backend auto"
            )
        if self.plugin_features and (self.uses_opt or settings.backend not in ("auto", "plugin")):
            raise ConfigError(
                f"backend: only our plugin computes the features {', '.join(self.plugin_features)}; found the "
                f"{'inliner opt' if self.uses_opt else f'backend {settings.backend}'}; use the backend auto, or leave "
                "inlining.features out"
            )
        if self.uses_opt and (self.advisor != INLINING or task.reader.remark_pass is not None):
            raise ConfigError(
                f"inliner: opt only inlines, which is not all that {task.decision.name} is about; use clang"
            )

    def twin(self, scratch: Path) -> "Compilation":
        """Another compilation of the same module in another folder, which records no call sites."""
        settings = dataclasses.replace(self.settings, record_call_sites=False)
        scratch_bytes = NUM_FILES * self.file_bytes
        return Compilation(
            self.module, self.task, self.toolchain, scratch, self.seed, settings, scratch_bytes, self.policies
        )

    @property
    def plugin_features(self) -> tuple[str, ...]:
        """The features that only our plugin computes among those that the toolchain is to record."""
        if self.advisor != INLINING:
            return ()
        return plugin_features.among(spec.name for spec in self.support.features)

    @property
    def default_trace_features(self) -> tuple[TensorSpec, ...]:
        """The features of a default trace, with the default decision unless that takes another feature's slot."""
        support = self.support
        if support.default_in_callee_slot or support.advice is None or self.advisor.default_feature is None:
            return support.features
        return (*support.features, dataclasses.replace(support.advice, name=self.advisor.default_feature))

    @functools.cached_property
    def loads_plugins(self) -> bool:
        """Whether clang loads pass plugins; as the backend of a ThinLTO link it does not."""
        return not is_thinlto(self._options)

    def may_use(self, backend: str) -> bool:
        """Whether the settings allow a backend; opt and embeddings need the channel."""
        needs_channel = self.uses_opt or self.embeddings is not None
        return self.settings.backend in (AUTO, backend) and not needs_channel

    @functools.cached_property
    def _options(self) -> tuple[str, ...]:
        return self.module.options(self.toolchain.clang)

    @property
    def names_call_sites(self) -> bool:
        """Whether remarks must name caller and callee of each decision."""
        return self.settings.record_call_sites and self.advisor == INLINING

    def command(self, flags: Sequence[str] = (), *, call_sites: bool = False) -> list[str]:
        """The argument list of clang or, if it is the inliner, of `opt`.

        `flags` are the advisor's, as clang takes them; with `call_sites`, the compiler writes the remarks that
        `call_sites` reads.

        Raises:
          ToolchainError: `opt` is missing.
        """
        options, bitcode, trusted = self._options, self.module.bitcode_path, self.module.trusted
        flags = [*flags, *self.module.pass_flags(options)]
        if self.module.function_options is not None:
            flags.append(load_option(options_plugin.options_plugin(self.toolchain)))
        if self.uses_opt:
            extra = [flag for flag in flags if flag != "-mllvm"]
            if call_sites:
                extra += remarks.opt_options(str(self._remarks_path))
            opt = self.toolchain.tool("opt")
            passes = self.settings.opt_passes
            return opt_command(opt, options, bitcode, self._optimised_path, extra, passes, trusted=trusted)
        flags = [*flags, *self.task.reader.object_options]
        remark_pass = remarks.INLINING_PASS if call_sites else self.task.reader.remark_pass
        if remark_pass is not None:
            flags = [*flags, *remarks.options(str(self._remarks_path), remark_pass)]
        return compile_command(self.toolchain.clang, options, bitcode, self.object_path, flags, trusted=trusted)

    def generate_code(self) -> None:
        """Compiles the bitcode that `opt` wrote to an object; does nothing if clang did all of the compilation.

        Raises:
          CompileError, CorpusError: clang failed.
        """
        if self.uses_opt:
            clang, flags = self.toolchain.clang, ["-disable-llvm-passes", *self.task.reader.object_options]
            flags += self.module.pass_flags(self._options)
            paths = (self._optimised_path, self.object_path)
            self._run(compile_command(clang, self._options, *paths, flags, trusted=self.module.trusted))

    def compile(
        self, flags: list[str], variables: Mapping[str, str] | None = None, *, call_sites: bool = False
    ) -> None:
        """Compiles to `object_path`, without a channel; arguments as for `command`.

        `variables` are the compiler's whole environment; by default ours.

        Raises:
          CompileError, CorpusError: the compiler failed.
        """
        self._run(self.command(flags, call_sites=call_sites), variables)
        self.generate_code()

    def _run(self, command: list[str], variables: Mapping[str, str] | None = None) -> None:
        if self.module.function_options is not None:
            added = options_plugin.environment(self.module.function_options, self.scratch)
            variables = {**(os.environ if variables is None else variables), **added}
        result = processes.run(
            command,
            timeout_s=self.settings.timeout_s,
            memory_bytes=self.settings.memory_bytes,
            file_bytes=self.file_bytes,
            environment=variables,
            sandbox=self.sandbox,
            max_stdout_bytes=MAX_OUTPUT_BYTES,
        )
        self.account(result, variables)

    def account(self, process: processes.ProcessResult, variables: Mapping[str, str] | None = None) -> None:
        """Adds the cost of a compiler process that has ended; `variables` were its environment, if not ours.

        Raises:
          CompileError, CorpusError: it failed.
          ResourceError: it ran out of memory or disk.
        """
        self.cpu_s += process.cpu_s
        self.processes.append(CompilerProcess(process, variables))
        if not process.ok:
            has_less_disk = self.file_bytes < self.settings.file_bytes
            if process.lacked_resources or (has_less_disk and process.returncode == -signal.SIGXFSZ):
                raise ResourceError(f"{self.module.name}: out of memory or disk: {process.describe()}")
            reason = explain_failure(process.stderr_tail)
            if reason is not None:
                raise CorpusError(f"{self.module.bitcode_path}: {reason}")
            raise CompileError(f"{self.module.name}: {process.describe()}")

    def call_sites(self, features: Mapping[str, np.ndarray], advice: np.ndarray) -> remarks.CallSites:
        """Caller and callee of each decision, after a compilation with `call_sites`; see `remarks.parse_call_sites`.

        Raises:
          ProtocolError: the remarks are about other decisions.
        """
        try:
            return remarks.parse_call_sites(self._remarks_path.read_bytes(), features, advice)
        except ProtocolError as error:
            raise ProtocolError(f"{self.module.name}: {error}") from error

    def measured_remarks(self) -> bytes:
        """The remarks that the problem measures; empty if it needs none."""
        if self.task.reader.remark_pass is None or not self._remarks_path.exists():
            return b""
        return self._remarks_path.read_bytes()
