"""Each gin file is read as its entry point reads it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from compiler_opt import problem as problems
from compiler_opt.rl import algorithms
from compiler_opt.spaces.continuous import Continuous
from compiler_opt.tools import gin_settings

ROOT = Path(__file__).parents[1]
FILES = sorted(path.relative_to(ROOT) for path in (ROOT / "gin_configs").rglob("*.gin"))

CLASSES: dict[str, Callable[[], dict[str, type]]] = {
    "common": gin_settings.of_compilations,
    "ir2vec": gin_settings.of_compilations,
    "plugin_features": gin_settings.of_compilations,
    "behavioral_cloning_nn_agent": gin_settings.of_cloning,
    "optimize": gin_settings.of_training,
    "ppo_from_flips": gin_settings.of_training,
    "workstation": gin_settings.of_training,
    "es_of_a_rule_nn_agent": gin_settings.of_training,
    **{f"{name}_nn_agent": gin_settings.of_training for name in algorithms.names()},
}
"""File -> the classes of its entry point."""


@pytest.mark.parametrize("file", FILES, ids=str)
def test_it_is_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    classes = CLASSES[file.stem]()
    settings = gin_settings.read(classes, [str(file)], [])
    assert {name: type(value) for name, value in settings.items()} == classes
    if file.stem.removesuffix("_nn_agent") in algorithms.names():
        assert settings["train_eval"].algorithm == file.stem.removesuffix("_nn_agent")


def test_each_problem_has_the_same_files() -> None:
    expected = {
        Path("gin_configs", problem.name, f"{stem}.gin")
        for problem in map(problems.load, problems.names())
        for stem in CLASSES
        if (stem not in ("optimize", "ppo_from_flips", "ir2vec", "plugin_features") or problem.objective.is_size)
        and (stem != "dqn_nn_agent" or not isinstance(problem.decision.action_space, Continuous))
        and (stem != "flips_nn_agent" or problem.objective.is_size)
        and (stem != "es_of_a_rule_nn_agent" or problem.decision.rule is not None)
    }
    assert set(FILES) == expected


def test_both_trainings_have_the_same_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reinforcement learning continues the policy of behavioural cloning, so its network has that one's shape."""
    monkeypatch.chdir(ROOT)
    for name in problems.names():
        networks = [
            gin_settings.read(CLASSES[stem](), [f"gin_configs/{name}/{stem}.gin"], [])["network"].fc_layer_params
            for stem in ("behavioral_cloning_nn_agent", "ppo_nn_agent")
        ]
        assert networks[0] == networks[1]
