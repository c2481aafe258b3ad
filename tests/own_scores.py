"""A problem for tests that compile nothing: inlining, where a measurement is its own score."""

from pathlib import Path

from compiler_opt.decisions.inlining import DECISION
from compiler_opt.objectives.objective import Objective, Reader
from compiler_opt.problem import Problem


def _read(object_path: Path, remarks: bytes) -> float:
    raise AssertionError("nothing is compiled")


class OwnScore(Objective[float, None]):
    """A measurement is its own score."""

    score_name = "own score"
    reader = Reader(_read)

    def score(self, measurement: float, context: None) -> float:
        return measurement


OWN_SCORES = Problem(DECISION, OwnScore())
