"""Deploying decisions: alone, with a policy, and what happens when they do not fit."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from compiler_opt.collect.compilation import DefaultPolicy
from compiler_opt.collect.rollout import RolloutSettings, rollout
from compiler_opt.decisions.inlining import PROBLEM
from compiler_opt.deploy.decision_files import DeployedDecisions
from compiler_opt.deploy.deployment import deploy
from compiler_opt.deploy.policies import PolicyRequest
from compiler_opt.errors import PolicyError
from compiler_opt.llvm.object_file import read_object_sizes
from compiler_opt.llvm.plugin import load_option
from compiler_opt.llvm.remarks import CallSites
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.decisions import Base, Decisions, Site, provenance, sites_of
from compiler_opt.policies.policy import Policy
from compiler_opt.policies.pretrained_index import ENVIRONMENT
from compiler_opt.spaces.learned_policy import LearnedPolicy
from tests import programs
from tests.deploy.conftest import run
from tests.deploy.sources import LEAN
from tests.small_corpus import make_corpus

_COMPILE = ["-Oz", "-c", "lean.c"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "lean.c").write_text(LEAN)
    return tmp_path / "place"


def _opposite(base: Policy, toolchain: Toolchain, folder: Path) -> Decisions:
    """The opposite of what a policy decides in LEAN."""
    folder.mkdir()
    [module] = make_corpus(folder, str(toolchain.clang), {"p/lean.c": LEAN}).modules
    result = rollout(module, base, PROBLEM, toolchain, settings=RolloutSettings(record_call_sites=True))
    assert result.trajectory is not None and isinstance(result.trajectory.sites, CallSites)
    advice = result.trajectory.advice.tolist()
    named = Base(base.weights) if isinstance(base, LearnedPolicy) else Base()
    about = {**provenance("inlining", toolchain.version, named), "program": "lean"}
    opposite = ((site, 1 - value) for site, value in zip(sites_of(result.trajectory.sites), advice, strict=True))
    return Decisions(opposite, about)


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _object(command: Iterable[str], place: Path, **environment: str) -> tuple[bytes, str]:
    """The object, and what the compiler says."""
    result = run([*command, *_COMPILE], place, environment)
    assert result.returncode == 0
    return (place / "lean.o").read_bytes(), result.stderr


def _text_bytes(content: bytes, folder: Path) -> int:
    (folder / "measured.o").write_bytes(content)
    return read_object_sizes(folder / "measured.o").text_bytes


@pytest.mark.ci
def test_decisions_alone(toolchain: Toolchain, place: Path, tmp_path: Path) -> None:
    major, clang, prefix = toolchain.version[0], str(toolchain.clang), tmp_path / "prefix"
    decisions = _opposite(DefaultPolicy(PROBLEM), toolchain, tmp_path / "corpus")
    decisions.save(tmp_path / "lean.json")
    Decisions({}, decisions.about).save(tmp_path / "empty.json")
    deployment = deploy([PolicyRequest()], prefix, [clang], decisions=[tmp_path / "empty.json", tmp_path / "lean.json"])
    name = DeployedDecisions.file_name(major)
    assert _names(prefix / "lib") == {f"mlgo-inliner-{major}.so", name}
    toolchains = {"toolchain.cmake", f"toolchain-{major}.cmake"}
    assert _names(prefix / "share/mlgo") == {"deployment.json", *toolchains}
    [described] = json.loads((prefix / "share/mlgo/deployment.json").read_text())["compilers"]
    [plugin] = described["plugins"]
    assert plugin["decisions"] == f"lib/{name}" and len(plugin["decisions_checksum"]) == 64

    driver = [str(deployment.driver())]
    plain, _ = _object([clang], place)
    made, said = _object(driver, place)
    assert said == "" and made != plain
    assert _object(driver, place, MLGO_INLINER_DECISIONS="/elsewhere", MLGO_INLINER_MODE="policy") == (made, "")
    info = run([*driver, "--mlgo-info"], place).stdout
    assert "policy: default\n" in info
    about = f"{len(decisions)} decisions, problem inlining, llvm {described['version']}, policy default, program lean\n"
    assert f"decisions: {prefix}/lib/{name} (" in info and info.split("): ")[1].startswith(about)

    content = bytearray((prefix / "lib" / name).read_bytes())
    content[60] ^= 1
    (prefix / "lib" / name).write_bytes(content)
    assert run([*driver, "--mlgo-info"], place).stdout != info
    made, said = _object(driver, place)
    assert made == plain and said.count("\n") == 1
    assert said.startswith(f"warning: mlgo: {prefix}/lib/{name}: damaged or replaced (expected the content")
    assert run([*driver, *_COMPILE], place, {"MLGO_STRICT": "1"}).returncode == 1


@pytest.mark.ci
def test_decisions_with_a_policy(toolchain: Toolchain, policy_dir: Path, place: Path, tmp_path: Path) -> None:
    major, clang, prefix = toolchain.version[0], str(toolchain.clang), tmp_path / "prefix"
    (tmp_path / "policy").symlink_to(policy_dir)
    decisions = _opposite(PROBLEM.decision.load_policy(policy_dir), toolchain, tmp_path / "corpus")
    decisions.save(tmp_path / "lean.json")
    deployment = deploy([PolicyRequest(policy_dir)], prefix, [clang], decisions=[tmp_path / "lean.json"])
    policys, _ = _object([clang, load_option(deployment.plugin(major))], place)
    plain, _ = _object([clang], place)
    driver = [str(deployment.driver())]
    made, said = _object(driver, place)
    assert said == "" and made != policys
    kept, _ = _object(driver, place, MLGO_NEVER_WORSE="1")
    assert _text_bytes(kept, place) == min(_text_bytes(made, place), _text_bytes(plain, place))
    (prefix / "lib" / DeployedDecisions.file_name(major)).unlink()
    made, said = _object(driver, place)
    assert made == policys
    assert said.endswith("No such file or directory; compiling without these decisions; deploy the policy again\n")


@pytest.fixture
def no_pretrained_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No policy ships."""
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "pretrained"))


