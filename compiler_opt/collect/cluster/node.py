"""A worker on a node of a cluster: checks the node, keeps files that jobs read, and has a worker process do the jobs.

The process is that of `collect.worker`, as on the host; only the files are elsewhere. If a job kills it, the exit code
is returned, so that the host can tell this from a node that has left.
"""

import contextlib
import dataclasses
import functools
import hashlib
import os
import pickle
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from compiler_opt.collect.cluster.bundles import MODULES, POLICIES, Bundle, BundleCache
from compiler_opt.collect.machine import available_cpus, available_memory_bytes, has_room
from compiler_opt.collect.policy_folder import PolicyFolder
from compiler_opt.collect.rollout import Rollout
from compiler_opt.collect.schedule import Job, lost_rollout
from compiler_opt.collect.worker import LocalWorker, WorkerSettings, start_worker
from compiler_opt.decisions.decision import Decision
from compiler_opt.errors import CompilerOptError, ResourceError, ToolchainError
from compiler_opt.files import default_cache_dir
from compiler_opt.llvm import inliner_plugin, regalloc_plugin
from compiler_opt.llvm.advisors import INLINING
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain, probe

_START_TIMEOUT_S = 120.0
_PATIENCE_S = 60.0
_TICK_S = 0.5
_MAX_REPEATED = 5
"""How often a job is done whose files are gone when it ends."""
_CODE_SUFFIXES = (".c", ".cpp", ".h", ".py")


@dataclasses.dataclass(frozen=True)
class Setup:
    """What the host has and a node must have, too.

    Attributes:
      settings: of workers; paths of compiler and policies are the host's.
      code: digest of the installed compiler_opt.
      has_plugin: whether the problem's plugin can be built.
    """

    settings: WorkerSettings
    code: str
    has_plugin: bool

    @classmethod
    def of(cls, settings: WorkerSettings) -> "Setup":
        return cls(settings, code_digest(), plugin_failure(settings.task.decision, settings.toolchain) is None)


@dataclasses.dataclass(frozen=True)
class Answer:
    """The result of a job.

    Attributes:
      content: the pickled answer of the worker process; empty if there is none.
      kept_object: the object, if the job keeps it.
      exit_code: of the worker process, if it has died.
      refusal: why this node can do no more jobs.
    """

    content: bytes = b""
    kept_object: bytes | None = None
    exit_code: int | None = None
    refusal: str | None = None


