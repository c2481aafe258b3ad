"""The evaluation of a policy for size as one HTML page: no script, no font, no image from anywhere."""

import string
from collections.abc import Sequence
from pathlib import Path

from compiler_opt.evaluation import page, plots
from compiler_opt.evaluation.formatting import (
    bytes_text,
    change_text,
    count_text,
    duration_text,
    signed_bytes_text,
)
from compiler_opt.evaluation.history import History
from compiler_opt.evaluation.page import cells, colored, escape, table
from compiler_opt.evaluation.results import DEFAULT, NEVER_WORSE, Evaluation, ModuleResult, Total
from compiler_opt.evaluation.statistics import CONFIDENCE, NUM_RESAMPLES, Comparison, Estimate
from compiler_opt.problems import problem as problems

_TEMPLATE = Path(__file__).with_name("report.html")
_NUM_MODULES_NAMED = 10
_MAX_FAILURES_SHOWN = 200


def render(evaluation: Evaluation, history: History | None = None) -> str:
    """The page.

    Args:
      evaluation: what to report.
      history: of the training, for its curve.
    """
    total = evaluation.totals[evaluation.policy]
    fields = {
        "headline": escape(_headline(total)),
        "lead": escape(lead(evaluation)),
        "cards": _cards(evaluation, total),
        "interval_note": _interval_note(evaluation),
        "project_plot": plots.project_bars(evaluation),
        "project_table": _project_table(evaluation),
        "project_note": _project_note(evaluation),
        "module_plot": plots.module_distribution(evaluation),
        "size_plot": plots.size_scatter(evaluation),
        "worst_modules": _module_table(evaluation, "bigger", worst_modules(evaluation)),
        "best_modules": _module_table(evaluation, "smaller", best_modules(evaluation)),
        "contender_table": _contender_table(evaluation),
        "contender_note": _contender_note(evaluation),
        **common_fields(evaluation, history),
    }
    title = f"{evaluation.policy}: {change_text(total.linked_change)} linked text"
    return page.whole(title, string.Template(_TEMPLATE.read_text()).substitute(fields))


def common_fields(evaluation: Evaluation, history: History | None) -> dict[str, str]:
    """What every evaluation's page says, whatever the policy is about; by the template's names, HTML."""
    num_decisions = sum(module.output(evaluation.policy).num_decisions for module in evaluation.modules)
    return {
        "eyebrow": escape(f"{evaluation.problem} policy against the compiler's default · {evaluation.started_at[:10]}"),
        "training": _training(history),
        "num_modules": count_text(len(evaluation.modules), "module"),
        "policy": escape(evaluation.policy),
        "num_decisions": f"{num_decisions:,}",
        "wall_time": duration_text(evaluation.wall_s),
        "cpu_time": duration_text(evaluation.cpu_s),
        "provenance": "".join(
            f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in evaluation.provenance.items()
        ),
        "failures": _failures(evaluation),
    }


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


def worst_modules(evaluation: Evaluation) -> list[ModuleResult]:
    """The modules whose objects grew most, relative to their size; worst first, none that did not grow."""
    grown = [module for module in evaluation.modules if module.change(evaluation.policy) > 0]
    return sorted(grown, key=lambda module: (-module.change(evaluation.policy), module.name))[:_NUM_MODULES_NAMED]


def best_modules(evaluation: Evaluation) -> list[ModuleResult]:
    """The modules whose objects shrank most, relative to their size; best first."""
    shrunk = [module for module in evaluation.modules if module.change(evaluation.policy) < 0]
    return sorted(shrunk, key=lambda module: (module.change(evaluation.policy), module.name))[:_NUM_MODULES_NAMED]


def score_name(problem: str) -> str:
    """What the problem's score is."""
    return problems.load(problem).score_name


def _headline(total: Total) -> str:
    change = total.linked_change
    if change_text(change) == change_text(0):
        return "Linked text is as large as with the compiler's default"
    return (
        f"Linked text is {change_text(abs(change))[1:]} {'smaller' if change < 0 else 'bigger'} than with the default"
    )


