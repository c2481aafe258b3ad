"""The report on an evaluation: CSV files, `summary.json`, `report.html`, and a table for the terminal.

Size is reported by linked text first, by project and language, then by objects, modules and baselines; any other policy
by its score first, then by linked text.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from compiler_opt.evaluation import plots
from compiler_opt.evaluation.history import History
from compiler_opt.evaluation.languages import by_language
from compiler_opt.evaluation.report_parts import (
    change_headline,
    estimate_card,
    estimate_cell,
    estimate_text,
    evaluation_page,
    module_rows,
    most_changed,
    project_rows,
    project_table,
    write_report,
)
from compiler_opt.evaluation.results import DEFAULT, NEVER_WORSE, PARTS, Evaluation, ModuleResult, ProjectResult
from compiler_opt.evaluation.statistics import CONFIDENCE, MODULES, NUM_RESAMPLES, Estimate, to_json
from compiler_opt.report.formatting import bytes_text, change_text, count_text
from compiler_opt.report.table import Cell, Change, Table, size_cells

_EXPLANATIONS = {
    "never": "never inlines no call site",
    "always": "always inlines every call site",
    "random": "random inlines half of the call sites",
}


def write(evaluation: Evaluation, folder: Path, history: History | None = None) -> Path:
    """Writes `modules.csv`, `projects.csv` and the rest, see `report_parts.write_report`."""
    tables = {"modules.csv": module_rows(evaluation), "projects.csv": project_rows(evaluation)}
    summary = {**evaluation.summary(), "languages": [to_json(result) for result in by_language(evaluation)]}
    return write_report(folder, tables, summary, render(evaluation, history))


def render(evaluation: Evaluation, history: History | None = None) -> str:
    """The page, with a plot of the training if its history is given."""
    return (_size_page if evaluation.problem.objective.is_size else _score_page)(evaluation, history)


def terminal_table(evaluation: Evaluation) -> str:
    """The result as plain text: tables of projects and languages, a summary, and the modules that grew most."""
    policy, score = evaluation.policy, evaluation.problem.objective.score_name
    total = evaluation.totals[policy]
    objects, scores = total.objects, total.scores
    failures = count_text(len(evaluation.failures()), "failure")
    if not evaluation.problem.objective.is_size:
        summary = (
            f"score ({score}): {estimate_text(scores.total, sample=MODULES)}, mean of modules "
            f"{estimate_text(scores.mean, sample=MODULES)}, mean of "
            f"projects {estimate_text(total.project_scores.mean)}; modules: {scores.wins} lower, {scores.ties} same, "
            f"{scores.losses} higher; {failures}"
        )
        return "\n".join([*_project_scores(evaluation).lines(), "", summary])
    lines = [
        *_project_sizes(evaluation, () if evaluation.alone else evaluation.baselines).lines(),
        "",
        *_languages(evaluation, lambda estimate: estimate_text(estimate, "")).lines(),
        "",
        f"linked text: {estimate_text(total.linked.total)} together, mean of projects "
        f"{estimate_text(total.linked.mean)}",
        f"code in it: {estimate_text(total.code.total)} together, mean of projects {estimate_text(total.code.mean)}",
        f"{score}: {estimate_text(scores.total, sample=MODULES)}; modules: {objects.wins} smaller, "
        f"{objects.ties} same, {objects.losses} bigger; {failures}",
    ]
    lines += filter(None, (_shared(evaluation), _never_worse(evaluation)))
    if worst := most_changed(evaluation, lambda module: module.change(policy)):
        named = ", ".join(f"{module.name} {change_text(module.change(policy))}" for module in worst[:3])
        lines.append(f"grew most: {named}")
    return "\n".join(lines)


def _score_page(evaluation: Evaluation, history: History | None) -> str:
    policy, score = evaluation.policy, evaluation.problem.objective.score_name
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
            estimate_card("Score", scores.total, MODULES),
            estimate_card("Mean over modules", scores.mean, MODULES),
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
            estimate_card("Code in it, mean of projects", total.code.mean),
            estimate_card(evaluation.problem.objective.score_name, scores.total, MODULES),
            estimate_card("Text of the objects", objects.total, MODULES),
            estimate_card("Mean over modules", objects.mean, MODULES),
            ("Modules smaller / same / bigger", counts, "by the text of the object"),
        ],
        num_resamples=f"{NUM_RESAMPLES:,}",
        score=evaluation.problem.objective.score_name,
        languages=_languages(evaluation, estimate_cell, PARTS),
        shared=_shared_libraries(evaluation),
        project_plot=plots.project_bars(evaluation),
        parts=PARTS,
        part_plot=plots.part_bars(evaluation),
        module_plot=plots.module_distribution(evaluation),
        size_plot=plots.size_scatter(evaluation),
        projects=_project_sizes(evaluation, evaluation.baselines),
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


def _shared(evaluation: Evaluation) -> str:
    """A sentence about shared libraries; empty if there are none."""
    result = by_language(evaluation)[-1] if evaluation.linked_bytes(evaluation.policy, shared=True)[0] else None
    if result is None or result.shared is None:
        return ""
    return (
        f"linked as shared libraries: {change_text(result.shared.mean.value)} in the mean of projects, of which "
        f"{change_text(result.shared_contributions['dynamic'])} are dynamic symbols and relocations"
    )


def _never_worse(evaluation: Evaluation) -> str:
    """A sentence about `NEVER_WORSE`; empty if no project was linked so."""
    together = evaluation.never_worse_change()
    if together is None:
        return ""
    changes = [change for p in evaluation.projects if (change := p.linked_change(NEVER_WORSE)) is not None]
    by_project = f"; by project {change_text(min(changes))} to {change_text(max(changes))}" if len(changes) > 1 else ""
    return (
        f"with objects only where they are smaller and have no more code (deploy --never_worse): "
        f"{change_text(together)} linked, {change_text(evaluation.never_worse_change('code'))} code{by_project}"
    )


def _project_sizes(evaluation: Evaluation, baselines: Sequence[str]) -> Table:
    """Linked text and the code in it, with these baselines."""
    policy, variants = evaluation.policy, evaluation.variants
    sizes = (DEFAULT,) if evaluation.alone else (DEFAULT, policy)
    total, totals = evaluation.totals[policy], evaluation.totals

    def cells(project: ProjectResult) -> list[Cell]:
        linked = (project.linked_bytes.get(name) for name in sizes)
        return [
            *("-" if count is None else bytes_text(count) for count in linked),
            *(Change(project.linked_change(name, part)) for name in variants for part in ("total", "code")),
            Change(project.object_change(policy)),
            *(Change(project.linked_change(name), 1) for name in baselines),
        ]

    together: list[Cell] = [
        *[bytes_text(total.default_linked_bytes), bytes_text(total.linked_bytes)][: len(sizes)],
        *(Change(each.total.value) for name in variants for each in (totals[name].linked, totals[name].code)),
        Change(total.objects.total.value),
        *(Change(totals[name].linked_change, 1) for name in baselines),
    ]
    names = ["linked"] if len(variants) == 1 else [_short(name, evaluation) for name in variants]
    changes = [head for name in names for head in (name, "code")]
    return project_table(evaluation, [*sizes, *changes, "objects", *baselines], cells, together)


def _short(name: str, evaluation: Evaluation) -> str:
    """The name of a policy in a table: `both` for a policy with options."""
    return "both" if evaluation.alone and name == evaluation.policy else name


def _languages(evaluation: Evaluation, mean: Callable[[Estimate], Cell], parts: Sequence[str] = ()) -> Table:
    """Means of projects by language, shown as `mean` says, and what these parts of the text add to them."""
    rows: list[list[Cell]] = [
        [
            each.language,
            _short(each.policy, evaluation),
            f"{each.num_projects:,}",
            mean(each.text.mean),
            mean(each.code.mean),
            *(Change(each.contributions[part]) for part in parts),
            f"{each.text.losses:,}",
            f"{each.worst[0]} {change_text(each.worst[1])}",
        ]
        for each in by_language(evaluation)
    ]
    means = [f"{what}, mean ({CONFIDENCE:.0%} interval)" for what in ("text", "code")]
    return Table(["language", "with", "projects", *means, *parts, "bigger", "worst"], rows, num_text_columns=2)


def _shared_libraries(evaluation: Evaluation) -> Table:
    """Means of projects by language that are linked as shared libraries, and what parts of the text add to them."""
    rows: list[list[Cell]] = [
        [
            each.language,
            _short(each.policy, evaluation),
            estimate_cell(each.shared.mean),
            *(Change(each.shared_contributions[part]) for part in PARTS),
            f"{each.shared.losses:,}",
        ]
        for each in by_language(evaluation)
        if each.shared is not None
    ]
    return Table(["language", "with", "text, mean", *PARTS, "bigger"], rows, num_text_columns=2)


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
            *(estimate_cell(each) for each in (total.linked.total, total.linked.mean)),
            *(estimate_cell(each, MODULES) for each in (total.objects.total, total.scores.total)),
            *(f"{count:,}" for count in (total.objects.wins, total.objects.ties, total.objects.losses)),
            f"{total.num_failures:,}",
            f"{total.cpu_s + total.host_cpu_s:,.0f}",
        ]
        for name, total in evaluation.totals.items()
    ]
    default_cpu_s = sum(module.outputs[DEFAULT].cpu_s for module in evaluation.modules)
    rows.append([DEFAULT, *[""] * 8, f"{default_cpu_s:,.0f}"])
    score = evaluation.problem.objective.score_name
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
