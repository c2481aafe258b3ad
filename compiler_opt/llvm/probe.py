"""Finds out what a compiler supports by compiling one tiny module with it.

Versions are not considered: a compiler may be patched, or built without some part.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from compiler_opt.errors import ProtocolError, ToolchainError
from compiler_opt.llvm import interactive, ir2vec, plugin_features, processes
from compiler_opt.llvm.advisors import INLINING, REGALLOC_EVICTION, REGALLOC_PRIORITY, AdvisorFlags
from compiler_opt.llvm.training_log import Header
from compiler_opt.llvm.training_log_reader import read_log
from compiler_opt.tensor_spec import TensorSpec

TIMEOUT_S = 30.0
"""For one compilation of the tiny module; it takes some 30 ms."""

_INLINING_IR = """\
declare i64 @read(i64)
declare void @effect()

define internal i64 @callee(i64 %x) {
entry:
  %small = icmp ult i64 %x, 10
  br i1 %small, label %left, label %right
left:
  %read = call i64 @read(i64 %x)
  br label %done
right:
  call void @effect()
  br label %done
done:
  %result = phi i64 [ %read, %left ], [ 7, %right ]
  ret i64 %result
}

define i64 @caller(i64 %x) {
  %result = call i64 @callee(i64 %x)
  ret i64 %result
}

