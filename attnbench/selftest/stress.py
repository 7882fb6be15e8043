"""Keeping every core busy while something is measured."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SPIN = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
parent = int(sys.argv[2])
# Nothing but this loop runs, so a look at its parent now and then is how it learns that it is alone.
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


@contextmanager
def busy_cores() -> Iterator[tuple[int, ...]]:
    """One spinning process on each core that this process may use; gives their ids. All end with the block.

    If this process is killed they end by themselves, within a moment.
    """
    spinners: list[subprocess.Popen[bytes]] = []
    try:
        spinners.extend(_spinner(cpu) for cpu in sorted(os.sched_getaffinity(0)))
        yield tuple(spinner.pid for spinner in spinners)
    finally:
        for spinner in spinners:
            spinner.kill()
        for spinner in spinners:
            spinner.wait()


def _spinner(cpu: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-S", "-E", "-c", _SPIN, str(cpu), str(os.getpid())]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL)
