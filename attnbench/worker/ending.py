"""Ending a process with all that was started in it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path


def kill_group(leader_pid: int) -> None:
    """Kill what is left of the group that a process leads, or led; nothing where none of it is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader_pid, signal.SIGKILL)


def kill_below(within_s: float) -> None:
    """Kill what this process has for children, and what comes to it as they end, until nothing is left.

    A backend's process in a session of its own belongs to no group that is known; of a server, which takes
    in orphans, it ends up a child. within_s: a process that the kernel holds isn't waited for longer.
    """
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        for pid in _children():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.001)
        except ChildProcessError:
            return


def _children() -> list[int]:
    """Of this process; none where the system doesn't tell."""
    try:
        return [int(pid) for pid in Path("/proc/self/task", str(os.getpid()), "children").read_text().split()]
    except OSError:
        return []
