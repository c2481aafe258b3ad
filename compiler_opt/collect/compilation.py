"""The steps that compilations have in common, however decisions get into the compiler."""

import dataclasses
import functools
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from compiler_opt.corpus.command_lines import thinlto
from compiler_opt.corpus.command_lines.command_line import compile_command, opt_command
from compiler_opt.corpus.description import explain_failure
from compiler_opt.corpus.module import Module
from compiler_opt.errors import (
    CompileError,
    ConfigError,
    CorpusError,
    PolicyError,
    ProtocolError,
    ResourceError,
    ToolchainError,
)
from compiler_opt.llvm import ir2vec, processes, remarks
from compiler_opt.llvm.advisors import INLINING
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.llvm.training_log import Header
from compiler_opt.policies.policy import Decider, FeaturePolicy, Policy
from compiler_opt.problems.problem import Problem
from compiler_opt.tensor_spec import TensorSpec

BACKENDS = ("auto", "plugin", "channel", "development")
INLINERS = ("clang", "opt")
MAX_OUTPUT_BYTES = 1 << 20
"""Of what a compiler prints on stdout; nobody reads it."""
NUM_FILES = 4
"""That grow while a module is compiled: its object or bitcode, remarks, and a log with names beside it."""


def check_backend(name: str) -> None:
    """Raises ConfigError when there is no backend of that name."""
    if name not in BACKENDS:
        raise ConfigError(f"backend: expected one of {', '.join(BACKENDS)}; found {name!r}")


@dataclasses.dataclass(frozen=True)
class RolloutSettings:
    """Limits of one compilation.

    Attributes:
      timeout_s: wall-clock seconds; a compilation that takes longer is a failure.
      memory_bytes: address space of the compiler.
      file_bytes: of each file that the compiler writes; less where the disk is nearly full.
      record_call_sites: of inlining, also learn who calls whom (over the channel this costs some 10% of the
        compilation).
      backend: how decisions get into the compiler: `plugin` (of inlining made in its own process; of the register
        allocator made here, told what its default would decide), `channel` (made here, over LLVM's own pipes; of
        inlining both give the same), `development` (by a compiler that was built with TFLite; the same but for what is
        drawn), or `auto`: the plugin when it can be built for the compiler and the policy can run in it; else for the
        compiler's own decisions the development mode, where there is one; else the channel.
      models: for the development mode, the folder in which each network has its model, by the policy's key; set by
        `export.development`.
      inliner: which program inlines: `clang`, which does all of the compilation, or `opt`, whose output clang makes an
        object of; the latter over the channel.
      opt_passes: the pipeline that `opt` runs; by default that of the module's `-O` level. For modules that were
        captured right before inlining: `scc-oz-module-inliner`.
    """

    timeout_s: float = 120.0
    memory_bytes: int = processes.DEFAULT_MEMORY_BYTES
    file_bytes: int = 1 << 29
    record_call_sites: bool = False
    backend: str = "auto"
    models: Path | None = None
    inliner: str = "clang"
    opt_passes: str = ""

    def __post_init__(self) -> None:
        check_backend(self.backend)
        if self.inliner not in INLINERS:
            raise ConfigError(f"inliner: expected one of {', '.join(INLINERS)}; found {self.inliner!r}")
        if self.inliner == "opt" and self.backend not in ("auto", "channel"):
            raise ConfigError(f"inliner: opt is driven over the channel only; found the backend {self.backend!r}")


class DefaultPolicy(FeaturePolicy):
    """Decides what the compiler itself would; its trajectories are the default traces."""

    needs_default = True
    is_default = True

    def __init__(self, problem: Problem):
        if problem.advisor.default_feature is None:
            raise PolicyError(f"{problem.name}: the compiler does not tell its own decision")
        super().__init__(problem.advisor.default_feature, name="default")


class EmbeddedPolicy(Policy):
    """The model that is built into the compiler: it decides there, unseen, and nowhere else."""

    name = "embedded"

    def start(self, header: Header, seed: int) -> Decider:
        raise PolicyError("the compiler's built-in model decides within the compiler only; compile by `rollout`")


def check_embedded_model(toolchain: Toolchain, problem: Problem) -> None:
    """Raises ToolchainError when no model is built into the compiler."""
    if not toolchain.require(problem.advisor.problem).embedded:
        raise ToolchainError(
            f"{toolchain.clang}: no model for {problem.advisor.problem} is built into it (it cannot set up the release "
            "mode without a channel); use a clang that was built with one, see docs/deploy.md"
        )


