from pathlib import Path

import pytest

from compiler_opt.corpus.module import Module


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
