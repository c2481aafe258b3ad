"""The evaluation of a policy for size: the linked text first, then objects, modules and baselines."""

from collections.abc import Sequence

from markupsafe import Markup

from compiler_opt.evaluation import plots
from compiler_opt.evaluation.history import History
from compiler_opt.evaluation.report import best_modules, change_headline, evaluation_page, worst_modules
from compiler_opt.evaluation.results import DEFAULT, NEVER_WORSE, Evaluation, ModuleResult
from compiler_opt.evaluation.statistics import CONFIDENCE, NUM_RESAMPLES, Estimate
from compiler_opt.report.formatting import bytes_text, change_text, count_text, interval_text, signed_bytes_text
from compiler_opt.report.table import Cell, Change, Table

_EXPLANATIONS = {
    "never": "never inlines nothing that it is asked about",
    "always": "always inlines all of it",
    "random": "random tosses a coin",
}


def render(evaluation: Evaluation, history: History | None = None) -> str:
    """The page.

    Args:
      evaluation: what to report.
      history: of the training, for its curve.
    """
    total = evaluation.totals[evaluation.policy]
    scores, objects = total.scores, total.objects
    smaller = never_worse(evaluation)
    return evaluation_page(
        "size.html",
        evaluation,
        history,
        title=f"{evaluation.policy}: {change_text(total.linked_change)} linked text",
        headline=change_headline("Linked text", total.linked_change, ("smaller", "bigger")),
        lead=lead(evaluation),
        cards=[
            ("Linked text", Change(total.linked_change), "all projects together"),
            (evaluation.problem.score_name, Change(scores.total.value), _interval(scores.total)),
            ("Text of the objects", Change(objects.total.value), _interval(objects.total)),
            ("Mean over modules", Change(objects.mean.value), _interval(objects.mean)),
            (
                "Modules smaller / same / bigger",
                f"{objects.wins} / {objects.ties} / {objects.losses}",
                "by the text of the object",
            ),
        ],
        confidence=f"{CONFIDENCE:.0%}",
        num_resamples=f"{NUM_RESAMPLES:,}",
        score=evaluation.problem.score_name,
        project_plot=Markup(plots.project_bars(evaluation)),
        module_plot=Markup(plots.module_distribution(evaluation)),
        size_plot=Markup(plots.size_scatter(evaluation)),
        projects=_projects(evaluation),
        notes=[f"{smaller[0].upper()}{smaller[1:]}.", *_notes(evaluation)] if smaller else _notes(evaluation),
        worst=_modules(evaluation, worst_modules(evaluation)),
        best=_modules(evaluation, best_modules(evaluation)),
        policies=_policies(evaluation),
        explanations=[_EXPLANATIONS[name] for name in evaluation.baselines if name in _EXPLANATIONS],
    )


def terminal_table(evaluation: Evaluation) -> str:
    """The result as plain text: a line per project, all together, and what should not be overlooked."""
    total = evaluation.totals[evaluation.policy]
    scores, objects = total.scores, total.objects
    lines = _projects(evaluation).lines()
    lines += [
        "",
        f"{evaluation.problem.score_name}: {change_text(scores.total.value)} "
        f"(95%: {_interval(scores.total)}); modules: {objects.wins} smaller, "
        f"{objects.ties} same, {objects.losses} bigger; {count_text(len(evaluation.failures()), 'failure')}",
    ]
    if smaller := never_worse(evaluation):
        lines.append(smaller)
    worst = worst_modules(evaluation)
    if worst:
        named = ", ".join(f"{module.name} {change_text(module.change(evaluation.policy))}" for module in worst[:3])
        lines.append(f"grew most: {named}")
    return "\n".join(lines)


def lead(evaluation: Evaluation) -> str:
    """The result in two or three sentences."""
    total = evaluation.totals[evaluation.policy]
    linked = [p for p in evaluation.projects if p.linked_change(evaluation.policy) is not None]
    changes = {project.name: project.linked_change(evaluation.policy) or 0.0 for project in linked}
    sentences = [
        f"Linked, {count_text(len(linked), 'project')} of {count_text(len(evaluation.modules), 'module')} take "
        f"{bytes_text(total.linked_bytes)} bytes of text with {evaluation.policy} instead of "
        f"{bytes_text(total.default_linked_bytes)}."
    ]
    bigger = {name: change for name, change in changes.items() if change > 0}
    num_smaller = sum(change < 0 for change in changes.values())
    if len(linked) > 1 and num_smaller == len(linked):
        sentences.append(f"All {len(linked)} programs got smaller.")
    elif len(linked) > 1:
        others = f"{len(bigger)} bigger" if bigger else "none is bigger"
        sentences.append(f"{num_smaller} of the {len(linked)} programs got smaller, {others}.")
    if bigger:
        name = max(bigger, key=bigger.__getitem__)
        sentences.append(f"The one that grew most is {name}, by {change_text(bigger[name])[1:]}.")
    return " ".join(sentences)


