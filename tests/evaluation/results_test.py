"""Sums of results, of the numbers in the fixture `evaluation`."""

import json

import pytest

from compiler_opt.evaluation.results import Evaluation, Failure


def test_changes_of_modules_and_projects(evaluation: Evaluation) -> None:
    shapes, plain = evaluation.projects
    assert shapes.modules[0].change("policy") == pytest.approx(900 / 1000 - 1)
    assert shapes.object_change("policy") == pytest.approx((900 + 510) / (1000 + 500) - 1)
    assert shapes.score_change("policy") == pytest.approx((700 + 510) / (800 + 500) - 1)
    assert shapes.linked_change("policy") == pytest.approx(1330 / 1400 - 1)
    assert plain.linked_change("never") is None
    assert (shapes.languages, plain.languages) == ("C++", "C")


def test_the_default_replaces_a_failure(evaluation: Evaluation) -> None:
    plain = evaluation.projects[1]
    assert plain.modules[1].change("policy") == 0
    assert plain.object_bytes("policy") == 200 + 300
    assert plain.num_substituted("policy") == 1


def test_totals(evaluation: Evaluation) -> None:
    policy, never = evaluation.totals["policy"], evaluation.totals["never"]
    assert policy.linked_change == pytest.approx((1330 + 520) / (1400 + 520) - 1)
    # `plain` could not be linked with `never`: both sides leave it out.
    assert (never.default_linked_bytes, never.linked_bytes) == (1400, 1600)
    assert (policy.objects.wins, policy.objects.losses, policy.objects.ties) == (1, 1, 2)
    assert policy.objects.total.value == pytest.approx((900 + 510 + 200 + 300) / (1000 + 500 + 200 + 300) - 1)
    assert policy.num_failures == 1
    assert policy.cpu_s == 3 * 0.5  # Of the three compilations that succeeded.


def test_failures_start_with_those_of_the_default(evaluation: Evaluation) -> None:
    assert evaluation.failures() == [
        Failure("default", "shapes/broken", "shapes/broken: died of SIGSEGV <&>"),
        Failure("never", "plain (link)", "linking 2 objects: exit status 1"),
        Failure("policy", "plain/d", "plain/d: ran out of time"),
    ]


def test_summary_is_json(evaluation: Evaluation) -> None:
    summary = json.loads(json.dumps(evaluation.summary(), allow_nan=False))
    assert summary["totals"]["policy"]["objects"]["wins"] == 1
    assert [project["project"] for project in summary["projects"]] == ["shapes", "plain"]
    assert summary["projects"][1]["policies"]["never"]["linked_change"] is None
    assert len(summary["failures"]) == 3
