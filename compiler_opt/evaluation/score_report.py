"""The evaluation of a policy that is not about size: the score first, then what became of the program's size."""

import string
from collections.abc import Sequence
from pathlib import Path

from compiler_opt.evaluation import page, plots, statistics
from compiler_opt.evaluation.formatting import aligned, change_text, count_text
from compiler_opt.evaluation.history import History
from compiler_opt.evaluation.page import cells, colored, escape, table
from compiler_opt.evaluation.report import common_fields, interval, score_name
from compiler_opt.evaluation.results import DEFAULT, Evaluation, ModuleResult, ProjectResult

_TEMPLATE = Path(__file__).with_name("score_report.html")
_NUM_MODULES_NAMED = 10


def render(evaluation: Evaluation, history: History | None = None) -> str:
    """The page; see `report.render`."""
    policy = evaluation.policy
    scores = evaluation.totals[policy].scores
    by_change = sorted(evaluation.projects, key=lambda project: project.score_change(policy))
    fields = {
        "headline": escape(_headline(evaluation)),
        "cards": _cards(evaluation),
        "score": escape(score_name(evaluation.problem)),
        "confidence": f"{statistics.CONFIDENCE:.0%}",
        "project_plot": plots.change_bars(
            [project.name for project in by_change],
            [project.score_change(policy) for project in by_change],
            f"{policy}: change of the score",
        ),
        "project_table": _project_table(evaluation),
        "lowered": _module_table(evaluation, -1),
        "raised": _module_table(evaluation, 1),
        **common_fields(evaluation, history),
    }
    title = f"{policy}: {change_text(scores.total.value)} {score_name(evaluation.problem)}"
    return page.whole(title, string.Template(_TEMPLATE.read_text()).substitute(fields))


def terminal_table(evaluation: Evaluation) -> str:
    """The result as plain text: a line per project, all together, and what should not be overlooked."""
    policy = evaluation.policy
    total = evaluation.totals[policy]
    header = ["project", "language", "modules", "default", policy, "score", "mean of modules", "linked text"]
    rows = [
        [
            project.name,
            project.languages,
            str(len(project.modules)),
            *(_score_text(project.score(who)) for who in (DEFAULT, policy)),
            change_text(project.score_change(policy)),
            change_text(_mean_change(project, policy)),
            change_text(project.linked_change(policy)),
        ]
        for project in evaluation.projects
    ]
    scores = total.scores
    rows.append(
        [
            "together",
            "",
            str(len(evaluation.modules)),
            *(_score_text(sum(project.score(who) for project in evaluation.projects)) for who in (DEFAULT, policy)),
            change_text(scores.total.value),
            change_text(scores.mean.value),
            change_text(total.linked_change),
        ]
    )
    lines = aligned([header, *rows], num_text_columns=2, rules=(1, len(rows)))
    lines += [
        "",
        f"score ({score_name(evaluation.problem)}): {change_text(scores.total.value)} "
        f"(95%: {change_text(scores.total.low)} to {change_text(scores.total.high)}), mean of modules "
        f"{change_text(scores.mean.value)} (95%: {change_text(scores.mean.low)} to {change_text(scores.mean.high)}); "
        f"modules: {scores.wins} lower, {scores.ties} same, {scores.losses} higher; "
        f"{count_text(len(evaluation.failures()), 'failure')}",
    ]
    return "\n".join(lines)


def _headline(evaluation: Evaluation) -> str:
    change = evaluation.totals[evaluation.policy].scores.total.value
    if change_text(change) == change_text(0):
        return "The score is that of the compiler's default"
    return f"The score is {change_text(abs(change))[1:]} {'lower' if change < 0 else 'higher'} than with the default"


def _cards(evaluation: Evaluation) -> str:
    total = evaluation.totals[evaluation.policy]
    scores = total.scores
    return page.cards(
        [
            ("Score", colored(scores.total.value), interval(scores.total)),
            ("Mean over modules", colored(scores.mean.value), interval(scores.mean)),
            ("Modules lower / same / higher", f"{scores.wins} / {scores.ties} / {scores.losses}", "by the score"),
            ("Linked text", colored(total.linked_change), "all projects together"),
            ("Failed compilations", str(total.num_failures), f"of {count_text(len(evaluation.modules), 'module')}"),
        ]
    )


def _project_table(evaluation: Evaluation) -> str:
    policy = evaluation.policy
    names = ("project", "language", "modules", "default", policy, "change", "mean of modules", "linked text")
    rows = [
        cells(
            escape(project.name),
            escape(project.languages),
            str(len(project.modules)),
            _score_text(project.score(DEFAULT)),
            _score_text(project.score(policy)),
            f"<b>{colored(project.score_change(policy))}</b>",
            colored(_mean_change(project, policy)),
            colored(project.linked_change(policy)),
        )
        for project in evaluation.projects
    ]
    total = evaluation.totals[policy]
    foot = cells(
        "together",
        "",
        str(len(evaluation.modules)),
        *(_score_text(sum(project.score(who) for project in evaluation.projects)) for who in (DEFAULT, policy)),
        colored(total.scores.total.value),
        colored(total.scores.mean.value),
        colored(total.linked_change),
    )
    return table([_head(names)], rows, foot)


def _head(names: Sequence[str]) -> str:
    """Headings; the first is of text."""
    first, *others = (escape(name) for name in names)
    return f'<th class="text">{first}</th>' + "".join(f"<th>{name}</th>" for name in others)


def _added(evaluation: Evaluation, module: ModuleResult) -> float:
    """To the score."""
    return module.output(evaluation.policy).score - module.outputs[DEFAULT].score


def _module_table(evaluation: Evaluation, sign: int) -> str:
    """The modules to whose score most was added (`sign` 1), or from which most was taken (-1)."""
    changed = [module for module in evaluation.modules if sign * _added(evaluation, module) > 0]
    modules = sorted(changed, key=lambda module: -sign * _added(evaluation, module))
    names = ("module", "default", evaluation.policy, "change", "decisions")
    rows = [
        cells(
            f"<code>{escape(module.name)}</code>",
            _score_text(module.outputs[DEFAULT].score),
            _score_text(module.output(evaluation.policy).score),
            colored(module.score_change(evaluation.policy)),
            f"{module.output(evaluation.policy).num_decisions:,}",
        )
        for module in modules[:_NUM_MODULES_NAMED]
    ]
    return table([_head(names)], rows) if rows else '<p class="note">None.</p>'


def _mean_change(project: ProjectResult, contender: str) -> float:
    changes = [module.score_change(contender) for module in project.modules]
    return sum(changes) / len(changes) if changes else 0.0


def _score_text(score: float) -> str:
    return f"{score:,.0f}"
