"""Whether a process stands still is told at once, also where it had no core yet to obey on."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from attnbench.worker.activity import stands_still

STOP = 1 << (signal.SIGSTOP - 1)


@pytest.mark.parametrize(
    ("state", "pending", "still"),
    [
        ("T (stopped)", 0, True),
        ("S (sleeping)", STOP, True),
        ("R (running)", STOP | 1, True),
        ("S (sleeping)", 0, False),
        ("R (running)", STOP << 1 | STOP >> 1, False),
        ("t (tracing stop)", 0, False),
    ],
)
def test_stopped_or_told_to_stop(state: str, pending: int, still: bool) -> None:
    status = f"Name:\tpython: T\nState:\t{state}\nSigPnd:\t{0:016x}\nShdPnd:\t{pending:016x}\n"
    assert stands_still(status) == still


def test_a_process_stands_still_at_once_and_then_no_more() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            for sent, still in ((signal.SIGSTOP, True), (signal.SIGCONT, False)):
                os.kill(process.pid, sent)
                assert stands_still(Path(f"/proc/{process.pid}/status").read_text()) == still
        finally:
            process.kill()
