"""Measurements are kept in files; a damaged file is set aside, named, and measured again."""

import hashlib
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from compiler_opt import problem as problems
from compiler_opt.collect.baseline import (
    cached_decision_counts,
    count_decisions,
    measure_baseline,
    measured_once,
    shared_file,
)
from compiler_opt.collect.rollout import DefaultPolicy, rollout
from compiler_opt.collect.workers import WorkerPool
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.module import Module
from compiler_opt.decisions.inlining import PROBLEM as INLINING_PROBLEM
from compiler_opt.files import read_checked_json, write_checked_json
from compiler_opt.llvm.build_cache import digest_of
from compiler_opt.llvm.toolchain import Toolchain
from tests.small_corpus import make_small_corpus


class _Counter:
    def __init__(self, *, is_lasting: bool = True) -> None:
        self.calls = 0
        self.is_lasting = is_lasting

    def __call__(self) -> tuple[dict[str, float], bool]:
        self.calls += 1
        return {"a": 1.5}, self.is_lasting


def test_it_is_measured_once_for_a_key(tmp_path: Path) -> None:
    measure, path = _Counter(), tmp_path / "baseline.json"
    for key, calls in (("x", 1), ("x", 1), ("y", 2)):
        assert measured_once(path, "baseline", {"corpus": (key,)}, [], measure) == {"a": 1.5}
        assert measure.calls == calls


def test_transient_results_are_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    assert measured_once(path, "baseline", {}, [], _Counter(is_lasting=False)) == {"a": 1.5}
    assert not path.exists()


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "zeros", "list", "another", "folder"])
def test_a_damaged_file_is_set_aside(damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    measure, path = _Counter(), tmp_path / "baseline.json"
    measured_once(path, "baseline", {}, [], measure)
    good = path.read_bytes()
    contents = {
        "empty": b"",
        "cut": good[:-3],
        "flipped": good.replace(b"1.5", b"9.5"),
        "zeros": bytes(len(good)),
        "list": b"[]",
        "another": b'{"key": {"modules": []}, "baseline": 5}',
    }
    if damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(contents[damage])
    with caplog.at_level(logging.WARNING):
        assert measured_once(path, "baseline", {}, [], measure) == {"a": 1.5}
    assert measure.calls == 2
    [record] = caplog.records
    assert record.getMessage().startswith(f"{path}: damaged (")
    assert "kept as baseline.json.damaged, made again" in record.getMessage()
    assert (tmp_path / "baseline.json.damaged").exists()
    assert path.read_bytes() == good


def test_runs_share_what_they_measure_by_content(toolchain: Toolchain, tmp_path: Path) -> None:
    corpora = [tmp_path / name for name in ("a", "b")]
    corpora[0].mkdir()
    make_small_corpus(corpora[0], str(toolchain.clang))
    shutil.copytree(corpora[0], corpora[1])
    first, second = (Corpus.load(folder).modules for folder in corpora)

    def shared(modules: Sequence[Module], clang: Path = toolchain.clang, **about: str) -> Path:
        found = shared_file(modules, clang, about, tmp_path / "shared")
        assert found is not None
        return found

    # Another folder changes nothing, but another module, option, compiler or problem does.
    assert shared(first, problem="x") == shared(second, problem="x") == shared(first[::-1], problem="x")
    assert len({shared(first), shared(first[1:]), shared(first, problem="y"), shared(first, Path("/bin/true"))}) == 4
    about = [b'{"problem": "x"}', digest_of((), (), [toolchain.clang]).encode()]
    contents = [module.content_digest() for module in sorted(first, key=lambda module: module.name)]
    assert shared(first, problem="x").stem == hashlib.sha256(b"".join(about + contents)).hexdigest()[:32]
    before = shared(first)
    measure = _Counter()
    for run in ("1", "2"):
        assert measured_once(tmp_path / run, "baseline", {}, [], measure, lambda: before) == {"a": 1.5}
    assert measure.calls == 1
    assert (tmp_path / "2").exists()

    def not_asked() -> None:
        raise AssertionError("the run's own file is enough")

    assert measured_once(tmp_path / "2", "baseline", {}, [], measure, not_asked) == {"a": 1.5}
    # What would be otherwise tomorrow is not shared; damage is measured again.
    second_file = tmp_path / "shared" / "other.json"
    measured_once(tmp_path / "3", "baseline", {}, [], _Counter(is_lasting=False), lambda: second_file)
    assert not second_file.exists()
    before.write_text("{")
    measured_once(tmp_path / "4", "baseline", {}, [], measure, lambda: before)
    assert measure.calls == 2 and before.with_name(f"{before.name}.damaged").exists()
    second[0].command_path.write_bytes(second[0].command_path.read_bytes() + b"-w\0")
    assert shared(second) != shared(first)
    second[0].bitcode_path.unlink()
    assert shared_file(second, toolchain.clang, {}, tmp_path / "shared") is None


@pytest.mark.ci
def test_decisions_are_counted(toolchain: Toolchain, tmp_path: Path) -> None:
    problem = problems.load("inlining")
    (tmp_path / "corpus").mkdir()
    modules = make_small_corpus(tmp_path / "corpus", str(toolchain.clang)).modules
    expected = {}
    for module in modules:
        trajectory = rollout(module, DefaultPolicy(problem), problem, toolchain, scratch=tmp_path).trajectory
        expected[module.name] = 0 if trajectory is None else len(trajectory)
    assert expected["plain/data.c.o"] == 0
    assert sum(expected.values()) > 5
    path = tmp_path / "decisions.json"
    with WorkerPool(toolchain, INLINING_PROBLEM, 1) as pool:
        assert cached_decision_counts(path, {"corpus": "x"}, modules, pool, problem) == expected
        assert measure_baseline(modules, pool, INLINING_PROBLEM).undecided == ["plain/data.c.o"]
        # For the same key, the file is read; for another, or if a module failed, decisions are counted again.
        write_checked_json(path, {**read_checked_json(path), "counts": {"read": 1}})
        assert cached_decision_counts(path, {"corpus": "x"}, modules, pool, problem) == {"read": 1}
        modules[0].command_path.write_bytes(b"-cc1\0-load\0x.so\0")
        del expected[modules[0].name]
        assert cached_decision_counts(path, {"corpus": "y"}, modules, pool, problem) == expected
        counted = count_decisions(modules, pool, problem)
    assert counted.counts == expected
    [(failed, reason)] = counted.failures.items()
    assert failed == modules[0].name and "'-load'" in reason
