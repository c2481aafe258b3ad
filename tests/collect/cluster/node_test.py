"""A node does the jobs of the host with its own files, and says in what it differs."""

import dataclasses
import pickle
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from compiler_opt.collect.cluster.bundles import module_bundle, module_files, policy_bundle
from compiler_opt.collect.cluster.node import NodeWorker, Setup, node_toolchain
from compiler_opt.collect.policy_folder import PolicyFolder
from compiler_opt.collect.rollout import Rollout, rollout
from compiler_opt.collect.schedule import Job
from compiler_opt.collect.worker import WorkerSettings
from compiler_opt.corpus.description import Corpus
from compiler_opt.decisions.inlining import PROBLEM
from compiler_opt.errors import ToolchainError
from compiler_opt.files import default_cache_dir
from compiler_opt.llvm import sandbox
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.policy import RandomPolicy
from tests.probed import probed
from tests.small_corpus import make_small_corpus


@pytest.fixture(scope="module")
def newest() -> Toolchain:
    return probed("clang-22")


@pytest.fixture(scope="module")
def corpus(newest: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_small_corpus(tmp_path_factory.mktemp("corpus"), str(newest.clang))


@pytest.fixture(name="setup")
def setup_fixture(newest: Toolchain, tmp_path: Path) -> Setup:
    return Setup.of(WorkerSettings(newest, PROBLEM.task, 1, PolicyFolder(tmp_path / "of the host")))


@pytest.fixture
def node(setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeWorker]:
    # The modules' cache is its own; the plugin comes from the usual one.
    plugins = default_cache_dir() / "plugins"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    default_cache_dir().mkdir(parents=True)
    (default_cache_dir() / "plugins").symlink_to(plugins)
    worker = NodeWorker()
    yield worker
    worker.close()


def _offer(job: Job) -> bytes:
    policies = PolicyFolder(Path("nowhere"))
    return pickle.dumps((dataclasses.replace(job, policy=None), policies.dumps(job.policy, lambda _: None)))


def test_a_job_has_the_result_of_the_host(node: NodeWorker, setup: Setup, corpus: Corpus, tmp_path: Path) -> None:
    node.start(pickle.dumps(setup))
    module = corpus.modules[0]
    files = module_files(module)
    bundle = module_bundle(files)
    kept = tmp_path / "host" / "kept.o"
    job = Job(dataclasses.replace(module, root=Path("/on/the/host")), RandomPolicy(), 7, keep_object=kept)
    fetched = []

    def fetch() -> Mapping[str, bytes]:
        fetched.append(bundle)
        return files

    answers = [node.work(_offer(job), {bundle: fetch}) for _ in range(2)]
    assert len(fetched) == 1
    assert all(answer.exit_code is None and answer.refusal is None for answer in answers)
    [answer, again] = answers
    assert again.kept_object == answer.kept_object
    found: Rollout = pickle.loads(answer.content)  # noqa: S301
    expected = rollout(module, RandomPolicy(), PROBLEM, setup.settings.toolchain, seed=7, keep_object=tmp_path / "x.o")
    assert found.failure is None and found.measurement == expected.measurement
    assert answer.kept_object == (tmp_path / "x.o").read_bytes()
    assert not kept.exists()


def test_a_result_counts_though_other_runs_have_made_room_in_the_cache(
    node: NodeWorker, setup: Setup, corpus: Corpus
) -> None:
    node.start(pickle.dumps(setup))
    module, policy = corpus.modules[0], {"policy.pickle": b"unused"}
    files = module_files(module)
    removed = policy_bundle("1f2e", policy)

    def fetch() -> Mapping[str, bytes]:
        shutil.rmtree(default_cache_dir() / "nodes" / removed.path)
        return files

    answer = node.work(_offer(Job(module, None)), {removed: lambda: policy, module_bundle(files): fetch})
    assert answer.refusal is None and pickle.loads(answer.content).failure is None  # noqa: S301


@pytest.mark.ci
def test_the_exit_of_the_worker_process_is_told(
    node: NodeWorker, newest: Toolchain, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sandbox.VARIABLE, "0")
    clang = tmp_path / "clang"
    # Without plugins: one would be built for this compiler.
    kills = '[[ "$*" != *area* ]] || kill -KILL $PPID'
    refuses = '[[ "$*" != *-fpass-plugin=* ]] || exit 1'
    clang.write_text(f'#!/bin/bash\n{kills}\n{refuses}\nexec {newest.clang} "$@"\n')
    clang.chmod(0o755)
    toolchain = dataclasses.replace(newest, clang=clang, pass_plugins=False)
    node.start(pickle.dumps(Setup.of(WorkerSettings(toolchain, PROBLEM.task, 1, PolicyFolder(tmp_path)))))
    module = next(module for module in corpus.modules if "area" in module.name)
    files = module_files(module)
    assert node.work(_offer(Job(module, None)), {module_bundle(files): lambda: files}).exit_code == -9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"version_text": "clang version 22.1.0 (other)"},
            "expected the host's version_text, clang version 22.1.0 .oth",
        ),
        ({"target": "riscv64-unknown-linux-gnu"}, "expected the host's target, riscv64-unknown-linux-gnu; found"),
        ({"clang": Path("/gone/clang-99")}, "clang-99"),
    ],
)
def test_a_node_with_another_compiler_is_refused(newest: Toolchain, change: dict[str, object], message: str) -> None:
    with pytest.raises(ToolchainError, match=message):
        node_toolchain(dataclasses.replace(newest, **change))  # type: ignore[arg-type]


def test_the_compiler_may_be_elsewhere(newest: Toolchain) -> None:
    host = dataclasses.replace(newest, clang=Path("/opt/host/bin/clang-22"), tools={})
    found = node_toolchain(host)
    assert found.clang.exists() and found.tools == newest.tools


def test_a_node_with_other_code_is_refused(node: NodeWorker, setup: Setup) -> None:
    with pytest.raises(ToolchainError, match="another version"):
        node.start(pickle.dumps(dataclasses.replace(setup, code="0")))
    with pytest.raises(ToolchainError, match="No module named 'unheard_of'"):
        node.start(b"cunheard_of\nSetup\n.")
    with pytest.raises(ToolchainError, match="the host cannot"):
        node.start(pickle.dumps(dataclasses.replace(setup, has_plugin=not setup.has_plugin)))
