"""The notebook of examples/, cell by cell in one process, as a notebook's kernel runs it."""

import json
from pathlib import Path

import pytest

from tests.programs import ROOT, run

NOTEBOOK = ROOT / "examples" / "quickstart.ipynb"


def cells() -> list[str]:
    notebook = json.loads(NOTEBOOK.read_text())
    assert all(not cell.get("outputs") for cell in notebook["cells"]), "commit it without outputs"
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_trains_for_two_minutes() -> None:
    assert sum(cell.count("\nminutes = 2\n") for cell in cells()) == 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_notebook_runs(tmp_path: Path) -> None:
    program = tmp_path / "notebook.py"
    program.write_text("\n".join(cells()).replace("\nminutes = 2\n", "\nminutes = 0.2\n"))
    result = run(str(program), cwd=tmp_path, environment={"MPLBACKEND": "Agg"}, timeout_s=1700)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count(" bytes of text\n") == 2 and result.stdout.count("linked text: ") == 2
    assert (tmp_path / "quickstart" / "training.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "quickstart" / "run" / "training" / "policy" / "saved_model.pb").is_file()
