"""What pyproject.toml and the locks of requirements/ promise."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from compiler_opt import __version__, pretrained
from compiler_opt.policies.pretrained_index import ENVIRONMENT, PretrainedIndex
from compiler_opt.policies.weights import NetworkWeights

ROOT = Path(__file__).parents[1]
DISTRIBUTION = PACKAGE = "compiler_opt"

RUNNING = "{}.{}".format(*sys.version_info)
PYTHONS = sorted(path.stem.removeprefix("python") for path in (ROOT / "requirements").glob("python*.txt"))
ALL = ("", "train", "dev", "docs")
"""The extras of the full lock; that of a minimal installation has none."""


def lines_of(path: Path) -> list[str]:
    """The lines of a requirements file, continued ones joined, without comments."""
    text = re.sub(r"(?m)(^|\s)#.*$", "", path.read_text().replace("\\\n", ""))
    return [line for line in text.splitlines() if line.strip()]


def locked(name: str) -> dict[str, str]:
    """Versions of a lock, such as `python3.11`, by the packages' canonical names."""
    versions: dict[str, str] = {}
    for line in lines_of(ROOT / "requirements" / f"{name}.txt"):
        pin, *hashes = line.split("--hash=")
        assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}\s*", part) for part in hashes), f"no hashes: {line}"
        requirement = Requirement(pin)
        [specifier] = requirement.specifier
        assert specifier.operator == "==" and requirement.marker is None, f"not pinned: {line}"
        versions[canonicalize_name(requirement.name)] = specifier.version
    return versions


def applies(requirement: Requirement, python: str, extras: Sequence[str] = ("",)) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"python_version": python, "extra": extra}) for extra in extras)


def departs(requirement: Requirement, python: str) -> bool:
    """Whether `overrides.txt` says for a Python that this requirement of some package is not to be met."""
    return python not in ("3.10", "3.11") and canonicalize_name(requirement.name) in {
        canonicalize_name(Requirement(line).name) for line in lines_of(ROOT / "requirements" / "overrides.txt")
    }


def test_there_is_a_lock_for_each_python() -> None:
    supported = SpecifierSet(importlib.metadata.metadata(DISTRIBUTION)["Requires-Python"])
    assert [python for python in (f"3.{minor}" for minor in range(30)) if supported.contains(python)] == PYTHONS
    for python in PYTHONS:
        assert (ROOT / "requirements" / f"minimal-python{python}.txt").is_file()


def test_the_requirements_of_the_default_python() -> None:
    assert lines_of(ROOT / "requirements.txt") == ["-r requirements/python3.11.txt"]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(("lock", "extras"), [("python", ALL), ("minimal-python", ("",))])
def test_a_lock_fits_the_ranges(lock: str, extras: Sequence[str], python: str) -> None:
    versions = locked(f"{lock}{python}")
    for line in importlib.metadata.requires(DISTRIBUTION) or []:
        requirement = Requirement(line)
        if applies(requirement, python, extras):
            version = versions.get(canonicalize_name(requirement.name))
            assert version is not None, f"the lock lacks {requirement.name}"
            assert requirement.specifier.contains(version), f"{requirement.name} {version} is out of {requirement}"


@pytest.mark.parametrize("python", PYTHONS)
def test_a_minimal_lock_is_a_part_of_the_full_one(python: str) -> None:
    minimal, full = locked(f"minimal-python{python}"), locked(f"python{python}")
    assert minimal.items() < full.items()
    assert not {name for name in minimal if name.startswith(("tensor", "tf-", "keras"))}


def test_from_312_on_tf_agents_is_installed_by_itself() -> None:
    """With all that it needs, except for the pins that cannot be met."""
    text = (ROOT / "pyproject.toml").read_text()
    extra = text.partition("\ntrain = [\n")[2].partition("\n]\n")[0]
    train = [Requirement(line) for line in re.findall(r'^  "([^"]+)"', extra, re.MULTILINE)]
    [itself] = [each for each in train if each.name == "tf-agents"]
    [line] = lines_of(ROOT / "requirements" / "tf-agents.in")
    assert Requirement(line).specifier == itself.specifier
    for python in PYTHONS:
        assert applies(itself, python) == (python in ("3.10", "3.11"))
        named = {canonicalize_name(each.name) for each in train if applies(each, python)}
        # What it takes from others: NumPy and gin are ours, the rest are TensorFlow's and Matplotlib's.
        shared = set(map(canonicalize_name, "absl-py gin-config numpy pillow protobuf six wrapt".split()))
        needed = {
            canonicalize_name(each.name)
            for each in map(Requirement, importlib.metadata.requires("tf-agents") or [])
            if applies(each, python) and not (departs(each, python) and each.name != "tensorflow-probability")
        }
        assert applies(itself, python) or needed - shared <= named


