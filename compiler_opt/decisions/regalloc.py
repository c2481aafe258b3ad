"""Credit in register allocation.

Functions are allocated one by one, so a decision changes only its own function, and is credited with what that saved.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from compiler_opt.llvm.interactive import FunctionOfDecisions


def function_credit(group: Sequence[Mapping[str, float]], sites: Sequence[FunctionOfDecisions]) -> list[np.ndarray]:
    """Credits each decision of a group of rollouts of one module: how much its function is below the group's mean."""
    names = {name for scores in group for name in scores}
    mean = {name: sum(scores.get(name, 0.0) for scores in group) / len(group) for name in names}
    credit = []
    for scores, decisions in zip(group, sites, strict=True):
        saved = [mean.get(name, 0.0) - scores.get(name, 0.0) for name in decisions.functions]
        credit.append(np.array(saved, np.float64)[decisions.indices])
    return credit
