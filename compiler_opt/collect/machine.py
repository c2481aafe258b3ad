"""What this process may use of the machine: CPUs and memory, within the limits of its cgroups (versions 1 and 2)."""

import contextlib
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

MIN_MEMORY_BYTES = 512 << 20
"""With less memory available, no compilation begins."""

_MIN_DISK_BYTES = 256 << 20
_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


def available_cpus(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """CPUs that may run our threads, or fewer if a cgroup's quota is less: a quota of 2.5 CPUs counts as 3.

    With more busy threads than the quota allows, all of them are stopped for the rest of each period.
    """
    cpus = float(len(os.sched_getaffinity(0)))
    for group in _groups(proc, cgroups, "cpu"):
        with contextlib.suppress(OSError, ValueError):
            # "250000 100000" or "max 100000", in microseconds; in version 1 two files, and -1 for no quota.
            if (group / "cpu.max").exists():
                quota, period = (group / "cpu.max").read_text().split()
            else:
                quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
            if float(quota) > 0 and float(period) > 0:
                cpus = min(cpus, float(quota) / float(period))
    return max(1, math.ceil(cpus))


def available_memory_bytes(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """Memory that our processes may still take, by the machine and by each cgroup (version 2) above us."""
    # "MemAvailable:   24100000 kB"
    fields = dict(line.split(":", 1) for line in (proc / "meminfo").read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) << 10
    for group in _groups(proc, cgroups):
        with contextlib.suppress(OSError, ValueError):
            # Without a limit this is "max", not a number.
            limit = int((group / "memory.max").read_text())
            used = int((group / "memory.current").read_text())
            usage = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            available = min(available, limit - used + int(usage.get("inactive_file", 0)))
    return available


def has_room(scratch: Path, available_bytes: int) -> bool:
    """Whether there is enough memory (so many bytes are available) and disk to begin a compilation in a folder."""
    return shutil.disk_usage(scratch).free >= _MIN_DISK_BYTES and available_bytes >= MIN_MEMORY_BYTES


def _groups(proc: Path, cgroups: Path, controller: str | None = None) -> Iterator[Path]:
    """Folders of the cgroups that hold this process, innermost first; of version 1 only those of a controller."""
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    for line in lines:
        # "0::/user.slice/session-1.scope" in version 2, "4:cpu,cpuacct:/docker/0123" in version 1
        number, controllers, name = line.split(":", 2)
        if number == "0":
            root = cgroups
        elif controller is not None and controller in controllers.split(","):
            root = cgroups / controllers if (cgroups / controllers).exists() else cgroups / controller
        else:
            continue
        folder = root / name.strip("/")
        # In a container, the folders above its own are not there, and the root is its own.
        for group in (folder, *folder.parents):
            if not group.is_relative_to(root):
                break
            yield group
