"""Compilations in development mode, by `tests/llvm/development_clang.py`, which wraps a real clang."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from compiler_opt import problem as problems
from compiler_opt.collect.backends.development import BACKEND, with_seed
from compiler_opt.collect.backends.embedded import EmbeddedPolicy
from compiler_opt.collect.policy_folder import PolicyFolder
from compiler_opt.collect.rollout import DefaultPolicy, Rollout, RolloutSettings, rollout
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import PolicyError, ToolchainError
from compiler_opt.llvm.advisors import TFLITE_FILE
from compiler_opt.llvm.interactive import FunctionOfDecisions
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.llvm.sandbox import VARIABLE
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.policy import ConstantPolicy, Policy, ReplayPolicy
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.problem import Problem
from compiler_opt.spaces.binary import BinaryPolicy
from compiler_opt.spaces.learned_policy import LearnedPolicy
from tests.llvm import development_clang
from tests.real_observations import weights_for
from tests.small_corpus import make_busy_corpus, make_small_corpus

_INLINING = problems.load("inlining")
_EVICTION = problems.load("regalloc_eviction")
_DEVELOPMENT = RolloutSettings(backend="development", record_call_sites=True)
_CHANNEL = RolloutSettings(backend="channel", record_call_sites=True)
_AREA = "shapes/area.cpp.o"
_ADVICE = "inlining_decision"


class Place:
    """A corpus, a compiler with development mode, and its rollouts."""

    def __init__(self, root: Path, toolchain: Toolchain):
        for name in ("inlining", "eviction", "scratch"):
            (root / name).mkdir()
        self.root = root
        self.policies = PolicyFolder(root / "policies")
        self.stock = toolchain
        self.corpora: dict[str, Corpus] = {
            "inlining": make_small_corpus(root / "inlining", str(toolchain.clang)),
            "regalloc_eviction": make_busy_corpus(root / "eviction", str(toolchain.clang)),
        }
        self.compiler = self.with_behaviour("")
        self.weights = self._network()

    def with_behaviour(self, behaviour: str, embedded: Path | None = None) -> Toolchain:
        folder = self.root / f"clang-{behaviour or ('embedded' if embedded else 'good')}"
        clang = folder / "clang" if folder.exists() else development_clang.make(folder, self.stock, behaviour, embedded)
        supports = {
            name: dataclasses.replace(support, development=True, logs_default=True, embedded=embedded is not None)
            for name, support in self.stock.problems.items()
        }
        return dataclasses.replace(self.stock, clang=clang, problems=supports)

    def _network(self) -> NetworkWeights:
        """Random weights that are of two minds about what they see here."""
        result = self.rollout(_AREA, ConstantPolicy(0), _CHANNEL)
        assert result.trajectory is not None
        columns = {name: values.reshape(-1) for name, values in result.trajectory.features().items()}
        return weights_for({name: columns[name] for name in _INLINING.decision.feature_names}, hidden=(16, 8))

    def rollout(
        self,
        module: str,
        policy: Policy | None,
        settings: RolloutSettings,
        *,
        problem: Problem = _INLINING,
        toolchain: Toolchain | None = None,
        seed: int = 0,
    ) -> Rollout:
        toolchain = toolchain or self.compiler
        if isinstance(policy, LearnedPolicy):
            BACKEND.write_policy(policy, problem.decision, toolchain, self.policies, settings)
        return rollout(
            self.corpora[problem.name].by_name[module],
            policy,
            problem,
            toolchain,
            scratch=self.root / "scratch",
            seed=seed,
            settings=settings,
            keep_object=self.object,
            policies=self.policies,
        )

    @property
    def object(self) -> Path:
        return self.root / "object.o"


@pytest.fixture(scope="module", autouse=True)
def no_sandbox() -> Iterator[None]:
    """The stand-in starts a clang in a session of its own and makes its pipes, as no compiler does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "0")
        yield


@pytest.fixture(scope="module")
def place(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("development"), toolchain)


def _check_same(found: Rollout, expected: Rollout) -> None:
    assert found.failure is None and expected.failure is None
    assert found.measurement == expected.measurement
    if expected.trajectory is None or found.trajectory is None:
        assert found.trajectory is expected.trajectory is None
        return
    assert found.trajectory.header == expected.trajectory.header
    assert found.trajectory.observations == expected.trajectory.observations
    assert found.trajectory.advice.dtype == expected.trajectory.advice.dtype
    np.testing.assert_array_equal(found.trajectory.advice, expected.trajectory.advice)
    for sites in (found.trajectory.sites, expected.trajectory.sites):
        assert isinstance(sites, CallSites)
    assert repr(found.trajectory.sites) == repr(expected.trajectory.sites)