def never_worse(evaluation: Evaluation) -> str:
    """What keeping each module's smaller object would win, in a line; empty when nothing was linked so."""
    together = evaluation.never_worse_change()
    if together is None:
        return ""
    changes = [project.linked_change(NEVER_WORSE) for project in evaluation.projects]
    known = [change for change in changes if change is not None]
    return (
        f"of each module the smaller object (deploy --never_worse): {change_text(together)} linked; by project "
        f"{change_text(min(known))} to {change_text(max(known))}"
    )


def _interval(estimate: Estimate) -> str:
    return interval_text(estimate.low, estimate.high)


def _projects(evaluation: Evaluation) -> Table:
    policy, baselines = evaluation.policy, evaluation.baselines
    total = evaluation.totals[policy]
    rows: list[list[Cell]] = [
        [
            project.name,
            project.languages,
            str(len(project.modules)),
            *(
                bytes_text(project.linked_bytes[who]) if who in project.linked_bytes else "-"
                for who in (DEFAULT, policy)
            ),
            Change(project.linked_change(policy)),
            Change(project.object_change(policy)),
            *(Change(project.linked_change(name), 1) for name in baselines),
        ]
        for project in evaluation.projects
    ]
    together: list[Cell] = [
        "together",
        "",
        str(len(evaluation.modules)),
        bytes_text(total.default_linked_bytes),
        bytes_text(total.linked_bytes),
        Change(total.linked_change),
        Change(total.objects.total.value),
        *(Change(evaluation.totals[name].linked_change, 1) for name in baselines),
    ]
    head = ["project", "language", "modules", "default", policy, "linked", "objects", *baselines]
    return Table(head, rows, together, num_text_columns=2)


def _notes(evaluation: Evaluation) -> list[str]:
    substituted = sum(project.num_substituted(evaluation.policy) for project in evaluation.projects)
    excluded = sum(len(project.excluded) for project in evaluation.projects)
    notes = []
    if substituted:
        notes.append(
            f"{count_text(substituted, 'module')} failed to compile with {evaluation.policy}; the default's object was "
            "linked instead."
        )
    if excluded:
        notes.append(f"{count_text(excluded, 'module')} that the default fails to compile are in no number.")
    return notes


def _modules(evaluation: Evaluation, modules: Sequence[ModuleResult]) -> Table:
    rows: list[list[Cell]] = []
    for module in modules:
        before, output = module.outputs[DEFAULT].text_bytes, module.output(evaluation.policy)
        rows.append(
            [
                module.name,
                module.project,
                bytes_text(before),
                bytes_text(output.text_bytes),
                signed_bytes_text(output.text_bytes - before),
                Change(module.change(evaluation.policy)),
                f"{output.num_decisions:,}",
            ]
        )
    head = ["module", "project", "default", evaluation.policy, "bytes", "change", "decisions"]
    return Table(head, rows, num_text_columns=2, wrapped=frozenset({0}))


def _policies(evaluation: Evaluation) -> Table:
    def with_interval(estimate: Estimate) -> Change:
        return Change(estimate.value, interval=(estimate.low, estimate.high))

    rows: list[list[Cell]] = [
        [
            name,
            Change(total.linked_change),
            with_interval(total.objects.total),
            with_interval(total.scores.total),
            *(f"{count:,}" for count in (total.objects.wins, total.objects.ties, total.objects.losses)),
            f"{total.num_failures:,}",
            f"{total.cpu_s + total.host_cpu_s:,.0f}",
        ]
        for name, total in evaluation.totals.items()
    ]
    default_cpu_s = sum(module.outputs[DEFAULT].cpu_s for module in evaluation.modules)
    rows.append(["default", *[""] * 7, f"{default_cpu_s:,.0f}"])
    score = evaluation.problem.score_name
    head = ["policy", "linked text", "objects", score, "smaller", "same", "bigger", "failed", "CPU s"]
    return Table(head, rows)
