"""Results as data frames: numbers, not text, and one line where pandas is missing."""

import dataclasses
import sys
import types
from typing import Any

import pytest

from compiler_opt.errors import MissingPackageError
from tests.report.sample_pages import sample_comparison, sample_evaluation, sample_optimization, sample_search


@pytest.fixture(autouse=True)
def pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    """No lock has it: a module with the one class that is used, whose frames are the rows."""
    module = types.ModuleType("pandas")
    monkeypatch.setattr(module, "DataFrame", list, raising=False)
    monkeypatch.setitem(sys.modules, "pandas", module)


def test_projects_of_an_evaluation() -> None:
    evaluation = sample_evaluation()
    rows: list[dict[str, Any]] = evaluation.to_dataframe()
    assert len(rows) == len(evaluation.projects) * len(evaluation.policies)
    row = rows[0]
    assert (row["project"], row["policy"], row["num_modules"]) == ("project-0", "options", 4)
    # 10,000 of 10,120,000 bytes less, all of them code.
    assert (row["default_linked_bytes"], row["linked_bytes"]) == (10_120_000, 10_110_000)
    assert row["linked_change"] == pytest.approx(-10_000 / 10_120_000) and row["code_change"] == pytest.approx(-0.001)
    assert {type(row[name]) for name in ("linked_bytes", "num_failures")} == {int}


def test_what_could_not_be_linked_is_unknown() -> None:
    evaluation = sample_evaluation()
    project = dataclasses.replace(evaluation.projects[0], linked={})
    row = dataclasses.replace(evaluation, projects=(project,)).to_dataframe()[0]
    assert row["linked_bytes"] is None and row["linked_change"] is None


def test_modules_of_an_evaluation() -> None:
    rows = sample_evaluation().to_dataframe(by="module")
    row = rows[1]
    assert (row["policy"], row["default_object_bytes"], row["object_bytes"]) == ("policy", 10_000, 9_700)
    assert row["object_change"] == pytest.approx(-0.03) and row["decisions"] == 3000 and row["failure"] is None


def test_runs_of_a_comparison() -> None:
    first, *_, last = sample_comparison().to_dataframe()
    assert (first["algorithm"], first["seed"], first["validation_mean"], first["cpu_s"]) == ("ppo", 0, 0.0, 5e4)
    assert last["validation_mean"] is None


def test_modules_of_a_search() -> None:
    rows = sample_search("program", 0).to_dataframe()
    assert rows[0] == {
        "program": "program",
        "module": "a.o",
        "base_object_bytes": 900,
        "object_bytes": 800,
        "compiles": 9000,
        "failure": None,
    }
    assert rows[1]["object_bytes"] is None and "exited" in rows[1]["failure"]


def test_targets_of_an_optimization() -> None:
    app, *_ = sample_optimization().to_dataframe()
    assert (app["target"], app["default_bytes"], app["optimized_bytes"]) == ("app", 6_000_400, 5_000_330)
    assert app["change"] == pytest.approx(5_000_330 / 6_000_400 - 1)


def test_pandas_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingPackageError, match=r"^to_dataframe: needs the package pandas, .*; pip install pandas$"):
        sample_comparison().to_dataframe()