@pytest.mark.ci
def test_a_greedy_network_decides_as_over_the_channel(place: Place) -> None:
    policy = BinaryPolicy(place.weights)
    for module in (_AREA, "plain/data.c.o"):
        development = place.rollout(module, policy, _DEVELOPMENT)
        content = place.object.read_bytes()
        channel = place.rollout(module, policy, _CHANNEL)
        assert content == place.object.read_bytes()
        _check_same(development, channel)
        if module == _AREA:
            assert development.trajectory is not None and 0 < development.trajectory.advice.mean() < 1
            assert development.trajectory.log_probs is None
    assert list((place.root / "scratch").iterdir()) == []
    assert [path.name for path in (place.root / "policies").iterdir()] == [policy.key]


@pytest.mark.ci
def test_a_network_with_a_margin_rebuilds_the_default(place: Place) -> None:
    differences = np.diff(_logits(place, BinaryPolicy(place.weights)), axis=1)[:, 0]
    policy = BinaryPolicy(place.weights.with_margin(float(np.median(np.abs(differences)))))
    result = place.rollout(_AREA, policy, _DEVELOPMENT)
    assert result.failure is None and result.trajectory is not None
    features, difference = result.trajectory.features(), np.diff(_logits(place, policy), axis=1)[:, 0]
    rebuilt = (features["cost_estimate"] < features["threshold"]).reshape(-1)
    is_default = np.abs(difference) < policy.weights.margin
    assert 0 < is_default.mean() < 1
    np.testing.assert_array_equal(result.trajectory.advice, np.where(is_default, rebuilt, difference > 0))


def _logits(place: Place, policy: BinaryPolicy) -> np.ndarray:
    """Of the decisions that the policy meets in development mode, `[T, 2]`."""
    trajectory = place.rollout(_AREA, policy, _DEVELOPMENT).trajectory
    assert trajectory is not None
    return policy.logits(trajectory.features())


@pytest.mark.ci
def test_without_a_model_the_default_decides(place: Place) -> None:
    default = DefaultPolicy(_INLINING)
    development = place.rollout(_AREA, default, _DEVELOPMENT)
    content = place.object.read_bytes()
    _check_same(development, place.rollout(_AREA, default, _CHANNEL))
    assert content == place.object.read_bytes()
    place.rollout(_AREA, None, _CHANNEL)
    assert content == place.object.read_bytes()


@pytest.mark.ci
def test_a_network_that_samples(place: Place) -> None:
    policy = BinaryPolicy(place.weights, temperature=20.0)
    results = [place.rollout(_AREA, policy, _DEVELOPMENT, seed=seed) for seed in (1, 1, 2)]
    content = place.object.read_bytes()
    trajectories = []
    for result in results:
        assert result.failure is None and result.trajectory is not None
        trajectories.append(result.trajectory)
    again, first = (trajectory.advice.tolist() for trajectory in trajectories[:2])
    assert first == again
    assert trajectories[2].advice.tolist() != first
    for trajectory in trajectories:
        # Computed by the numpy network from the features in the log.
        logits = policy.logits(trajectory.features()).astype(np.float64) / policy.temperature
        both = logits - np.logaddexp(logits[:, :1], logits[:, 1:])
        assert trajectory.log_probs is not None and trajectory.log_probs.dtype == np.float32
        expected = np.take_along_axis(both, trajectory.advice[:, np.newaxis], axis=1)[:, 0]
        np.testing.assert_allclose(trajectory.log_probs, expected, atol=1e-5)
    replayed = place.rollout(_AREA, ReplayPolicy(trajectories[-1].advice), _CHANNEL)
    assert replayed.trajectory is not None
    assert replayed.trajectory.observations == trajectories[-1].observations
    assert content == place.object.read_bytes()
    assert list((place.root / "scratch").iterdir()) == []


