import dataclasses
from pathlib import Path

import pytest

from compiler_opt.errors import ConfigError
from compiler_opt.record_files import RecordFile, check_conditions


@dataclasses.dataclass(frozen=True)
class Run:
    seed: int
    sizes: dict[str, tuple[int, float]]


def test_records_are_there_for_the_next_run(tmp_path: Path) -> None:
    runs = [Run(1, {"a": (3, 0.5)}), Run(2, {}), Run(3, {"b": (1, 1e-9)})]
    file = RecordFile(tmp_path / "runs.jsonl", Run)
    assert file.records == []
    file.append(runs[:2])
    file.append(runs[2:])
    assert file.records == RecordFile(tmp_path / "runs.jsonl", Run).records == runs


def test_a_line_that_a_killed_process_has_left_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    RecordFile(path, Run).append([Run(1, {})])
    with path.open("a") as file:
        file.write('{"seed": 2, "si')
    again = RecordFile(path, Run)
    again.append([Run(3, {})])
    assert again.records == RecordFile(path, Run).records == [Run(1, {}), Run(3, {})]


@pytest.mark.parametrize("line", ['{"seed": "many", "sizes": {}}', "[]", "{", '{"seed": 1}'])
def test_damage_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(f"{line}\n")
    with pytest.raises(ConfigError, match=r"runs\.jsonl: damaged \(.*\); remove it, or give another --output_dir"):
        RecordFile(path, Run)


def test_results_of_other_conditions_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "conditions.json"
    check_conditions(path, {"compiler": "22", "levels": ["Oz"]})
    check_conditions(path, {"compiler": "22", "levels": ["Oz"]})
    with pytest.raises(ConfigError, match=r"other conditions \(levels\); give another"):
        check_conditions(path, {"compiler": "22", "levels": ["O2"]})
    path.write_text("[")
    with pytest.raises(ConfigError, match="damaged"):
        check_conditions(path, {"compiler": "22"})
