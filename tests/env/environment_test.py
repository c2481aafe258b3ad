"""Environments: gymnasium's own checker, and the same sizes as by rollouts with the same decisions."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from compiler_opt import problem as problems
from compiler_opt.collect.rollout import RolloutSettings, rollout
from compiler_opt.corpus.description import Corpus
from compiler_opt.env import CompilerEnv, EnvSettings, compiler_env
from compiler_opt.errors import ConfigError, CorpusError
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.policy import ConstantPolicy, Policy
from compiler_opt.policies.vocabulary import save_vocabulary
from compiler_opt.problem import reward
from compiler_opt.spaces.continuous import Continuous
from compiler_opt.spaces.masked_categorical import FirstCandidate, MaskedCategorical
from compiler_opt.spaces.quantile_encoder import QuantileEncoder, expand
from tests.small_corpus import make_busy_corpus, make_small_corpus

_ONE_COMPILER = pytest.mark.parametrize("clang_path", ["clang-22"], indirect=True)
_PROBLEM = problems.load("inlining")
_QUANTILES = {"callsite_cost": np.array([-30.0, 0.0, 5.0, 40.0]), "node_count": np.array([1.0, 2.0, 2.0, 9.0])}


@pytest.fixture(scope="module")
def corpus(clang_path: str, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_small_corpus(tmp_path_factory.mktemp("corpus"), clang_path)


@pytest.fixture(scope="module")
def dictionary(corpus: Corpus, toolchain: Toolchain) -> CompilerEnv:
    settings = EnvSettings(decision_rewards=True)
    return compiler_env(corpus.root, clang_path=str(toolchain.clang), num_workers=1, settings=settings)


@pytest.fixture(scope="module")
def flat(dictionary: CompilerEnv, corpus: Corpus, toolchain: Toolchain) -> CompilerEnv:
    return CompilerEnv(corpus.modules, dictionary._baseline, toolchain, _PROBLEM, vocabulary=_QUANTILES)


def _play(env: CompilerEnv, action: int) -> tuple[list[Any], float, dict[str, Any]]:
    """Observations, the last reward and the last info of the episode that was reset."""
    observations: list[Any] = []
    while True:
        observation, last, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            return observations, last, info
        assert last == 0.0
        observations.append(observation)


@pytest.mark.ci
@_ONE_COMPILER
def test_gymnasiums_checker(dictionary: CompilerEnv, flat: CompilerEnv) -> None:
    for env in (dictionary, flat):
        check_env(env, skip_render_check=True)
        env.close()


def test_an_episode_is_a_rollout(
    dictionary: CompilerEnv, flat: CompilerEnv, corpus: Corpus, toolchain: Toolchain, tmp_path: Path
) -> None:
    """The same features, decisions and score as the channel's under a constant policy."""
    encoder = QuantileEncoder(list(_QUANTILES.values()))
    rewards = set()
    for action in (0, 1):
        first, info = dictionary.reset(seed=1)
        module = next(each for each in corpus.modules if each.name == info["module"])
        observations, last, info = _play(dictionary, action)
        settings = RolloutSettings(backend="channel")
        expected = rollout(module, ConstantPolicy(action), _PROBLEM, toolchain, scratch=tmp_path, settings=settings)
        assert expected.trajectory is not None and expected.measurement is not None
        seen = [first, *observations]
        assert info["num_decisions"] == len(seen) == len(expected.trajectory)
        for name, values in expected.trajectory.features().items():
            np.testing.assert_array_equal([each[name] for each in seen], values.reshape(-1))
        score = _PROBLEM.score(expected.measurement, dictionary._baseline.contexts[module.project])
        assert (info["score"], last) == (score, reward(score, dictionary._baseline.scores[module.name]))
        rewards.add(last)
        found, _ = flat.reset(options={"module": module.name})
        assert found.dtype == np.float32
        columns = np.array([[first[name] for name in _QUANTILES]])
        np.testing.assert_array_equal(found, expand(encoder.ranks(columns))[0])
    assert len(rewards) == 2


