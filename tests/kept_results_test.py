import concurrent.futures
import dataclasses
import logging
from pathlib import Path

import pytest

from compiler_opt.errors import ConfigError
from compiler_opt.kept_results import RecordFile, check_conditions, find_kept, kept, key_of


def _load(path: Path) -> int:
    return int(path.read_bytes())


def _pack(number: int) -> bytes:
    return b"%d" % number


def test_a_result_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "parts" / f"{key_of(b'content', 'setting')}.txt"
    assert path.stem == "fe97bc2a78f723aa8e5405ce1efa8958"

    def fails() -> int:
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        kept(path, _load, _pack, fails)
    assert find_kept(path, _load) is None and not path.parent.exists()
    assert kept(path, _load, _pack, lambda: 5) == kept(path, _load, _pack, fails) == find_kept(path, _load) == 5


def test_a_damaged_result_is_set_aside_and_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "5.txt"
    path.write_bytes(b"five")
    with caplog.at_level(logging.WARNING):
        assert kept(path, _load, _pack, lambda: 5) == 5
    [record] = caplog.records
    assert record.getMessage().startswith(f"{path}: damaged (invalid literal for int()")
    assert record.getMessage().endswith("kept as 5.txt.damaged, made again")
    assert path.read_bytes() == b"5" and (tmp_path / "5.txt.damaged").read_bytes() == b"five"


def test_threads_may_want_the_same_result(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.txt" for number in range(50) for _ in range(4)]
    for path in paths:
        path.write_bytes(b"damaged")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda path: kept(path, _load, _pack, lambda: int(path.stem)), paths)) == [
            int(path.stem) for path in paths
        ]


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
