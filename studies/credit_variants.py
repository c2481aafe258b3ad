"""Variants of the credit of inlining decisions, applied to the results of `studies.credit`.

A variant says which functions a decision is credited with (its *reach*) and what a byte of a COMDAT function costs (its
*weights*). A flip is compared as training would: the default's compilation and the flipped one are a group, and the
difference of the decision's credit in the two is the variant's estimate.
"""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.objectives.linked_text import comdat_copies
from studies import credit_records as records
from studies.credit_records import Compiled, Project

Weigh = Callable[[str, ObjectSizes, ObjectSizes], float]
"""The cost of a byte of a COMDAT group, by signature, in a module compiled in two ways."""


class Copies:
    """How many modules of a project emit each COMDAT group."""

    def __init__(self, modules: Mapping[str, Mapping[str, Compiled]]):
        """`modules` are the compilations of all modules by kind and name."""
        self._emitted = {kind: comdat_copies(each.sizes for each in found.values()) for kind, found in modules.items()}

    def weights(self) -> dict[str, Weigh]:
        default, never = self._emitted[records.DEFAULT], self._emitted[records.NEVER]
        preferred = {**never, **default}
        larger = {signature: max(default.get(signature, 0), never.get(signature, 0)) for signature in preferred}

        def by(copies: Mapping[str, int]) -> Weigh:
            return lambda signature, before, after: 1 / max(1, copies.get(signature, 1))

        def marginal(signature: str, before: ObjectSizes, after: ObjectSizes) -> float:
            is_before, is_after = signature in before.comdats, signature in after.comdats
            others = default.get(signature, 0) - is_before
            if is_before and is_after:
                return 1 / (1 + others)
            return 1.0 if others <= 0 else 0.0

        return {
            "unweighted": by({}),
            "default": by(default),
            "default, else never": by(preferred),
            "larger": by(larger),
            "marginal": marginal,
        }

    def programs(self, kind: str) -> dict[str, Mapping[str, int]]:
        """Copies to weigh whole programs by; the last is what the policy itself emits."""
        default, never = self._emitted[records.DEFAULT], self._emitted[records.NEVER]
        larger = {s: max(default.get(s, 0), never.get(s, 0)) for s in {**never, **default}}
        return {
            "unweighted": {},
            "default, else never": {**never, **default},
            "larger": larger,
            "as emitted": self._emitted[kind],
        }


def carried(sites: CallSites) -> list[set[int]]:
    """For each decision, the functions that the caller's body gets into afterwards."""
    callers, callees = sites.callers.tolist(), sites.callees.tolist()
    into: defaultdict[int, set[int]] = defaultdict(set)
    found: list[set[int]] = [set()] * len(callers)
    for k in reversed(range(len(callers))):
        found[k] = set(into[callers[k]])
        if sites.inlined[k]:
            into[callees[k]] |= {callers[k]} | into[callers[k]]
    return found


