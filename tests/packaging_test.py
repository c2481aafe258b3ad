"""What pyproject.toml and requirements.txt promise."""

import ast
import importlib.metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
DISTRIBUTION = "compiler_opt"

COMMANDS = [
    command
    for command in importlib.metadata.distribution(DISTRIBUTION).entry_points
    if command.group == "console_scripts"
]


def locked() -> dict[str, str]:
    """Versions that the lock gives this Python, by canonical name."""
    lines = (line.split("#")[0].strip() for line in (ROOT / "requirements.txt").read_text().splitlines())
    requirements = [Requirement(line) for line in lines if line]
    versions: dict[str, str] = {}
    for requirement in requirements:
        if requirement.marker is None or requirement.marker.evaluate():
            [specifier] = requirement.specifier
            assert specifier.operator == "==", f"{requirement} is not pinned"
            versions[canonicalize_name(requirement.name)] = specifier.version
    return versions


def test_there_is_a_console_command_for_each_entry_point() -> None:
    assert len(COMMANDS) >= 8


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_console_command_leads_to_an_entry_point(command: importlib.metadata.EntryPoint) -> None:
    assert command.name == f"compiler_opt-{command.module.split('.')[-1]}"
    assert command.attr == "entry"
    # Not imported: its flags would collide with those of the others.
    path = ROOT / Path(*command.module.split(".")).with_suffix(".py")
    assert path.is_file(), f"{command.module} is missing"
    functions = {node.name: node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}
    assert "entry" in functions and not functions["entry"].args.args


def test_the_lock_fits_the_ranges() -> None:
    versions = locked()
    for line in importlib.metadata.requires(DISTRIBUTION) or []:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": "dev"}):
            version = versions.get(canonicalize_name(requirement.name))
            assert version is not None, f"requirements.txt lacks {requirement.name}"
            assert requirement.specifier.contains(version), f"{requirement.name} {version} is out of {requirement}"


def test_the_lock_is_what_is_installed() -> None:
    for name, version in locked().items():
        assert importlib.metadata.version(name) == version


def test_the_lock_is_complete() -> None:
    versions = locked()
    for name in versions:
        for line in importlib.metadata.requires(name) or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                assert canonicalize_name(requirement.name) in versions, f"{name} needs {requirement.name}"
