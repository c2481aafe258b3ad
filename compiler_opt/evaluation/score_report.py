"""The evaluation of a policy that is not about size: the score first, then what became of the program's size."""

from markupsafe import Markup

from compiler_opt.evaluation import plots, statistics
from compiler_opt.evaluation.history import History
from compiler_opt.evaluation.report import NUM_MODULES_NAMED, change_headline, evaluation_page
from compiler_opt.evaluation.results import DEFAULT, Evaluation, ModuleResult, ProjectResult
from compiler_opt.report.formatting import change_text, count_text, interval_text
from compiler_opt.report.table import Cell, Change, Table


def render(evaluation: Evaluation, history: History | None = None) -> str:
    """The page; see `size_report.render`."""
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
            ("Score", Change(scores.total.value), interval_text(scores.total.low, scores.total.high)),
            ("Mean over modules", Change(scores.mean.value), interval_text(scores.mean.low, scores.mean.high)),
            ("Modules lower / same / higher", f"{scores.wins} / {scores.ties} / {scores.losses}", "by the score"),
            ("Linked text", Change(total.linked_change), "all projects together"),
        ],
        confidence=f"{statistics.CONFIDENCE:.0%}",
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
    """The result as plain text: a line per project, all together, and what should not be overlooked."""
    scores = evaluation.totals[evaluation.policy].scores
    return "\n".join(
        [
            *_projects(evaluation).lines(),
            "",
            f"score ({evaluation.problem.score_name}): {change_text(scores.total.value)} "
            f"(95%: {interval_text(scores.total.low, scores.total.high)}), mean of modules "
            f"{change_text(scores.mean.value)} (95%: {interval_text(scores.mean.low, scores.mean.high)}); "
            f"modules: {scores.wins} lower, {scores.ties} same, {scores.losses} higher; "
            f"{count_text(len(evaluation.failures()), 'failure')}",
        ]
    )


def _projects(evaluation: Evaluation) -> Table:
    policy = evaluation.policy
    total = evaluation.totals[policy]
    rows: list[list[Cell]] = [
        [
            project.name,
            project.languages,
            str(len(project.modules)),
            *(_score_text(project.score(who)) for who in (DEFAULT, policy)),
            Change(project.score_change(policy)),
            Change(_mean_change(project, policy)),
            Change(project.linked_change(policy)),
        ]
        for project in evaluation.projects
    ]
    together: list[Cell] = [
        "together",
        "",
        str(len(evaluation.modules)),
        *(_score_text(sum(project.score(who) for project in evaluation.projects)) for who in (DEFAULT, policy)),
        Change(total.scores.total.value),
        Change(total.scores.mean.value),
        Change(total.linked_change),
    ]
    head = ["project", "language", "modules", "default", policy, "score", "mean of modules", "linked text"]
    return Table(head, rows, together, num_text_columns=2)


def _modules(evaluation: Evaluation, sign: int) -> Table:
    """The modules to whose score most was added (`sign` 1), or from which most was taken (-1)."""

    def added(module: ModuleResult) -> float:
        return sign * (module.output(evaluation.policy).score - module.outputs[DEFAULT].score)

    changed = sorted((module for module in evaluation.modules if added(module) > 0), key=added, reverse=True)
    rows: list[list[Cell]] = [
        [
            module.name,
            _score_text(module.outputs[DEFAULT].score),
            _score_text(module.output(evaluation.policy).score),
            Change(module.score_change(evaluation.policy)),
            f"{module.output(evaluation.policy).num_decisions:,}",
        ]
        for module in changed[:NUM_MODULES_NAMED]
    ]
    head = ["module", "default", evaluation.policy, "change", "decisions"]
    return Table(head, rows, wrapped=frozenset({0}))


def _mean_change(project: ProjectResult, policy: str) -> float:
    changes = [module.score_change(policy) for module in project.modules]
    return sum(changes) / len(changes) if changes else 0.0


def _score_text(score: float) -> str:
    return f"{score:,.0f}"
