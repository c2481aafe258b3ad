"""The actor of a worker on a node, as Ray sends it there."""

from typing import Any


def actor_class(ray: Any) -> Any:
    """The class of actors. It is sent to the nodes as a whole, so that one without compiler_opt can say so."""

    class CompilerWorker:
        def start(self, setup):  # type: ignore[no-untyped-def]
            """(node's id, its name, why it cannot work or None, whether that will last)."""
            import socket

            import ray

            node_id = ray.get_runtime_context().get_node_id()
            name = f"{socket.gethostname()} ({ray.util.get_node_ip_address()}, node {node_id[:8]})"
            try:
                from compiler_opt.collect.cluster.node import NodeWorker
                from compiler_opt.errors import CompilerOptError, ResourceError
            except ImportError as error:
                return node_id, name, f"its Python cannot import compiler_opt: {error}; install it there", True
            try:
                self._worker = NodeWorker()
                self._worker.start(setup)
            except CompilerOptError as error:
                return node_id, name, str(error), not isinstance(error, ResourceError)
            except OSError as error:
                return node_id, name, f"no worker process starts: {error}", False
            return node_id, name, None, False

        def work(self, message, bundles):  # type: ignore[no-untyped-def]
            import functools

            import ray

            return self._worker.work(message, {bundle: functools.partial(ray.get, at[0]) for bundle, at in bundles})

        def close(self):  # type: ignore[no-untyped-def]
            self._worker.close()

    options = {"num_cpus": 1, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
    return ray.remote(**options)(CompilerWorker)
