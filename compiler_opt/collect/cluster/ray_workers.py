"""Workers on the nodes of a Ray cluster, each an actor with one CPU (docs/cluster.md).

with RayWorkers("auto") as cluster:
    with WorkerPool(toolchain, problem, cluster.num_cpus, start_worker=cluster.start) as pool:
        ...

The pool has a socket for each worker, as for a local one; a thread here passes messages on to the actor, and its
answers back. So jobs, repetitions and blame are the pool's. What a job reads on the host is sent to each node once, by
content (`bundles.py`). An actor waits for a free CPU for as long as it takes: nodes may join later. When its node
leaves, the worker ends without an exit code, and the pool starts another.
"""

import asyncio
import contextlib
import dataclasses
import logging
import pickle
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from compiler_opt.collect.cluster import connection
from compiler_opt.collect.cluster.actor import actor_class
from compiler_opt.collect.cluster.bundles import (
    Bundle,
    digest_of,
    folder_files,
    module_bundle,
    module_files,
    policy_bundle,
)
from compiler_opt.collect.cluster.node import Answer, Setup
from compiler_opt.collect.compilation_files import CompilationFiles
from compiler_opt.collect.policy_folder import PickledPolicy, PolicyFolder
from compiler_opt.collect.schedule import Job, lost_rollout
from compiler_opt.collect.worker import Worker, WorkerSettings
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.module import Module
from compiler_opt.errors import CompilerOptError, ConfigError, CorpusError, ResourceError
from compiler_opt.files import one_line, printable
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.problem import AnyProblem

_LOG = logging.getLogger(__name__)

_PLACEMENT_LIMIT_S = 1800.0
"""How long to wait for a first free CPU: some clouds take minutes to start a machine."""
_LOOK_S = 60.0
_CLOSE_TIMEOUT_S = 10.0
_MAX_LOST_STARTS = 10
_MAX_FAILED_STARTS = 3
"""Of worker processes on a node."""
_MAX_REPEATED = 5
"""How often the files of one job are sent to a node again: it may drop some when its disk gets full."""
_LENGTH, _LONG_LENGTH = struct.Struct("!i"), struct.Struct("!Q")
"""What `multiprocessing.connection` sends before a message, the second after -1 if it has 2 GiB or more."""


