"""What an optimisation leaves: `targets.csv`, `summary.json`, `report.html`; and the table on the terminal."""

import json
import shlex
import string
from collections.abc import Iterable, Sequence
from pathlib import Path

from compiler_opt.evaluation import page, plots
from compiler_opt.evaluation.formatting import (
    aligned,
    bytes_text,
    change_text,
    count_text,
    duration_text,
    signed_bytes_text,
)
from compiler_opt.evaluation.history import History
from compiler_opt.evaluation.output import csv_text
from compiler_opt.evaluation.page import cells, colored, escape
from compiler_opt.files import write_atomically
from compiler_opt.optimize.results import Result, TargetSize

_TEMPLATE = Path(__file__).with_name("report.html")
_MAX_BARS = 40
_MAX_NAMED = 8


def write(result: Result, folder: Path, drivers: Path, history: History | None = None) -> Path:
    """Writes all files, each whole or not at all; returns the report's path.

    Args:
      result: what to report.
      folder: gets the files.
      drivers: the folder of `mlgo-clang`.
      history: of the training, for its curve.

    Raises:
      OutputError: one cannot be written; what stood there before is untouched.
    """
    files = {
        "targets.csv": csv_text(_target_row(target) for target in result.targets),
        "summary.json": json.dumps(result.to_json(), indent=2) + "\n",
        "report.html": render(result, drivers, history),
    }
    for name, contents in files.items():
        write_atomically(folder / name, contents.encode("utf-8", "backslashreplace"))
    return folder / "report.html"


def _target_row(target: TargetSize) -> dict[str, str | int | float]:
    return {
        "target": target.name,
        "kind": target.kind,
        "role": target.role,
        "default_text_bytes": target.default_bytes,
        "optimized_text_bytes": target.optimized_bytes,
        "change": f"{target.change:.6f}",
    }


def terminal_table(result: Result) -> str:
    """The result as plain text."""
    main = result.main
    others = [target for target in result.targets if target.role != "main"]
    rows = [_terminal_row(target) for target in main]
    together = [
        "together",
        "",
        bytes_text(result.default_bytes),
        bytes_text(result.optimized_bytes),
        signed_bytes_text(result.optimized_bytes - result.default_bytes),
        change_text(result.change),
    ]
    header = ["target", "kind", "-Oz", "optimized", "bytes", "change"]
    shown = [header, *rows, together, *(_terminal_row(target) for target in others)]
    rules = (1, len(rows) + 1, *([len(rows) + 2] if others else []))
    lines = aligned(shown, num_text_columns=2, rules=rules)
    lines += ["", *(f"tests, {name}: {run}" for name, run in _test_lines(result))]
    cost = ", ".join(
        [
            duration_text(sum(cost.wall_s for cost in result.costs)),
            f"{sum(cost.cpu_s for cost in result.costs):,.0f} CPU seconds",
            count_text(sum(cost.compiles for cost in result.costs), "compilation"),
        ]
    )
    lines.append(f"cost: {cost}")
    lines += change_lines(result)
    lines += result.notes[1:]
    return "\n".join(lines)


def _terminal_row(target: TargetSize) -> list[str]:
    role = "" if target.role == "main" else f" ({target.role})"
    return [
        target.name,
        target.kind + role,
        bytes_text(target.default_bytes),
        bytes_text(target.optimized_bytes),
        signed_bytes_text(target.optimized_bytes - target.default_bytes),
        change_text(target.change),
    ]


def _test_lines(result: Result) -> Iterable[tuple[str, str]]:
    for name, run in zip(("plain -Oz", "optimized"), result.tests, strict=False):
        yield name, f"{'passed' if run.passed else 'FAILED'} ({run.summary}; {run.log})"


def change_lines(result: Result) -> list[str]:
    """How well an earlier policy still holds, a sentence a line; nothing for a policy that was trained just now."""
    lines = []
    changes = result.changes
    if changes is not None:
        lines.append(
            f"{changes.decisions_new:.1%} of {count_text(changes.num_decisions, 'decision')} are new to the policy; of "
            f"{count_text(changes.num_modules, 'module')}, {len(changes.modules_added)} are new and "
            f"{len(changes.modules_changed)} have changed since training; {len(changes.modules_removed)} are gone."
        )
        if changes.modules_added:
            lines.append(f"New: {_named(changes.modules_added)}.")
    if result.trained_change is not None:
        lines.append(f"When the policy was trained, the main targets changed by {change_text(result.trained_change)}.")
    if changes is not None or result.trained_change is not None or result.change >= 0:
        reason = result.retraining()
        lines.append(f"Retraining is advisable: {reason}." if reason else "The policy still holds.")
    return lines


