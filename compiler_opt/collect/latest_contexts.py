"""The contexts of projects under the policy that is being trained.

A linker keeps one copy of a part that several modules emit, so what a byte of it costs depends on how many modules emit
it. The default's copies are right at the start of a training only: the policy decides which modules still emit a part.

    latest = LatestContexts(problem, baseline)
    for each iteration:
        groups = ...    # collected with latest.baseline
        latest.update(groups)
"""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Generic

from compiler_opt.collect.baseline import Baseline
from compiler_opt.collect.groups import Group
from compiler_opt.objectives.objective import Context, Measurement
from compiler_opt.problem import Problem

_UNIT = 1 << 20


class LatestContexts(Generic[Measurement, Context]):
    """The contexts of projects, as the latest rollouts of their modules have made them.

    Modules without rollouts count as the default compiles them.

    Attributes:
      baseline: with these contexts.
    """

    def __init__(
        self,
        problem: Problem[Measurement, Context],
        baseline: Baseline[Context],
        state: Mapping[str, Mapping[str, Mapping[str, float]]] = MappingProxyType({}),
    ):
        """Starts from what the default emits, or from what `state` returned."""
        self._problem = problem
        self._first = baseline
        self._index = {
            project: {name: index for index, name in enumerate(shared.names)}
            for project, shared in baseline.shared_parts.items()
        }
        self._copies = {project: shared.counts() for project, shared in baseline.shared_parts.items()}
        self._shares: defaultdict[str, dict[str, dict[int, float]]] = defaultdict(dict)
        for project, modules in state.items():
            for module, shares in modules.items():
                self._set(project, module, {int(part): share for part, share in shares.items()})
        self._contexts = dict(baseline.contexts)
        self.baseline = self._with_contexts(baseline.shared_parts)

    def update(self, groups: Sequence[Group[Measurement, Context]]) -> None:
        """Counts what the rollouts of an iteration emit, in place of earlier ones of the same modules."""
        changed = set()
        for group in groups:
            shared, index = self._first.shared_parts.get(group.project), self._index.get(group.project, {})
            if shared is None or not group.measurements:
                continue
            found: Counter[int] = Counter()
            for measurement in group.measurements:
                found.update(index[name] for name in self._problem.objective.shared_parts(measurement) if name in index)
            default = set(shared.emitted.get(group.module, ()))
            # In units of which sums are exact, so that a resumed run has the same.
            shares = {part: round(found[part] / len(group.measurements) * _UNIT) / _UNIT for part in {*found, *default}}
            # Only what differs from the default is kept, which is little.
            kept = {part: share for part, share in shares.items() if share != (part in default)}
            self._set(group.project, group.module, kept)
            changed.add(group.project)
        self.baseline = self._with_contexts(changed)

    def state(self) -> dict[str, dict[str, dict[str, float]]]:
        """The state to save in a checkpoint: by project and module, the shares that differ from the default's."""
        return {
            project: {module: {str(part): share for part, share in own.items()} for module, own in modules.items()}
            for project, modules in self._shares.items()
            if modules
        }

    def _set(self, project: str, module: str, shares: dict[int, float]) -> None:
        """Replaces the shares of a module's rollouts that emit parts, where they differ from the default's."""
        default = set(self._first.shared_parts[project].emitted.get(module, ()))
        copies, before = self._copies[project], self._shares[project].get(module, {})
        for part in {*before, *shares}:
            copies[part] += shares.get(part, part in default) - before.get(part, part in default)
        if shares:
            self._shares[project][module] = shares
        else:
            self._shares[project].pop(module, None)

    def _with_contexts(self, projects: Iterable[str]) -> Baseline[Context]:
        """The baseline with new contexts of some projects."""
        for project in projects:
            names = self._first.shared_parts[project].names
            copies = dict(zip(names, self._copies[project].tolist(), strict=True))
            self._contexts[project] = self._problem.objective.with_copies(self._first.contexts[project], copies)
        scores = {**self._first.scores, **self._first.scores_as_emitted}
        return dataclasses.replace(self._first, contexts=dict(self._contexts), scores=scores)
