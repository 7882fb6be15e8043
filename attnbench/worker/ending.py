"""Ending a process with all that was started in it."""

from __future__ import annotations

import contextlib
import os
import signal


def kill_group(leader_pid: int) -> None:
    """Kill what is left of the group that a process leads, or led; nothing where none of it is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader_pid, signal.SIGKILL)