class RayWorkers:
    """Workers in a Ray cluster.

    Attributes:
      num_cpus: of the cluster, when it was connected to.
      ray: the package.
      loop: runs in a thread of its own.
      num_ready: workers that have started.
      last_ready_s: `time.monotonic()` when a worker was last ready.
    """

    def __init__(self, address: str):
        """`address`: `auto` for the cluster that this machine belongs to, or HOST:PORT of its head."""
        self._address = address
        self._stack = contextlib.ExitStack()
        self._nodes: dict[str, _Node] = {}
        self._remotes: set[_RemoteWorker] = set()
        self._sources: dict[Bundle, Module | Path] = {}
        self._bundles: dict[tuple[Path, str], Bundle] = {}
        self._settings: WorkerSettings | None = None
        self._setup: Any = None
        self.num_ready = 0
        self.last_ready_s = 0.0

    def __enter__(self) -> "RayWorkers":
        """Connects to the cluster.

        Raises:
          MissingPackageError: Ray is not installed.
          ConfigError: no cluster answers.
        """
        self.ray = connection.import_ray()
        with contextlib.ExitStack() as stack:
            if not self.ray.is_initialized():
                connection.connect(self.ray, self._address)
                stack.callback(self.ray.shutdown)
            self.num_cpus = int(self.ray.cluster_resources().get("CPU", 0))
            self._actor_class = actor_class(self.ray)
            self.loop = asyncio.new_event_loop()
            thread = threading.Thread(target=self.loop.run_forever, name="ray workers", daemon=True)
            thread.start()
            stack.callback(self.loop.close)
            stack.callback(thread.join)
            stack.callback(self.loop.call_soon_threadsafe, self.loop.stop)
            stack.callback(lambda: asyncio.run_coroutine_threadsafe(self._end_all(), self.loop).result())
            self.last_ready_s = time.monotonic()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def start(self, settings: WorkerSettings, scratch: Path) -> Worker:
        """Asks for a worker on some node; for `WorkerPool(start_worker=...)`."""
        scratch.mkdir()
        if settings is not self._settings:
            self._settings = settings
            self._setup = self.ray.put(pickle.dumps(Setup.of(settings)))
        ours, theirs = socket.socketpair()
        remote = _RemoteWorker(self, theirs, settings.policies)
        self.loop.call_soon_threadsafe(self._begin, remote)
        return Worker(Connection(ours.detach()), remote, scratch, start_timeout_s=float("inf"))

    def _begin(self, remote: "_RemoteWorker") -> None:
        self._remotes.add(remote)
        remote.task = asyncio.ensure_future(remote.run())
        remote.task.add_done_callback(lambda _: self._remotes.discard(remote))

    async def _end_all(self) -> None:
        for remote in self._remotes:
            remote.cancel()
        if self._remotes:
            await asyncio.wait([remote.task for remote in self._remotes], timeout=_CLOSE_TIMEOUT_S)

    async def place(self) -> "tuple[Any, _Node]":
        """An actor that has started a worker, and its node.

        Raises:
          CompilerOptError: no node will do.
        """
        num_lost, errors = 0, self.ray.exceptions
        while True:
            self._check_usable()
            actor = self._actor_class.options(label_selector=self._selector()).remote()
            try:
                try:
                    node_id, name, failure, is_lasting = await self._await_start(actor)
                except errors.RayError as error:
                    if isinstance(error, errors.RayTaskError):
                        raise
                    # Most likely its node has left.
                    num_lost += 1
                    if num_lost >= _MAX_LOST_STARTS:
                        reason = one_line(str(error))
                        raise ResourceError(f"no worker starts in the Ray cluster; the last: {reason}") from None
                    await asyncio.sleep(1.0)
                    continue
                node = self._nodes.setdefault(node_id, _Node(node_id, name))
                if failure is None and node.refusal is None:
                    node.num_failed_starts, actor_kept = 0, actor
                    actor = None
                    return actor_kept, node
                if failure is not None:
                    node.num_failed_starts += 1
                    if is_lasting or node.num_failed_starts >= _MAX_FAILED_STARTS:
                        self.refuse(node, failure)
            finally:
                if actor is not None:
                    self.ray.kill(actor)

    def refuse(self, node: "_Node", reason: str) -> None:
        """Lets no more workers start on a node."""
        if node.refusal is None:
            node.refusal = reason
            _LOG.warning("%s: no worker is started there: %s", printable(node.name), printable(reason))

    async def supply(self, actor: Any, node: "_Node", bundles: Sequence[Bundle]) -> None:
        """Sends a node those bundles that it does not have.

        Raises:
          CorpusError: a file of the host has changed.
          OSError: a file of the host cannot be read.
          _NodeLostError: the node cannot hold them.
        """
        for bundle in bundles:
            if bundle in node.known:
                continue
            async with node.shipping.setdefault(bundle, asyncio.Lock()):
                if bundle not in node.known:
                    if await actor.missing.remote([bundle]):
                        files = await asyncio.to_thread(self._read, bundle)
                        failure = await actor.store.remote(bundle, files)
                        if failure is not None:
                            self.refuse(node, failure)
                            raise _NodeLostError
                    node.known.add(bundle)
            node.shipping.pop(bundle, None)

    def bundles_of(self, module: Module, policy: PickledPolicy, folder: PolicyFolder) -> list[Bundle]:
        """The files that a job reads; for errors see `supply`."""
        place = module.root, module.name
        if place not in self._bundles:
            self._add(place, module_bundle(module_files(module)), module)
        found = [self._bundles[place]]
        for key in policy.keys:
            path = folder.path(key)
            if (path, key) not in self._bundles:
                self._add((path, key), policy_bundle(key, folder_files(path)), path)
            found.append(self._bundles[path, key])
        return found

    def _add(self, place: tuple[Path, str], bundle: Bundle, source: Module | Path) -> None:
        self._bundles[place], self._sources[bundle] = bundle, source

    def _read(self, bundle: Bundle) -> dict[str, bytes]:
        source = self._sources[bundle]
        files = module_files(source) if isinstance(source, Module) else folder_files(source)
        if digest_of(files) != bundle.digest:
            raise CorpusError(f"{source.name}: its files have changed since it was first compiled; start again")
        return files

    async def _await_start(self, actor: Any) -> tuple[str, str, str | None, bool]:
        """Waits until the actor has a CPU and has started; see `start` of `actor_class`."""
        started = asyncio.ensure_future(_result(actor.start.remote(self._setup)))
        try:
            while True:
                await asyncio.wait({started}, timeout=_LOOK_S)
                if started.done():
                    return started.result()
                self._check_usable()
                if not self.num_ready:
                    waited_s = time.monotonic() - self.last_ready_s
                    _LOG.warning("waiting for a free CPU in the Ray cluster, for %.0f s so far", waited_s)
                    if waited_s > _PLACEMENT_LIMIT_S:
                        raise ResourceError(f"the Ray cluster had no free CPU for {waited_s:.0f} s; see `ray status`")
        finally:
            started.cancel()

    def _refused(self) -> "list[_Node]":
        return [node for node in self._nodes.values() if node.refusal is not None]

    def _selector(self) -> dict[str, str]:
        refused = ",".join(node.id for node in self._refused())
        return {"ray.io/node-id": f"!in({refused})"} if refused else {}

    def _check_usable(self) -> None:
        """Raises ConfigError if all nodes that have CPUs are refused."""
        refused = self._refused()
        if refused:
            alive = {node["NodeID"] for node in self.ray.nodes() if node["Alive"] and node["Resources"].get("CPU")}
            if alive <= {node.id for node in refused}:
                reasons = "; ".join(f"{node.name}: {node.refusal}" for node in refused)
                raise ConfigError(f"no node of the Ray cluster can do the work: {printable(reasons)}")


