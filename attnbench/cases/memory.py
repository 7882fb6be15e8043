"""The free memory for a case: of the machine, and of the control groups of this process."""

from __future__ import annotations

from pathlib import Path

PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")

_UNIFIED = "unified"
"""The mount point of version 2 beside version 1."""


def control_groups(controller: str, proc: Path = PROC, cgroup: Path = CGROUP) -> list[Path]:
    """Return the folders of the groups that limit ``controller`` ("cpu", "memory") here, innermost first.

    These are the group of this process and the visible ones around it. Inside a container the path may be one
    of the host; then only the root is visible.
    """
    folders: list[Path] = []
    for line in read(proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        # Version 1 mounts related controllers in one folder, and links to it from each name.
        names = (controllers, controller) if controllers else (_UNIFIED, "")
        roots = [root for root in (cgroup / name for name in dict.fromkeys(names)) if root.is_dir()]
        for root in roots[:1]:
            inner = root / path.lstrip("/")
            folders += [
                each for each in (inner, *inner.parents) if each.is_relative_to(root) and each.is_dir()
            ]
    return folders


def read(path: Path) -> str:
    """Read a file of the system as text; "" where there is none. Bytes that are not text are replaced."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def numbers(path: Path) -> dict[str, int]:
    """Return the numbers of a file of the system by name, as of ``MemFree: 12 kB`` or ``oom_kill 3``."""
    found = {}
    for line in read(path).splitlines():
        name, _, value = line.replace(":", " ", 1).partition(" ")
        number = whole_number(value.removesuffix("kB"))
        if number is not None:
            found[name] = number
    return found


def whole_number(text: str) -> int | None:
    """Return the number in a file of the system; None where the file holds something else."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() else None


def free_memory(proc: Path = PROC, cgroup: Path = CGROUP) -> int:
    """Return the bytes that a new process may take before the kernel swaps or kills: the smallest of all
    limits.

    The limits are MemAvailable of the machine, and for each control group (version 1 or 2) above this process
    its limit minus its use, without page cache that can be dropped.

    Raises:
        OSError: the system has no MemAvailable.
    """
    available = numbers(proc / "meminfo").get("MemAvailable")
    if available is None:
        raise OSError(f"{proc / 'meminfo'} names no MemAvailable")
    limits = [1024 * available, *map(_free_in, control_groups("memory", proc, cgroup))]
    return max(0, min(limit for limit in limits if limit is not None))


def _free_in(group: Path) -> int | None:
    for limit, used, dropped in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        most, taken = whole_number(read(group / limit)), whole_number(read(group / used))
        if most is not None and taken is not None:
            return most - taken + numbers(group / "memory.stat").get(dropped, 0)
    return None
