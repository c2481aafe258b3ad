"""What a toolchain lacks for this project, and the report that `doctor` prints."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from compiler_opt.llvm import processes, sandbox
from compiler_opt.llvm.advisors import ADVISORS, INLINING
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import Toolchain
from compiler_opt.report.formatting import aligned
from compiler_opt.tensorflow_loading import REMEDY

_USED_FOR = {
    "clang++": "building plugins and drivers",
    "ld.lld": "linked sizes",
    "llvm-ar": "static libraries in optimize",
    "llvm-config": "building plugins",
    "llvm-cxxfilt": "C++ names in explain",
    "llvm-mc": "cost_model blocks, cost_model profile",
    "llvm-mca": "cost_model blocks, cost_model profile",
    "llvm-readobj": "cost_model blocks, cost_model profile",
    "opt": "corpus_stats, development mode",
}
"""The tools that commands start, and what for."""

_TRAINING = "training policies"

_PROBLEM_HEAD = ("problem", "interactive", "development", "built-in model", "features", "default decision")
_ESSENTIAL_TOOL = "ld.lld"

_HEADERS_PROBE = "#include <stdlib.h>\n#include <vector>\nint main() { return (int)std::vector<int>(1).back(); }\n"


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something that is missing.

    Attributes:
      what: its name and use.
      remedy: how to get it.
      essential: whether training and evaluating inlining policies needs it.
    """

    what: str
    remedy: str
    essential: bool


def diagnose(toolchain: Toolchain, missing: Sequence[str] = ()) -> list[Finding]:
    """Everything that is missing, essentials first.

    Args:
      toolchain: the compiler.
      missing: Python packages for training that are not installed, see `missing_packages`.
    """
    findings = []
    if missing:
        findings.append(Finding(f"{' and '.join(missing)}, for {_TRAINING}", REMEDY, False))
    for name, support in toolchain.problems.items():
        if not support.interactive:
            what = f"{name} over the interactive channel: {support.reason}"
            remedy = "use another clang by --clang_path, e.g. clang-19 or clang-22"
            findings.append(Finding(what, remedy, name == INLINING.problem))
    for tool, use in _USED_FOR.items():
        if tool not in toolchain.tools:
            findings.append(Finding(f"{tool}, for {use}", _apt(toolchain.package(tool)), tool == _ESSENTIAL_TOOL))
    if not compiles_cpp(toolchain):
        findings.append(Finding("the C++ standard headers, for compiling corpora", _apt("g++"), True))
    if not toolchain.pass_plugins:
        findings.append(Finding("loading pass plugins", "use a clang with LLVM as a shared library", False))
    elif toolchain.plugin_headers is None:
        package = f"llvm-{toolchain.version[0]}-dev"
        findings.append(Finding("LLVM's headers, for building the pass plugin", _apt(package), False))
    return sorted(findings, key=lambda finding: not finding.essential)


def compiles_cpp(toolchain: Toolchain) -> bool:
    """Whether a C++ file that includes standard headers compiles."""
    with scratch_directory() as scratch:
        source = scratch / "probe.cpp"
        source.write_text(_HEADERS_PROBE)
        return processes.run([str(toolchain.clang), "-x", "c++", "-fsyntax-only", str(source)], timeout_s=60).ok


def report(toolchain: Toolchain, findings: Sequence[Finding]) -> str:
    """The whole text: compiler, problems, tools, missing parts, verdict."""
    headers = f"headers in {toolchain.plugin_headers}" if toolchain.plugin_headers else "no headers to build one"
    compiler = [
        ("compiler", str(toolchain.clang)),
        ("version", toolchain.version_text),
        ("target", toolchain.target),
        ("pass plugins", f"yes, {headers}" if toolchain.pass_plugins else "no"),
        ("development mode", "yes" if toolchain.development_mode else "no (optional; needs a clang built with TFLite)"),
        ("sandbox", sandbox.describe()),
    ]
    tools = [(name, str(toolchain.tools.get(name, "missing")), use) for name, use in _USED_FOR.items()]
    missing = [(finding.what, "yes" if finding.essential else "optional", finding.remedy) for finding in findings]
    can_train = not any(finding.what.endswith(_TRAINING) for finding in findings)
    verdict = (
        f"Ready: inlining policies can be {'trained' if can_train else 'deployed'} and evaluated with this compiler."
    )
    if num_essential := sum(finding.essential for finding in findings):
        verdict = f"Inlining policies cannot be trained and evaluated here yet: {num_essential} needed above."
    parts = [
        _table(compiler),
        _table(_problems(toolchain)),
        _table([("tool", "path", "for"), *tools]),
        _table([("missing", "needed?", "how to get it"), *missing]) if missing else "",
        verdict,
    ]
    return "\n\n".join(part for part in parts if part)


def to_json(toolchain: Toolchain, findings: Sequence[Finding]) -> dict[str, Any]:
    """The content of `report`."""
    return {
        "compiler": str(toolchain.clang),
        "version": toolchain.version_text,
        "target": toolchain.target,
        "pass_plugins": toolchain.pass_plugins,
        "plugin_headers": None if toolchain.plugin_headers is None else str(toolchain.plugin_headers),
        "development_mode": toolchain.development_mode,
        "sandbox": sandbox.describe(),
        "problems": {
            name: {
                "interactive": support.interactive,
                "development": support.development,
                "embedded": support.embedded,
                "features": [spec.name for spec in support.features],
                "reason": support.reason,
            }
            for name, support in toolchain.problems.items()
        },
        "tools": {name: str(toolchain.tools[name]) for name in _USED_FOR if name in toolchain.tools},
        "missing": [dataclasses.asdict(finding) for finding in findings],
        "ready": not any(finding.essential for finding in findings),
    }


def _problems(toolchain: Toolchain) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [_PROBLEM_HEAD]
    for name, support in toolchain.problems.items():
        if not support.interactive or ADVISORS[name].include_default is None:
            default = "-"
        elif support.default_in_callee_slot:
            default = f"overwrites {ADVISORS[name].default_slot} (known bug, worked around)"
        else:
            default = "reported"
        abilities = ("yes" if able else "no" for able in (support.interactive, support.development, support.embedded))
        rows.append((name, *abilities, str(len(support.features)) if support.interactive else "-", default))
    return rows


def _table(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(aligned(rows, num_text_columns=len(rows[0]), rules=()))


def _apt(package: str) -> str:
    return f"sudo apt-get install {package}"
