"""A pool on a real Ray cluster of several nodes does what a local one does, whatever happens to the nodes."""

import dataclasses
import importlib.util
import json
import os
import socket
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from compiler_opt.collect.cluster.ray_workers import ray_pool
from compiler_opt.collect.compilation_files import CompilationFiles
from compiler_opt.collect.rollout import Rollout
from compiler_opt.collect.workers import Job, WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.decisions.inlining import PROBLEM
from compiler_opt.errors import ConfigError, MissingPackageError
from compiler_opt.llvm import sandbox
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.policies.policy import RandomPolicy
from compiler_opt.policies.weights import NetworkWeights
from tests.ray_cluster import RayCluster, environment_of_ray, ray_cluster
from tests.real_observations import weights_for
from tests.small_corpus import make_small_corpus

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def newest() -> Toolchain:
    return probe("clang-22")


@pytest.fixture(scope="module")
def corpus(newest: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_small_corpus(tmp_path_factory.mktemp("corpus"), str(newest.clang))


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayCluster]:
    if importlib.util.find_spec("ray") is None:
        pytest.fail("ray: not installed; pip install 'compiler_opt[ray]'")
    for name, value in environment_of_ray().items():
        monkeypatch.setenv(name, value)
    with ray_cluster(tmp_path) as cluster:
        yield cluster


def _weights() -> NetworkWeights:
    return weights_for({name: np.arange(99.0) for name in PROBLEM.decision.feature_names})


def _measured(results: dict[tuple[str, int], Rollout]) -> dict[tuple[str, int], object]:
    return {name: (result.measurement, result.failure) for name, result in results.items()}


def _rollouts(pool: WorkerPool, jobs: list[Job]) -> dict[tuple[str, int], Rollout]:
    return {(job.module.name, job.seed): result for job, result in pool.rollouts(jobs)}


@pytest.mark.slow
def test_nodes_decide_what_local_workers_do_and_get_each_file_once(
    cluster: RayCluster, corpus: Corpus, newest: Toolchain, tmp_path: Path
) -> None:
    nodes = [cluster.add(2), cluster.add(1)]
    policy, other = PROBLEM.decision.policy(_weights(), temperature=1.0), RandomPolicy()
    modules = [*corpus.modules, dataclasses.replace(corpus.modules[0], name="plain/gone.c.o")]

    def jobs(folder: str) -> list[Job]:
        place = tmp_path / folder
        return [
            Job(module, policy if seed else other, seed, keep_object=place / f"{module.name}-{seed}")
            for module in modules
            for seed in range(4)
        ]

    with WorkerPool(newest, PROBLEM, 2) as pool:
        expected = _rollouts(pool, jobs("local"))
    with ray_pool(cluster.address, newest, PROBLEM) as pool:
        assert pool.num_workers == 3
        found = _rollouts(pool, jobs("ray"))
        assert _measured(_rollouts(pool, jobs("ray"))) == _measured(found)
    assert _measured(found) == _measured(expected)
    assert {name for name, result in found.items() if result.failure} == {("plain/gone.c.o", seed) for seed in range(4)}
    kept = {path.relative_to(tmp_path / "local"): path.read_bytes() for path in (tmp_path / "local").rglob("*.o-*")}
    assert {path.relative_to(tmp_path / "ray"): path.read_bytes() for path in (tmp_path / "ray").rglob("*.o-*")} == kept
    assert len(kept) == 4 * len(corpus.modules)
    for node in nodes:
        assert 1 <= node.num_modules <= len(corpus.modules)