@dataclasses.dataclass
class _Node:
    """A node that has started a worker, or has tried to.

    Attributes:
      id: Ray's.
      name: for messages.
      known: bundles that it has.
      shipping: locks of bundles that are on their way.
      num_failed_starts: in succession.
      refusal: why nothing more is started on it.
    """

    id: str
    name: str
    known: set[Bundle] = dataclasses.field(default_factory=set)
    shipping: dict[Bundle, asyncio.Lock] = dataclasses.field(default_factory=dict)
    num_failed_starts: int = 0
    refusal: str | None = None


class _NodeLostError(Exception):
    """A node can do no more work."""


@dataclasses.dataclass(frozen=True)
class _Submitted:
    """A job on its way.

    Attributes:
      job: it.
      message: it and its policy, pickled.
      bundles: what it reads.
      reference: Ray's, to the answer; None if the job has failed before it was sent.
      failed: the pickled result of such a job.
    """

    job: Job
    message: bytes
    bundles: Sequence[Bundle] = ()
    reference: Any = None
    failed: bytes = b""


class _RemoteWorker:
    """A worker's process, as the pool sees it, and what happens between its socket and an actor.

    Attributes:
      exitcode: of the worker process on the node, if it has died there.
      task: runs `run`.
    """

    pid = None

    def __init__(self, cluster: RayWorkers, connection: socket.socket, policies: PolicyFolder):
        self.exitcode: int | None = None
        self.task: asyncio.Task[None]
        self._is_cancelled = False
        self._cluster = cluster
        self._connection = connection
        self._policies = policies
        self._num_submitted = 0

    def kill(self) -> None:
        self._cluster.loop.call_soon_threadsafe(self.cancel)

    def cancel(self) -> None:
        """As `kill`, in the thread of the cluster's loop."""
        # A second time would interrupt what is done at the end.
        if not self._is_cancelled:
            self._is_cancelled = True
            self.task.cancel()

    def join(self) -> None:
        """Nobody waits for a node."""

    def close(self) -> None:
        """Likewise."""

    async def run(self) -> None:
        """Serves the pool's end of the socket, until that is closed or the worker has ended."""
        reader, writer = await asyncio.open_connection(sock=self._connection)
        try:
            actor, node = await self._cluster.place()
            self._cluster.num_ready += 1
            try:
                await self._serve(reader, writer, actor, node)
            finally:
                self._cluster.num_ready -= 1
                self._cluster.last_ready_s = time.monotonic()
                writer.close()
                await self._end(actor)
        except CompilerOptError as error:
            await _send(writer, pickle.dumps(error))
        except ConnectionError:
            # The pool has closed its end.
            pass
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, actor: Any, node: _Node) -> None:
        errors, answers = self._cluster.ray.exceptions, asyncio.Queue[_Submitted]()
        tasks = (
            asyncio.ensure_future(self._take(reader, actor, node, answers)),
            asyncio.ensure_future(self._answer(writer, actor, node, answers)),
        )
        try:
            await _send(writer, pickle.dumps(None))
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except errors.RayTaskError as error:
            # A bug; the message has the traceback.
            await _send(writer, pickle.dumps(RuntimeError(f"in a worker on {node.name}: {error}")))
        except CompilerOptError as error:
            await _send(writer, pickle.dumps(error))
        except (_NodeLostError, asyncio.IncompleteReadError, errors.RayError):
            # The node has left, or the pool has closed its end.
            pass
        finally:
            for task in tasks:
                task.cancel()

    async def _end(self, actor: Any) -> None:
        """Ends the actor; an idle one removes its files first."""
        try:
            if not self._num_submitted:
                await asyncio.wait_for(_result(actor.close.remote()), _CLOSE_TIMEOUT_S / 2)
        except (asyncio.TimeoutError, self._cluster.ray.exceptions.RayError):
            pass
        finally:
            self._cluster.ray.kill(actor)

    async def _take(
        self, reader: asyncio.StreamReader, actor: Any, node: _Node, answers: "asyncio.Queue[_Submitted]"
    ) -> None:
        """Submits the pool's jobs in order; the actor queues them."""
        cluster = self._cluster
        while True:
            message = await _receive(reader)
            self._num_submitted += 1
            job, policy = pickle.loads(message)  # noqa: S301 - from the pool, in this process
            try:
                bundles = await asyncio.to_thread(cluster.bundles_of, job.module, policy, self._policies)
                await cluster.supply(actor, node, bundles)
            except (CorpusError, OSError) as error:
                failure = str(error) if job.module.name in str(error) else f"{job.module.name}: {error}"
                lost = lost_rollout(job, failure, is_transient=not isinstance(error, CorpusError))
                answers.put_nowait(_Submitted(job, message, failed=pickle.dumps(lost)))
                continue
            reference = actor.work.remote(message, bundles)
            answers.put_nowait(_Submitted(job, message, bundles, reference))

    async def _answer(
        self, writer: asyncio.StreamWriter, actor: Any, node: _Node, answers: "asyncio.Queue[_Submitted]"
    ) -> None:
        """Passes answers on to the pool, in the order of the jobs."""
        while True:
            submitted = await answers.get()
            content: bytes | None = submitted.failed
            if submitted.reference is not None:
                answer: Answer = await submitted.reference
                for _ in range(_MAX_REPEATED if answer.missing else 0):
                    node.known.difference_update(answer.missing)
                    await self._cluster.supply(actor, node, submitted.bundles)
                    answer = await actor.work.remote(submitted.message, submitted.bundles)
                    if not answer.missing:
                        break
                if answer.missing:
                    lost = ", ".join(bundle.path for bundle in answer.missing)
                    self._cluster.refuse(node, f"it does not keep what it stores: {lost}")
                    raise _NodeLostError
                content = answer.content
                if answer.exit_code is not None:
                    self.exitcode = answer.exit_code
                    return
                if answer.kept_object is not None and submitted.job.keep_object is not None:
                    try:
                        await asyncio.to_thread(_write, submitted.job.keep_object, answer.kept_object)
                    except OSError as error:
                        failure = f"{submitted.job.module.name}: out of memory or disk: {error}"
                        content = pickle.dumps(lost_rollout(submitted.job, failure, is_transient=True))
            assert content is not None
            self._num_submitted -= 1
            await _send(writer, content)