@_ONE_COMPILER
def test_decision_rewards(dictionary: CompilerEnv) -> None:
    """Nothing inlined: credit is due where the default has inlined, and only there."""
    dictionary.reset(seed=1)
    _, last, info = _play(dictionary, 0)
    shares = info["decision_rewards"]
    assert isinstance(shares, np.ndarray)
    assert shares.shape == (info["num_decisions"],) and np.isfinite(shares).all()
    assert last != 0 and np.sign(shares.sum()) == np.sign(last)


@_ONE_COMPILER
def test_an_episode_can_be_given_up(dictionary: CompilerEnv) -> None:
    first, info = dictionary.reset(seed=5)
    dictionary.step(1)
    again, info_again = dictionary.reset(seed=5)
    assert info == info_again
    assert {name: int(value) for name, value in first.items()} == {name: int(value) for name, value in again.items()}
    dictionary.close()
    with pytest.raises(ConfigError, match="the episode is over, or none has begun; call reset"):
        dictionary.step(0)
    dictionary.reset()
    with pytest.raises(ConfigError, match="expected the action 0 or 1, found 2"):
        dictionary.step(2)
    dictionary.close()


@pytest.mark.ci
@_ONE_COMPILER
@pytest.mark.parametrize("has_ended", [False, True])
def test_a_killed_compilation_is_an_error_and_the_next_works(dictionary: CompilerEnv, has_ended: bool) -> None:
    dictionary.reset(seed=0)
    dictionary._process._process.kill()
    if has_ended:
        dictionary._process._process.join()
    with pytest.raises(Exception, match="has died, perhaps for lack of memory; reset the environment"):
        dictionary.step(0)
    dictionary.reset(seed=0)
    assert _play(dictionary, 0)[2]["num_decisions"]
    dictionary._process._process.kill()
    dictionary._process._process.join()
    dictionary.reset(seed=0)
    dictionary.close()


@pytest.mark.ci
@_ONE_COMPILER
def test_several_at_once(dictionary: CompilerEnv, corpus: Corpus, toolchain: Toolchain) -> None:
    def make() -> CompilerEnv:
        return CompilerEnv(corpus.modules, dictionary._baseline, toolchain, _PROBLEM, vocabulary=_QUANTILES)

    envs = gymnasium.vector.SyncVectorEnv([make, make])
    observations, _ = envs.reset(seed=3)
    assert observations.shape == (2, 6)
    finished = 0
    for _ in range(30):
        _, rewards, terminations, _, _ = envs.step(np.array([0, 1]))
        assert rewards[~terminations].tolist() == [0.0] * int((~terminations).sum())
        finished += int(terminations.sum())
    assert finished >= 2
    envs.close()


@_ONE_COMPILER
def test_mistakes_are_named(dictionary: CompilerEnv, corpus: Corpus, toolchain: Toolchain, tmp_path: Path) -> None:
    baseline = dictionary._baseline
    with pytest.raises(ConfigError, match="does not send number_of_moons of the vocabulary"):
        CompilerEnv(corpus.modules, baseline, toolchain, _PROBLEM, vocabulary={"number_of_moons": np.zeros(1)})
    with pytest.raises(ConfigError, match="expected uniform, project or size for environments, found 'decisions'"):
        EnvSettings(sampling="decisions")
    with pytest.raises(ConfigError, match="timeout_s: expected a positive number"):
        EnvSettings(timeout_s=0)
    with pytest.raises(ConfigError, match="expected a module of the corpus that compiles, found 'moon'"):
        dictionary.reset(options={"module": "moon"})
    with pytest.raises(CorpusError, match="none of the modules has a baseline"):
        CompilerEnv([], baseline, toolchain, _PROBLEM)
    data = [module for module in corpus.modules if "data" in module.name]
    undecided = CompilerEnv(data, baseline, toolchain, _PROBLEM)
    with pytest.raises(CorpusError, match="none of 1 modules has a decision; the first: plain/data"):
        undecided.reset()
    undecided.close()