def interval(estimate: Estimate) -> str:
    """The bounds of an estimate."""
    return f"{change_text(estimate.low)} to {change_text(estimate.high)}"


def _cards(evaluation: Evaluation, total: Total) -> str:
    objects, scores = total.objects, total.scores
    cards = [
        ("Linked text", colored(total.linked_change), "all projects together"),
        (score_name(evaluation.problem), colored(scores.total.value), interval(scores.total)),
        ("Text of the objects", colored(objects.total.value), interval(objects.total)),
        ("Mean over modules", colored(objects.mean.value), interval(objects.mean)),
        (
            "Modules smaller / same / bigger",
            f"{objects.wins} / {objects.ties} / {objects.losses}",
            "by the text of the object",
        ),
        (
            "Failed compilations",
            f'<span class="{"bad" if total.num_failures else "muted"}">{total.num_failures}</span>',
            f"of {count_text(len(evaluation.modules), 'module')}",
        ),
    ]
    return page.cards(cards)


def _interval_note(evaluation: Evaluation) -> str:
    return (
        f"Ranges are {CONFIDENCE:.0%} intervals of a paired bootstrap ({NUM_RESAMPLES:,} resamples): modules are drawn "
        "with replacement within their project, both sizes of a module staying together. They say how much the result "
        f"would vary with other modules of these {count_text(len(evaluation.projects), 'project')}, not with other "
        "projects: there are too few to resample. A linked program cannot be resampled either; "
        f"{score_name(evaluation.problem)} is its estimate per module."
    )


def _project_table(evaluation: Evaluation) -> str:
    policy, baselines = evaluation.policy, evaluation.baselines
    groups = (
        '<th colspan="3"></th><th class="group" colspan="3">linked text</th>'
        '<th class="group" colspan="2">sum of modules</th>'
        + (f'<th class="group" colspan="{len(baselines)}">baselines, linked</th>' if baselines else "")
    )
    names = ("default", policy, "change", "objects", score_name(evaluation.problem), *baselines)
    head = '<th class="text">project</th><th class="text">language</th><th>modules</th>' + "".join(
        f"<th>{escape(name)}</th>" for name in names
    )
    rows = []
    for project in evaluation.projects:
        linked = [project.linked_bytes.get(who) for who in (DEFAULT, policy)]
        note = f" (+{len(project.excluded)} excluded)" if project.excluded else ""
        rows.append(
            f'<td class="text">{escape(project.name)}</td><td class="text">{escape(project.languages)}</td>'
            + "".join(
                f"<td>{value}</td>"
                for value in (
                    f"{len(project.modules)}{note}",
                    *("not linked" if count is None else bytes_text(count) for count in linked),
                    f"<b>{colored(project.linked_change(policy))}</b>",
                    colored(project.object_change(policy)),
                    colored(project.score_change(policy)),
                    *(colored(project.linked_change(name), 1) for name in baselines),
                )
            )
        )
    total = evaluation.totals[policy]
    foot = '<td class="text">together</td><td></td>' + "".join(
        f"<td>{value}</td>"
        for value in (
            str(len(evaluation.modules)),
            bytes_text(total.default_linked_bytes),
            bytes_text(total.linked_bytes),
            colored(total.linked_change),
            colored(total.objects.total.value),
            colored(total.scores.total.value),
            *(colored(evaluation.totals[name].linked_change, 1) for name in baselines),
        )
    )
    return table([groups, head], rows, foot)


def _project_note(evaluation: Evaluation) -> str:
    substituted = sum(project.num_substituted(evaluation.policy) for project in evaluation.projects)
    excluded = sum(len(project.excluded) for project in evaluation.projects)
    notes = ["Negative is smaller. Bytes of allocated sections that are executable or not writable."]
    if smaller := never_worse(evaluation):
        notes.append(f"{smaller[0].upper()}{smaller[1:]}.")
    if substituted:
        notes.append(
            f"{count_text(substituted, 'module')} failed to compile with {escape(evaluation.policy)}; the default's "
            "object was linked instead."
        )
    if excluded:
        notes.append(f"{count_text(excluded, 'module')} that the default fails to compile are in no number.")
    return " ".join(notes)


