"""A process that the parent started is ended once, however many of its threads do it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from attnbench.ipc.channel import socket_pair
from attnbench.runner.link import Started


def test_threads_that_end_it_at_once_learn_the_same() -> None:
    ours, theirs = socket_pair()
    stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by ``end``
    code = "import sys; sys.stderr.write('last words\\n'); sys.exit(7)"
    with ours, theirs, ThreadPoolExecutor(4) as pool:
        started = Started(ours, subprocess.Popen([sys.executable, "-c", code], stderr=stderr), stderr)
        said = [thread.result() for thread in [pool.submit(started.end, 60) for _ in range(4)]]
        assert said == [(7, "last words")] * 4
    assert stderr.closed
