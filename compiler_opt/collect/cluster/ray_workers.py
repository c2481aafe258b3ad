"""Workers on the nodes of a Ray cluster, each an actor with one CPU (docs/cluster.md).

with RayCluster("auto") as cluster:
    with WorkerPool(toolchain, problem, cluster.num_cpus, start_worker=cluster.start) as pool:
        ...

Jobs, repetitions and blame are the pool's. What a job reads on the host travels by Ray's object store, to nodes that do
not have it yet (`bundles.py`). An actor waits for a free CPU for as long as it takes: nodes may join later. When its
node leaves, the worker ends without an exit code, and the pool starts another.
"""

import concurrent.futures
import contextlib
import dataclasses
import logging
import pickle
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compiler_opt.collect.cluster import connection
from compiler_opt.collect.cluster.actor import actor_class
from compiler_opt.collect.cluster.bundles import SharedFiles
from compiler_opt.collect.cluster.node import Answer, Setup
from compiler_opt.collect.compilation_files import CompilationFiles
from compiler_opt.collect.policy_folder import PickledPolicy, PolicyFolder
from compiler_opt.collect.rollout import Rollout
from compiler_opt.collect.schedule import Job, Task, lost_rollout
from compiler_opt.collect.worker import WorkerSettings
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.errors import ConfigError, CorpusError, ResourceError
from compiler_opt.files import one_line, printable
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.problem import AnyProblem

_LOG = logging.getLogger(__name__)

_PLACEMENT_LIMIT_S = 1800.0
"""How long to wait for a first free CPU: some clouds take minutes to start a machine."""
_LOOK_S = 60.0
_CLOSE_TIMEOUT_S = 5.0
_RETRY_S = 1.0
_MAX_LOST_STARTS = 10
_MAX_FAILED_STARTS = 3
"""Of worker processes on a node."""
_MAX_SIGNALS = 1 << 12


