"""Copies of COMDAT functions as the latest rollouts emit them, by arithmetic."""

import json
from collections.abc import Mapping

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from compiler_opt.collect.baseline import Baseline, BaselineBuilder
from compiler_opt.collect.groups import Attempt, Group
from compiler_opt.collect.latest_contexts import LatestContexts
from compiler_opt.collect.rollout import Rollout
from compiler_opt.collect.shared_parts import find_shared_parts
from compiler_opt.decisions.inlining import PROBLEM
from compiler_opt.llvm.object_file import ObjectSizes
from compiler_opt.policies.policy import ConstantPolicy

_BYTES = {"a": 10, "b": 20, "c": 30}


def _object(parts: str) -> ObjectSizes:
    """An object with 100 bytes of its own, and the COMDAT functions of these letters."""
    sizes = {part: _BYTES[part] for part in parts}
    return ObjectSizes(100 + sum(sizes.values()), sizes, sizes, {part: part for part in parts})


def _rollout(module: str, parts: str) -> Rollout[ObjectSizes]:
    return Rollout(module, "p", "policy", 0, measurement=_object(parts))


def _group(module: str, *rollouts: str) -> Group:
    attempts = [Attempt(ConstantPolicy(0), _rollout(module, parts)) for parts in rollouts]
    return Group(module, attempts, 100.0, {})


def _baseline(default: dict[str, str], never: dict[str, str]) -> Baseline:
    builder = BaselineBuilder(PROBLEM)
    for module, parts in default.items():
        builder.add(_rollout(module, parts))
    for module, parts in never.items():
        builder.add(_rollout(module, parts), is_default=False)
    return builder.build()


def test_parts_of_several_modules_are_shared() -> None:
    shared = find_shared_parts({"m": ["a", "b"], "n": ["b", "c"], "o": ["c", "b"]})
    assert (shared.names, shared.emitted) == (["b", "c"], {"m": [0], "n": [0, 1], "o": [0, 1]})
    assert shared.copies() == {"b": 3, "c": 2}


def test_copies_start_from_the_default_and_follow_the_rollouts() -> None:
    baseline = _baseline({"m": "ab", "n": "a", "o": ""}, {"m": "ab", "n": "abc", "o": "a"})
    # Of c there is only one copy ever. Without inlining there are three of a and two of b.
    assert baseline.contexts == {"p": {"a": 3, "b": 2}}
    assert baseline.scores["m"] == pytest.approx(100 + 10 / 3 + 20 / 2)
    latest = LatestContexts(PROBLEM, baseline)
    # The default emits two of a and one of b.
    assert latest.baseline.contexts == {"p": {"a": 2, "b": 1}}
    assert latest.baseline.scores["m"] == pytest.approx(100 + 10 / 2 + 20)
    # A quarter of m's rollouts lacks a, and half of o's have it.
    latest.update([_group("m", "ab", "ab", "ab", "b"), _group("o", "", "a")])
    assert latest.baseline.contexts == {"p": {"a": 0.75 + 1 + 0.5, "b": 1}}
    # m's next rollouts replace its last ones; both modules lack b now.
    latest.update([_group("m", "a", "a")])
    assert latest.baseline.contexts == {"p": {"a": 1 + 1 + 0.5, "b": 0}}
    # A part that nobody emits lately would cost its whole size.
    assert PROBLEM.score(_object("ab"), latest.baseline.contexts["p"]) == pytest.approx(100 + 10 / 2.5 + 20)


_PARTS = st.sets(st.sampled_from("abc")).map(lambda letters: "".join(sorted(letters)))


@pytest.mark.ci
@hypothesis.given(
    st.lists(_PARTS, min_size=3, max_size=3),
    st.lists(st.tuples(st.sampled_from("mno"), st.lists(_PARTS, min_size=1, max_size=5)), max_size=8),
)
def test_scores_sum_up_to_the_linked_program_and_survive_an_interruption(
    default: list[str], updates: list[tuple[str, list[str]]]
) -> None:
    baseline = _baseline(dict(zip("mno", default, strict=True)), dict.fromkeys("mno", "abc"))
    latest = LatestContexts(PROBLEM, baseline)
    emitted = {module: [parts] for module, parts in zip("mno", default, strict=True)}
    for module, rollouts in updates:
        latest.update([_group(module, *rollouts)])
        emitted[module] = rollouts
    context = latest.baseline.contexts["p"]
    # Over the latest rollouts: each part counts once if on average at least one module emits it, else its share.
    total = sum(np.mean([PROBLEM.score(_object(parts), context) for parts in own]) for own in emitted.values())
    copies = {part: sum(float(np.mean([part in each for each in own])) for own in emitted.values()) for part in "abc"}
    assert total == pytest.approx(300 + sum(_BYTES[part] * min(1, copies[part]) for part in "abc"), abs=1e-3)
    resumed = LatestContexts(PROBLEM, baseline, json.loads(json.dumps(latest.state())))
    assert resumed.baseline == latest.baseline
    assert resumed.state() == latest.state()


def test_problems_without_shared_parts_keep_their_contexts() -> None:
    baseline: Baseline[Mapping[str, float]] = Baseline({"m": 1.0}, {"p": {}}, {}, 0.0)
    latest = LatestContexts(PROBLEM, baseline)
    latest.update([_group("m", "a")])
    assert (latest.baseline, latest.state()) == (baseline, {})
