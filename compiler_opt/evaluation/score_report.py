"""The report on a policy that is not for size: the score first, then the program's size."""

from markupsafe import Markup

from compiler_opt.evaluation import plots, report
from compiler_opt.evaluation.history import History
from compiler_opt.evaluation.results import DEFAULT, Evaluation, ModuleResult, ProjectResult
from compiler_opt.report.formatting import change_text, count_text
from compiler_opt.report.table import Cell, Change, Table


def render(evaluation: Evaluation, history: History | None = None) -> str:
    """The page, see `report.evaluation_page`."""
    policy, score = evaluation.policy, evaluation.problem.score_name
    total = evaluation.totals[policy]
    scores = total.scores
    by_change = sorted(evaluation.projects, key=lambda project: project.score_change(policy))
    return report.evaluation_page(
        "score.html",
        evaluation,
        history,
        title=f"{policy}: {change_text(scores.total.value)} {score}",
        headline=report.change_headline("The score", scores.total.value, ("lower", "higher")),
        lead=f"The score is {score}; lower is better.",
        cards=[
            report.estimate_card("Score", scores.total),
            report.estimate_card("Mean over modules", scores.mean),
            ("Modules lower / same / higher", f"{scores.wins} / {scores.ties} / {scores.losses}", "by the score"),
            ("Linked text", Change(total.linked_change), "all projects together"),
        ],
        project_plot=Markup(
            plots.change_bars(
                [project.name for project in by_change],
                [project.score_change(policy) for project in by_change],
                f"{policy}: change of the score",
            )
        ),
        projects=_projects(evaluation),
        lowered=_modules(evaluation, -1),
        raised=_modules(evaluation, 1),
    )


def terminal_table(evaluation: Evaluation) -> str:
    """The result as plain text: a table of projects and a summary."""
    scores = evaluation.totals[evaluation.policy].scores
    summary = (
        f"score ({evaluation.problem.score_name}): {report.estimate_text(scores.total)}, "
        f"mean of modules {report.estimate_text(scores.mean)}; "
        f"modules: {scores.wins} lower, {scores.ties} same, {scores.losses} higher; "
        f"{count_text(len(evaluation.failures()), 'failure')}"
    )
    return "\n".join([*_projects(evaluation).lines(), "", summary])


def _projects(evaluation: Evaluation) -> Table:
    policy = evaluation.policy
    total = evaluation.totals[policy]

    def cells(project: ProjectResult) -> list[Cell]:
        changes = [module.score_change(policy) for module in project.modules]
        return [
            *(_score_text(project.score(name)) for name in (DEFAULT, policy)),
            Change(project.score_change(policy)),
            Change(sum(changes) / len(changes) if changes else 0.0),
            Change(project.linked_change(policy)),
        ]

    together: list[Cell] = [
        *(_score_text(sum(project.score(name) for project in evaluation.projects)) for name in (DEFAULT, policy)),
        Change(total.scores.total.value),
        Change(total.scores.mean.value),
        Change(total.linked_change),
    ]
    head = ["default", policy, "score", "mean of modules", "linked text"]
    return report.project_table(evaluation, head, cells, together)


def _modules(evaluation: Evaluation, sign: int) -> Table:
    """The modules whose scores rose most (`sign` 1) or fell most (-1)."""
    policy = evaluation.policy

    def amount(module: ModuleResult) -> float:
        return sign * (module.output(policy).score - module.outputs[DEFAULT].score)

    rows: list[list[Cell]] = [
        [
            module.name,
            _score_text(module.outputs[DEFAULT].score),
            _score_text(module.output(policy).score),
            Change(module.score_change(policy)),
            f"{module.output(policy).num_decisions:,}",
        ]
        for module in report.most_changed(evaluation, amount)
    ]
    return Table(["module", "default", policy, "change", "decisions"], rows, wrapped=frozenset({0}))


def _score_text(score: float) -> str:
    return f"{score:,.0f}"
