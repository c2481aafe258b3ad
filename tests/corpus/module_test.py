from pathlib import Path

import pytest

from compiler_opt.corpus.module import Module, explain_failure


@pytest.mark.parametrize(
    ("name", "options", "language"),
    [
        ("a.o", "-cc1 -x c++", "C++"),
        ("a.o", "-cc1 -main-file-name x.c", "C"),
        ("lib/a.cc", "-cc1", "C++"),
        ("lib/a.c.o", "-cc1", "C"),
        ("lib/a", "-cc1 -x ir", "?"),
    ],
)
def test_language(tmp_path: Path, name: str, options: str, language: str) -> None:
    assert Module(name, "p", tmp_path, tuple(options.split())).language() == language
    assert Module("absent", "p", tmp_path).language() == "?"


def test_clang_errors_are_explained() -> None:
    assert "newer LLVM" in (explain_failure("error: Unknown attribute kind (102) (Producer: 'LLVM22.1.8')") or "")
    assert "truncated" in (explain_failure("error: file too small to contain bitcode header") or "")
    assert explain_failure("fatal error: error in backend: ran out of registers") is None
    # Messages of clang 19 and 22; the beginning of the former may be lost.
    for complaint in (
        "error: overriding the module target triple with x86_64-pc-linux-gnu [-Werror,-Woverride-module]",
        "'-zvl64b' is not a recognized feature for this target (ignoring feature)\n1 error generated.\n",
    ):
        assert "for another target" in (explain_failure(complaint) or "")
    unknown = (
        "error: unable to create target: 'No available targets are compatible with triple \"spir-unknown-unknown\"'"
    )
    assert "cannot compile for the target spir-unknown-unknown" in (explain_failure(unknown) or "")
    assert explain_failure("'+x' is not a recognized feature for this target (ignoring feature)\nStack dump:") is None
