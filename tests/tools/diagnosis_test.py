import dataclasses
import sys

import pytest

from compiler_opt.llvm.probe import ProblemSupport
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.tools.diagnosis import compiles_cpp, diagnose, report


def without_tools(toolchain: Toolchain, *names: str) -> Toolchain:
    kept = {name: path for name, path in toolchain.tools.items() if name not in names}
    return dataclasses.replace(toolchain, tools=kept)


@pytest.mark.both_compilers
def test_the_tested_compilers_lack_nothing_essential(toolchain: Toolchain) -> None:
    findings = diagnose(toolchain)
    assert not [finding for finding in findings if finding.essential]
    text = report(toolchain, findings)
    assert "Ready:" in text
    assert str(toolchain.clang) in text
    # Three problems: interactive, not development, no model.
    assert text.count("  yes          no           no ") == 3


@pytest.mark.both_compilers
def test_the_report_shows_the_known_bug(toolchain: Toolchain) -> None:
    text = report(toolchain, [])
    assert ("overwrites callee_basic_block_count" in text) == toolchain.problems["inlining"].default_in_callee_slot


def test_a_missing_tool_names_its_package(toolchain: Toolchain) -> None:
    findings = diagnose(without_tools(toolchain, "ld.lld", "opt"))
    major = toolchain.version[0]
    by_tool = {finding.what.split(",")[0]: finding for finding in findings}
    assert by_tool["ld.lld"].remedy == f"sudo apt-get install lld-{major}"
    assert by_tool["ld.lld"].essential
    assert by_tool["opt"].remedy == f"sudo apt-get install llvm-{major}"
    assert not by_tool["opt"].essential
    assert findings[0].essential  # they come first


def test_no_interactive_inlining_is_essential(toolchain: Toolchain) -> None:
    deaf = {name: ProblemSupport(name, interactive=False, reason="knows no channel") for name in toolchain.problems}
    findings = diagnose(dataclasses.replace(toolchain, problems=deaf))
    essential = [finding for finding in findings if finding.essential]
    assert len(essential) == 1
    assert "inlining" in essential[0].what and "knows no channel" in essential[0].what
    assert "cannot be trained" in report(toolchain, findings)


def test_plugin_headers_are_optional(toolchain: Toolchain) -> None:
    headless = dataclasses.replace(toolchain, plugin_headers=None)
    [finding] = [finding for finding in diagnose(headless) if "headers" in finding.what]
    assert not finding.essential
    assert finding.remedy == f"sudo apt-get install llvm-{toolchain.version[0]}-dev"


def test_standard_headers_are_there(toolchain: Toolchain) -> None:
    assert compiles_cpp(toolchain)


def test_a_minimal_installation_can_do_all_but_train(toolchain: Toolchain) -> None:
    [finding] = [finding for finding in diagnose(toolchain, ["tensorflow"]) if "tensorflow" in finding.what]
    remedy = "run ./bootstrap.sh, or pip install 'compiler_opt[train]'"
    if sys.version_info >= (3, 12):  # TF-Agents pins what these have no wheels of.
        remedy += " and then pip install --no-deps 'tf-agents<0.20'"
    assert not finding.essential and finding.remedy == remedy
    assert "policies can be deployed and evaluated" in report(toolchain, [finding])
    assert "policies can be trained and evaluated" in report(toolchain, diagnose(toolchain))