@pytest.mark.slow
def test_nodes_come_and_go(
    cluster: RayCluster, corpus: Corpus, newest: Toolchain, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = [Job(module, RandomPolicy(), seed) for seed in range(50) for module in corpus.modules]
    nodes, num_before = [cluster.add(1)], None
    results: dict[tuple[str, int], Rollout] = {}
    with ray_pool(cluster.address, newest, PROBLEM, 2) as pool:
        for job, result in pool.rollouts(jobs):
            assert (job.module.name, job.seed) not in results
            results[job.module.name, job.seed] = result
            if len(results) == 3:
                nodes.append(cluster.add(1))
            if num_before is None and len(nodes) == 2 and nodes[1].num_modules:
                # The new node works; now the old one dies in the middle of its jobs.
                nodes[0].kill()
                num_before = len(results)
    assert num_before is not None and num_before < len(jobs)
    assert len(results) == len(jobs) and not any(result.failure for result in results.values())
    with WorkerPool(newest, PROBLEM, 2) as pool:
        assert _measured(_rollouts(pool, jobs)) == _measured(results)
    # Nobody is to blame.
    assert "compiled" not in caplog.text and "set aside" not in caplog.text


_PRETENDING = """#!/bin/bash
case "$PRETEND $*" in
  gone*) exit 127;;
  old*) exec clang-19 "$@";;
  *poisoned*) kill -KILL $PPID;;
esac
exec {clang} "$@"
"""


@pytest.mark.slow
def test_nodes_that_differ_are_refused_by_name_and_a_module_that_kills_workers_is_set_aside(
    cluster: RayCluster,
    corpus: Corpus,
    newest: Toolchain,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(sandbox.VARIABLE, "0")
    clang = tmp_path / "clang-22"
    clang.write_text(_PRETENDING.format(clang=newest.clang))
    clang.chmod(0o755)
    toolchain = dataclasses.replace(newest, clang=clang)
    cluster.add(1, {"PRETEND": "gone"})
    cluster.add(1, {"PRETEND": "old"})
    jobs = [Job(module, None) for module in corpus.modules]
    with (
        ray_pool(cluster.address, toolchain, PROBLEM, 4) as pool,
        pytest.raises(ConfigError, match="no node of the Ray cluster can do the work: ") as refused,
    ):
        list(pool.rollouts(jobs))
    for expected in (socket.gethostname(), "exit status 127", "expected the host's version_text", "clang version 19"):
        assert expected in str(refused.value)
    assert "\n" not in str(refused.value)
    caplog.clear()
    full = cluster.add(1)
    (full.cache / "compiler_opt" / "nodes").touch()
    cluster.add(1)
    area = next(module for module in corpus.modules if "area" in module.name)
    for suffix in (".bc", ".cmd"):
        source = area.root / f"{area.name}{suffix}"
        (tmp_path / f"poisoned.o{suffix}").write_bytes(source.read_bytes())
    poisoned = dataclasses.replace(area, name="poisoned.o", root=tmp_path)
    with ray_pool(cluster.address, toolchain, PROBLEM, 4) as pool:
        results = {job.module.name: result for job, result in pool.rollouts([*jobs, Job(poisoned, None)])}
    assert [name for name, result in results.items() if result.failure] == ["poisoned.o"]
    assert "died (SIGKILL)" in str(results["poisoned.o"].failure)
    refusals = sorted(message for message in caplog.messages if "no worker is started there" in message)
    assert len(refusals) == 3
    assert sum("expected the host's version_text" in message for message in refusals) == 1
    assert sum("exit status 127" in message for message in refusals) == 1
    assert sum(f"{full.cache}/compiler_opt/nodes: cannot be written" in message for message in refusals) == 1


_CLEANER = """
import glob, shutil, sys
while True:
    for path in glob.iglob(sys.argv[1] + "/*"):
        shutil.rmtree(path, ignore_errors=True)
"""


@pytest.mark.slow
def test_a_node_that_drops_what_it_stores_is_refused(cluster: RayCluster, corpus: Corpus, newest: Toolchain) -> None:
    modules = cluster.add(1).cache / "compiler_opt/nodes/modules"
    with subprocess.Popen([sys.executable, "-c", _CLEANER, modules]) as cleaner:
        try:
            with (
                ray_pool(cluster.address, newest, PROBLEM, 1) as pool,
                pytest.raises(ConfigError, match=r"no node .*it does not keep what it stores: modules/[0-9a-f]{64}$"),
            ):
                list(pool.rollouts([Job(corpus.modules[0], None)]))
        finally:
            cleaner.kill()


_SETTINGS = ["train_eval.num_iterations = 3", "train_eval.num_modules = 2", "train_eval.rollouts_per_module = 4"]


@pytest.mark.slow
def test_a_training_with_one_worker_has_the_history_of_a_local_one(
    cluster: RayCluster, corpus: Corpus, tmp_path: Path
) -> None:
    cluster.add(1)
    _weights().save(tmp_path / "start")
    histories = []
    for name, flags in (("local", []), ("ray", ["--worker_manager=ray", f"--ray_address={cluster.address}"])):
        command = [sys.executable, "-m", "compiler_opt.rl.train_locally", f"--output_dir={tmp_path / name}"]
        command += [f"--data_path={corpus.root}", f"--warmstart_policy_dir={tmp_path / 'start'}", "--num_workers=1"]
        command += ["--clang_path=clang-22", "--seed=3", f"--gin_files={ROOT}/gin_configs/inlining/ppo_nn_agent.gin"]
        command += [f"--gin_bindings={setting}" for setting in _SETTINGS]
        cache = tmp_path / f"cache of {name}"
        (cache / "compiler_opt").mkdir(parents=True)
        (cache / "compiler_opt/plugins").symlink_to(tmp_path / "plugins")
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(cache)}
        done = subprocess.run(
            [*command, *flags], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        lines = (tmp_path / name / "history.jsonl").read_text().splitlines()
        histories.append([_without_times(json.loads(line)) for line in lines])
    assert len(histories[0]) == 3 and histories[0] == histories[1]
    assert (tmp_path / "local/policy/model.tflite").read_bytes() == (tmp_path / "ray/policy/model.tflite").read_bytes()


def _without_times(entry: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in entry.items() if not name.endswith("_s")}


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("nonsense", "expected auto, or HOST:PORT"),
        ("ray://127.0.0.1:10001", "expected auto, or HOST:PORT"),
        ("127.0.0.1:1", "nobody answers"),
        ("127.0.0.1:99999", "nobody answers"),
    ],
)
def test_an_address_nobody_answers(
    address: str, message: str, newest: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec("ray") is None:
        # What is wrong with the address is found before Ray is used.
        monkeypatch.setitem(sys.modules, "ray", types.SimpleNamespace(is_initialized=lambda: False))
    with pytest.raises(ConfigError, match=f"--ray_address={address}: {message}"), ray_pool(address, newest, PROBLEM):
        pass


_SOMEBODY_ELSE = 65534


# Only root can give files away.
@pytest.mark.parametrize("whose", ["ray", "ray/ray_current_cluster"] if os.getuid() == 0 else [])
def test_auto_is_not_the_cluster_of_another_user(
    whose: str, newest: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may write the file by which Ray finds a cluster; results are unpickled."""
    if importlib.util.find_spec("ray") is None:
        # Whose it is is found before Ray is used.
        monkeypatch.setitem(sys.modules, "ray", types.SimpleNamespace(is_initialized=lambda: False))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray/ray_current_cluster").write_text("127.0.0.1:1")
    os.chown(tmp_path / whose, _SOMEBODY_ELSE, -1)
    with pytest.raises(ConfigError, match="--ray_address=auto: the Ray cluster of this machine is another user's"):
        ray_pool("auto", newest, PROBLEM).__enter__()


def test_without_ray_its_extra_is_named(newest: Toolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError, match=r"compiler_opt\[ray\]"), ray_pool("auto", newest, PROBLEM):
        pass


def test_files_of_compilations_stay_on_nodes(newest: Toolchain, tmp_path: Path) -> None:
    kept = CompilationFiles(tmp_path, 1)
    with (
        pytest.raises(ConfigError, match="explicit_temps_dir"),
        ray_pool("auto", newest, PROBLEM, compilation_files=kept),
    ):
        pass