@pytest.mark.ci
@_ONE_COMPILER
@pytest.mark.parametrize(
    "problem_name", ["regalloc_eviction", pytest.param("regalloc_priority", marks=pytest.mark.slow)]
)
def test_register_allocation(problem_name: str, clang_path: str, toolchain: Toolchain, tmp_path: Path) -> None:
    """By its id: the same features, decisions and score as the channel's under the same policy."""
    corpus, problem = make_busy_corpus(tmp_path, clang_path), problems.load(problem_name)
    space = problem.decision.action_space
    policy: Policy
    if isinstance(space, MaskedCategorical):
        policy, names = FirstCandidate(space.inputs), ["liverange_size", "progress", "rank"]
    else:
        assert isinstance(space, Continuous)
        policy, names = ConstantPolicy(float(space.quantizer.to_advice(np.array(1.5)))), ["li_size", "weight"]
    quantiles = {name: np.array([0.0, 1.0, 8.0, 50.0]) for name in names}
    save_vocabulary(tmp_path / "vocabulary", quantiles)
    name = f"compiler_opt/{problem_name.title().replace('_', '')}-v0"
    arguments = {"corpus": corpus.root, "clang_path": str(toolchain.clang), "num_workers": 1}
    env = gymnasium.make(name, settings=EnvSettings(decision_rewards=True), **arguments)
    flat = gymnasium.make(name, vocab_path=tmp_path / "vocabulary", **arguments)
    observation, info = env.reset(seed=1)
    module = next(each for each in corpus.modules if each.name == info["module"])
    flat_observation, _ = flat.reset(options={"module": module.name})
    settings = RolloutSettings(backend="channel")
    expected = rollout(module, policy, problem, toolchain, scratch=tmp_path, settings=settings)
    assert expected.trajectory is not None and expected.measurement is not None
    features = expected.trajectory.features()
    inputs = space.vocabulary_values({key: values[:1] for key, values in features.items()})
    ranks = QuantileEncoder(list(quantiles.values())).ranks(
        np.stack([inputs[key].reshape(-1) for key in names], axis=-1)
    )
    rows = flat_observation[info["action_mask"] == 1] if "action_mask" in info else flat_observation[np.newaxis]
    np.testing.assert_array_equal(rows, expand(ranks))
    for number in range(len(expected.trajectory)):
        for key, value in observation.items():
            np.testing.assert_array_equal(value, np.nan_to_num(features[key][number]).reshape(value.shape))
        action: Any = 1.5
        if "action_mask" in info:
            illegal = int(np.flatnonzero(info["action_mask"] == 0)[0])
            with pytest.raises(ConfigError, match=r"the position of a legal candidate .* found \d+"):
                env.unwrapped.step(illegal)
            action = int(np.flatnonzero(info["action_mask"])[0])
        else:
            with pytest.raises(ConfigError, match="expected a number from -8 to 8, found 9"):
                env.unwrapped.step(9)
        observation, last, terminated, _, info = env.step(np.asarray(action, env.action_space.dtype))
    assert terminated and info["num_decisions"] == len(info["decision_rewards"]) == len(expected.trajectory)
    score = problem.score(expected.measurement, None)
    assert info["score"] == score and last == reward(score, info["baseline"])
    env.close()
    flat.close()


def test_an_id_for_each_problem() -> None:
    ids = {f"compiler_opt/{name}-v0" for name in ("Inlining", "RegallocEviction", "RegallocPriority")}
    assert ids <= set(gymnasium.registry)
    with pytest.raises(CorpusError):
        gymnasium.make("compiler_opt.env:compiler_opt/Inlining-v0", corpus="/no/such/corpus")


@pytest.mark.ci
@_ONE_COMPILER
def test_all_features_of_a_vocabulary(corpus: Corpus, toolchain: Toolchain, tmp_path: Path) -> None:
    save_vocabulary(tmp_path / "vocab", {**_QUANTILES, "of_another_compiler": np.zeros(1)})
    env = compiler_env(corpus.root, clang_path=str(toolchain.clang), vocab_path=tmp_path / "vocab", num_workers=1)
    assert env.observation_space.shape == (6,)
    env.close()
