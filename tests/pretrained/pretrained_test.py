"""Policies that ship: found by name, refused when damaged, and used where no policy is named."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import compiler_opt
from compiler_opt import pretrained
from compiler_opt import problem as problems
from compiler_opt.errors import ConfigError, PolicyError
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.model_card import ModelCard
from compiler_opt.policies.pretrained_index import ENVIRONMENT, FILES, PretrainedIndex
from compiler_opt.policies.weights import NetworkWeights

INLINING = problems.load("inlining")


def weights_of(*features: str, problem: str = "inlining") -> NetworkWeights:
    """Inlines where the last of its features is low."""
    kernel = np.zeros((3 * len(features), 2), np.float32)
    kernel[-3, 1] = -1
    quantiles = tuple(np.arange(-100.0, 101.0) for _ in features)
    return NetworkWeights(features, quantiles, (kernel,), (np.array([0, 0.55], np.float32),), {"problem": problem})


def add(pretrained_dir: Path, name: str, weights: NetworkWeights) -> Path:
    return PretrainedIndex(pretrained_dir).add(name, weights, weights.card())


@pytest.fixture
def pretrained_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in the place of the package's."""
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "pretrained"))
    return tmp_path / "pretrained"


def test_a_released_policy_is_the_policy(pretrained_dir: Path) -> None:
    weights = weights_of("callsite_cost")
    folder = add(pretrained_dir, "cheap", weights)
    assert compiler_opt.pretrained.names() == ("cheap",) and pretrained.names("regalloc_eviction") == ()
    assert pretrained.load("cheap").checksum() == weights.checksum()
    assert pretrained.path("cheap") == folder == pretrained.folder("pretrained:cheap")
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    card = ModelCard.load(folder)
    assert card is not None and card.to_json() == weights.card().to_json()
    assert pretrained.folder("./pretrained:cheap") == Path("pretrained:cheap"), "a folder of that name"


def test_a_new_release_takes_the_place_of_an_old_one(pretrained_dir: Path) -> None:
    add(pretrained_dir, "cheap", weights_of("callsite_cost"))
    add(pretrained_dir, "other", weights_of("callee_users"))
    add(pretrained_dir, "cheap", weights_of("callsite_height"))
    assert pretrained.names() == ("cheap", "other")
    assert pretrained.load("cheap").features == ("callsite_height",)


def test_nothing_ships(pretrained_dir: Path, toolchain: Toolchain) -> None:
    assert pretrained.names() == ()
    assert pretrained.find_default(INLINING, [toolchain]) is None
    with pytest.raises(PolicyError, match=r"pretrained:cheap: no such policy; no policy ships with this version"):
        pretrained.folder("pretrained:cheap")
    with pytest.raises(PolicyError, match=r"--policy_path: no policy for inlining ships with this version of "):
        pretrained.default(INLINING, [toolchain], "--policy_path")


def test_the_default_is_what_suits_all_compilers_and_observes_most(pretrained_dir: Path, toolchain: Toolchain) -> None:
    add(pretrained_dir, "moons", weights_of("number_of_moons"))
    add(pretrained_dir, "evict", weights_of("mask", problem="regalloc_eviction"))
    with pytest.raises(
        PolicyError, match="--policy_path: moons need features that this compiler does not send; train a"
    ):
        pretrained.default(INLINING, [toolchain], "--policy_path")
    add(pretrained_dir, "small", weights_of("callsite_cost"))
    add(pretrained_dir, "large", weights_of("callsite_cost", "callsite_height"))
    assert pretrained.default(INLINING, [toolchain], "--policy_path") == "pretrained:large"
    best = PretrainedIndex(pretrained_dir).best("inlining", [{"callsite_cost", "callsite_height"}, {"callsite_cost"}])
    assert best == "small"
    with pytest.raises(PolicyError, match="pretrained:huge: no such policy; expected one of evict, large, moons,"):
        pretrained.load("huge")


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (flip_a_bit, r": was damaged or edited after its release \(SHA-256 \w{12}\.\.\., index.json says"),
        (Path.unlink, r": cannot be read \(No such file or directory\); install compiler_opt again"),
        (lambda path: path.write_bytes(bytes((1 << 24) + 1)), r": cannot be read \(expected at most 16777216 bytes"),
    ],
)
def test_what_was_changed_is_refused_by_name(
    pretrained_dir: Path, toolchain: Toolchain, file: str, damage: Callable[[Path], object], words: str
) -> None:
    folder = add(pretrained_dir, "cheap", weights_of("callsite_cost"))
    copy = shutil.copytree(folder, pretrained_dir / "copy")
    damage(folder / file)
    with pytest.raises(PolicyError, match=f"cheap/{file}{words}"):
        pretrained.load("cheap")
    with pytest.raises(PolicyError, match=f"cheap/{file}{words}"):
        pretrained.find_default(INLINING, [toolchain])
    assert pretrained.folder(copy) == copy, "a copy is a policy like any other"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text[:40], "expected JSON, found something else"),
        (lambda text: text.replace('"cheap"', '"../cheap"'), "expected the name of a policy or file, found '../cheap'"),
        (lambda text: text.replace('"network.npz"', '"/etc/passwd"'), "expected the name of a policy or file, found"),
        (lambda text: text.replace('"network.npz"', '"net.npz"'), "cheap: expected a checksum of network.npz"),
        (lambda text: text.replace('"format": 1', '"format": 2'), "format"),
        (lambda text: text.replace('"size"', '"weight"'), "unknown key 'weight'|expected the key 'size'"),
    ],
)
def test_a_damaged_index_is_one_line(pretrained_dir: Path, change: Callable[[str], str], words: str) -> None:
    add(pretrained_dir, "cheap", weights_of("callsite_cost"))
    text = (pretrained_dir / "index.json").read_text()
    (pretrained_dir / "index.json").write_text(change(text))
    with pytest.raises(PolicyError, match=words) as caught:
        pretrained.names()
    assert "index.json: " in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-a", "a b", "a\n", "ä"])
def test_names_that_are_no_folders(pretrained_dir: Path, name: str) -> None:
    weights = weights_of("callsite_cost")
    with pytest.raises(ConfigError, match="expected a name of letters"):
        add(pretrained_dir, name, weights)
    assert not pretrained_dir.exists()


def test_what_ships_with_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every policy of this package is whole, small, and described in full."""
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    packaged = Path(pretrained.__file__).parent
    folders = {path.name for path in packaged.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert set(pretrained.names()) == folders
    for name in pretrained.names():
        weights = pretrained.load(name)
        assert INLINING.name != weights.metadata["problem"] or INLINING.decision.policy(weights)
        card = ModelCard.load(pretrained.path(name))
        assert card is not None and card.corpus and card.compiler and card.results
        assert sum(path.stat().st_size for path in pretrained.path(name).iterdir()) < 210_000
    if folders:
        assert json.loads((packaged / "index.json").read_text())["format"] == 1
