"""docs/results.md says what the records say."""

import re
import subprocess
import sys
from pathlib import Path

_TOP = Path(__file__).parents[2]
_CHART = _TOP / "docs" / "results.svg"


def test_the_page_is_made_of_the_records(tmp_path: Path) -> None:
    page = tmp_path / "results.md"
    command = [sys.executable, "-m", "benchmarks.results", f"--output_path={page}"]
    subprocess.run(command, cwd=_TOP, check=True, timeout=120)
    assert page.read_text() == (_TOP / "docs" / "results.md").read_text(), "run: python -m benchmarks.results"
    # Where its texts are depends on matplotlib's version.
    made, shown = (re.findall(r">([^<>\n]+)</text>", file.read_text()) for file in (page.with_suffix(".svg"), _CHART))
    assert made == shown and len(made) > 40


def test_the_table_of_the_readme_is_that_of_the_page() -> None:
    readme, page = ((_TOP / name).read_text() for name in ("README.md", "docs/results.md"))

    def cells(line: str) -> list[str]:
        return [cell.strip(" *") for cell in line.replace("\N{MINUS SIGN}", "-").split("|")[1:-1]]

    on_page: dict[tuple[str, str], list[str]] = {}
    for row in map(cells, page.splitlines()):
        if len(row) > 8:
            on_page.setdefault((row[0], row[1]), row)  # in the first table that has it
    rows = [row for row in map(cells, readme.splitlines()) if len(row) == 8 and row[1] in ("C", "C++")]
    assert len(rows) == 20
    for name, language, _, *rest in rows:
        found = on_page[name, language]
        # Text, the changes by options, policy and both, and that of the code by both.
        assert rest == [*found[2:6], found[9]], name