def reaches(sites: CallSites, k: int) -> dict[str, list[int]]:
    """Indices of the functions that decision k is credited with, by variant; repeated if counted twice."""
    caller, callee = int(sites.callers[k]), int(sites.callees[k])
    pairs = np.unique(np.stack([sites.callees, sites.callers], axis=1)[sites.inlined], axis=0)
    one_hop = pairs[pairs[:, 0] == caller, 1].tolist()
    later = carried(sites)[k]
    called = set(sites.callees[sites.callers == callee].tolist())
    followed = {caller, callee} | later
    return {
        "caller, callee": sorted({caller, callee}),
        "one hop": [caller, callee, *one_hop],
        "all the way": sorted(followed),
        "and what the callee calls": sorted(followed | called),
    }


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A flip, and what variants say that it adds.

    Attributes:
      project, module: names.
      language: `c` or `c++`.
      callee: `local`, `comdat` or `external`.
      default: the action of the default.
      linked: bytes that the flip adds to the linked program.
      object: bytes that it adds to the object.
      by_variant: estimates by reach and weights, in bytes.
    """

    project: str
    module: str
    language: str
    callee: str
    default: int
    linked: float
    object: float
    by_variant: Mapping[tuple[str, str], float]


def _changes(before: ObjectSizes, after: ObjectSizes, weigh: Weigh) -> dict[str, float]:
    """Weighted bytes by which each function has grown."""
    changes = {}
    for function in {**before.functions, **after.functions}:
        change = after.functions.get(function, 0) - before.functions.get(function, 0)
        if change:
            signature = before.function_comdats.get(function) or after.function_comdats.get(function)
            changes[function] = change * (weigh(signature, before, after) if signature else 1.0)
    return changes


def _module_change(before: ObjectSizes, after: ObjectSizes, weigh: Weigh) -> float:
    """Weighted bytes by which a module has grown."""
    change = float(after.text_bytes - before.text_bytes)
    for signature in {**before.comdats, **after.comdats}:
        grown = after.comdats.get(signature, 0) - before.comdats.get(signature, 0)
        change -= grown * (1 - weigh(signature, before, after))
    return change


def estimates(default: Compiled, flip: Compiled, weights: Mapping[str, Weigh]) -> dict[tuple[str, str], float]:
    """What each variant says that a flip adds to the program, in bytes."""
    assert default.sites is not None and flip.sites is not None and flip.flipped is not None
    found: dict[tuple[str, str], float] = {}
    reach = [(each.sites, reaches(each.sites, flip.flipped)) for each in (default, flip) if each.sites is not None]
    for weight, weigh in weights.items():
        changes = _changes(default.sizes, flip.sizes, weigh)
        for variant in reach[0][1]:
            # Half of the difference is credited in each of the two compilations.
            sums = [sum(changes.get(sites.functions[i], 0.0) for i in found[variant]) for sites, found in reach]
            found[variant, weight] = sum(sums) / 2
        found["module", weight] = _module_change(default.sizes, flip.sizes, weigh)
    return found


def _callee_kind(never: Compiled, default: Compiled, k: int) -> str:
    assert default.sites is not None
    callee = default.sites.functions[default.sites.callees[k]]
    if callee in never.sizes.function_comdats or callee in default.sizes.function_comdats:
        return "COMDAT"
    return "local" if callee in never.local else "external"


def flips_of(project: Project, compiled: Sequence[Compiled]) -> tuple[list[Estimate], list[Estimate]]:
    """The project's single flips, and those of the same decision in several modules."""
    modules = by_kind(compiled)
    weights, base = Copies(modules).weights(), project.linked[records.DEFAULT]
    single, everywhere = [], []
    together: defaultdict[int, list[Compiled]] = defaultdict(list)
    for flip in compiled:
        if flip.kind == records.FLIP and flip.linked is not None:
            single.append(_estimate(project, modules, weights, [flip], flip.linked - base))
        elif flip.kind == records.EVERYWHERE:
            together[flip.number].append(flip)
    for number, flips in together.items():
        linked = project.everywhere[str(number)] - base
        everywhere.append(_estimate(project, modules, weights, flips, linked))
    return single, everywhere


def by_kind(compiled: Iterable[Compiled]) -> dict[str, dict[str, Compiled]]:
    """The compilations of all modules under each policy, by kind and name."""
    modules: defaultdict[str, dict[str, Compiled]] = defaultdict(dict)
    for each in compiled:
        if each.kind in (records.DEFAULT, records.NEVER, records.NOISE):
            modules[each.kind][each.module] = each
    return modules


def _estimate(
    project: Project,
    modules: Mapping[str, Mapping[str, Compiled]],
    weights: Mapping[str, Weigh],
    flips: Sequence[Compiled],
    linked: int,
) -> Estimate:
    total: defaultdict[tuple[str, str], float] = defaultdict(float)
    change = 0
    for flip in flips:
        default = modules[records.DEFAULT][flip.module]
        change += flip.sizes.text_bytes - default.sizes.text_bytes
        for key, value in estimates(default, flip, weights).items():
            total[key] += value
    first = flips[0]
    assert first.flipped is not None
    default, never = (modules[kind][first.module] for kind in (records.DEFAULT, records.NEVER))
    kind = _callee_kind(never, default, first.flipped)
    assert default.advice is not None
    action = int(default.advice[first.flipped])
    return Estimate(project.name, first.module, project.language, kind, action, linked, change, dict(total))


def keys(sites: CallSites) -> list[tuple[str, str, int]]:
    """Caller, callee and the number of earlier decisions about both, for each decision."""
    seen: Counter[tuple[int, int]] = Counter()
    found = []
    for pair in zip(sites.callers.tolist(), sites.callees.tolist(), strict=True):
        found.append((sites.functions[pair[0]], sites.functions[pair[1]], seen[pair]))
        seen[pair] += 1
    return found
