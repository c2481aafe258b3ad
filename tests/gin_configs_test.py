"""Every gin file that ships is read as the entry point that it is for reads it."""

from pathlib import Path

import pytest

from compiler_opt.collect.advantages import AdvantagesConfig
from compiler_opt.collect.rollout import RolloutSettings
from compiler_opt.corpus.command_lines.problem_config import ProblemConfig
from compiler_opt.llvm.ir2vec import InliningConfig
from compiler_opt.problems import problem as problems
from compiler_opt.rl.config import (
    BehavioralCloningConfig,
    DeviationsConfig,
    EvolutionConfig,
    PPOConfig,
    TrainingConfig,
)
from compiler_opt.spaces.masked_categorical import MaskedCategorical
from compiler_opt.spaces.network_config import NetworkConfig
from compiler_opt.tools import gin_settings

ROOT = Path(__file__).parents[1]
FILES = sorted(path.relative_to(ROOT) for path in (ROOT / "gin_configs").rglob("*.gin"))

CLASSES: dict[str, dict[str, type]] = {
    "common": {"rollout": RolloutSettings, "problem_config": ProblemConfig, "network": NetworkConfig},
    "behavioral_cloning_nn_agent": {
        "train_eval": BehavioralCloningConfig,
        "network": NetworkConfig,
        "problem_config": ProblemConfig,
    },
    "ppo_nn_agent": {
        "train_eval": TrainingConfig,
        "ppo": PPOConfig,
        "network": NetworkConfig,
        "advantages": AdvantagesConfig,
        "problem_config": ProblemConfig,
    },
}
CLASSES["deviations_nn_agent"] = {**CLASSES["ppo_nn_agent"], "deviations": DeviationsConfig}
CLASSES["evolution_nn_agent"] = {
    "train_eval": TrainingConfig,
    "evolution": EvolutionConfig,
    "network": NetworkConfig,
    "problem_config": ProblemConfig,
}
CLASSES["optimize"] = CLASSES["ppo_nn_agent"]
CLASSES["ir2vec"] = {"inlining": InliningConfig}
"""By file: generate_default_trace, train_bc, train_locally and optimize; the last is for any but optimize."""


@pytest.mark.parametrize("file", FILES, ids=str)
def test_it_is_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    classes = CLASSES[file.stem]
    settings = gin_settings.read(classes, [str(file)], [])
    assert {name: type(value) for name, value in settings.items()} == classes


def test_each_problem_has_the_same_files() -> None:
    expected = {
        Path("gin_configs", name, f"{stem}.gin")
        for name in problems.names()
        for stem in CLASSES
        if (stem not in ("optimize", "ir2vec") or problems.load(name).is_size)
        and (stem != "deviations_nn_agent" or isinstance(problems.load(name).action_space, MaskedCategorical))
        and (stem != "evolution_nn_agent" or problems.load(name).rule is not None)
    }
    assert set(FILES) == expected


def test_both_trainings_have_the_same_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reinforcement learning continues the policy of behavioural cloning, so its network has that one's shape."""
    monkeypatch.chdir(ROOT)
    for name in problems.names():
        networks = [
            gin_settings.read(CLASSES[stem], [f"gin_configs/{name}/{stem}.gin"], [])["network"].fc_layer_params
            for stem in ("behavioral_cloning_nn_agent", "ppo_nn_agent")
        ]
        assert networks[0] == networks[1]