class RayCluster:
    """A Ray cluster, as a place for workers.

    Attributes:
      num_cpus: of the cluster, when it was connected to.
      ray: the package.
      files: those that jobs read.
      ready: the workers that have started.
    """

    def __init__(self, address: str):
        """`address`: `auto` for the cluster that this machine belongs to, or HOST:PORT of its head."""
        self._address = address
        self._stack = contextlib.ExitStack()
        self._nodes: dict[str, _Node] = {}
        self._settings: WorkerSettings | None = None
        self._setup: Any = None
        self.ready: set[RayWorker] = set()
        self._last_ready_s = self._looked_s = 0.0

    def __enter__(self) -> "RayCluster":
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
            self._stack = stack.pop_all()
        self.files = SharedFiles(self.ray.put)
        self._last_ready_s = self._looked_s = time.monotonic()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def start(self, settings: WorkerSettings, scratch: Path) -> "RayWorker":
        """Asks for a worker on some node; for `WorkerPool(start_worker=...)`."""
        del scratch  # It is on the node.
        if settings is not self._settings:
            self._settings = settings
            self._setup = self.ray.put(pickle.dumps(Setup.of(settings)))
        return RayWorker(self, settings.policies)

    def ask(self) -> tuple[Any, Any]:
        """Asks for an actor; returns it, and Ray's reference to what its `start` returns.

        Raises:
          ConfigError: no node will do.
        """
        self._check_usable()
        refused = ",".join(node.id for node in self._refused())
        selector = {"ray.io/node-id": f"!in({refused})"} if refused else {}
        actor = self._actor_class.options(label_selector=selector).remote()
        return actor, actor.start.remote(self._setup)

    def node(self, node_id: str, name: str) -> "_Node":
        return self._nodes.setdefault(node_id, _Node(node_id, name))

    def refuse(self, node: "_Node", reason: str) -> None:
        """Lets no more workers start on a node."""
        if node.refusal is None:
            node.refusal = reason
            _LOG.warning("%s: no worker is started there: %s", printable(node.name), printable(reason))

    def leave(self, worker: "RayWorker") -> None:
        """Records that a worker has ended."""
        if worker in self.ready:
            self.ready.remove(worker)
            self._last_ready_s = time.monotonic()

    def look(self, asked_s: float) -> None:
        """Looks, now and then, why a worker does not start that was asked for at `asked_s`.

        Raises:
          CompilerOptError: no node will do, or none has had a free CPU for too long.
        """
        now_s = time.monotonic()
        if now_s < max(asked_s, self._looked_s) + _LOOK_S:
            return
        self._looked_s = now_s
        self._check_usable()
        if not self.ready:
            waited_s = now_s - max(asked_s, self._last_ready_s)
            _LOG.warning("waiting for a free CPU in the Ray cluster, for %.0f s so far", waited_s)
            if waited_s > _PLACEMENT_LIMIT_S:
                raise ResourceError(f"the Ray cluster had no free CPU for {waited_s:.0f} s; see `ray status`")

    def _refused(self) -> "list[_Node]":
        return [node for node in self._nodes.values() if node.refusal is not None]

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
      num_failed_starts: in succession.
      refusal: why nothing more is started on it.
    """

    id: str
    name: str
    num_failed_starts: int = 0
    refusal: str | None = None


class RayWorker:
    """The pool's handle of an actor; see `collect.worker.Worker`."""

    start_timeout_s = float("inf")

    def __init__(self, cluster: RayCluster, policies: PolicyFolder):
        """Asks for an actor; raises ConfigError if no node will do."""
        self._actor, started = cluster.ask()
        self.connection, self._signals = socket.socketpair()
        self._signals.setblocking(False)
        self.tasks: deque[Task] = deque()
        self.is_ready = False
        self.begun_s = time.monotonic()
        self._cluster = cluster
        self._policies = policies
        self._node: _Node
        self._answers: deque[concurrent.futures.Future[Any]] = deque()
        self._sender = concurrent.futures.ThreadPoolExecutor(1, "job to Ray")
        self._has_ended = False
        self._num_lost_starts = 0
        self._retry_s = 0.0
        self._exit_code: int | None = None
        self._closing: Any = None
        self._expect(started.future())

    def offer(self, task: Task, policy: PickledPolicy) -> bool:
        """Sends a task with its pickled policy, which the actor queues."""
        answer = concurrent.futures.Future[Answer]()
        # Files of a remote corpus may take long, and are fetched in the order of the tasks.
        self._sender.submit(self._send, task.job, policy, answer)
        if not self.tasks:
            self.begun_s = time.monotonic()
        self.tasks.append(task)
        self._expect(answer)
        return True

    def _send(self, job: Job, policy: PickledPolicy, answer: "concurrent.futures.Future[Answer]") -> None:
        """Submits a job to the actor, in a thread; sets its answer when that is there."""
        message = pickle.dumps((dataclasses.replace(job, policy=None), policy))
        try:
            files = self._cluster.files.of_job(job.module, policy, self._policies)
            if not self._has_ended:
                self._actor.work.remote(message, files).future().add_done_callback(lambda done: _pass_on(done, answer))
        except (CorpusError, OSError, self._cluster.ray.exceptions.RayError) as error:
            reason = one_line(str(error))
            failure = reason if job.module.name in reason else f"{job.module.name}: {reason}"
            lost = lost_rollout(job, failure, is_transient=not isinstance(error, CorpusError))
            answer.set_result(Answer(pickle.dumps(lost)))
        except Exception as error:
            answer.set_exception(error)

    def receive(self) -> tuple[Task, Rollout[Any]] | None:
        """Receives a result, or None when the worker has started, or there is none; for errors see `Worker`."""
        self.connection.recv(_MAX_SIGNALS)
        if not self._answers or not self._answers[0].done():
            return None
        answer = self._answers.popleft()
        if self._answers and self._answers[0].done():
            self._signal()
        errors = self._cluster.ray.exceptions
        try:
            found = answer.result()
        except errors.RayTaskError as error:
            if self.is_ready and isinstance(error.cause, errors.ObjectLostError):
                # The node could not get the files.
                raise EOFError from None
            # A bug; the message has the traceback.
            name = self._node.name if self.is_ready else "a node"
            raise RuntimeError(f"in a worker on {name}: {error}") from None
        except errors.RayError as error:
            # Most likely its node has left.
            if self.is_ready:
                raise EOFError from None
            self._lose_start(error)
            return None
        if not self.is_ready:
            self._begin(*found)
            return None
        return self._take(found)

    def check_stopped(self) -> bool:
        """Never, as far as the host can see; asks for another actor if the first was lost before it had started."""
        if not self.is_ready and self._actor is None:
            if time.monotonic() > self._retry_s:
                self._ask()
        elif not self.is_ready:
            self._cluster.look(self.begun_s)
        return False

    def memory_bytes(self) -> int:
        """None of the host's."""
        return 0

    def kill(self) -> None:
        """Ends the actor; an idle one removes its files first."""
        self._has_ended = True
        self._sender.shutdown(wait=False, cancel_futures=True)
        self._cluster.leave(self)
        if self.is_ready and not self.tasks:
            self._closing = self._actor.close.remote()
        elif self._actor is not None:
            self._cluster.ray.kill(self._actor)

    def close(self) -> int | None:
        """The exit code of the worker process on the node, if that has died; None if the node has left."""
        if self._closing is not None:
            with contextlib.suppress(self._cluster.ray.exceptions.RayError):
                self._cluster.ray.get(self._closing, timeout=_CLOSE_TIMEOUT_S)
            self._cluster.ray.kill(self._actor)
        self.connection.close()
        self._signals.close()
        return self._exit_code

    def _ask(self) -> None:
        self._actor, started = self._cluster.ask()
        self._expect(started.future())

    def _expect(self, answer: "concurrent.futures.Future[Any]") -> None:
        self._answers.append(answer)
        answer.add_done_callback(lambda _: self._signal())

    def _signal(self) -> None:
        """Wakes the pool, from any thread, also after it has ended this worker, or has a signal already."""
        with contextlib.suppress(OSError):
            self._signals.send(b"s")

    def _lose_start(self, error: Exception) -> None:
        """Raises ResourceError if that was not the first time."""
        self._num_lost_starts += 1
        if self._num_lost_starts >= _MAX_LOST_STARTS:
            raise ResourceError(f"no worker starts in the Ray cluster; the last: {one_line(str(error))}")
        self._actor, self._retry_s = None, time.monotonic() + _RETRY_S

    def _begin(self, node_id: str, name: str, failure: str | None, is_lasting: bool) -> None:
        """Takes what `start` of `actor_class` has returned; for errors see `RayCluster.ask`."""
        node = self._cluster.node(node_id, name)
        if failure is None and node.refusal is None:
            node.num_failed_starts = 0
            self._node, self.is_ready = node, True
            self._cluster.ready.add(self)
            return
        self._cluster.ray.kill(self._actor)
        if failure is not None:
            node.num_failed_starts += 1
            if is_lasting or node.num_failed_starts >= _MAX_FAILED_STARTS:
                self._cluster.refuse(node, failure)
        self._ask()

    def _take(self, answer: Answer) -> tuple[Task, Rollout[Any]]:
        if answer.refusal is not None:
            self._cluster.refuse(self._node, answer.refusal)
            raise EOFError
        if answer.exit_code is not None:
            self._exit_code = answer.exit_code
            raise EOFError
        self.begun_s = time.monotonic()
        task = self.tasks.popleft()
        result = pickle.loads(answer.content)  # noqa: S301 - from a node of the user's own cluster
        if isinstance(result, Exception):
            raise result
        if answer.kept_object is not None and task.job.keep_object is not None:
            result = _keep_object(task.job, answer.kept_object, result)
        return task, result


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
    with RayCluster(address) as cluster:
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


def _pass_on(done: "concurrent.futures.Future[Answer]", answer: "concurrent.futures.Future[Answer]") -> None:
    error = done.exception()
    if error is None:
        answer.set_result(done.result())
    else:
        answer.set_exception(error)


def _keep_object(job: Job, content: bytes, result: Rollout[Any]) -> Rollout[Any]:
    """Writes the object of a job to where it is wanted; returns the job's result."""
    assert job.keep_object is not None
    path = Path(job.keep_object)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        return lost_rollout(job, f"{job.module.name}: out of memory or disk: {error}", is_transient=True)
    return result