def _module_table(evaluation: Evaluation, kind: str, modules: Sequence[ModuleResult]) -> str:
    title = f"<h3>The modules that got {kind} by most</h3>"
    if not modules:
        return f'{title}<p class="note">No module got {kind}.</p>'
    head = (
        '<th class="text">module</th><th class="text">project</th><th>default</th>'
        f"<th>{escape(evaluation.policy)}</th><th>bytes</th><th>change</th><th>decisions</th>"
    )
    rows = []
    for module in modules:
        before, output = module.outputs[DEFAULT].text_bytes, module.output(evaluation.policy)
        rows.append(
            f'<td class="wrap"><code>{escape(module.name)}</code></td><td class="text">{escape(module.project)}</td>'
            + "".join(
                f"<td>{value}</td>"
                for value in (
                    bytes_text(before),
                    bytes_text(output.text_bytes),
                    signed_bytes_text(output.text_bytes - before),
                    colored(module.change(evaluation.policy)),
                    f"{output.num_decisions:,}",
                )
            )
        )
    return title + table([head], rows)


def _contender_table(evaluation: Evaluation) -> str:
    head = '<th class="text">who decides</th>' + "".join(
        f"<th>{escape(name)}</th>"
        for name in (
            "linked text",
            "objects",
            score_name(evaluation.problem),
            "smaller",
            "same",
            "bigger",
            "failed",
            "CPU s",
        )
    )
    rows = []
    for name, total in evaluation.totals.items():
        rows.append(
            cells(
                escape(name),
                f"<b>{colored(total.linked_change)}</b>",
                _with_interval(total.objects),
                _with_interval(total.scores),
                *(f"{count:,}" for count in (total.objects.wins, total.objects.ties, total.objects.losses)),
                f"{total.num_failures:,}",
                f"{total.cpu_s + total.host_cpu_s:,.0f}",
            )
        )
    default_cpu_s = sum(module.outputs[DEFAULT].cpu_s for module in evaluation.modules)
    rows.append(cells("default", *[""] * 7, f"{default_cpu_s:,.0f}"))
    return table([head], rows)


def _with_interval(comparison: Comparison) -> str:
    return f'{colored(comparison.total.value)}<span class="range">{interval(comparison.total)}</span>'


def _contender_note(evaluation: Evaluation) -> str:
    explanations = {
        "never": "<b>never</b> inlines nothing that it is asked about",
        "always": "<b>always</b> inlines all of it",
        "random": "<b>random</b> tosses a coin",
    }
    known = [explanations[name] for name in evaluation.baselines if name in explanations]
    calls = f"{'; '.join(known)} (mandatory decisions are not asked about). " if known else ""
    return f"{calls}CPU seconds are the compiler's plus, where decisions are made outside of it, those of our process."


def _training(history: History | None) -> str:
    if history is None or not history.reward.values:
        return ""
    return (
        f"<h2>How the policy was trained</h2><figure>{plots.training_curve(history)}"
        "<figcaption>Reward is the share of the default's score that was saved, on the modules of each iteration, with "
        "decisions sampled; the evaluation above decides greedily, on the corpus named below.</figcaption></figure>"
    )


def _failures(evaluation: Evaluation) -> str:
    failures = evaluation.failures()
    if not failures:
        return '<p class="note">None: every module was compiled by everyone, and every project was linked.</p>'
    head = '<th class="text">who decided</th><th class="text">where</th><th class="text">what happened</th>'
    rows = [
        f'<td class="text">{escape(failure.contender)}</td><td class="wrap"><code>{escape(failure.where)}</code></td>'
        f'<td class="wrap">{escape(failure.reason)}</td>'
        for failure in failures[:_MAX_FAILURES_SHOWN]
    ]
    more = len(failures) - len(rows)
    return table([head], rows) + (f'<p class="note">{more} more are in summary.json.</p>' if more else "")
