"""Other targets than the compiler's own, from objects with embedded bitcode to a policy and its report."""

import json
from pathlib import Path

import numpy as np
import pytest

from compiler_opt import problem as problems
from compiler_opt.collect.rollout import DefaultPolicy, Rollout, RolloutSettings, rollout
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module, format_options
from compiler_opt.llvm.elf import ElfFile
from compiler_opt.llvm.interactive import FunctionOfDecisions
from compiler_opt.llvm.object_file import linked_parts
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.model_card import ModelCard
from compiler_opt.policies.vocabulary import save_vocabulary
from tests import programs
from tests.small_corpus import BUSY_SOURCES, SOURCES, make_embedded_corpus

_MACHINES = {"aarch64": "EM_AARCH64", "riscv64": "EM_RISCV"}


@pytest.fixture(scope="module")
def architecture(toolchain: Toolchain) -> str:
    """One for each compiler, since each costs seconds."""
    return "riscv64" if toolchain.version[0] == 19 else "aarch64"


@pytest.fixture(scope="module")
def small(architecture: str, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """At -Oz, for inlining."""
    target = f"{architecture}-linux-gnu"
    return make_embedded_corpus(tmp_path_factory.mktemp("small"), str(toolchain.clang), SOURCES, target=target)


@pytest.fixture(scope="module")
def busy(architecture: str, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """At -O2, for register allocation."""
    sources = {name: text for name, text in BUSY_SOURCES.items() if name.startswith("loops")}
    directory = tmp_path_factory.mktemp("busy")
    target = f"{architecture}-linux-gnu"
    return make_embedded_corpus(directory, str(toolchain.clang), sources, target=target, level="O2")


@pytest.mark.ci
def test_inlining_by_default_is_plain_compilation_by_both_ways(
    small: Corpus, architecture: str, toolchain: Toolchain, tmp_path: Path
) -> None:
    problem = problems.load("inlining")
    objects = []
    decisions = 0
    for module in small.modules:
        paths = [tmp_path / f"{module.name}.{way}" for way in ("compiler", "plugin", "channel")]
        plain = rollout(module, None, problem, toolchain, scratch=tmp_path, keep_object=paths[0])
        plugin, channel = (
            rollout(
                *(module, DefaultPolicy(problem), problem, toolchain),
                scratch=tmp_path,
                settings=RolloutSettings(backend=path.suffix[1:]),
                keep_object=path,
            )
            for path in paths[1:]
        )
        assert (plain.failure, plugin.failure, channel.failure) == (None, None, None)
        assert paths[0].read_bytes() == paths[1].read_bytes() == paths[2].read_bytes()
        if channel.trajectory is not None:
            assert plugin.trajectory is not None
            by_plugin, by_channel = plugin.trajectory.features(), channel.trajectory.features()
            assert by_plugin.keys() == by_channel.keys()
            assert all((by_plugin[name] == by_channel[name]).all() for name in by_channel)
            decisions += len(channel.trajectory)
        objects.append(paths[0])
    assert decisions > 10
    assert {ElfFile.read(path).machine for path in objects} == {_MACHINES[architecture]}
    assert linked_parts(toolchain.tool("ld.lld"), objects, scratch=tmp_path).total > 100


@pytest.mark.parametrize("name", ["regalloc_eviction", "regalloc_priority"])
def test_registers_by_the_default(name: str, busy: Corpus, toolchain: Toolchain, tmp_path: Path) -> None:
    problem = problems.load(name)
    support = toolchain.require(problem.decision.advisor.problem)
    decisions = 0
    for module in busy.modules:
        plain, rebuilt = (
            rollout(module, policy, problem, toolchain, scratch=tmp_path)
            for policy in (None, problem.decision.default_policy)
        )
        assert (plain.failure, rebuilt.failure) == (None, None)
        if rebuilt.trajectory is not None:
            # What the probe saw of the compiler's own target holds for this one.
            assert rebuilt.trajectory.header.features[:-1] == support.features
            assert rebuilt.trajectory.header.names[-1] == problem.decision.advisor.plugin_default_feature
            assert rebuilt.trajectory.header.advice == support.advice
            decisions += len(rebuilt.trajectory)
            _check_credit(problem, plain, rebuilt)
    assert decisions > 25


def _check_credit(problem: problems.Problem, plain: Rollout, rebuilt: Rollout) -> None:
    """Functions of decisions and of scores go by the same names, each function's score going to its own decisions."""
    assert rebuilt.trajectory is not None and rebuilt.measurement is not None and plain.measurement is not None
    sites = rebuilt.trajectory.sites
    assert isinstance(sites, FunctionOfDecisions)
    assert set(plain.measurement) | set(rebuilt.measurement) <= set(sites.functions)
    doubled = {function: 2 * score for function, score in rebuilt.measurement.items()}
    credit = problem.credit([rebuilt.measurement, doubled], [sites, sites], None)
    assert credit is not None
    expected = [rebuilt.measurement.get(sites.functions[index], 0.0) / 2 for index in sites.indices]
    assert credit[0].tolist() == pytest.approx(expected)
    assert credit[1].tolist() == pytest.approx([-value for value in expected])


@pytest.mark.slow
def test_training_and_evaluation(
    architecture: str, toolchain: Toolchain, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    name, size = ("inlining", "small") if architecture == "riscv64" else ("regalloc_eviction", "busy")
    corpus: Corpus = request.getfixturevalue(size)
    problem = problems.load(name)
    save_vocabulary(
        tmp_path / "vocabulary", {feature: np.arange(-5.0, 60.0) for feature in problem.decision.feature_names}
    )
    common = (
        f"--compile_task={name}",
        f"--data_path={corpus.root}",
        f"--clang_path={toolchain.clang}",
        "--num_workers=2",
    )
    settings = ("num_iterations=1", "num_modules=3", "rollouts_per_module=3")
    policy = tmp_path / "training" / "policy"
    trained = programs.run(
        "compiler_opt/rl/train_locally.py",
        *common,
        f"--output_dir={policy.parent}",
        f"--vocab_path={tmp_path / 'vocabulary'}",
        f"--gin_files=gin_configs/{name}/ppo_nn_agent.gin",
        *(f"--gin_bindings=train_eval.{setting}" for setting in settings),
    )
    assert trained.returncode == 0, trained.stderr
    [iteration] = [json.loads(line) for line in (policy.parent / "history.jsonl").read_text().splitlines()]
    assert iteration["failures"] == 0
    assert np.isfinite(iteration["loss"])
    assert ModelCard.load(policy) is not None
    output = tmp_path / "evaluation"
    evaluated = programs.run(
        "compiler_opt/tools/evaluate.py", *common, f"--policy_path={policy}", f"--output_dir={output}", "--baselines="
    )
    assert evaluated.returncode == 0, evaluated.stderr
    summary = json.loads((output / "summary.json").read_text())
    target = f"{architecture}-unknown-linux-gnu"
    assert summary["provenance"]["Target"] == f"{target} ({len(corpus.modules)} modules)"
    policy_linked = summary["projects"][0]["policies"]["policy"]
    assert policy_linked["linked_bytes"] > 100
    assert policy_linked["num_failures"] == 0
    assert target in (output / "report.html").read_text()


def test_bitcode_for_another_target_than_the_options_is_refused(
    small: Corpus, toolchain: Toolchain, tmp_path: Path
) -> None:
    module = small.by_name["plain/list.c.o"]
    name, scratch = "list.c.o", tmp_path / "scratch"
    scratch.mkdir()
    (tmp_path / f"{name}.bc").write_bytes(module.bitcode_path.read_bytes())
    for triple, reason in (
        (["-triple", toolchain.target], "the bitcode is for another target"),
        ([], "the bitcode is for another target"),
        (["-triple", "nosuch-linux-gnu"], "this clang cannot compile for the target nosuch-unknown-linux-gnu"),
    ):
        (tmp_path / f"{name}.cmd").write_bytes(format_options(["-cc1", "-Oz", *triple]))
        result = rollout(
            *(Module(name, "plain", tmp_path), None, problems.load("inlining"), toolchain), scratch=scratch
        )
        assert reason in (result.failure or "")
        assert result.measurement is None