"""


def probe_module() -> str:
    """LLVM IR for any target, with at least one decision of every advisor.

    `@caller` calls `@callee`, whose four blocks no pass can fold. `@pressure` keeps 40 values live at once, more than
    any target has registers.
    """
    values = range(40)
    loads = [
        f"  %p{i} = getelementptr i64, ptr %base, i64 {i}\n  %v{i} = load volatile i64, ptr %p{i}\n" for i in values
    ]
    # Two uses of each value, far from its load.
    stores = [f"  %m{i} = mul i64 %v{i}, %v{(7 * i + 3) % 40}\n  store volatile i64 %m{i}, ptr %p{i}\n" for i in values]
    return (
        _INLINING_IR
        + "define void @pressure(ptr %base, i64 %count) {\nentry:\n  br label %loop\nloop:\n"
        + "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]\n"
        + "".join(loads + stores)
        + "  %next = add i64 %i, 1\n  %more = icmp ult i64 %next, %count\n"
        + "  br i1 %more, label %loop, label %exit\nexit:\n  ret void\n}\n"
    )


@dataclasses.dataclass(frozen=True)
class ProblemSupport:
    """What one compiler supports for one problem.

    Attributes:
      problem: the problem's name.
      interactive: decisions over the interactive channel.
      development: the development mode: logging, and evaluation of TFLite models.
      logs_default: in that mode, without a model, it logs the default decisions with their features (some compilers
        leave all features 0).
      embedded: the release mode without a channel, by an embedded model.
      features: those of a decision over the channel, without the default decision; empty if not interactive.
      advice: the tensor of the decision; None if not interactive.
      default_in_callee_slot: a bug (LLVM 17 to 20, unless fixed): asked for the default decision, the compiler writes
        it over `callee_basic_block_count` (`AdvisorFlags.default_slot`) and leaves `inlining_default` 0.
      reason: why it is not interactive, else empty.
    """

    problem: str
    interactive: bool
    development: bool = False
    logs_default: bool = False
    embedded: bool = False
    features: tuple[TensorSpec, ...] = ()
    advice: TensorSpec | None = None
    default_in_callee_slot: bool = False
    reason: str = ""

    @property
    def feature_names(self) -> tuple[str, ...]:
        """All features that policies can observe: those of the compiler, and those that our plugin adds."""
        added = plugin_features.ALL if self.problem == INLINING.problem else ()
        return tuple(dict.fromkeys((*(spec.name for spec in self.features), *added)))


def _feature(header: Header, observation: bytes, name: str) -> np.ndarray:
    """One feature of one decision, flattened."""
    if name not in header.names:
        raise ProtocolError(f"expected the feature {name!r} in the channel's header, found none")
    return header.decode(observation)[name].reshape(-1)


_STRATEGIES: Mapping[str, interactive.StartDeciding] = {
    # Never inline.
    INLINING.problem: lambda header: lambda observation: 0,
    # Evict the last legal candidate: that is the new live range itself, if it may be spilled instead.
    REGALLOC_EVICTION.problem: lambda header: (
        lambda observation: int(max(_feature(header, observation, "mask").nonzero()[0], default=0))
    ),
    # Longest live range first.
    REGALLOC_PRIORITY.problem: lambda header: lambda observation: float(_feature(header, observation, "li_size")[0]),
}


class Prober:
    """Compiles the tiny module with one compiler, in a scratch directory of its own."""

    def __init__(self, clang: Path, scratch: Path):
        self._clang = clang
        self._scratch = scratch
        source = scratch / "probe.ll"
        source.write_text(probe_module())
        self._output = scratch / "probe.o"
        self._command = [str(clang), "-Wno-override-module", "-x", "ir", str(source), "-c", "-o", str(self._output)]

    def support(self, flags: AdvisorFlags) -> ProblemSupport:
        """The compiler's support of one problem; raises nothing if there is none."""
        found = ProblemSupport(flags.problem, False, *self._development(flags), self._embedded(flags))
        try:
            plain = self._converse(flags)
            misplaced = flags.include_default is not None and self._default_is_misplaced(flags, plain)
        except ProtocolError as error:
            return dataclasses.replace(found, reason=str(error))
        assert plain.header is not None
        features, advice = plain.header.features, plain.header.advice
        return dataclasses.replace(
            found, interactive=True, features=features, advice=advice, default_in_callee_slot=misplaced
        )

    def features_with_embeddings(self, vocabulary: ir2vec.Ir2VecVocabulary) -> tuple[TensorSpec, ...]:
        """The features of inlining with embeddings by a vocabulary.

        Raises:
          ToolchainError: the compiler supports no embeddings, or rejects this vocabulary.
        """
        what = f"{self._clang}: sends no embeddings by {ir2vec.OPTION}={vocabulary.path}"
        remedy = f"use a clang >= 22 and a vocabulary that it reads, or leave {ir2vec.SETTING} out"
        try:
            header = self._converse(INLINING, options=vocabulary.options()).header
        except ProtocolError as error:
            raise ToolchainError(f"{what}: {str(error).partition(' (command')[0]}; {remedy}") from None
        assert header is not None
        features = ir2vec.flattened(header).features
        found = len(ir2vec.components(spec.name for spec in features))
        if found != len(ir2vec.TENSORS) * vocabulary.dimensions:
            raise ToolchainError(
                f"{what}: expected {len(ir2vec.TENSORS)} of {vocabulary.dimensions} numbers, found {found} in all; "
                f"{remedy}"
            )
        return features

    def accepts_pass_plugins(self) -> bool:
        """Whether the compiler tries to load a pass plugin (a missing one, so that it reports an error)."""
        missing = self._scratch / "missing.so"
        result = processes.run([*self._command, f"-fpass-plugin={missing}"], timeout_s=TIMEOUT_S)
        return "unable to load plugin" in result.stderr_tail

    def _converse(
        self, flags: AdvisorFlags, *, include_default: bool = False, options: Sequence[str] = ()
    ) -> interactive.InteractiveResult:
        """Compiles over the channel; raises ProtocolError unless there is at least one decision."""
        result = interactive.compile_interactively(
            [*self._command_for(flags), *options],
            connect=interactive.llvm_channel(flags, include_default=include_default),
            start_deciding=_STRATEGIES[flags.problem],
            scratch=self._scratch,
            timeout_s=TIMEOUT_S,
        )
        if not result.process.ok:
            raise ProtocolError(result.process.describe())
        if not result.advice:
            raise ProtocolError("the compiler accepted the channel's options but asked for no decision")
        return result

    def _default_is_misplaced(self, flags: AdvisorFlags, plain: interactive.InteractiveResult) -> bool:
        """Whether asking for the default decision changes another feature."""
        asked = self._converse(flags, include_default=True)
        assert plain.header is not None and asked.header is not None
        if flags.default_feature not in asked.header.names:
            raise ProtocolError(f"asked for the default decision, but no feature {flags.default_feature!r} came")
        before = plain.header.decode(plain.observations)
        after = asked.header.decode(asked.observations)
        differing = [name for name in before if before[name][0].tobytes() != after[name][0].tobytes()]
        if differing and differing != [flags.default_slot]:
            raise ProtocolError(f"asking for the default decision changes the features {', '.join(differing)}")
        return bool(differing)

    def _development(self, flags: AdvisorFlags) -> tuple[bool, bool]:
        """Whether the development mode logs default decisions, and whether their features are set."""
        path = self._scratch / f"{flags.problem}.log"
        options = flags.development_options(path)
        try:
            result = processes.run([*self._command_for(flags), *options], timeout_s=TIMEOUT_S)
            log = read_log(path) if result.ok and path.is_file() else None
            decisions = len(log) if log is not None else 0
            # The last feature is the decision itself.
            has_features = log is not None and log.observations[:, : -log.features[-1].num_bytes].any()
        except ProtocolError:
            decisions, has_features = 0, False
        finally:
            path.unlink(missing_ok=True)
        return decisions > 0, bool(has_features)

    def _embedded(self, flags: AdvisorFlags) -> bool:
        """Whether the release mode works without a channel; it fails unless a model is embedded."""
        self._output.unlink(missing_ok=True)
        command = [*self._command_for(flags), *flags.embedded_options()]
        return processes.run(command, timeout_s=TIMEOUT_S).ok and self._output.is_file()

    def _command_for(self, flags: AdvisorFlags) -> list[str]:
        return [*self._command, "-Oz" if flags == INLINING else "-O2"]
