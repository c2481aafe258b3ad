"""What a process may use of the machine, by files as Linux has them."""

import os
from pathlib import Path

import pytest

from compiler_opt.collect.machine import available_cpus, available_memory_bytes


def test_available_memory_is_limited_by_the_tightest_cgroup(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("4:memory:/x\n0::/a/b\n")
    (tmp_path / "meminfo").write_text("MemTotal: 4096 kB\nMemAvailable:    2048 kB\n")
    assert available_memory_bytes(tmp_path, tmp_path) == 2048 << 10
    assert available_memory_bytes() > 1 << 20
    for group, limit in ((inner, "max"), (inner.parent, "1048576")):
        (group / "memory.max").write_text(f"{limit}\n")
        (group / "memory.current").write_text("1000000\n")
        (group / "memory.stat").write_text("anon 5\ninactive_file 1000\n")
    assert available_memory_bytes(tmp_path, tmp_path) == 1048576 - 1000000 + 1000


_HALF = {"cpu.max": "50000 100000"}
_TWO_AND_A_HALF = {"cpu.max": "250000 100000"}
_UNLIMITED = {"cpu.max": "max 100000"}
_VERSION_1 = {"cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "100000"}
_VERSION_1_UNLIMITED = {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ({}, 8),
        ({"": _UNLIMITED, "a": _UNLIMITED}, 8),
        ({"a": _TWO_AND_A_HALF}, 3),
        ({"a/b": _UNLIMITED, "a": _TWO_AND_A_HALF}, 3),
        ({"a/b": _HALF, "a": _TWO_AND_A_HALF}, 1),
        ({"cpu,cpuacct/job": _VERSION_1}, 2),
        ({"cpu,cpuacct/job": _VERSION_1_UNLIMITED}, 8),
        # The root of a container.
        ({"cpu,cpuacct": _VERSION_1}, 2),
        ({"a/b": {"cpu.max": "damaged"}}, 8),
    ],
)
def test_available_cpus_are_limited_by_quotas(
    groups: dict[str, dict[str, str]], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("5:devices:/job\n4:cpu,cpuacct:/job\n0::/a/b\n")
    for group, files in groups.items():
        (tmp_path / group).mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (tmp_path / group / name).write_text(f"{content}\n")
    assert available_cpus(tmp_path, tmp_path) == expected


def test_without_quotas_every_cpu_counts(tmp_path: Path) -> None:
    assert available_cpus(tmp_path, tmp_path) == len(os.sched_getaffinity(0))