class NodeWorker:
    """One worker of a node; call `start` first."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._worker: LocalWorker | None = None
        self._cache = BundleCache(default_cache_dir() / "nodes")

    def start(self, pickled_setup: bytes) -> None:
        """Checks the node and starts the worker process, given a pickled `Setup`.

        Raises:
          CompilerOptError: the node is not as the host; one line, for the user.
        """
        try:
            setup: Setup = pickle.loads(pickled_setup)  # noqa: S301 - from the host, in whose cluster this is
        except (AttributeError, ImportError, TypeError) as error:
            raise ToolchainError(f"its Python cannot import what the host uses: {error}; install the same") from error
        if code_digest() != setup.code:
            raise ToolchainError("its compiler_opt is another version than the host's; install the same")
        settings = setup.settings
        toolchain = node_toolchain(settings.toolchain)
        failure = plugin_failure(settings.task.decision, toolchain)
        if (failure is None) != setup.has_plugin:
            raise ToolchainError(failure or "it can build the plugin, and the host cannot; install the same packages")
        self._scratch = self._stack.enter_context(scratch_directory())
        policies = PolicyFolder(self._cache.root / POLICIES)
        settings = dataclasses.replace(settings, toolchain=toolchain, num_workers=available_cpus(), policies=policies)
        self._worker = start_worker(settings, self._scratch / "worker")
        self._stack.callback(self._end)
        try:
            if not self._worker.connection.poll(_START_TIMEOUT_S):
                raise ResourceError(f"a worker process did not start within {_START_TIMEOUT_S:.0f} s")
            self._worker.receive()
        except (EOFError, OSError) as error:
            raise ResourceError("a worker process died when it started; is there memory left?") from error

    def work(self, message: bytes, bundles: Mapping[Bundle, Callable[[], Mapping[str, bytes]]]) -> Answer:
        """Does a job.

        Args:
          message: `(job, PickledPolicy)`, pickled, with paths of the host.
          bundles: what it reads, each with a function that fetches the files, which the cache may have.
        """
        job, policy = pickle.loads(message)  # noqa: S301 - from the host
        kept = None if job.keep_object is None else self._scratch / "kept.o"
        [root] = [self._cache.path(bundle) for bundle in bundles if bundle.path.startswith(MODULES)]
        here: Job = dataclasses.replace(
            job, module=dataclasses.replace(job.module, root=root, remote=None), keep_object=kept
        )
        for _ in range(_MAX_REPEATED):
            if not self._await_room():
                failure = f"{job.module.name}: out of memory or disk on {os.uname().nodename}"
                return Answer(pickle.dumps(lost_rollout(job, failure, is_transient=True)))
            try:
                for bundle in self._missing(bundles):
                    self._cache.put(bundle, bundles[bundle]())
            except CompilerOptError as error:
                return Answer(refusal=str(error))
            assert self._worker is not None
            connection = self._worker.connection
            try:
                connection.send_bytes(pickle.dumps((here, policy)))
                # Waits for as long as the compilations may take; the host ends this actor when that is too long.
                while not connection.poll(_TICK_S):
                    pass
                content = connection.recv_bytes()
            except (EOFError, OSError):
                return Answer(exit_code=self._end())
            kept_object = None
            if kept is not None and kept.exists():
                kept_object = kept.read_bytes()
                kept.unlink()
            # Others may remove files when the disk gets full.
            missing = self._missing(bundles)
            if not missing or _is_good(content):
                return Answer(content, kept_object)
        return Answer(refusal=f"it does not keep what it stores: {', '.join(bundle.path for bundle in missing)}")

    def _missing(self, bundles: Iterable[Bundle]) -> list[Bundle]:
        """Those bundles that the node does not have."""
        return [bundle for bundle in bundles if not self._cache.has(bundle)]

    def _await_room(self) -> bool:
        """Waits a while for memory and disk; False if there is too little."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while not has_room(self._scratch, available_memory_bytes()):
            if time.monotonic() > deadline_s:
                return False
            time.sleep(_TICK_S)
        return True

    def _end(self) -> int | None:
        worker, self._worker = self._worker, None
        if worker is None:
            return None
        worker.kill()
        return worker.close()

    def close(self) -> None:
        """Ends the worker process and removes its files."""
        self._stack.close()


def _is_good(content: bytes) -> bool:
    """Whether a worker process has answered with the result of a compilation that succeeded."""
    answer = pickle.loads(content)  # noqa: S301 - from the process that this one has started
    return isinstance(answer, Rollout) and answer.failure is None


def node_toolchain(host: Toolchain) -> Toolchain:
    """The compiler of this machine that is the same as the host's, in its place or by its name on PATH.

    Raises:
      ToolchainError: there is none, or it differs.
    """
    found = probe(host.clang if host.clang.exists() else host.clang.name)
    for what in ("version_text", "target"):
        here, there = getattr(found, what), getattr(host, what)
        if here != there:
            raise ToolchainError(f"{found.clang}: expected the host's {what}, {there}; found {here}; install the same")
    if host.embeddings is not None:
        path = host.embeddings.path
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != host.embeddings.sha256:
            raise ToolchainError(f"{path}: expected the host's IR2Vec vocabulary; copy it there")
    return dataclasses.replace(
        host,
        clang=found.clang,
        tools=found.tools,
        pass_plugins=found.pass_plugins,
        plugin_headers=found.plugin_headers,
    )


def plugin_failure(decision: Decision, toolchain: Toolchain) -> str | None:
    """Builds the decision's plugin unless the user's cache has it; returns why that failed, or None."""
    build = inliner_plugin.inliner_plugin if decision.advisor == INLINING else regalloc_plugin.regalloc_plugin
    try:
        build(toolchain)
    except CompilerOptError as error:
        return str(error)
    return None


@functools.cache
def code_digest() -> str:
    """Identifies the installed compiler_opt: the digest of its sources."""
    root, digest = Path(__file__).parents[2], hashlib.sha256()
    for path in sorted(path for path in root.rglob("*") if path.suffix in _CODE_SUFFIXES):
        digest.update(f"{path.relative_to(root)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
