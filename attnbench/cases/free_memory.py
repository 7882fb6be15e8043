"""How much memory is free for a case: of the machine, and of the control group this process is in."""

from __future__ import annotations

from pathlib import Path

from attnbench.cases.control_groups import CGROUP, PROC, control_groups, read, whole_number


def free_memory(proc: Path = PROC, cgroup: Path = CGROUP) -> int:
    """Bytes that a new process may take before the kernel swaps or kills; the smallest of all limits.

    MemAvailable of the machine, and for each control group (version 2, or 1) above this process its limit
    less what it uses, where page cache that can be dropped doesn't count as used.

    Raises:
        OSError: the system tells no MemAvailable.
    """
    limits = [_available(proc), *(_free_in(group) for group in control_groups("memory", proc, cgroup))]
    return max(0, min(limit for limit in limits if limit is not None))


def _available(proc: Path) -> int:
    for line in read(proc / "meminfo").splitlines():
        name, _, value = line.partition(":")
        number = whole_number(value.removesuffix("kB"))
        if name == "MemAvailable" and number is not None:
            return number * 1024
    raise OSError(f"{proc / 'meminfo'} names no MemAvailable")


def _free_in(group: Path) -> int | None:
    for limit, used, dropped in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        most, taken = whole_number(read(group / limit)), whole_number(read(group / used))
        if most is not None and taken is not None:
            return most - taken + _statistic(group / "memory.stat", dropped)
    return None


def _statistic(path: Path, name: str) -> int:
    for line in read(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return whole_number(value) or 0
    return 0
