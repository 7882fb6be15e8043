"""The machine as this process sees it: cores, memory, and the facts that a run file states."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from attnbench.cases.control_groups import CGROUP, PROC, control_groups, read, whole_number
from attnbench.types.errors import BadInput

_LIBRARIES = ("numpy", "torch", "pandas", "msgspec", "pluggy", "click")


def allowed_cpus() -> tuple[int, ...]:
    """The cores this process may run on, in order.

    Raises:
        BadInput: the system has no such thing, so that nothing can be measured on a core of its own.
    """
    if not hasattr(os, "sched_getaffinity"):
        raise BadInput(f"{platform.system()}: attnbench measures on Linux alone")
    return tuple(sorted(os.sched_getaffinity(0)))


def cpu_quota(proc: Path = PROC, cgroup: Path = CGROUP) -> int:
    """How many whole cores this process really has, at least 1.

    The least of its affinity and the quotas of its control group and of all groups around that.
    """
    quota, cores = group_quota(proc, cgroup), len(allowed_cpus())
    return cores if quota is None else max(1, min(cores, int(quota)))


def group_quota(proc: Path = PROC, cgroup: Path = CGROUP) -> float | None:
    """Cores by the least quota of this process's control group and all around it, 0.5 of one too.

    None where none of them has one, or none can be seen.
    """
    quotas = [_quota_in(group) for group in control_groups("cpu", proc, cgroup)]
    return min((quota for quota in quotas if quota is not None), default=None)


def _quota_in(group: Path) -> float | None:
    """Cores by the quota of one group; None where it has none."""
    for words in (
        read(group / "cpu.max").split(),
        [*read(group / "cpu.cfs_quota_us").split(), *read(group / "cpu.cfs_period_us").split()],
    ):
        quota, period = map(whole_number, words if len(words) == 2 else ("", ""))
        if quota and period:
            return quota / period
    return None


def check_threads(threads: int) -> None:
    """Raise :class:`BadInput` where more threads are asked for than this process has cores."""
    quota = cpu_quota()
    if threads > quota:
        cores = "1 core" if quota == 1 else f"{quota} cores"
        raise BadInput(f"{threads} threads: this process has {cores}; ask for {quota} or fewer")


def split_cpus(cpus: tuple[int, ...], threads: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Cores for what is measured, and cores for everything else while it is.

    The last ``threads`` cores measure; where none are left, everything shares all of them.
    """
    measured = cpus[-threads:]
    rest = tuple(cpu for cpu in cpus if cpu not in measured)
    return measured, rest or cpus


def sharing_note(cpus: tuple[int, ...], threads: int) -> str:
    """What a record says where no core is left for attnbench itself; "" where one is."""
    if threads < len(cpus):
        return ""
    cores = "the only core" if len(cpus) == 1 else f"all {len(cpus)} cores"
    return f"measured on {cores} of this process, which attnbench's own process shares"


def environment() -> dict[str, Any]:
    """Facts of the machine and the software, for the manifest. Names no user and no host."""
    return {
        "cpu": _cpu_model(),
        "cpus_allowed": list(allowed_cpus()),
        "cpu_quota": cpu_quota(),
        "governor": _first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "load_average": list(os.getloadavg()),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "libraries": {name: _version(name) for name in _LIBRARIES},
        "git_commit": _git_commit(),
    }


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _first_line(path: str) -> str | None:
    try:
        return Path(path).read_text().splitlines()[0]
    except (OSError, IndexError):
        return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
