"""Where the time of a training went."""

from pathlib import Path

import pytest

from compiler_opt.collect.groups import RolloutBatch
from compiler_opt.errors import OutputError
from compiler_opt.rl.time_profile import Stopwatch, profile_entry, profile_table, write_picture


class _Clock:
    """Stands still unless it is told to go on."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_what_is_measured_inside_counts_only_there() -> None:
    clock = _Clock()
    stopwatch = Stopwatch(clock)
    with stopwatch.measure("learn"):
        clock.now_s += 1
        with stopwatch.measure("credit"):
            clock.now_s += 10
            with stopwatch.measure("deep"):
                clock.now_s += 100
        with stopwatch.measure("credit"):
            clock.now_s += 20
        clock.now_s += 2
    with stopwatch.measure("learn"):
        clock.now_s += 4
    assert stopwatch.take() == {"learn": 7.0, "credit": 30.0, "deep": 100.0}
    assert stopwatch.take() == {}


def _entry(iteration: int = 1) -> dict[str, object]:
    batch: RolloutBatch = RolloutBatch([], [], [], [], {}, 8, compile_cpu_s=12.0, decide_cpu_s=2.0, read_cpu_s=1.0)
    measured = {"collect": 6.0, "credit": 1.0, "learn": 2.0, "validate": 5.0}
    return {"iteration": iteration, **profile_entry(batch, 2, 10.0, measured)}


def test_an_iteration_of_two_workers() -> None:
    assert _entry() == {
        "iteration": 1,
        "worker_s": {"compile": 12.0, "decide": 2.0, "read": 1.0, "wait": 2 * 10.0 - 15.0},
        "host_s": {"collect": 6.0, "credit": 1.0, "learn": 2.0, "other": 1.0, "validate": 5.0},
    }


def test_the_table_has_means_and_shares() -> None:
    # Iterations of an earlier version have no profile.
    table = profile_table([{"iteration": 1}, _entry(2), _entry(3)])
    cells = {(row[0], row[1]): tuple(map(str, row[3:])) for row in table.rows}
    assert cells["workers", "compile"] == ("12.00", "60.0%")
    assert cells["workers", "wait"] == ("5.00", "25.0%")
    assert cells["learner", "validate"] == ("5.00", "33.3%")
    assert len(cells) == 9


def test_what_is_no_profile_is_left_out(tmp_path: Path) -> None:
    odd = [{**_entry(4), "worker_s": 7}, {**_entry(5), "host_s": {"collect": "long"}, "worker_s": {"compile": 1e308}}]
    entries = [_entry(2), _entry(3), *odd]
    cells = {(row[0], row[1]): str(row[3]) for row in profile_table(entries).rows}
    assert cells["workers", "compile"] == "8.00"  # 12, 12, and none
    write_picture(entries, tmp_path / "profile.svg")


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    write_picture([_entry(1), _entry(2), {"iteration": 3}], tmp_path / "profile.svg")
    assert "<svg" in (tmp_path / "profile.svg").read_text()
    write_picture([], tmp_path / "empty.svg")
    with pytest.raises(OutputError, match="nowhere"):
        write_picture([_entry()], tmp_path / "nowhere" / "profile.svg")
