"""What /proc tells of processes and memory."""

from __future__ import annotations

import time
from pathlib import Path

_POLL_S = 0.002


def wait_until_ended(pid: int, most_s: float) -> bool:
    """Wait until a process has ended (a zombie counts), at most ``most_s``; gives whether it has."""
    end = time.monotonic() + most_s
    while _state(pid) not in ("Z", "X"):
        if time.monotonic() >= end:
            return False
        time.sleep(_POLL_S)
    return True


def threads_of(pid: int) -> list[int]:
    """The ids of a process's threads; none where it has ended."""
    try:
        return [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []


def waited_ns(pid: int) -> int:
    """How long the first thread of a process has waited for a core while it could have run; 0 where the
    system doesn't tell."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def oom_kills() -> int:
    """How many processes the system has killed for want of memory since it started."""
    try:
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"
