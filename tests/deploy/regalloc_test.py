"""A policy for the register allocator, deployed: mlgo-clang compiles as evaluate does."""

import os
import subprocess
from pathlib import Path

import pytest

from compiler_opt import problem as problems
from compiler_opt.corpus.description import Corpus
from compiler_opt.deploy.deployment import Deployment, deploy
from compiler_opt.deploy.policies import PolicyRequest
from compiler_opt.errors import ConfigError
from compiler_opt.llvm import regalloc_plugin
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.weights import NetworkWeights
from tests.regalloc_networks import random_network
from tests.small_corpus import make_busy_corpus

_EVICTION = problems.load("regalloc_eviction")


@pytest.fixture(scope="module")
def place(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus and a policy."""
    place = tmp_path_factory.mktemp("regalloc")
    (place / "corpus").mkdir()
    corpus = make_busy_corpus(place / "corpus", str(toolchain.clang))
    random_network(_EVICTION, corpus, toolchain, place, 1).save(place / "policy")
    return place


@pytest.fixture(scope="module")
def deployment(place: Path, toolchain: Toolchain) -> Deployment:
    return deploy([PolicyRequest(place / "policy")], place / "prefix", [toolchain.clang])


def _compile(driver: Path, bitcode: Path, output: Path, *options: str, variables: dict[str, str] | None = None) -> str:
    """What is said."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLGO_")}
    command = [str(driver), "-O2", "-x", "ir", *options, "-c", str(bitcode), "-o", str(output)]
    return subprocess.run(
        command, env=environment | (variables or {}), capture_output=True, text=True, check=True
    ).stderr


def test_it_compiles_as_evaluate_does(deployment: Deployment, place: Path, toolchain: Toolchain) -> None:
    major = toolchain.version[0]
    assert deployment.policies[0].levels == ("O2", "O3")
    assert deployment.plugin(major).name == f"mlgo-regalloc-{major}.so"
    # What evaluate and training load: the same, without a policy of its own.
    library, blob = regalloc_plugin.regalloc_plugin(toolchain), place / "policy.mlgo"
    blob.write_bytes(_EVICTION.decision.native_form(NetworkWeights.load(place / "policy")))
    options = regalloc_plugin.options(library, _EVICTION.decision.advisor, regalloc_plugin.make_nowhere(place))
    clang, num_other = toolchain.clang, 0
    for module in Corpus.load(place / "corpus").modules:
        deployed, evaluated, plain = (place / name for name in ("deployed.o", "evaluated.o", "plain.o"))
        assert _compile(deployment.driver(), module.bitcode_path, deployed) == ""
        _compile(clang, module.bitcode_path, evaluated, *options, variables=regalloc_plugin.environment(policy=blob))
        _compile(clang, module.bitcode_path, plain)
        assert deployed.read_bytes() == evaluated.read_bytes()
        num_other += deployed.read_bytes() != plain.read_bytes()
        # At another level it is clang.
        assert _compile(deployment.driver(), module.bitcode_path, deployed, "-Oz") == ""
        _compile(clang, module.bitcode_path, plain, "-Oz")
        assert deployed.read_bytes() == plain.read_bytes()
    assert num_other > 0


def test_without_its_links_it_compiles_plainly(
    deployment: Deployment, place: Path, toolchain: Toolchain, tmp_path: Path
) -> None:
    bitcode = Corpus.load(place / "corpus").modules[0].bitcode_path
    link = deployment.prefix / "lib" / "mlgo-nowhere.in"
    link.rename(tmp_path / "away")
    try:
        said = _compile(deployment.driver(), bitcode, tmp_path / "without.o")
    finally:
        (tmp_path / "away").rename(link)
    assert said.startswith("warning: mlgo: mlgo-nowhere.in and mlgo-nowhere.out, links to /dev/null, are missing")
    assert len(said.splitlines()) == 1
    _compile(toolchain.clang, bitcode, tmp_path / "plain.o")
    assert (tmp_path / "without.o").read_bytes() == (tmp_path / "plain.o").read_bytes()


def test_never_worse_is_about_size(place: Path, toolchain: Toolchain) -> None:
    with pytest.raises(ConfigError, match="--never_worse: keeps the smaller object, but regalloc_eviction does not"):
        deploy([PolicyRequest(place / "policy")], place / "other", [toolchain.clang], never_worse=True)
    assert not (place / "other").exists()
