"""Deploying: what is written, how, and that objects are those of the policy's rollouts."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from compiler_opt import problem as problems
from compiler_opt.collect.rollout import RolloutSettings, rollout
from compiler_opt.corpus.builds.database import objects_of_database
from compiler_opt.corpus.description import Corpus
from compiler_opt.corpus.making import extract
from compiler_opt.deploy.deployment import Deployment, deploy
from compiler_opt.deploy.driver import SOURCE, DriverCompiler, DriverConfig, DriverFile, DriverPlugin, DriverPolicy
from compiler_opt.deploy.policies import PolicyRequest
from compiler_opt.errors import ConfigError, OutputError, ToolchainError
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.model_card import ModelCard
from compiler_opt.policies.weights import ALWAYS_DEFAULT, NetworkWeights
from compiler_opt.rl.unfinished_policy import save_unfinished_policy
from compiler_opt.spaces.binary import BinaryPolicy
from tests import programs
from tests.deploy.conftest import Compiler, run
from tests.deploy.sources import FAT, LEAN, save_policy
from tests.small_corpus import SOURCES

ROOT = Path(__file__).parents[2]


def test_what_is_written(deployment: Deployment) -> None:
    prefix = deployment.prefix
    files = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}
    drivers = {f"bin/mlgo-clang{kind}{number}" for kind in ("", "++") for number in ("", "-19", "-22")}
    libraries = {f"lib/mlgo-inliner-{major}.so" for major in (19, 22)}
    shared = {f"share/mlgo/{name}" for name in ("deployment.json", "inliner/model_card.json", "inliner/MODEL_CARD.md")}
    shared |= {f"share/mlgo/toolchain{number}.cmake" for number in ("", "-19", "-22")}
    tools = {f"bin/mlgo-{name}-{major}" for major, tools in deployment.tools.items() for name in tools}
    assert {f"bin/mlgo-llvm-{name}-{major}" for name in ("ar", "ranlib") for major in (19, 22)} <= tools
    # Without a number those that every version has.
    tools |= {f"bin/mlgo-{name}" for name in deployment.tools[22] if name in deployment.tools[19]}
    assert files == drivers | libraries | shared | tools
    version = run([str(prefix / "bin/mlgo-llvm-ranlib"), "--version"], prefix).stdout
    assert "LLVM version 22." in version
    card = ModelCard.load(prefix / "share/mlgo/inliner")
    assert card is not None and card.problem == "inlining"
    description = json.loads((prefix / "share/mlgo/deployment.json").read_text())
    assert description["format"] == 2
    assert description["policies"] == [
        {"name": "inliner", "problem": "inlining", "checksum": card.checksum, "levels": ["Oz"]}
    ]
    assert [compiler["plugins"] for compiler in description["compilers"]] == [
        [{"policy": "inliner", "plugin": f"lib/mlgo-inliner-{major}.so"}] for major in (22, 19)
    ]
    assert [path.name for path in prefix.parent.iterdir()] == ["prefix"]


@pytest.mark.ci
@pytest.mark.both_compilers
def test_objects_are_those_of_rollouts(
    compiler: Compiler, deployment: Deployment, toolchain: Toolchain, policy_dir: Path, tmp_path: Path
) -> None:
    """Byte for byte, for the same module and options, whether the plugin decides or Python over the channel."""
    sources = {Path(name).name: text for name, text in SOURCES.items()} | {"lean.c": LEAN, "fat.c": FAT}
    bitcode, objects = tmp_path / "bitcode", tmp_path / "objects"
    entries = []
    for folder in (bitcode, objects):
        folder.mkdir()
        for name, text in sources.items():
            (folder / name).write_text(text)
    for name in sources:
        options = ["-Oz", "-c", name, "-o", f"{name}.o"]
        driver = compiler.cpp_driver if name.endswith(".cpp") else compiler.driver
        result = run([driver, *options], objects)
        assert (result.returncode, result.stderr) == (0, "")
        command = [compiler.clang, "-Xclang", "-fembed-bitcode=all", *options]
        subprocess.run(command, cwd=bitcode, check=True)
        entries.append({"directory": str(bitcode), "file": name, "arguments": command})
    (bitcode / "compile_commands.json").write_text(json.dumps(entries))
    extract.extract(objects_of_database(bitcode / "compile_commands.json").objects, tmp_path / "corpus", num_workers=1)
    inlining, policy = problems.load("inlining"), BinaryPolicy(NetworkWeights.load(policy_dir))
    differing = 0
    for module in Corpus.load(tmp_path / "corpus").modules:
        expected = (objects / module.name).read_bytes()
        for backend in ("plugin", "channel"):
            kept, scratch = tmp_path / "kept.o", tmp_path / "scratch"
            scratch.mkdir(exist_ok=True)
            settings = RolloutSettings(backend=backend)
            result_of = rollout(
                module, policy, inlining, toolchain, scratch=scratch, settings=settings, keep_object=kept
            )
            assert result_of.failure is None
            assert kept.read_bytes() == expected, (module.name, backend)
        rollout(module, None, inlining, toolchain, scratch=scratch, keep_object=kept)
        differing += kept.read_bytes() != expected
    assert differing >= 2


@pytest.mark.ci
@pytest.mark.parametrize("clang_path", ["clang-22"], indirect=True)
def test_a_second_deployment_replaces_the_first(policy_dir: Path, toolchain: Toolchain, tmp_path: Path) -> None:
    clang = str(toolchain.clang)
    prefix = tmp_path / "prefix"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib").mkdir()
    (prefix / "share/mlgo").mkdir(parents=True)
    earlier = "bin/mlgo-clang-18 bin/mlgo-llvm-ar-18 lib/mlgo-inliner-18.so bin/mlgo-clang bin/other lib/other.so"
    earlier += " share/mlgo/toolchain-18.cmake share/mlgo/model_card.json share/mlgo/inliner-2/model_card.json"
    earlier += " lib/mlgo-inliner-2-22.so lib/mlgo-regalloc-2-22.so share/mlgo/regalloc/MODEL_CARD.md"
    earlier += " share/mlgo/regalloc/other.md"
    for name in earlier.split():
        (prefix / name).parent.mkdir(exist_ok=True)
        (prefix / name).write_text("earlier\n")
    deployment = deploy(
        [PolicyRequest(policy_dir, ["-Os", "Oz"])],
        prefix,
        [clang],
        strict=True,
        never_worse=True,
        never_worse_above_kb=7,
        relative_clang=True,
        pin_clang=True,
        margin=ALWAYS_DEFAULT,
    )
    assert {path.name for path in (prefix / "bin").iterdir()} == {
        *(f"mlgo-clang{kind}{number}" for kind in ("", "++") for number in ("", "-22")),
        *(f"mlgo-{tool}{number}" for tool in deployment.tools[22] for number in ("", "-22")),
        "other",
    }
    assert {path.name for path in (prefix / "lib").iterdir()} == {"mlgo-inliner-22.so", "other.so"}
    assert {str(path.relative_to(prefix / "share/mlgo")) for path in (prefix / "share/mlgo").rglob("*")} == {
        *("deployment.json", "toolchain.cmake", "toolchain-22.cmake", "regalloc", "regalloc/other.md"),
        *("inliner", "inliner/model_card.json", "inliner/MODEL_CARD.md"),
    }
    info = run([str(deployment.driver()), "--mlgo-info"], tmp_path).stdout
    assert "levels: -Os -Oz\n" in info and "never worse: above 7 kB\nstrict: yes\n" in info
    version = ".".join(map(str, toolchain.version))
    assert f"\nclang: {clang} (" in info and f"\nonly version: {version}\n" in info
    relative = os.path.relpath(clang, prefix)
    assert deployment.clangs == {22: Path(relative)} and not Path(relative).is_absolute()
    archiver = prefix / "bin/mlgo-llvm-ar"
    assert archiver.exists() and not archiver.readlink().is_absolute()
    card = ModelCard.load(prefix / "share/mlgo/inliner")
    assert card is not None and card.training["margin"] == ALWAYS_DEFAULT and not card.results
    for name, text in {"lean.c": LEAN, "fat.c": FAT}.items():
        (tmp_path / name).write_text(text)
        policy_decides = {"MLGO_NEVER_WORSE": "0"}
        assert (
            run([str(deployment.driver()), "-Oz", "-c", name, "-o", "policy.o"], tmp_path, policy_decides).stderr == ""
        )
        assert run([clang, "-Oz", "-c", name, "-o", "plain.o"], tmp_path).returncode == 0
        assert (tmp_path / "policy.o").read_bytes() == (tmp_path / "plain.o").read_bytes()
    deployment.plugin(22).unlink()
    (tmp_path / "a.c").write_text(LEAN)
    assert run([str(deployment.driver()), "-Os", "-c", "a.c"], tmp_path).returncode == 1
    lenient = {"MLGO_STRICT": "0"}
    assert run([str(deployment.driver()), "-Os", "-c", "a.c"], tmp_path, lenient).returncode == 0


@pytest.mark.ci
def test_mistakes(policy_dir: Path, clang_path: str, tmp_path: Path) -> None:
    link = tmp_path / "clang"
    link.symlink_to(clang_path)
    (tmp_path / "file").write_text("in the way\n")
    with pytest.raises(ConfigError, match="are both clang-"):
        deploy([PolicyRequest(policy_dir)], tmp_path / "prefix", [clang_path, link])
    with pytest.raises(ConfigError, match="--levels: expected some of O0 O1 O2 O3 Os Oz, found fast"):
        deploy([PolicyRequest(policy_dir, ["Oz", "fast"])], tmp_path / "prefix", [clang_path])
    with pytest.raises(OutputError, match="expected the name of a folder"):
        deploy([PolicyRequest(policy_dir)], tmp_path / "file", [clang_path])
    with pytest.raises(OutputError, match="cannot be written"):
        deploy([PolicyRequest(policy_dir)], Path("/proc/prefix"), [clang_path])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clang", "file"]


@pytest.mark.ci
def test_headers_are_missing(
    policy_dir: Path, clang_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler stands alone, without llvm-config."""
    alone = tmp_path / "bin" / "clang"
    alone.parent.mkdir()
    alone.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] || exec {clang_path} "$@"\n'
        f"echo '{subprocess.check_output([clang_path, '--version'], text=True).splitlines()[0]}'\n"
    )
    alone.chmod(0o755)
    monkeypatch.setenv("PATH", str(alone.parent))
    with pytest.raises(ToolchainError, match=r"install the packages llvm-\d+ and llvm-\d+-dev"):
        deploy([PolicyRequest(policy_dir)], tmp_path / "prefix", [alone])
    assert list(tmp_path.iterdir()) == [alone.parent]