@contextlib.contextmanager
def ray_pool(
    address: str,
    toolchain: Toolchain,
    problem: AnyProblem,
    num_workers: int | None = None,
    *,
    niceness: int = 0,
    compilation_files: CompilationFiles | None = None,
) -> Iterator[WorkerPool]:
    """A pool whose workers are in a Ray cluster; `num_workers` is by default the cluster's CPUs. See `WorkerPool`.

    Raises:
      MissingPackageError: Ray is not installed.
      ConfigError: no cluster answers, it has no CPUs, or files of compilations are to be kept.
    """
    if compilation_files is not None:
        raise ConfigError("the files of compilations are on the nodes; leave --explicit_temps_dir out")
    with RayWorkers(address) as cluster:
        if not (num_workers or cluster.num_cpus):
            raise ConfigError(f"--ray_address={address}: the cluster has no CPUs yet; give --num_workers")
        with WorkerPool(
            toolchain,
            problem,
            num_workers or cluster.num_cpus,
            niceness=niceness,
            # Nodes look after their own memory.
            available_bytes=lambda: sys.maxsize,
            start_worker=cluster.start,
        ) as pool:
            yield pool


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


async def _result(reference: Any) -> Any:
    return await reference


async def _receive(reader: asyncio.StreamReader) -> bytes:
    """A message of `multiprocessing.connection`; raises IncompleteReadError at the end."""
    [length] = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length < 0:
        [length] = _LONG_LENGTH.unpack(await reader.readexactly(_LONG_LENGTH.size))
    return await reader.readexactly(length)


async def _send(writer: asyncio.StreamWriter, message: bytes) -> None:
    if len(message) < 1 << 31:
        writer.write(_LENGTH.pack(len(message)))
    else:
        writer.write(_LENGTH.pack(-1) + _LONG_LENGTH.pack(len(message)))
    writer.write(message)
    await writer.drain()
