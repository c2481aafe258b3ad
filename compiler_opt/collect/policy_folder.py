"""What learned policies need in order to decide, on disk: written once by the host, read by workers and compilers.

    FOLDER/KEY/policy.pickle                    the policy, for workers
    FOLDER/KEY/network.mlgo                     its native form, for the plugins
    FOLDER/KEY/output_spec.json, model.tflite   its form for LLVM's development mode, see `backends.development`

KEY is `LearnedPolicy.key`. Between processes a learned policy travels as its key, also as a part of another policy.
"""

import dataclasses
import functools
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path

from compiler_opt.collect.python_process import RECEIVE_REMEDY, SEND_REMEDY, UNPICKLABLE
from compiler_opt.errors import PolicyError, ResourceError
from compiler_opt.files import remove_oldest
from compiler_opt.policies.policy import Policy
from compiler_opt.spaces.learned_policy import LearnedPolicy

MAX_POLICIES = 8
"""Kept between calls: a run has one policy at a time, an evaluation a few."""

_PICKLE_FILE = "policy.pickle"


@dataclasses.dataclass(frozen=True)
class PickledPolicy:
    """A policy on its way to a worker.

    Attributes:
      content: pickled, with keys in place of learned policies.
      keys: of these, whose files the worker reads.
    """

    content: bytes
    keys: tuple[str, ...] = ()


class PolicyFolder:
    """A folder of policies, made when the first one is written."""

    def __init__(self, path: Path):
        self._path = path

    def path(self, policy: LearnedPolicy | str) -> Path:
        """The folder of one policy, or of its key; may not exist."""
        return self._path / (policy if isinstance(policy, str) else policy.key)

    def file(self, policy: LearnedPolicy, name: str, make: Callable[[], bytes]) -> Path:
        """The path of a policy's file, which is written unless it exists.

        Raises:
          OSError: the file cannot be written.
        """
        path = self.path(policy) / name
        if not path.exists():
            content = make()
            path.parent.mkdir(parents=True, exist_ok=True)
            # The file appears whole or not at all, even if the disk is full or another process writes it too.
            partial = path.with_name(f"{name}.{os.getpid()}")
            partial.write_bytes(content)
            partial.replace(path)
        return path

    def prune(self) -> None:
        """Removes all but the newest policies."""
        if self._path.exists():
            remove_oldest(self._path.iterdir(), MAX_POLICIES)

    def dumps(self, policy: Policy | None, write: Callable[[LearnedPolicy], None]) -> PickledPolicy:
        """Pickles a policy, with keys in place of learned policies, which are written to the folder.

        `write` writes whatever else compilations under a learned policy read.

        Raises:
          OSError: a file cannot be written.
          PolicyError: the policy cannot be pickled.
        """
        buffer = io.BytesIO()
        pickler = _Pickler(buffer, self, write)
        try:
            pickler.dump(policy)
        except UNPICKLABLE as error:
            raise PolicyError(f"a policy cannot be sent to workers: {error}; {SEND_REMEDY}") from error
        return PickledPolicy(buffer.getvalue(), tuple(pickler.keys))

    def reader(self) -> Callable[[PickledPolicy], Policy | None]:
        """Returns a function that reads what `dumps` has returned.

        It returns the same object for the same policy, so that what a policy has computed is not lost. It raises
        PolicyError if a policy's class cannot be imported, and ResourceError if a file is missing.
        """
        learned = functools.lru_cache(MAX_POLICIES)(self._load)

        @functools.lru_cache(MAX_POLICIES)
        def loads(pickled: PickledPolicy) -> Policy | None:
            try:
                return _Unpickler(io.BytesIO(pickled.content), learned).load()
            except (AttributeError, ImportError) as error:
                raise PolicyError(f"workers cannot import the class of a policy: {error}; {RECEIVE_REMEDY}") from error

        return loads

    def _load(self, key: str) -> LearnedPolicy:
        path = self._path / key / _PICKLE_FILE
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ResourceError(f"{path}: the policy cannot be read: {error.strerror}") from error
        return pickle.loads(content)  # noqa: S301 - the host's own file, in a folder of the user's.


class _Pickler(pickle.Pickler):
    def __init__(self, buffer: io.BytesIO, folder: PolicyFolder, write: Callable[[LearnedPolicy], None]):
        super().__init__(buffer)
        self._folder = folder
        self._write = write
        self.keys: dict[str, None] = {}

    def persistent_id(self, obj: object) -> str | None:
        if not isinstance(obj, LearnedPolicy):
            return None
        self._folder.file(obj, _PICKLE_FILE, lambda: pickle.dumps(obj))
        self._write(obj)
        self.keys[obj.key] = None
        return obj.key


class _Unpickler(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, load: Callable[[str], LearnedPolicy]):
        super().__init__(buffer)
        self._load = load

    def persistent_load(self, pid: str) -> LearnedPolicy:
        return self._load(pid)
