"""Compilations with embeddings: the same decisions and objects, more features, over the channel only."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from compiler_opt import problem as problems
from compiler_opt.collect import traces
from compiler_opt.collect.rollout import DefaultPolicy, Rollout, RolloutSettings, rollout
from compiler_opt.corpus.description import Corpus
from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.llvm.ir2vec import components, read_vocabulary
from compiler_opt.llvm.toolchain import Toolchain, probe
from compiler_opt.policies.policy import RandomPolicy
from compiler_opt.spaces.binary import BinaryPolicy
from tests.ir2vec_vocabulary import random_network, write_vocabulary
from tests.small_corpus import make_small_corpus

_INLINING = problems.load("inlining")
_DEFAULT = DefaultPolicy(_INLINING)


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    return probe("clang-22", read_vocabulary(write_vocabulary(tmp_path_factory.mktemp("ir2vec") / "vocabulary.json")))


@pytest.fixture(scope="module")
def blind(seeing: Toolchain) -> Toolchain:
    """The same compiler without a vocabulary."""
    features = tuple(spec for spec in seeing.problems["inlining"].features if not components([spec.name]))
    support = dataclasses.replace(seeing.problems["inlining"], features=features)
    return dataclasses.replace(seeing, problems={**seeing.problems, "inlining": support}, embeddings=None)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_small_corpus(tmp_path_factory.mktemp("corpus"), "clang-22")


@pytest.mark.ci
def test_the_default_decides_the_same(seeing: Toolchain, blind: Toolchain, corpus: Corpus, tmp_path: Path) -> None:
    def compiled(toolchain: Toolchain, inliner: str = "clang") -> list[tuple[Rollout, bytes]]:
        settings = RolloutSettings(record_call_sites=True, inliner=inliner)
        return [
            (
                rollout(module, _DEFAULT, _INLINING, toolchain, scratch=scratch, settings=settings, keep_object=kept),
                kept.read_bytes(),
            )
            for module in corpus.modules
        ]

    scratch, kept = tmp_path / "scratch", tmp_path / "module.o"
    scratch.mkdir()
    num_decisions = 0
    for (with_them, found), (without, expected), (by_opt, _) in zip(
        compiled(seeing), compiled(blind), compiled(seeing, "opt"), strict=True
    ):
        assert (with_them.failure, by_opt.failure, found) == (None, None, expected)
        one, other, third = (result.trajectory for result in (with_them, without, by_opt))
        if one is None or other is None or third is None:
            assert one is other is third is None
            continue
        num_decisions += len(one)
        np.testing.assert_array_equal(one.advice, other.advice)
        features, fewer = one.features(), other.features()
        assert components(features) == tuple(name for name in features if name not in fewer)
        for name, values in fewer.items():
            np.testing.assert_array_equal(features[name], values)
        assert third.header == one.header and third.observations == one.observations
        (context,) = traces.contexts(with_them, _INLINING.decision)
        assert context.values["callee_embedding_7"].shape == (len(one),)
        assert "inlining_default" not in context.values
    assert num_decisions > 10


def test_a_policy_observes_embeddings(seeing: Toolchain, blind: Toolchain, corpus: Corpus, tmp_path: Path) -> None:
    first = rollout(corpus.modules[0], RandomPolicy(), _INLINING, seeing, scratch=tmp_path).trajectory
    assert first is not None
    policy = BinaryPolicy(random_network(first.features()), temperature=1.0)
    again = [rollout(corpus.modules[0], policy, _INLINING, seeing, scratch=tmp_path, seed=3) for _ in range(2)]
    one, other = (result.trajectory for result in again)
    assert one is not None and other is not None and one.log_probs is not None
    np.testing.assert_array_equal(one.advice, other.advice)
    logits = policy.logits(one.features())
    np.testing.assert_allclose(one.log_probs, policy.logged_log_probs(one.advice, logits), rtol=1e-4)
    with pytest.raises(PolicyError, match="needs features that this compiler does not send: callee_embedding_0"):
        rollout(corpus.modules[0], policy, _INLINING, blind, scratch=tmp_path, settings=RolloutSettings())


@pytest.mark.parametrize("backend", ["plugin", "development"])
def test_other_backends_are_refused(backend: str, seeing: Toolchain, corpus: Corpus, tmp_path: Path) -> None:
    settings = RolloutSettings(backend=backend)
    with pytest.raises(ConfigError, match=f"over the channel only; found the backend {backend}; use auto"):
        rollout(corpus.modules[0], _DEFAULT, _INLINING, seeing, scratch=tmp_path, settings=settings)
