"""Results by language: C and C++ are two populations, in which policies and options gain differently."""

import dataclasses
from collections.abc import Mapping

from compiler_opt.evaluation.results import PARTS, Evaluation
from compiler_opt.evaluation.statistics import Comparison, compare_projects

ALL = "all"


@dataclasses.dataclass(frozen=True)
class LanguageResult:
    """A policy against the default, over the linked projects of one language (`ProjectResult.language`).

    Attributes:
      language: `ALL` for all projects.
      text: comparison of the projects' linked text.
      code: comparison of the code among it.
      shared: comparison of the text of their shared libraries; None if there are none.
      contributions: by part of the text, what it adds to `text.mean`.
      shared_contributions: the same for `shared`; empty if there are none.
      worst: the project whose text grew most, or shrank least, and its change.
    """

    language: str
    policy: str
    num_projects: int
    text: Comparison
    code: Comparison
    shared: Comparison | None
    contributions: Mapping[str, float]
    shared_contributions: Mapping[str, float]
    worst: tuple[str, float]


def by_language(evaluation: Evaluation) -> list[LanguageResult]:
    """Each variant by language, without languages of which nothing was linked; then, if there are several, over all."""
    languages: list[str | None] = [*sorted({project.language for project in evaluation.projects})]
    if len(languages) > 1:
        languages.append(None)
    results = [_result(evaluation, language, policy) for language in languages for policy in evaluation.variants]
    return [result for result in results if result is not None]


def _result(evaluation: Evaluation, language: str | None, policy: str) -> LanguageResult | None:
    projects = [project for project in evaluation.projects if language in (None, project.language)]
    changes = {p.name: change for p in projects if (change := p.linked_change(policy)) is not None}
    if not changes:
        return None
    worst = max(changes, key=lambda project: changes[project])
    has_shared = any(project.linked_change(policy, shared=True) is not None for project in projects)
    return LanguageResult(
        language=language or ALL,
        policy=policy,
        num_projects=len(changes),
        text=compare_projects(*evaluation.linked_bytes(policy, "total", language)),
        code=compare_projects(*evaluation.linked_bytes(policy, "code", language)),
        shared=compare_projects(*evaluation.linked_bytes(policy, "total", language, shared=True))
        if has_shared
        else None,
        contributions=_contributions(evaluation, language, policy, shared=False),
        shared_contributions=_contributions(evaluation, language, policy, shared=True) if has_shared else {},
        worst=(worst, changes[worst]),
    )


def _contributions(evaluation: Evaluation, language: str | None, policy: str, *, shared: bool) -> dict[str, float]:
    """Means over projects."""
    projects = [project for project in evaluation.projects if language in (None, project.language)]
    linked = [project for project in projects if project.linked_change(policy, shared=shared) is not None]
    return {part: sum(p.contribution(policy, part, shared=shared) for p in linked) / len(linked) for part in PARTS}