@pytest.mark.ci
@pytest.mark.parametrize(
    "cpp_compiler", ["clang++-22", *(pytest.param(each, marks=pytest.mark.slow) for each in ("g++", "clang++-19"))]
)
def test_the_driver_compiles_without_warnings(cpp_compiler: str, tmp_path: Path) -> None:
    library = DriverFile("mlgo-inliner-22.so", 1000, "0" * 16)
    compiler = DriverCompiler(22, Path('/odd "path"\\/\x01é/clang-22'))
    policies = tuple(
        DriverPolicy(problem, checksum, levels, True, {22: DriverPlugin(library, library, "12 decisions")})
        for problem, checksum, levels in (("inlining", "1" * 64, ("Oz", "Os")), ("other", "2" * 64, ("O2",)))
    )
    config = DriverConfig((compiler,), policies, never_worse=True, strict=False)
    (tmp_path / "driver_config.cpp").write_text(config.source())
    # Some of g++'s warnings come of optimising, none of clang's.
    level = "-O2" if cpp_compiler == "g++" else "-O0"
    command = [cpp_compiler, "-std=c++17", level, "-Wall", "-Wextra", "-Wshadow", "-pedantic", "-Werror"]
    command += ["-I", str(SOURCE.parent), "driver_config.cpp", str(SOURCE), "-o", "driver"]
    result = run(command, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    result = run([str(tmp_path / "driver"), "--mlgo-info"], tmp_path, {"PATH": "/nowhere"})
    assert result.stderr == (
        f"error: mlgo: {compiler.clang} is gone, and there is no clang-22 on PATH; install it, set MLGO_CLANG, or "
        "deploy the policy again for another\n"
    )


@pytest.mark.ci
def test_the_command(policy_dir: Path, clang_path: str, tmp_path: Path) -> None:
    command = ("compiler_opt/tools/deploy.py", f"--output_dir={tmp_path / 'out'}")
    result = programs.run(*command, f"--policy_path={policy_dir}", f"--clang_path={clang_path}", "--versioned")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "out").readlink() == Path("out.1")
    assert result.stdout.startswith(f"{tmp_path / 'out'}: out.1\n")
    assert f"to use it: CC={tmp_path}/out/bin/mlgo-clang CXX={tmp_path}/out/bin/mlgo-clang++" in result.stdout
    save_policy(tmp_path / "other")
    content = (tmp_path / "other" / "network.npz").read_bytes()
    (tmp_path / "other" / "network.npz").write_bytes(content[:100])
    result = programs.run(*command, f"--policy_path={tmp_path / 'other'}")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ") and len(result.stderr.splitlines()) == 1


def test_the_policy_of_an_unfinished_training(tmp_path: Path) -> None:
    save_unfinished_policy(tmp_path, save_policy(tmp_path / "finished"), "3 of 10 iterations")
    command = ("compiler_opt/tools/deploy.py", f"--output_dir={tmp_path / 'out'}", "--clang_path=/nowhere/clang")
    result = programs.run(*command, f"--policy_path={tmp_path / 'policy'}", f"--policy_path={tmp_path / 'finished'}")
    warning, error = result.stderr.splitlines()
    assert warning == (
        f"warning: {tmp_path / 'policy'}: the policy so far of an unfinished run (3 of 10 iterations); run the "
        "command that began it again to finish it"
    )
    assert error.startswith("error: ")