@pytest.mark.usefixtures("no_pretrained_policies")
def test_unsuitable_files_are_refused_by_name(policy_dir: Path, toolchain: Toolchain, tmp_path: Path) -> None:
    about = provenance("inlining", toolchain.version)
    site = {Site("f", 1, "g", 0): 1}
    path, prefix, clangs = tmp_path / "lean.json", tmp_path / "prefix", [toolchain.clang]

    def refused(policy: Path | None, changes: dict[str, str]) -> str:
        Decisions(site, {**about, **changes}).save(path)
        with pytest.raises(PolicyError) as raised:
            deploy([PolicyRequest(policy)], prefix, clangs, decisions=[path])
        assert str(raised.value).startswith(f"{path}: ") and not prefix.exists()
        return str(raised.value)

    assert "made with the default decisions, but this is the policy" in refused(policy_dir, {})
    assert "made with the policy 00000abc-100, but this is the default" in refused(None, {"policy": "00000abc-100"})
    assert f"(LLVM {toolchain.version[0]}), found those for LLVM 18" in refused(None, {"llvm": "18.1.8"})
    assert "expected decisions of inlining, found those of tea" in refused(None, {"problem": "tea"})
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(PolicyError, match=r"lean.json: not a decision file, or damaged"):
        deploy([PolicyRequest()], prefix, clangs, decisions=[path])
    with pytest.raises(PolicyError, match="no policy for inlining ships"):
        deploy([PolicyRequest()], prefix, clangs)


@pytest.mark.ci
@pytest.mark.usefixtures("no_pretrained_policies")
@pytest.mark.parametrize("clang_path", ["clang-22"], indirect=True)
def test_the_command(toolchain: Toolchain, policy_dir: Path, tmp_path: Path) -> None:
    """With decisions and no policy; then a policy in their place."""
    _opposite(DefaultPolicy(PROBLEM), toolchain, tmp_path / "corpus").save(tmp_path / "lean.json")
    command = ("compiler_opt/tools/deploy.py", f"--output_dir={tmp_path / 'out'}", f"--clang_path={toolchain.clang}")
    result = programs.run(*command, f"--decisions={tmp_path / 'lean.json'}")
    assert result.returncode == 0, result.stderr
    assert "no policy, at -Oz\n" in result.stdout and "lib/mlgo-decisions-22.mlgo (" in result.stdout
    deploy([PolicyRequest(policy_dir)], tmp_path / "out", [toolchain.clang])
    assert _names(tmp_path / "out/lib") == {"mlgo-inliner-22.so"}
    assert "model_card.json" in _names(tmp_path / "out/share/mlgo/inliner")
    result = programs.run(*command)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: --policy_path: no policy for inlining ships with this version")
