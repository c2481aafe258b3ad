"""What the outputs of compilations cost."""

import abc
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Generic, TypeVar, cast

Measurement = TypeVar("Measurement")
"""What a worker reads from one compilation; picklable, and small enough to send between processes."""

Context = TypeVar("Context")
"""What scoring needs to know of a module's project; JSON."""


@dataclasses.dataclass(frozen=True)
class Reader(Generic[Measurement]):
    """How a worker measures an object; picklable.

    Attributes:
      read: the measurement, from an object file and the remarks of `remark_pass`, empty without one; a module's
        function or a `functools.partial` of one. Raises ProtocolError if they are damaged.
      object_options: options of cc1 for all compilations, such as those that write into the object what `read` needs.
      remark_pass: the pass whose optimisation remarks `read` needs.
    """

    read: Callable[[Path, bytes], Measurement]
    object_options: tuple[str, ...] = ()
    remark_pass: str | None = None


class Objective(abc.ABC, Generic[Measurement, Context]):
    """What an output costs.

    measurement = objective.reader.read(object_path, remarks)             # worker, for each compilation
    context = objective.project_context(measurements of the default)     # host, once per project
    score = objective.score(measurement, context)                         # lower is better
    costs = objective.by_function(measurement, context)                   # from which decisions get credit
    """

    score_name: str
    """The score's name in reports."""

    reader: Reader[Measurement]

    identity: str = ""
    """What else scores depend on, such as a cost model and a profile; kept with measurements and policies."""

    is_size: bool = False
    """Whether the score estimates the bytes of the linked program, which reports then give first."""

    has_copies: bool = False
    """Whether contexts have copies of `shared_parts`: `project_context` then needs all that policies may emit."""

    per_call: bool = False
    """Whether functions have the cost of a call, or of fixed numbers of calls: wrong if decisions move code."""

    def metadata(self) -> dict[str, str]:
        """The entry for `identity`, if there is one."""
        return {"objective": self.identity} if self.identity else {}

    def project_context(self, measurements: Iterable[Measurement], others: Iterable[Measurement] = ()) -> Context:
        """What scoring needs to know of a project; by default nothing, None.

        Args:
          measurements: of the project's modules, compiled by the default.
          others: of the same modules under `Problem.context_policies`; without them the context is less exact.
        """
        del measurements, others
        return cast(Context, None)

    def shared_parts(self, measurement: Measurement) -> Iterable[str]:
        """Names of the parts of an object of which a linker keeps one copy in a project; by default none."""
        del measurement
        return ()

    def with_copies(self, context: Context, copies: Mapping[str, float]) -> Context:
        """The context if a project's modules emit other copies of shared parts.

        Args:
          context: by `project_context`.
          copies: how many modules emit each part that several may emit; an average, so not always whole.
        """
        del copies
        return context

    @abc.abstractmethod
    def score(self, measurement: Measurement, context: Context) -> float:
        """What a module's object costs; lower is better. The default's score is the baseline."""

    def by_function(self, measurement: Measurement, context: Context) -> Mapping[str, float] | None:
        """What each function of a module contributes to its score, at most; None if only modules have scores."""
        del measurement, context
        return None