def _named(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def usage(drivers: Path) -> list[str]:
    """How to build with the policy."""
    c, cxx = (shlex.quote(str(drivers / name)) for name in ("mlgo-clang", "mlgo-clang++"))
    return [
        f"cmake -S SOURCE -B BUILD -DCMAKE_BUILD_TYPE=MinSizeRel -DCMAKE_C_COMPILER={c} -DCMAKE_CXX_COMPILER={cxx} "
        '-DCMAKE_C_FLAGS_MINSIZEREL="-Oz -DNDEBUG" -DCMAKE_CXX_FLAGS_MINSIZEREL="-Oz -DNDEBUG"',
        f"make CC={c} CXX={cxx} CFLAGS=-Oz CXXFLAGS=-Oz",
    ]


def render(result: Result, drivers: Path, history: History | None = None) -> str:
    """The page; see `write`."""
    shown = result.main[:_MAX_BARS]
    fields = {
        "eyebrow": escape(f"{result.program} · inlining policy against clang -Oz"),
        "headline": escape(_headline(result)),
        "lead": escape(_lead(result)),
        "cards": _cards(result),
        "plot": plots.change_bars(
            [target.name for target in shown], [target.change for target in shown], "change of linked text"
        ),
        "target_table": _target_table(result),
        "tests": _tests(result),
        "changes": _paragraphs("How well the policy still holds", change_lines(result)),
        "training": _training(history),
        "cost_table": _cost_table(result),
        "drivers": escape(str(drivers)),
        "usage": "".join(f"<p><code>{escape(line)}</code></p>" for line in usage(drivers)),
        "notes": "".join(f"<li>{escape(note)}</li>" for note in result.notes),
        "provenance": "".join(
            f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in result.provenance.items()
        ),
    }
    title = f"{result.program}: {change_text(result.change)} linked text"
    return page.whole(title, string.Template(_TEMPLATE.read_text()).substitute(fields))


def _headline(result: Result) -> str:
    if change_text(result.change) == change_text(0):
        return f"{result.program} is as large as with clang -Oz"
    return f"{result.program} is {change_text(abs(result.change))[1:]} {'smaller' if result.change < 0 else 'bigger'}"


def _lead(result: Result) -> str:
    main = result.main
    sentences = [
        f"{count_text(len(main), 'target')} {'takes' if len(main) == 1 else 'take'} "
        f"{bytes_text(result.optimized_bytes)} bytes of linked text with the policy instead of "
        f"{bytes_text(result.default_bytes)}."
    ]
    if result.tests_broken:
        sentences.append("The project's tests pass without the policy and FAIL with it: do not use this build.")
    elif len(result.tests) == 2 and result.tests[1].passed:
        sentences.append("The project's own tests pass.")
    elif result.tests:
        sentences.append("The project's own tests fail with and without the policy.")
    return " ".join(sentences)


def _cards(result: Result) -> str:
    smaller = sum(target.change < 0 for target in result.main)
    return page.cards(
        [
            ("Linked text", colored(result.change), "main targets together"),
            ("Targets smaller", f"{smaller} of {len(result.main)}", "main targets"),
            ("Modules", f"{result.num_modules:,}", f"{result.num_decisions:,} decisions"),
            ("Time", duration_text(sum(cost.wall_s for cost in result.costs)), "all steps"),
            ("CPU", duration_text(sum(cost.cpu_s for cost in result.costs)), "all processes"),
            ("Compilations", f"{sum(cost.compiles for cost in result.costs):,}", "all steps"),
        ]
    )


def _target_table(result: Result) -> str:
    names = ("-Oz", "optimized", "bytes", "change")
    head = '<th class="text">target</th><th class="text">kind</th><th class="text">role</th>'
    head += "".join(f"<th>{name}</th>" for name in names)
    rows = [
        f'<td class="text">{escape(target.name)}</td><td class="text">{escape(target.kind)}</td>'
        f'<td class="text">{target.role}</td>' + _sizes(target.default_bytes, target.optimized_bytes, target.change)
        for target in result.targets
    ]
    foot = '<td class="text">main targets together</td><td></td><td></td>'
    return page.table([head], rows, foot + _sizes(result.default_bytes, result.optimized_bytes, result.change))


def _sizes(before: int, after: int, change: float) -> str:
    values = (bytes_text(before), bytes_text(after), signed_bytes_text(after - before), f"<b>{colored(change)}</b>")
    return "".join(f"<td>{value}</td>" for value in values)


def _tests(result: Result) -> str:
    if not result.tests:
        return _paragraphs("Tests", ["The project registers none, and no --test_command was given: nothing was run."])
    return _paragraphs("Tests", [f"{name}: {run}" for name, run in _test_lines(result)])


def _paragraphs(title: str, lines: Sequence[str]) -> str:
    return f"<h2>{title}</h2>" + "".join(f"<p>{escape(line)}</p>" for line in lines) if lines else ""


def _training(history: History | None) -> str:
    if history is None or not history.reward.values:
        return ""
    return (
        f"<h2>How the policy was trained</h2><figure>{plots.training_curve(history)}"
        "<figcaption>Reward is the share of the default's COMDAT-weighted text that was saved, with decisions sampled; "
        "the deployed policy decides greedily.</figcaption></figure>"
    )


def _cost_table(result: Result) -> str:
    head = '<th class="text">step</th><th>time</th><th>CPU s</th><th>compilations</th>'
    rows = [
        cells(escape(cost.step), duration_text(cost.wall_s), f"{cost.cpu_s:,.0f}", f"{cost.compiles:,}")
        for cost in result.costs
    ]
    foot = cells(
        "together",
        duration_text(sum(cost.wall_s for cost in result.costs)),
        f"{sum(cost.cpu_s for cost in result.costs):,.0f}",
        f"{sum(cost.compiles for cost in result.costs):,}",
    )
    return page.table([head], rows, foot)