def test_the_lock_is_what_is_installed() -> None:
    for name, version in locked(f"python{RUNNING}").items():
        assert importlib.metadata.version(name) == version


@pytest.mark.parametrize("lock", ["python", "minimal-python"])
def test_the_lock_is_complete(lock: str) -> None:
    versions = locked(f"{lock}{RUNNING}")
    for name in versions:
        for line in importlib.metadata.requires(name) or []:
            requirement = Requirement(line)
            if applies(requirement, RUNNING) and not departs(requirement, RUNNING):
                version = versions.get(canonicalize_name(requirement.name))
                assert version is not None, f"{name} needs {requirement.name}"
                assert requirement.specifier.contains(version), f"{name} needs {requirement}, the lock has {version}"


def copy_project(target: Path) -> None:
    """Copies what a wheel or an sdist is made of; links remain links."""
    for name in (PACKAGE, "gin_configs"):
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target)


def gin_files() -> list[str]:
    """Those of the repository: `PROBLEM/NAME`."""
    folder = ROOT / "gin_configs"
    return sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.gin"))


@pytest.mark.ci
def test_a_wheel_has_the_command_and_the_policies_that_ship(tmp_path: Path) -> None:
    """With two policies in a copy of this project, its wheel, unpacked elsewhere, finds both, and has one command."""
    project, built, installed = (tmp_path / name for name in ("project", "built", "installed"))
    copy_project(project)
    weights = NetworkWeights(("x",), (np.arange(2.0),), (np.zeros((3, 2)),), (np.zeros(2),), {"problem": "inlining"})
    for name in ("first", "version-1.0"):
        PretrainedIndex(project / PACKAGE / "pretrained").add(name, weights, weights.card())
    built.mkdir()
    run_python(f"from setuptools import build_meta; build_meta.build_wheel({str(built)!r})", cwd=project)
    [wheel] = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    native = {path.name for path in (installed / PACKAGE / "native").iterdir()}
    assert {"inliner_plugin.cpp", "fork_server.c", "policy_network.h"} <= native
    gin = installed / PACKAGE / "gin_configs"
    assert sorted(str(path.relative_to(gin).with_suffix("")) for path in gin.rglob("*.*")) == gin_files()
    code = "from compiler_opt import pretrained as p; print(*(f'{n} {p.load(n).checksum()}' for n in p.names()))"
    printed = run_python(code, cwd=tmp_path, path=installed)
    [distribution] = importlib.metadata.distributions(path=[str(installed)])
    [command] = distribution.entry_points
    about = distribution.metadata
    assert about["License-Expression"] == "Apache-2.0"
    assert [line for line in about.get_all("Classifier", []) if line.startswith("Programming Language")] == [
        f"Programming Language :: Python :: {python}" for python in PYTHONS
    ]
    assert (command.group, command.name, command.value) == ("console_scripts", PACKAGE, f"{PACKAGE}.__main__:main")
    for shell in ("bash", "zsh"):
        code = f"import sys; from {command.module} import main; sys.argv[1:] = ['--completion={shell}']; main()"
        assert shell in run_python(code, cwd=tmp_path, path=installed)
    shipped = pretrained.names()
    assert set(printed.split()) >= {"first", "version-1.0", weights.checksum()}
    assert set(shipped) <= set(printed.split())


def test_the_citation_is_up_to_date() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    about = importlib.metadata.metadata(DISTRIBUTION)
    assert cited["cff-version"] == "1.2.0" and {"message", "title"} <= cited.keys()
    assert (cited["version"], cited["license"]) == (__version__, about["License-Expression"])
    assert ", ".join(author["name"] for author in cited["authors"]) == about["Author"]


def run_python(code: str, cwd: Path, path: Path | None = None) -> str:
    """Runs Python code in a process, and returns what it prints."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", ENVIRONMENT)}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout
