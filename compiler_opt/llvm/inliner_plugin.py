"""The inliner's plugin (`native/inliner_plugin.cpp`), which decides in the compiler's own process.

plugin = inliner_plugin(toolchain)                                   # ToolchainError says what is missing
processes.run([..., load_option(plugin)], environment=environment(policy=blob, seed=1, log=log))
read_log(log, features)

The log is a training log, with the names of the functions in another file. Each observation has LLVM's features, those
of the plugin's own that were asked for, then `inlining_default` (if known), `inlining_decision`, `caller`, `callee`,
`caller_body`, `inlined`, `replayed` (if there was a decision file) and `logits` (if a policy decided).
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from compiler_opt.errors import ProtocolError, ToolchainError
from compiler_opt.llvm import plugin_features, processes
from compiler_opt.llvm.advisors import INLINING
from compiler_opt.llvm.interactive import compile_interactively, llvm_channel
from compiler_opt.llvm.plugin import NATIVE, PluginKind, load_option, user_cache
from compiler_opt.llvm.probe import TIMEOUT_S
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.llvm.training_log_reader import decode_log
from compiler_opt.tensor_spec import TensorSpec

DECISION, DEFAULT, LOGITS, REPLAYED = "inlining_decision", "inlining_default", "logits", "replayed"
_SITE_COLUMNS = ("caller", "callee", "caller_body", "inlined")


@dataclasses.dataclass(frozen=True)
class InlinerLog:
    """The T decisions of one compilation.

    Attributes:
      observations: the requested features of T observations, as raw bytes.
      advice: `[T]` int64.
      logits: `[T, 2]` float32; None unless a policy decided.
      call_sites: callers, callees and outcomes.
      default_advice: `[T]` int64, the compiler's own decisions; None unless they were logged.
    """

    observations: bytes
    advice: np.ndarray
    logits: np.ndarray | None
    call_sites: CallSites
    default_advice: np.ndarray | None = None


def read_log(log: Path, features: Sequence[TensorSpec]) -> InlinerLog | None:
    """Reads the log of a successful compilation; None if there was nothing to decide.

    The functions' names are in `LOG.functions`. Raises ProtocolError if the log is damaged, or if its observations do
    not begin with these features.
    """
    try:
        content = log.read_bytes()
        names = log.with_name(f"{log.name}.functions").read_bytes()
    except FileNotFoundError:
        return None
    if not content:
        return None
    decoded = decode_log(content)
    if decoded.left_bytes:
        raise ProtocolError(f"log: its last {decoded.left_bytes} bytes are not a complete record")
    if decoded.features[: len(features)] != tuple(features):
        raise ProtocolError("log: the inliner plugin logs other features than the compiler sends over the channel")
    arrays = decoded.arrays()
    missing = [name for name in (DECISION, *_SITE_COLUMNS) if name not in arrays]
    if missing:
        raise ProtocolError(f"log: expected {', '.join(missing)} after the features, found none")
    num_bytes = sum(spec.num_bytes for spec in features)
    return InlinerLog(
        # Contiguous first: otherwise numpy copies byte by byte.
        np.ascontiguousarray(decoded.observations[:, :num_bytes]).tobytes(),
        arrays[DECISION].reshape(-1),
        arrays.get(LOGITS),
        _call_sites(names, arrays),
        arrays[DEFAULT].reshape(-1) if DEFAULT in arrays else None,
    )


def _call_sites(names: bytes, arrays: Mapping[str, np.ndarray]) -> CallSites:
    callers, callees, bodies, inlined = (arrays[name].reshape(-1) for name in _SITE_COLUMNS)
    functions = tuple(names.decode("utf-8", "surrogateescape").split("\0")[:-1])
    for column in (callers, callees):
        if len(column) and not 0 <= column.min() <= column.max() < len(functions):
            raise ProtocolError(f"log: a function index is out of range; there are {len(functions)} names")
    replayed = arrays[REPLAYED].reshape(-1) != 0 if REPLAYED in arrays else None
    indices = [column.astype(np.int32) for column in (callers, callees)]
    return CallSites(functions, indices[0], indices[1], inlined != 0, bodies.astype(np.uint64), replayed)


_NAMES = """
inliner_plugin.cpp inliner_settings.h inliner_log.h inline_advisor.h callsite_features.h function_body.h
call_graph_heights.h frame_limit.h inline_cost_sum.h shown_advice.h decision_replay.h decision_file.h
body_fingerprints.h difference_log.h function_counter.h function_features.h plugin_environment.h policy_network.h
"""
SOURCES = tuple(NATIVE / name for name in _NAMES.split())
"""What it is built from."""

PROBE_SOURCE = NATIVE / "inliner_probe.cpp"
"""C++20 without includes, compiled to try out the inliner's plugin."""


