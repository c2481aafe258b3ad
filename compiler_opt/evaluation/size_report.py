"""The report on a policy for size: linked text first, then objects, modules and baselines."""

from collections.abc import Callable

from markupsafe import Markup

from compiler_opt.evaluation import plots, report
from compiler_opt.evaluation.history import History
from compiler_opt.evaluation.results import DEFAULT, NEVER_WORSE, Evaluation, ModuleResult, ProjectResult
from compiler_opt.evaluation.statistics import NUM_RESAMPLES, Estimate
from compiler_opt.report.formatting import bytes_text, change_text, count_text, signed_bytes_text
from compiler_opt.report.table import Cell, Change, Table

_EXPLANATIONS = {
    "never": "never inlines no callsite",
    "always": "always inlines every callsite",
    "random": "random inlines half of the callsites",
}


def render(evaluation: Evaluation, history: History | None = None) -> str:
    """The page, see `report.evaluation_page`."""
    policy = evaluation.policy
    total = evaluation.totals[policy]
    scores, objects = total.scores, total.objects
    smaller = never_worse(evaluation)
    counts = f"{objects.wins} / {objects.ties} / {objects.losses}"
    return report.evaluation_page(
        "size.html",
        evaluation,
        history,
        title=f"{policy}: {change_text(total.linked_change)} linked text",
        headline=report.change_headline("Linked text", total.linked_change, ("smaller", "bigger")),
        lead=lead(evaluation),
        cards=[
            ("Linked text", Change(total.linked_change), "all projects together"),
            report.estimate_card(evaluation.problem.score_name, scores.total),
            report.estimate_card("Text of the objects", objects.total),
            report.estimate_card("Mean over modules", objects.mean),
            ("Modules smaller / same / bigger", counts, "by the text of the object"),
        ],
        num_resamples=f"{NUM_RESAMPLES:,}",
        score=evaluation.problem.score_name,
        project_plot=Markup(plots.project_bars(evaluation)),
        module_plot=Markup(plots.module_distribution(evaluation)),
        size_plot=Markup(plots.size_scatter(evaluation)),
        projects=_projects(evaluation),
        notes=[f"{smaller[0].upper()}{smaller[1:]}.", *_notes(evaluation)] if smaller else _notes(evaluation),
        worst=_modules(evaluation, lambda module: module.change(policy)),
        best=_modules(evaluation, lambda module: -module.change(policy)),
        policies=_policies(evaluation),
        explanations=[_EXPLANATIONS[name] for name in evaluation.baselines if name in _EXPLANATIONS],
    )


def terminal_table(evaluation: Evaluation) -> str:
    """The result as plain text: a table of projects, a summary, and the modules that grew most."""
    policy = evaluation.policy
    total = evaluation.totals[policy]
    objects = total.objects
    lines = [
        *_projects(evaluation).lines(),
        "",
        f"{evaluation.problem.score_name}: {report.estimate_text(total.scores.total)}; modules: {objects.wins} "
        f"smaller, {objects.ties} same, {objects.losses} bigger; {count_text(len(evaluation.failures()), 'failure')}",
    ]
    if smaller := never_worse(evaluation):
        lines.append(smaller)
    if worst := report.most_changed(evaluation, lambda module: module.change(policy)):
        named = ", ".join(f"{module.name} {change_text(module.change(policy))}" for module in worst[:3])
        lines.append(f"grew most: {named}")
    return "\n".join(lines)


def lead(evaluation: Evaluation) -> str:
    """The result in two or three sentences."""
    policy = evaluation.policy
    total = evaluation.totals[policy]
    linked = {project.name: project.linked_change(policy) for project in evaluation.projects}
    changes = {name: change for name, change in linked.items() if change is not None}
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


def never_worse(evaluation: Evaluation) -> str:
    """A sentence about `NEVER_WORSE`; empty if no project was linked so."""
    together = evaluation.never_worse_change()
    if together is None:
        return ""
    changes = [project.linked_change(NEVER_WORSE) for project in evaluation.projects]
    known = [change for change in changes if change is not None]
    return (
        f"with the smaller object of each module (deploy --never_worse): {change_text(together)} linked; by project "
        f"{change_text(min(known))} to {change_text(max(known))}"
    )


def _projects(evaluation: Evaluation) -> Table:
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
    return report.project_table(evaluation, ["default", policy, "linked", "objects", *baselines], cells, together)


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
        notes.append(f"{count_text(excluded, 'module')} that the default fails to compile are left out.")
    return notes


def _modules(evaluation: Evaluation, amount: Callable[[ModuleResult], float]) -> Table:
    policy = evaluation.policy
    rows: list[list[Cell]] = []
    for module in report.most_changed(evaluation, amount):
        before, output = module.outputs[DEFAULT].text_bytes, module.output(policy)
        rows.append(
            [
                module.name,
                module.project,
                bytes_text(before),
                bytes_text(output.text_bytes),
                signed_bytes_text(output.text_bytes - before),
                Change(module.change(policy)),
                f"{output.num_decisions:,}",
            ]
        )
    head = ["module", "project", "default", policy, "bytes", "change", "decisions"]
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
    rows.append([DEFAULT, *[""] * 7, f"{default_cpu_s:,.0f}"])
    score = evaluation.problem.score_name
    return Table(["policy", "linked text", "objects", score, "smaller", "same", "bigger", "failed", "CPU s"], rows)
