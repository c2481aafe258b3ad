"""What the reports of all evaluations have in common, whatever the policy is about."""

from markupsafe import Markup

from compiler_opt.evaluation import plots
from compiler_opt.evaluation.history import History
from compiler_opt.evaluation.results import Evaluation, ModuleResult
from compiler_opt.report import page
from compiler_opt.report.formatting import change_text, count_text
from compiler_opt.report.table import Cell, Table

NUM_MODULES_NAMED = 10
_MAX_FAILURES_SHOWN = 200


def evaluation_page(
    template: str,
    evaluation: Evaluation,
    history: History | None,
    *,
    cards: list[tuple[str, Cell, str]],
    **values: object,
) -> str:
    """Renders the page of an evaluation.

    Args:
      template: extends `evaluation.html`.
      evaluation: what to report.
      history: of the training, for its curve.
      cards: name, value and detail of the numbers at the top, to which the failures are added.
      **values: what else the template shows.
    """
    policy = evaluation.policy
    num_failed = evaluation.totals[policy].num_failures
    failures = evaluation.failures()
    shown: list[list[Cell]] = [[failure.policy, failure.where, failure.reason] for failure in failures]
    head = ["policy", "where", "what happened"]
    return page.render(
        template,
        evaluation=evaluation,
        cards=[
            *cards,
            ("Failed compilations", f"{num_failed:,}", f"of {count_text(len(evaluation.modules), 'module')}"),
        ],
        training_curve=training_curve(history),
        num_decisions=sum(module.output(policy).num_decisions for module in evaluation.modules),
        failures=Table(head, shown[:_MAX_FAILURES_SHOWN], num_text_columns=3, wrapped=frozenset({1, 2})),
        num_failures=len(failures),
        **values,
    )


def training_curve(history: History | None) -> Markup | None:
    """The plot of a training's rewards; None where there are none."""
    return None if history is None or not history.reward.values else Markup(plots.training_curve(history))


def change_headline(what: str, change: float, words: tuple[str, str]) -> str:
    """A change as a sentence.

    Args:
      what: such as `Linked text`.
      change: relative, negative is less.
      words: what less and more are called, such as `smaller` and `bigger`.
    """
    if change_text(change) == change_text(0):
        return f"{what} is the same as with the compiler's default"
    return f"{what} is {change_text(abs(change))[1:]} {words[0 if change < 0 else 1]} than with the default"


def worst_modules(evaluation: Evaluation) -> list[ModuleResult]:
    """The modules whose objects grew most, relative to their size; worst first, none that did not grow."""
    grown = [module for module in evaluation.modules if module.change(evaluation.policy) > 0]
    return sorted(grown, key=lambda module: (-module.change(evaluation.policy), module.name))[:NUM_MODULES_NAMED]


def best_modules(evaluation: Evaluation) -> list[ModuleResult]:
    """The modules whose objects shrank most, relative to their size; best first."""
    shrunk = [module for module in evaluation.modules if module.change(evaluation.policy) < 0]
    return sorted(shrunk, key=lambda module: (module.change(evaluation.policy), module.name))[:NUM_MODULES_NAMED]
