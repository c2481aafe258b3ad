"""Which modules an iteration has, when it is validated, and when the run ends."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from compiler_opt.collect.groups import RolloutBatch
from compiler_opt.corpus.module import Module
from compiler_opt.corpus.sampling import UniformSampler
from compiler_opt.rl.config import TrainingConfig
from compiler_opt.rl.progress import Plan, Progress
from compiler_opt.rl.training_run import TrainingRun

_MODULES = {name: Module(name, "p", Path("/nowhere")) for name in "abcdefgh"}
_CONTEXT = cast(
    TrainingRun,
    SimpleNamespace(
        config=TrainingConfig(num_modules=3, max_staleness=2),
        pool=SimpleNamespace(num_workers=1),
        corpus=SimpleNamespace(by_name=_MODULES),
        baseline=lambda: SimpleNamespace(scores=dict.fromkeys(_MODULES, 1.0)),
    ),
)


def _batch(*cut: str) -> RolloutBatch:
    return RolloutBatch([], [], [], [], {}, 3, 0.0, 0.0, 0.0, cut)


def _names(plan: Plan) -> list[str]:
    return [module.name for module in plan.modules]


def test_what_is_cut_comes_again_once() -> None:
    progress, sampler = Progress(), UniformSampler(list(_MODULES.values()), 1)
    plans: list[Plan] = []
    for _ in range(3):
        plans.append(Plan.make(_CONTEXT, progress, plans, sampler))
    assert [plan.number for plan in plans] == [1, 2, 3]
    assert [plan.next_position for plan in plans] == [3, 6, 9]
    first = plans.pop(0)
    late = _names(first)[0]
    progress.add(first, _batch(late), 1.0)
    # The checkpoint counts only what was learned from; the rest is drawn again after an interruption.
    assert (progress.position, progress.cut) == (3, [late])
    plans.append(Plan.make(_CONTEXT, progress, plans, sampler))
    assert plans[-1].again == [late] and _names(plans[-1])[0] == late
    assert len(plans[-1].modules) == len(set(_names(plans[-1])))
    assert plans[-1].num_learned == 1
    # It is planned already.
    assert Plan.make(_CONTEXT, progress, plans, sampler).again == []
    for plan in plans:
        progress.add(plan, _batch(), 1.0)
    assert progress.cut == []
    assert Progress.from_json(progress.to_json()) == progress


def test_a_resumed_run_forgets_modules_that_the_corpus_lost() -> None:
    progress = Progress.from_json({**Progress(cut=["lost", "a", "a"]).to_json(), "iteration": 7})
    sampler = UniformSampler(list(_MODULES.values()), 1)
    plan = Plan.make(_CONTEXT, progress, [], sampler)
    assert plan.again == ["a"] and plan.number == 8


def test_modules_without_decisions_are_skipped() -> None:
    progress = Progress(undecided=set("abcdefg"))
    sampler = UniformSampler(list(_MODULES.values()), 1)
    drawn = {name for _ in range(8) for name in _names(Plan.make(_CONTEXT, progress, [], sampler))}
    assert drawn <= {"h"}


def test_a_budget_of_compiles() -> None:
    """It ends a run, and says when to validate: whenever a multiple is passed, and at the end."""
    config = TrainingConfig(num_iterations=100, max_compiles=40, validation_compiles=10, validation_iterations=1)
    ends = [(8, False), (16, True), (19, False), (20, True), (38, True), (46, True)]
    before = 0
    for iteration, (compiles, is_validated) in enumerate(ends, 1):
        progress = Progress(iteration=iteration, compiles=compiles)
        assert progress.is_validated(config, before) == is_validated
        assert (progress.share(config) >= 1) == (compiles >= 40)
        before = compiles
    assert Progress(iteration=5).is_validated(TrainingConfig(validation_iterations=5), 0)
    assert not Progress(iteration=6).is_validated(TrainingConfig(validation_iterations=5), 0)


def test_how_far_a_run_is_and_how_long_the_rest_takes() -> None:
    progress = Progress(iteration=12, elapsed_s=60.0, compiles=1500)
    config = TrainingConfig(num_iterations=1000)
    assert progress.text(config) == "12 of 1,000 iterations"
    assert round(progress.left_s(config)) == 60 / 12 * 988
    limited = TrainingConfig(num_iterations=1000, max_minutes=1.5, max_compiles=6000)
    assert progress.text(limited) == "12 of 1,000 iterations, 1.0 of 1.5 minutes, 1,500 of 6,000 compilations"
    assert round(progress.left_s(limited)) == 30
    assert Progress(iteration=12, elapsed_s=60.0).left_s(TrainingConfig(num_iterations=10)) == 0
