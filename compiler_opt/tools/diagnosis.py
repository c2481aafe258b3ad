"""What a toolchain lacks for the work of this project, and the table that `doctor` prints."""

import dataclasses
from collections.abc import Sequence

from compiler_opt.llvm import processes
from compiler_opt.llvm.advisors import ADVISORS, INLINING
from compiler_opt.llvm.scratch import scratch_directory
from compiler_opt.llvm.toolchain import TOOL_PACKAGES, Toolchain

_USED_FOR = {
    "clang++": "compiling C++ corpora",
    "ld.lld": "linked sizes",
    "llvm-ar": "static libraries",
    "llvm-config": "building the pass plugin",
    "llvm-mca": "cycle estimates",
    "llvm-objcopy": "extracting bitcode from objects",
    "llvm-readobj": "reading block addresses",
    "llvm-size": "section sizes",
    "opt": "features of whole functions",
}

_ESSENTIAL_TOOLS = ("ld.lld", "llvm-objcopy")
"""Without these no corpus can be made, or no policy evaluated."""

_HEADERS_PROBE = "#include <stdlib.h>\n#include <vector>\nint main() { return (int)std::vector<int>(1).back(); }\n"


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something that is missing.

    Attributes:
      what: it, and what it would be good for.
      remedy: how to get it.
      essential: inlining policies cannot be trained and evaluated without it.
    """

    what: str
    remedy: str
    essential: bool


def diagnose(toolchain: Toolchain) -> list[Finding]:
    """What is missing, the essential first."""
    findings = []
    for name, support in toolchain.problems.items():
        if not support.interactive:
            essential = name == INLINING.problem
            what = f"{name} over the interactive channel: {support.reason}"
            findings.append(Finding(what, "use another clang by --clang_path, e.g. clang-19 or clang-22", essential))
    for tool in TOOL_PACKAGES:
        if tool not in toolchain.tools:
            what = f"{tool}, for {_USED_FOR[tool]}"
            findings.append(Finding(what, _apt(toolchain.package(tool)), tool in _ESSENTIAL_TOOLS))
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
    """The whole text: compiler, problems, tools, what is missing, verdict."""
    parts = [_compiler(toolchain), _problems(toolchain), _tools(toolchain), _missing(findings), _verdict(findings)]
    return "\n\n".join(part for part in parts if part)


def _compiler(toolchain: Toolchain) -> str:
    if toolchain.pass_plugins:
        headers = f"headers in {toolchain.plugin_headers}" if toolchain.plugin_headers else "no headers to build one"
        plugins = f"yes, {headers}"
    else:
        plugins = "no"
    return _table(
        [
            ("compiler", str(toolchain.clang)),
            ("version", toolchain.version_text),
            ("target", toolchain.target),
            ("pass plugins", plugins),
            (
                "development mode",
                "yes" if toolchain.development_mode else "no (needs a clang built with TFLite; optional)",
            ),
        ]
    )


def _problems(toolchain: Toolchain) -> str:
    rows = [("problem", "interactive", "development", "built-in model", "features", "default decision")]
    for name, support in toolchain.problems.items():
        if not support.interactive or ADVISORS[name].include_default is None:
            default = "-"
        elif support.default_in_callee_slot:
            default = f"overwrites {ADVISORS[name].default_slot} (known bug, worked around)"
        else:
            default = "reported"
        features = str(len(support.features)) if support.interactive else "-"
        interactive, development, embedded = map(_yes_no, (support.interactive, support.development, support.embedded))
        rows.append((name, interactive, development, embedded, features, default))
    return _table(rows)


def _tools(toolchain: Toolchain) -> str:
    rows = [("tool", "path", "for")]
    rows.extend((name, str(toolchain.tools.get(name, "missing")), _USED_FOR[name]) for name in TOOL_PACKAGES)
    return _table(rows)


def _missing(findings: Sequence[Finding]) -> str:
    if not findings:
        return ""
    rows = [("missing", "needed?", "how to get it")]
    rows.extend((finding.what, "yes" if finding.essential else "optional", finding.remedy) for finding in findings)
    return _table(rows)


def _verdict(findings: Sequence[Finding]) -> str:
    num_essential = sum(finding.essential for finding in findings)
    if num_essential:
        return f"Inlining policies cannot be trained and evaluated here yet: {num_essential} needed above."
    return "Ready: inlining policies can be trained and evaluated with this compiler."


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _yes_no(value: bool) -> str:
    return "yes" if value else "no"


def _apt(package: str) -> str:
    return f"sudo apt-get install {package}"
