"""The report on an evaluation: CSV files, `summary.json`, `report.html`, and a table for the terminal.

A policy for size is reported by linked text first, then by objects, modules and baselines; any other policy by its
score first, then by linked text.
"""

from collections.abc import Callable
from pathlib import Path

from compiler_opt.evaluation import plots
from compiler_opt.evaluation.history import History
from compiler_opt.evaluation.report_parts import (
    change_headline,
    estimate_card,
    estimate_text,
    evaluation_page,
    module_rows,
    most_changed,
    project_rows,
    project_table,
    write_report,
)
from compiler_opt.evaluation.results import DEFAULT, NEVER_WORSE, Evaluation, ModuleResult, ProjectResult
from compiler_opt.evaluation.statistics import NUM_RESAMPLES
from compiler_opt.report.formatting import bytes_text, change_text, count_text
from compiler_opt.report.table import Cell, Change, Table, size_cells

_EXPLANATIONS = {
    "never": "never inlines no callsite",
    "always": "always inlines every callsite",
    "random": "random inlines half of the callsites",
}


def write(evaluation: Evaluation, folder: Path, history: History | None = None) -> Path:
    """Writes `modules.csv`, `projects.csv` and the rest, see `report_parts.write_report`."""
    tables = {"modules.csv": module_rows(evaluation), "projects.csv": project_rows(evaluation)}
    return write_report(folder, tables, evaluation.summary(), render(evaluation, history))


def render(evaluation: Evaluation, history: History | None = None) -> str:
    """The page, with a plot of the training if its history is given."""
    return (_size_page if evaluation.problem.is_size else _score_page)(evaluation, history)


def terminal_table(evaluation: Evaluation) -> str:
    """The result as plain text: a table of projects, a summary and, for size, the modules that grew most."""
    policy, score = evaluation.policy, evaluation.problem.score_name
    total = evaluation.totals[policy]
    objects, scores = total.objects, total.scores
    failures = count_text(len(evaluation.failures()), "failure")
    if not evaluation.problem.is_size:
        summary = (
            f"score ({score}): {estimate_text(scores.total)}, mean of modules {estimate_text(scores.mean)}, mean of "
            f"projects {estimate_text(total.project_scores.mean)}; modules: {scores.wins} lower, {scores.ties} same, "
            f"{scores.losses} higher; {failures}"
        )
        return "\n".join([*_project_scores(evaluation).lines(), "", summary])
    lines = [
        *_project_sizes(evaluation).lines(),
        "",
        f"linked text: {estimate_text(total.linked.total)} together, mean of projects "
        f"{estimate_text(total.linked.mean)}; intervals over other projects",
        f"{score}: {estimate_text(scores.total)}; modules: {objects.wins} smaller, {objects.ties} same, "
        f"{objects.losses} bigger; {failures}",
    ]
    if smaller := _never_worse(evaluation):
        lines.append(smaller)
    if worst := most_changed(evaluation, lambda module: module.change(policy)):
        named = ", ".join(f"{module.name} {change_text(module.change(policy))}" for module in worst[:3])
        lines.append(f"grew most: {named}")
    return "\n".join(lines)


def _score_page(evaluation: Evaluation, history: History | None) -> str:
    policy, score = evaluation.policy, evaluation.problem.score_name
    total = evaluation.totals[policy]
    scores = total.scores
    by_change = sorted(evaluation.projects, key=lambda project: project.score_change(policy))
    return evaluation_page(
        "score.html",
        evaluation,
        history,
        title=f"{policy}: {change_text(scores.total.value)} {score}",
        headline=change_headline("The score", scores.total.value, ("lower", "higher")),
        lead=f"The score is {score}; lower is better.",
        cards=[
            estimate_card("Score", scores.total),
            estimate_card("Mean over modules", scores.mean),
            estimate_card("Mean over projects", total.project_scores.mean),
            ("Modules lower / same / higher", f"{scores.wins} / {scores.ties} / {scores.losses}", "by the score"),
            estimate_card("Linked text, all together", total.linked.total),
            estimate_card("Linked text, mean of projects", total.linked.mean),
        ],
        project_plot=plots.change_bars(
            [project.name for project in by_change],
            [project.score_change(policy) for project in by_change],
            f"{policy}: change of the score",
        ),
        projects=_project_scores(evaluation),
        lowered=_module_scores(evaluation, -1),
        raised=_module_scores(evaluation, 1),
    )


