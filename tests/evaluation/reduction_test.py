"""Decisions of register allocation, recorded, replayed and reduced: until the compiler no longer fails."""

import dataclasses
import itertools
from pathlib import Path

import pytest

from compiler_opt import problem as problems
from compiler_opt.collect.rollout import rollout
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import ConfigError, CorpusError, PolicyError
from compiler_opt.evaluation.reduction import Reducer
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.decisions import Decisions, OverridingPolicy
from tests import programs
from tests.small_corpus import make_busy_corpus

_PROBLEM = problems.load("regalloc_eviction")
_RANDOM = _PROBLEM.decision.action_space.baselines()["random"]


@pytest.fixture(scope="module")
def busy(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_busy_corpus(tmp_path_factory.mktemp("busy"), str(toolchain.clang))


@pytest.mark.slow  # `test_the_command` records, reduces and replays, too, with fewer compilations
def test_recorded_decisions_replay_and_reduce(busy: Corpus, toolchain: Toolchain, tmp_path: Path) -> None:
    module = busy.projects()["loops"][0]
    reducer = Reducer(module, _PROBLEM, toolchain)
    recorded = reducer.record(_RANDOM, seed=3)
    changes = recorded.changes
    assert 0 < len(changes) < recorded.num_decisions
    paths = [tmp_path / "policy.o", tmp_path / "replayed.o"]
    default = _PROBLEM.decision.default_policy or _RANDOM
    policies = (_RANDOM, OverridingPolicy(default, Decisions(changes), mask="mask"))
    for path, policy in zip(paths, policies, strict=True):
        done = rollout(module, policy, _PROBLEM, toolchain, scratch=tmp_path, seed=3, keep_object=path)
        assert done.failure is None
    assert paths[0].read_bytes() == paths[1].read_bytes()
    reduction = reducer.reduce(changes)
    assert reduction.is_minimal and reduction.effect.rise > 0
    assert len(reduction.changes) < len(changes)
    assert reduction.remaining == reducer.outcome(reduction.changes)
    assert reduction.remaining.rise >= reduction.effect.rise / 2
    assert reduction.defaults.keys() == reduction.changes.keys()
    for fewer in itertools.combinations(reduction.changes.items(), len(reduction.changes) - 1):
        assert reducer.outcome(dict(fewer)).rise < reduction.effect.rise / 2
    stopped = reducer.reduce(changes, max_compiles=1)
    assert not stopped.is_minimal and stopped.num_compiles == reducer.num_compiles


_FAILING = """#!/bin/sh
# Clang, but it crashes after compiling what is larger than with the default's decisions.
{clang} "$@" || exit
for word do
  if [ "$previous" = -o ]; then output=$word; fi
  previous=$word
done
if [ "$(stat -c %s "$output")" -gt {limit} ]; then kill -SEGV $$; fi
"""


@pytest.mark.slow
@pytest.mark.parametrize("clang_path", ["clang-22"], indirect=True)
def test_a_crash_is_reduced(busy: Corpus, toolchain: Toolchain, tmp_path: Path) -> None:
    module = busy.projects()["loops"][0]
    sizes = []
    for policy in (None, _RANDOM):
        path = tmp_path / "object.o"
        rollout(module, policy, _PROBLEM, toolchain, scratch=tmp_path, seed=3, keep_object=path)
        sizes.append(path.stat().st_size)
    assert sizes[1] > sizes[0]
    crashing = tmp_path / "clang"
    crashing.write_text(_FAILING.format(clang=toolchain.clang, limit=sizes[0]))
    crashing.chmod(0o755)
    reducer = Reducer(module, _PROBLEM, dataclasses.replace(toolchain, clang=crashing))
    # What was decided before the crash is recorded, too.
    changes = reducer.record(_RANDOM, seed=3).changes
    reduction = reducer.reduce(changes)
    assert reduction.effect.failure is not None and "SIGSEGV" in reduction.effect.failure
    assert 0 < len(reduction.changes) < len(changes)
    assert reduction.remaining.failure is not None
    for fewer in itertools.combinations(reduction.changes.items(), len(reduction.changes) - 1):
        assert reducer.outcome(dict(fewer)).failure is None
    with pytest.raises(PolicyError, match=r"0 changes: expected a failure, or a score that rises; score .*\+0.00%"):
        reducer.reduce({})


@pytest.mark.ci
@pytest.mark.parametrize("clang_path", ["clang-22"], indirect=True)
def test_the_command(busy: Corpus, toolchain: Toolchain, tmp_path: Path) -> None:
    module, output = busy.projects()["loops"][0].name, tmp_path / "decisions.json"
    common = (f"--data_path={busy.root}", f"--module={module}", f"--clang_path={toolchain.clang}")
    tool = "compiler_opt/tools/reduce_decisions.py"
    result = programs.run(tool, *common, "--baseline=random", "--seed=3", "--max_compiles=9", f"--output_path={output}")
    assert result.returncode == 0, result.stderr
    decisions = Decisions.load(output)
    assert f"{len(decisions)} are left after" in result.stdout
    replayed = programs.run(tool, *common, f"--decisions={output}", "--replay")
    assert replayed.stdout.splitlines()[1] == decisions.about["effect"]
    for flags, reason in (
        (("--replay",), "expected one of --policy_path, --baseline, --decisions, found none"),
        (("--baseline=random", f"--output_path={output}", "--compile_task=inlining"), "of register allocation"),
        (
            (f"--decisions={output}", "--replay", "--compile_task=regalloc_priority"),
            "give --compile_task=regalloc_evic",
        ),
        (("--baseline=random",), "--output_path: expected the name of a JSON file"),
    ):
        refused = programs.run(tool, *common, *flags)
        assert refused.returncode == 2 and reason in refused.stderr, refused.stderr


@pytest.mark.parametrize("clang_path", ["clang-22"], indirect=True)
def test_what_cannot_be_reduced(busy: Corpus, toolchain: Toolchain, tmp_path: Path) -> None:
    module = busy.modules[0]
    with pytest.raises(ConfigError, match="expected a problem of register allocation"):
        Reducer(module, problems.load("inlining"), toolchain)
    failing = tmp_path / "clang"
    failing.write_text("#!/bin/sh\nexit 1\n")
    failing.chmod(0o755)
    with pytest.raises(CorpusError, match="expected a module that compiles by the default"):
        Reducer(module, _PROBLEM, dataclasses.replace(toolchain, clang=failing))
