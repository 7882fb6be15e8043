"""The machine as this process sees it: cores, memory, and the facts that a run file states."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from attnbench.types.errors import BadInput

_LIBRARIES = ("numpy", "torch", "pandas", "msgspec", "pluggy", "click")


def allowed_cpus() -> tuple[int, ...]:
    """The cores this process may run on, in order."""
    return tuple(sorted(os.sched_getaffinity(0)))


def cpu_quota(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """How many cores this process really has: its affinity, and its control group's quota."""
    cores = len(allowed_cpus())
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, int(quota) // int(period)))


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