class Compilation:
    """One compilation, or what stands for it when it takes several; and what it costs.

    Attributes:
      object_path: where the object is afterwards.
      log_path: for a backend's log of decisions.
      embeddings: the vocabulary that the compiler is to make embeddings by, if any.
      file_bytes: limit on each file that the compiler writes.
      cpu_s: CPU seconds of the compiler so far.
    """

    def __init__(
        self,
        module: Module,
        problem: Problem,
        toolchain: Toolchain,
        scratch: Path,
        seed: int,
        settings: RolloutSettings,
        scratch_bytes: int | None = None,
    ):
        """See `rollout` for the arguments.

        Raises:
          ToolchainError: the compiler cannot hand over the problem's decisions.
          ConfigError: the settings do not go together.
        """
        self.module = module
        self.problem = problem
        self.advisor = problem.advisor
        self.toolchain = toolchain
        self.support = toolchain.require(problem.advisor.problem)
        self.scratch = scratch
        self.file_bytes = settings.file_bytes
        if scratch_bytes is not None:
            self.file_bytes = min(settings.file_bytes, scratch_bytes // NUM_FILES)
        self.seed = seed
        self.settings = settings
        self.object_path = scratch / "module.o"
        self.log_path = scratch / "decisions.log"
        self.cpu_s = 0.0
        self._remarks_path = scratch / "remarks.yaml"
        self._optimised_path = scratch / "optimised.bc"
        self.embeddings = toolchain.embeddings if problem.advisor == INLINING else None
        if self.embeddings is not None and settings.backend not in ("auto", "channel"):
            raise ConfigError(
                f"backend: IR2Vec embeddings ({ir2vec.SETTING}) come over the channel only; found the backend "
                f"{settings.backend}; use auto, or leave {ir2vec.SETTING} out"
            )
        self.uses_opt = settings.inliner == "opt"
        if self.uses_opt and (problem.advisor != INLINING or problem.remark_pass is not None):
            raise ConfigError(
                f"inliner: {problem.name} is not about inlining alone, which is what opt can do; use clang"
            )

    @property
    def features_of_default(self) -> tuple[TensorSpec, ...]:
        """What an observation of a default trace consists of: with the default's decision, unless that took a slot."""
        support = self.support
        if support.default_in_callee_slot or support.advice is None or self.advisor.default_feature is None:
            return support.features
        return (*support.features, dataclasses.replace(support.advice, name=self.advisor.default_feature))

    @property
    def loads_plugins(self) -> bool:
        """Whether clang heeds `-fpass-plugin`: not where it compiles as the backend of a ThinLTO link."""
        return not thinlto.without_index(self._options)[1]

    @functools.cached_property
    def _options(self) -> tuple[str, ...]:
        """See `Module.options`."""
        return self.module.options()

    @property
    def names_call_sites(self) -> bool:
        """Whether it is asked who calls whom."""
        return self.settings.record_call_sites and self.advisor == INLINING

    def command(self, flags: Sequence[str] = (), *, call_sites: bool = False) -> list[str]:
        """The argument list of the compiler or, when that inlines, of `opt`.

        Args:
          flags: of the advisor, as clang takes them.
          call_sites: have remarks written that `call_sites` reads.

        Raises:
          ToolchainError: there is no `opt`.
        """
        options, bitcode, trusted = self._options, self.module.bitcode_path, self.module.trusted
        if self.uses_opt:
            extra = [flag for flag in flags if flag != "-mllvm"]
            if call_sites:
                extra += remarks.opt_options(str(self._remarks_path))
            opt = self.toolchain.tool("opt")
            passes = self.settings.opt_passes
            return opt_command(opt, options, bitcode, self._optimised_path, extra, passes, trusted=trusted)
        remark_pass = remarks.REMARK_PASS if call_sites else self.problem.remark_pass
        if remark_pass is not None:
            flags = [*flags, *remarks.options(str(self._remarks_path), remark_pass)]
        return compile_command(self.toolchain.clang, options, bitcode, self.object_path, flags, trusted=trusted)

    def generate_code(self) -> None:
        """Makes the object of what `opt` has left; where clang has compiled there is nothing to do.

        Raises:
          CompileError, CorpusError: it fails.
        """
        if self.uses_opt:
            flags = ["-disable-llvm-passes"]
            command = compile_command(
                self.toolchain.clang,
                self._options,
                self._optimised_path,
                self.object_path,
                flags,
                trusted=self.module.trusted,
            )
            self._run(command)

    def compile(
        self, flags: list[str], variables: Mapping[str, str] | None = None, *, call_sites: bool = False
    ) -> None:
        """Compiles to `object_path`, without a conversation.

        Args:
          flags: of the advisor.
          variables: the compiler's whole environment; by default ours.
          call_sites: see `command`.

        Raises:
          CompileError, CorpusError: it fails.
        """
        self._run(self.command(flags, call_sites=call_sites), variables)
        self.generate_code()

    def _run(self, command: list[str], variables: Mapping[str, str] | None = None) -> None:
        result = processes.run(
            command,
            timeout_s=self.settings.timeout_s,
            memory_bytes=self.settings.memory_bytes,
            file_bytes=self.file_bytes,
            environment=variables,
            max_stdout_bytes=MAX_OUTPUT_BYTES,
        )
        self.account(result)

    def compile_by_embedded_model(self) -> None:
        """Compiles under the model that is built into the compiler.

        Raises:
          ToolchainError: there is none.
          CompileError, CorpusError: it fails.
        """
        check_embedded_model(self.toolchain, self.problem)
        self.compile(self.advisor.embedded_options())

    def account(self, process: processes.ProcessResult) -> None:
        """Counts what a process has cost.

        Raises:
          CompileError, CorpusError: it failed.
          ResourceError: it failed for want of memory or disk.
        """
        self.cpu_s += process.cpu_s
        if not process.ok:
            has_less_disk = self.file_bytes < self.settings.file_bytes
            if process.lacked_resources or (has_less_disk and process.returncode == -signal.SIGXFSZ):
                raise ResourceError(f"{self.module.name}: out of memory or disk: {process.describe()}")
            reason = explain_failure(process.stderr_tail)
            if reason is not None:
                raise CorpusError(f"{self.module.bitcode_path}: {reason}")
            raise CompileError(f"{self.module.name}: {process.describe()}")

    def call_sites(self, features: Mapping[str, np.ndarray], advice: np.ndarray) -> remarks.CallSites:
        """Who calls whom, after a compilation with `call_sites`; see `remarks.parse_call_sites`.

        Raises:
          ProtocolError: the remarks are not about those decisions.
        """
        try:
            return remarks.parse_call_sites(self._remarks_path.read_bytes(), features, advice)
        except ProtocolError as error:
            raise ProtocolError(f"{self.module.name}: {error}") from error

    def measured_remarks(self) -> bytes:
        """What the problem's measurement needs of them."""
        if self.problem.remark_pass is None or not self._remarks_path.exists():
            return b""
        return self._remarks_path.read_bytes()