@pytest.mark.ci
def test_evictions_have_llvms_score(place: Place) -> None:
    default = _EVICTION.decision.default_policy
    channel = place.rollout("loops/called.c.o", default, _CHANNEL, problem=_EVICTION)
    content = place.object.read_bytes()
    # `auto` takes the development mode if nothing else sends the compiler's own decisions.
    without_plugin = dataclasses.replace(place.compiler, plugin_headers=None)
    for settings, compiler in ((_DEVELOPMENT, None), (RolloutSettings(), without_plugin)):
        result = place.rollout("loops/called.c.o", default, settings, problem=_EVICTION, toolchain=compiler)
        assert result.failure is None
        assert content == place.object.read_bytes()
        assert result.measurement is not None and result.measurement == channel.measurement
        found, expected = result.trajectory, channel.trajectory
        assert found is not None and expected is not None
        assert expected.outcomes is None
        assert found.header == expected.header and found.observations == expected.observations
        np.testing.assert_array_equal(found.advice, expected.advice)
        assert isinstance(found.sites, FunctionOfDecisions) and isinstance(expected.sites, FunctionOfDecisions)
        assert found.sites.functions == expected.sites.functions
        np.testing.assert_array_equal(found.sites.indices, expected.sites.indices)
        assert found.outcomes is not None and found.outcomes.shape == found.advice.shape
        for index, function in enumerate(found.sites.functions):
            outcomes = found.outcomes[found.sites.indices == index]
            if len(outcomes):
                assert (outcomes[:-1] == 0).all(), "all but the last are 0"
                assert (outcomes[-1] > 0) == (result.measurement.get(function, 0) > 0)
        assert found.outcomes.sum() > 0


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ("truncated", "the training log is cut off: after"),
        ("empty", "log: its first line is not complete"),
        ("missing", "the compiler left no training log"),
        ("other_compiler", "found {'name': 'feature_of_another_version'"),
        ("dies", "stack smashed"),
    ],
)
def test_a_broken_log_is_a_failure_that_names_the_module(place: Place, behaviour: str, message: str) -> None:
    compiler = place.with_behaviour(behaviour)
    result = place.rollout(_AREA, DefaultPolicy(_INLINING), _DEVELOPMENT, toolchain=compiler)
    assert result.failure is not None and result.trajectory is None and result.measurement is None
    assert message in result.failure and _AREA in result.failure and "\n" not in result.failure
    assert list((place.root / "scratch").iterdir()) == []


def test_unsupported_policies_are_refused(place: Place) -> None:
    with pytest.raises(ToolchainError, match="has no development mode for inlining"):
        place.rollout(_AREA, DefaultPolicy(_INLINING), _DEVELOPMENT, toolchain=place.stock)
    names = _EVICTION.decision.feature_names
    buckets, kernel = tuple(np.arange(3.0) for _ in names), np.zeros((3 * len(names), 1), np.float32)
    eviction = _EVICTION.decision.policy(NetworkWeights(names, buckets, (kernel,), (np.zeros(1, np.float32),)))
    for policy, problem, name in ((ConstantPolicy(0), _INLINING, _AREA), (eviction, _EVICTION, "loops/called.c.o")):
        with pytest.raises(PolicyError, match=f"{policy.name!r} cannot decide as a TFLite model"):
            place.rollout(name, policy, _DEVELOPMENT, problem=problem)
    with pytest.raises(PolicyError, match="no TFLite model of it was made"):
        module = place.corpora["inlining"].by_name[_AREA]
        policy = BinaryPolicy(place.weights)
        rollout(
            module,
            policy,
            _INLINING,
            place.compiler,
            scratch=place.root / "scratch",
            settings=RolloutSettings(backend="development"),
        )
    silent = {
        name: dataclasses.replace(support, logs_default=False) for name, support in place.compiler.problems.items()
    }
    with pytest.raises(PolicyError, match="logs its own inlining decisions without their features"):
        compiler = dataclasses.replace(place.compiler, problems=silent)
        place.rollout(_AREA, DefaultPolicy(_INLINING), _DEVELOPMENT, toolchain=compiler)
    with pytest.raises(ToolchainError, match="no model for inlining is built into it"):
        place.rollout(_AREA, EmbeddedPolicy(), RolloutSettings())


def test_a_model_that_was_not_converted_for_sampling_is_refused() -> None:
    with pytest.raises(PolicyError, match="expected one mark for a seed in the model, found 0"):
        with_seed(b"something else", 1)


@pytest.mark.ci
def test_a_built_in_model_leaves_no_trajectory(place: Place) -> None:
    policy = BinaryPolicy(place.weights)
    expected = place.rollout(_AREA, policy, _DEVELOPMENT)
    content = place.object.read_bytes()
    assert (place.root / "policies" / policy.key / TFLITE_FILE).is_file()
    compiler = place.with_behaviour("", embedded=place.root / "policies" / policy.key)
    result = place.rollout(_AREA, EmbeddedPolicy(), RolloutSettings(), toolchain=compiler)
    assert result.failure is None and result.trajectory is None
    assert result.measurement == expected.measurement
    assert content == place.object.read_bytes()
