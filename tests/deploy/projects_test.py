"""Real projects, built by CMake with the drivers: their own tests pass, and every object is what it should be."""

from pathlib import Path

import pytest

from benchmarks.deployed_projects import BUILDS, Project
from compiler_opt.deploy.deployment import Deployment, deploy
from compiler_opt.deploy.policies import PolicyRequest
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.policies.weights import NetworkWeights
from compiler_opt.spaces.binary import BinaryPolicy


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", BUILDS)
def test_a_held_out_project(
    name: str, deployment: Deployment, toolchain: Toolchain, policy_dir: Path, tmp_path: Path
) -> None:
    another = deploy([PolicyRequest(policy_dir)], tmp_path / "another", [toolchain.clang])
    policy = BinaryPolicy(NetworkWeights.load(policy_dir))
    found = Project(name, toolchain, tmp_path, workers=2).check([deployment, another], policy)
    assert "100% tests passed" in found.tests
    assert {what: unlike for what, unlike in found.unlike.items() if unlike} == {}
    assert len(found.unlike) == 10
    assert found.num_objects >= 20
    assert found.unlike_plain >= found.num_objects // 2
