"""Learned policies are sent as keys; the host writes their files once, and again if they are lost."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from compiler_opt.collect import backends
from compiler_opt.collect.backends import Backend
from compiler_opt.collect.compilation import Compilation
from compiler_opt.collect.policy_folder import MAX_POLICIES, PickledPolicy, PolicyFolder
from compiler_opt.collect.rollout import Rollout, RolloutSettings
from compiler_opt.collect.trajectory import Trajectory
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.decisions.inlining import PROBLEM
from compiler_opt.errors import PolicyError, ResourceError
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.decisions import Decisions, OverridingPolicy
from compiler_opt.policies.policy import ConstantPolicy, Policy
from compiler_opt.spaces.binary import BinaryPolicy
from compiler_opt.spaces.learned_policy import LearnedPolicy
from tests.probed import probed
from tests.real_observations import weights_for
from tests.small_corpus import make_small_corpus


@pytest.fixture(scope="module")
def newest() -> Toolchain:
    return probed("clang-22")


@pytest.fixture(scope="module")
def corpus(newest: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_small_corpus(tmp_path_factory.mktemp("corpus"), str(newest.clang))


def _network(temperature: float = 0.0) -> BinaryPolicy:
    return BinaryPolicy(
        weights_for({name: np.arange(99.0) for name in PROBLEM.decision.feature_names}), temperature=temperature
    )


def test_policies_survive_pickling_also_within_another(tmp_path: Path) -> None:
    folder, network = PolicyFolder(tmp_path), _network(1.5)
    written: list[LearnedPolicy] = []
    nested = OverridingPolicy(network, Decisions())
    read = folder.reader()
    for policy in (network, nested, ConstantPolicy(1), None):
        pickled = folder.dumps(policy, written.append)
        assert len(pickled.content) < 500
        assert pickled.keys == ((network.key,) if policy in (network, nested) else ())
        found = read(pickled)
        assert type(found) is type(policy) and read(pickled) is found
        if policy is network:
            assert found == network and isinstance(found, BinaryPolicy) and found.temperature == 1.5
            np.testing.assert_array_equal(found.weights.kernels[0], network.weights.kernels[0])
    assert written == [network, network]
    pickled = folder.dumps(nested, written.append)
    shutil.rmtree(folder.path(network))
    with pytest.raises(ResourceError, match="cannot be read: No such file"):
        folder.reader()(pickled)


def test_old_policies_are_removed(tmp_path: Path) -> None:
    folder, policies = PolicyFolder(tmp_path), [_network() for _ in range(MAX_POLICIES + 2)]
    folder.prune()
    for policy in policies:
        folder.dumps(policy, lambda _: None)
    assert all(folder.path(policy).exists() for policy in policies)
    folder.prune()
    assert len(list(tmp_path.iterdir())) == MAX_POLICIES and folder.path(policies[-1]).exists()


@pytest.mark.ci
def test_the_host_writes_what_workers_read(corpus: Corpus, newest: Toolchain) -> None:
    policy, settings = _network(1.0), RolloutSettings(backend="plugin")
    with WorkerPool(newest, PROBLEM, 2) as pool:
        [*first] = pool.rollouts(Job(module, policy, 0, settings) for module in corpus.modules)
        files = {path.name: path for path in pool.policies.path(policy).iterdir()}
        assert sorted(files) == ["network.mlgo", "policy.pickle"]
        assert not list(pool.scratch.glob("worker-*/policies"))
        written_ns = files["network.mlgo"].stat().st_mtime_ns
        shutil.rmtree(pool.policies.path(policy))
        [*again] = pool.rollouts(Job(module, policy, 0, settings) for module in corpus.modules)
        assert files["network.mlgo"].stat().st_mtime_ns > written_ns
        for results in (first, again):
            assert [result.failure for _, result in results] == [None] * len(corpus.modules)


@pytest.mark.ci
def test_files_that_disappear_are_written_again_for_a_new_worker(corpus: Corpus, newest: Toolchain) -> None:
    policy = _network()
    results: list[Rollout[Any]] = []
    with WorkerPool(newest, PROBLEM, 1, patience_s=0) as pool:
        for _, result in pool.rollouts(Job(corpus.modules[0], policy, seed) for seed in range(4)):
            if not results:
                shutil.rmtree(pool.policies.path(policy))
                [worker] = [child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline())]
                worker.kill()
            results.append(result)
        assert (pool.policies.path(policy) / "policy.pickle").exists()
    assert [result.failure for result in results] == [None] * 4


def test_a_policy_that_cannot_be_written_is_a_transient_failure(corpus: Corpus, newest: Toolchain) -> None:
    with WorkerPool(newest, PROBLEM, 2, patience_s=0) as pool:
        jobs = [Job(corpus.modules[0], policy) for policy in (_Full(_network().weights), ConstantPolicy(0))]
        results = {job.policy: result for job, result in pool.rollouts(jobs)}
    full, fine = (results[job.policy] for job in jobs)
    assert fine.failure is None
    assert full.is_transient and "its policy cannot be written: [Errno 28]" in (full.failure or "")


class _Full(BinaryPolicy):
    """A policy that no longer fits on the disk."""

    def __reduce__(self) -> tuple[object, ...]:
        raise OSError(28, "No space left on device")


class _Echo(Backend):
    """Compiles plainly under a policy named `echo`, and takes no other."""

    def prepare(self, compilation: Compilation, policy: Policy) -> Callable[[], Trajectory | None] | None:
        return (lambda: compilation.compile([])) if policy.name == "echo" else None


def test_a_backend_is_one_object_in_a_list(corpus: Corpus, newest: Toolchain, tmp_path: Path) -> None:
    compilation = Compilation(corpus.modules[0], PROBLEM.task, newest, tmp_path, 0, RolloutSettings())
    order = (_Echo(), *backends.installed())
    assert backends.compile_under(compilation, ConstantPolicy(1, "echo"), order) is None
    assert compilation.object_path.exists()
    with pytest.raises(PolicyError, match="no backend takes it"):
        backends.compile_under(compilation, ConstantPolicy(1), order[:1])
    insisting = RolloutSettings(backend="embedded")
    with pytest.raises(PolicyError, match="'constant 1' is not the compiler's built-in model"):
        compilation = Compilation(corpus.modules[0], PROBLEM.task, newest, tmp_path, 0, insisting)
        backends.compile_under(compilation, ConstantPolicy(1))


def test_a_class_that_workers_cannot_import_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="No module named 'notebook'; define it in a module"):
        PolicyFolder(tmp_path).reader()(PickledPolicy(b"cnotebook\nMine\n."))
