"""The rows of an evaluation's data frames: numbers by name, by project or by module."""

from collections.abc import Iterator
from typing import Any

from compiler_opt.evaluation.results import DEFAULT, Evaluation


def by_project(evaluation: Evaluation) -> Iterator[dict[str, Any]]:
    """A row for each project and each policy but the default; see `Evaluation.to_dataframe`."""
    names = ("project", "language", "num_modules", "default_linked_bytes", "default_object_bytes")
    for project in evaluation.projects:
        summary = project.summary(evaluation.policies)
        for policy, numbers in summary["policies"].items():
            scores = {"default_score": project.score(DEFAULT), "score": project.score(policy)}
            yield {**{name: summary[name] for name in names}, "policy": policy, **numbers, **scores}


def by_module(evaluation: Evaluation) -> Iterator[dict[str, Any]]:
    """A row for each module and each policy but the default."""
    for module in evaluation.modules:
        for policy in evaluation.policies:
            default, output = module.outputs[DEFAULT], module.output(policy)
            yield {
                "module": module.name,
                "project": module.project,
                "language": module.language,
                "policy": policy,
                "default_object_bytes": default.text_bytes,
                "object_bytes": output.text_bytes,
                "object_change": module.change(policy),
                "default_score": default.score,
                "score": output.score,
                "score_change": module.score_change(policy),
                "decisions": output.num_decisions,
                "cpu_s": output.cpu_s,
                "failure": module.failures.get(policy),
            }
