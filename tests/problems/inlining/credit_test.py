"""Credit per decision, by arithmetic that can be followed."""

import numpy as np

from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.problems.inlining.score import function_credit


def _sizes(functions: dict[str, int], comdats: dict[str, str] | None = None) -> ObjectSizes:
    return ObjectSizes(sum(functions.values()), {}, functions, comdats or {})


def _sites(*calls: tuple[str, str, bool]) -> CallSites:
    functions = sorted({name for caller, callee, _ in calls for name in (caller, callee)})
    return CallSites(
        tuple(functions),
        np.array([functions.index(caller) for caller, _, _ in calls], np.int32),
        np.array([functions.index(callee) for _, callee, _ in calls], np.int32),
        np.array([inlined for _, _, inlined in calls]),
    )


def test_caller_and_callee_and_where_the_caller_went() -> None:
    # First rollout: leaf into middle, middle into top. Second: nothing is inlined.
    first = _sizes({"top": 50, "other": 8})
    second = _sizes({"top": 20, "middle": 20, "leaf": 10, "other": 8})
    sites = [
        _sites(("middle", "leaf", True), ("top", "middle", True), ("other", "top", False)),
        _sites(("middle", "leaf", False), ("top", "middle", False), ("other", "top", False)),
    ]
    credit = function_credit([first, second], sites, {})
    # Means: top 35, middle 10, leaf 5, other 8. Saved in the first: top -15, middle +10, leaf +5, other 0.
    # middle<-leaf: caller +10, callee +5, and middle went into top: -15.
    # top<-middle: caller -15, callee +10. other<-top: caller 0, callee -15.
    np.testing.assert_allclose(credit[0], [10 + 5 - 15, -15 + 10, -15])
    # In the second all is the other way round, but nothing was inlined, so middle's decision is not top's business.
    np.testing.assert_allclose(credit[1], [-10 - 5, 15 - 10, 15])


def test_a_function_of_many_objects_counts_for_less() -> None:
    group = [_sizes({"f": 40}, {"f": "f"}), _sizes({"f": 20}, {"f": "f"})]
    sites = [_sites(("f", "g", True)), _sites(("f", "g", False))]
    credit = function_credit(group, sites, {"f": 5})
    # A fifth of 40 and 20: 8 and 4, mean 6.
    np.testing.assert_allclose(credit[0], [-2])
    np.testing.assert_allclose(credit[1], [2])
