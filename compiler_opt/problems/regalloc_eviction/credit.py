"""Which eviction earned what: the change of the score of the function that it was made in.

Functions are allocated one by one, so a decision changes its own function only.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from compiler_opt.llvm.interactive import FunctionOfDecisions


def function_credit(group: Sequence[Mapping[str, float]], sites: Sequence[FunctionOfDecisions]) -> list[np.ndarray]:
    """Credits each decision of a group of rollouts of one module.

    Args:
      group: each rollout's scores by function.
      sites: the function of each decision, for each rollout.

    Returns:
      for each rollout `[T]` float64, what its function saved against the group's mean.
    """
    names = {name for scores in group for name in scores}
    mean = {name: sum(scores.get(name, 0.0) for scores in group) / len(group) for name in names}
    credit = []
    for scores, decisions in zip(group, sites, strict=True):
        saved = [mean.get(name, 0.0) - scores.get(name, 0.0) for name in decisions.functions]
        credit.append(np.array(saved, np.float64)[decisions.indices])
    return credit