def environment(
    *,
    policy: Path | None,
    temperature: float = 0.0,
    seed: int = 0,
    decisions: Path | None = None,
    log: Path | None = None,
    log_default: bool = False,
    log_features: Sequence[str] = (),
    functions: Path | None = None,
    thinlto: bool = False,
    strict: bool = True,
) -> dict[str, str]:
    """All environment variables of a compiler that loads the plugin: those of this process, and the plugin's settings.

    Args:
      policy: file of a native policy; None for the compiler's default decisions.
      temperature: divides the logits before sampling; 0 is greedy.
      seed: of sampling.
      decisions: native form of a decision file to replay, made for this policy (see `policies.decisions`).
      log: file for the training log (the functions' names go to `LOG.functions`).
      log_default: also log the default decisions; without a policy they always are.
      log_features: names of the plugin's own features to log after LLVM's, see `plugin_features`.
      functions: file for the features of functions right after inlining.
      thinlto: also decide in the backends of a ThinLTO link.
      strict: fail the compilation, rather than continue without the policy, if these settings cannot be followed.
    """
    return {
        **os.environ,
        "MLGO_INLINER_MODE": "default" if policy is None else "policy",
        "MLGO_INLINER_LEVELS": "",
        "MLGO_INLINER_POLICY": str(policy or ""),
        "MLGO_INLINER_TEMPERATURE": repr(float(temperature)),
        "MLGO_INLINER_SEED": str(seed % (1 << 64)),
        "MLGO_INLINER_DECISIONS": str(decisions or ""),
        "MLGO_INLINER_LOG": str(log or ""),
        "MLGO_INLINER_LOG_DEFAULT": str(int(log_default)),
        "MLGO_INLINER_LOG_FEATURES": ",".join(log_features),
        "MLGO_INLINER_DIFFERENCES": "",
        "MLGO_INLINER_FUNCTIONS": str(functions or ""),
        "MLGO_INLINER_THINLTO": str(int(thinlto)),
        "MLGO_INLINER_STRICT": str(int(strict)),
        "MLGO_LLVM_VERSION": "",
    }


def can_build(toolchain: Toolchain) -> bool:
    """Whether building the inliner's plugin is likely to succeed; builds nothing."""
    return INLINER.fits(toolchain) and toolchain.pass_plugins and toolchain.plugin_headers is not None


def inliner_plugin(toolchain: Toolchain) -> Path:
    """The inliner's plugin, from the user's cache; see `PluginCache.get`."""
    return user_cache().get(toolchain, INLINER)


def with_plugin_features(toolchain: Toolchain, names: Iterable[str]) -> Toolchain:
    """The toolchain whose features of inlining include those of the names that only the plugin computes.

    Builds the plugin, unless the cache has it or there is nothing to add.

    Raises:
      ToolchainError: the plugin cannot be built; the message says what to install.
    """
    support = toolchain.require(INLINING.problem)
    added = plugin_features.specs(set(names) - {spec.name for spec in support.features})
    if not added:
        return toolchain
    inliner_plugin(toolchain)
    extended = dataclasses.replace(support, features=(*support.features, *added))
    return dataclasses.replace(toolchain, problems={**toolchain.problems, INLINING.problem: extended})


def _try_out(toolchain: Toolchain, plugin: Path, scratch: Path) -> None:
    """See `PluginKind.try_out`: each feature must have the same value as in LLVM's own advisor."""
    command = [str(toolchain.clang), "-std=c++20", "-O2", "-x", "c++", str(PROBE_SOURCE), "-c", "-o"]
    differing = differing_features(toolchain, plugin, [*command, str(scratch / "probe.o")], scratch)
    if differing:
        raise ToolchainError(
            f"{toolchain.clang}: the inliner plugin computes other values than LLVM's own advisor for the features "
            f"{', '.join(differing)}; use the backend channel"
        )


def differing_features(toolchain: Toolchain, plugin: Path, command: Sequence[str], scratch: Path) -> list[str]:
    """Names of the features whose values differ between plugin and channel under the default policy.

    The command compiles a source that has inlining decisions. Without a channel there is nothing to compare. Raises
    ToolchainError if the compiler fails with either.
    """
    log, support = scratch / "probe.log", toolchain.problems[INLINING.problem]
    features = tuple(spec for spec in support.features if spec.name not in plugin_features.ALL)
    variables = environment(policy=None, log=log)
    result = processes.run([*command, load_option(plugin)], timeout_s=TIMEOUT_S, environment=variables)
    if not result.ok:
        raise ToolchainError(f"{toolchain.clang}: does not work with the inliner plugin: {result.describe()}")
    try:
        decided = decode_log(log.read_bytes())
    except OSError:
        raise ToolchainError(f"{toolchain.clang}: loads the inliner plugin but does not ask it for decisions") from None
    if decided.features[: len(features)] != features:
        raise ToolchainError(f"{toolchain.clang}: offers the inliner plugin other features than the channel")
    if not support.interactive:
        return []
    ours = decided.columns()
    advice = iter(ours[DECISION].reshape(-1).tolist())
    channel = compile_interactively(
        command,
        connect=llvm_channel(INLINING),
        start_deciding=lambda header: lambda observation: next(advice, 0),
        scratch=scratch,
        timeout_s=TIMEOUT_S,
    )
    if not channel.process.ok or channel.header is None:
        raise ToolchainError(f"{toolchain.clang}: fails over the channel: {channel.process.describe()}")
    theirs = channel.header.decode(channel.observations)
    return [name for name in theirs if not np.array_equal(ours[name].reshape(-1), theirs[name].reshape(-1))]


INLINER = PluginKind("inliner", SOURCES, _try_out, oldest=19)