def _project_scores(evaluation: Evaluation) -> Table:
    policy = evaluation.policy
    total = evaluation.totals[policy]

    def cells(project: ProjectResult) -> list[Cell]:
        changes = [module.score_change(policy) for module in project.modules]
        return [
            *(f"{project.score(name):,.0f}" for name in (DEFAULT, policy)),
            Change(project.score_change(policy)),
            Change(sum(changes) / len(changes) if changes else 0.0),
            Change(project.linked_change(policy)),
        ]

    together: list[Cell] = [
        *(f"{sum(project.score(name) for project in evaluation.projects):,.0f}" for name in (DEFAULT, policy)),
        Change(total.scores.total.value),
        Change(total.scores.mean.value),
        Change(total.linked_change),
    ]
    return project_table(evaluation, ["default", policy, "score", "mean of modules", "linked text"], cells, together)


def _module_scores(evaluation: Evaluation, sign: int) -> Table:
    """The modules whose scores rose most (`sign` 1) or fell most (-1)."""
    policy = evaluation.policy
    rows: list[list[Cell]] = [
        [
            module.name,
            *(f"{module.output(name).score:,.0f}" for name in (DEFAULT, policy)),
            Change(module.score_change(policy)),
            f"{module.output(policy).num_decisions:,}",
        ]
        for module in most_changed(evaluation, lambda m: sign * (m.output(policy).score - m.output(DEFAULT).score))
    ]
    return Table(["module", "default", policy, "change", "decisions"], rows, wrapped=frozenset({0}))


def _size_page(evaluation: Evaluation, history: History | None) -> str:
    policy = evaluation.policy
    total = evaluation.totals[policy]
    scores, objects = total.scores, total.objects
    counts = f"{objects.wins} / {objects.ties} / {objects.losses}"
    return evaluation_page(
        "size.html",
        evaluation,
        history,
        title=f"{policy}: {change_text(total.linked_change)} linked text",
        headline=change_headline("Linked text", total.linked_change, ("smaller", "bigger")),
        lead=lead(evaluation),
        cards=[
            estimate_card("Linked text, all together", total.linked.total),
            estimate_card("Linked text, mean of projects", total.linked.mean),
            estimate_card(evaluation.problem.score_name, scores.total),
            estimate_card("Text of the objects", objects.total),
            estimate_card("Mean over modules", objects.mean),
            ("Modules smaller / same / bigger", counts, "by the text of the object"),
        ],
        num_resamples=f"{NUM_RESAMPLES:,}",
        score=evaluation.problem.score_name,
        project_plot=plots.project_bars(evaluation),
        module_plot=plots.module_distribution(evaluation),
        size_plot=plots.size_scatter(evaluation),
        projects=_project_sizes(evaluation),
        notes=_notes(evaluation),
        worst=_module_sizes(evaluation, lambda module: module.change(policy)),
        best=_module_sizes(evaluation, lambda module: -module.change(policy)),
        policies=_policies(evaluation),
        explanations=[_EXPLANATIONS[name] for name in evaluation.baselines if name in _EXPLANATIONS],
    )


def lead(evaluation: Evaluation) -> str:
    """The result for size in two or three sentences."""
    policy = evaluation.policy
    total = evaluation.totals[policy]
    changes = {p.name: change for p in evaluation.projects if (change := p.linked_change(policy)) is not None}
    sentences = [
        f"Linked, {count_text(len(changes), 'project')} of {count_text(len(evaluation.modules), 'module')} take "
        f"{bytes_text(total.linked_bytes)} bytes of text with {policy} instead of "
        f"{bytes_text(total.default_linked_bytes)}."
    ]
    bigger = {name: change for name, change in changes.items() if change > 0}
    num_smaller = sum(change < 0 for change in changes.values())
    if len(changes) > 1 and num_smaller == len(changes):
        sentences.append(f"All {len(changes)} programs got smaller.")
    elif len(changes) > 1:
        others = f"{len(bigger)} bigger" if bigger else "none is bigger"
        sentences.append(f"{num_smaller} of the {len(changes)} programs got smaller, {others}.")
    if bigger:
        name = max(bigger, key=bigger.__getitem__)
        sentences.append(f"{name} grew most, by {change_text(bigger[name])[1:]}.")
    return " ".join(sentences)


def _never_worse(evaluation: Evaluation) -> str:
    """A sentence about `NEVER_WORSE`; empty if no project was linked so."""
    together = evaluation.never_worse_change()
    if together is None:
        return ""
    changes = [change for p in evaluation.projects if (change := p.linked_change(NEVER_WORSE)) is not None]
    return (
        f"with the smaller object of each module (deploy --never_worse): {change_text(together)} linked; by project "
        f"{change_text(min(changes))} to {change_text(max(changes))}"
    )


def _project_sizes(evaluation: Evaluation) -> Table:
    policy, baselines = evaluation.policy, evaluation.baselines
    total = evaluation.totals[policy]

    def cells(project: ProjectResult) -> list[Cell]:
        linked = (project.linked_bytes.get(name) for name in (DEFAULT, policy))
        return [
            *("-" if count is None else bytes_text(count) for count in linked),
            Change(project.linked_change(policy)),
            Change(project.object_change(policy)),
            *(Change(project.linked_change(name), 1) for name in baselines),
        ]

    together: list[Cell] = [
        bytes_text(total.default_linked_bytes),
        bytes_text(total.linked_bytes),
        Change(total.linked_change),
        Change(total.objects.total.value),
        *(Change(evaluation.totals[name].linked_change, 1) for name in baselines),
    ]
    return project_table(evaluation, ["default", policy, "linked", "objects", *baselines], cells, together)


def _notes(evaluation: Evaluation) -> list[str]:
    substituted = evaluation.totals[evaluation.policy].num_failures
    excluded = sum(len(project.excluded) for project in evaluation.projects)
    smaller = _never_worse(evaluation)
    notes = [f"{smaller[0].upper()}{smaller[1:]}."] if smaller else []
    if substituted:
        notes.append(
            f"{count_text(substituted, 'module')} failed to compile with {evaluation.policy}; the default's object was "
            "linked instead."
        )
    if excluded:
        notes.append(f"{count_text(excluded, 'module')} that the default fails to compile are left out.")
    return notes


def _module_sizes(evaluation: Evaluation, amount: Callable[[ModuleResult], float]) -> Table:
    policy = evaluation.policy
    rows: list[list[Cell]] = [
        [
            module.name,
            module.project,
            *size_cells(module.output(DEFAULT).text_bytes, module.output(policy).text_bytes, module.change(policy)),
            f"{module.output(policy).num_decisions:,}",
        ]
        for module in most_changed(evaluation, amount)
    ]
    head = ["module", "project", "default", policy, "bytes", "change", "decisions"]
    return Table(head, rows, num_text_columns=2, wrapped=frozenset({0}))


def _policies(evaluation: Evaluation) -> Table:
    rows: list[list[Cell]] = [
        [
            name,
            *(
                Change(e.value, interval=(e.low, e.high))
                for e in (total.linked.total, total.linked.mean, total.objects.total, total.scores.total)
            ),
            *(f"{count:,}" for count in (total.objects.wins, total.objects.ties, total.objects.losses)),
            f"{total.num_failures:,}",
            f"{total.cpu_s + total.host_cpu_s:,.0f}",
        ]
        for name, total in evaluation.totals.items()
    ]
    default_cpu_s = sum(module.outputs[DEFAULT].cpu_s for module in evaluation.modules)
    rows.append([DEFAULT, *[""] * 8, f"{default_cpu_s:,.0f}"])
    score = evaluation.problem.score_name
    head = [
        "policy",
        "linked text",
        "mean of projects",
        "objects",
        score,
        "smaller",
        "same",
        "bigger",
        "failed",
        "CPU s",
    ]
    return Table(head, rows)
