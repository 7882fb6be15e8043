"""A process that the parent started is ended once, however many of its threads do it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from attnbench.runner.link import Started
from attnbench.worker.channel import socket_pair


def test_threads_that_end_it_at_once_learn_the_same() -> None:
    ours, theirs = socket_pair()
    stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by ``end``
    code = "import sys; sys.stderr.write('last words\\n'); sys.exit(7)"
    with ours, theirs, ThreadPoolExecutor(4) as pool:
        started = Started(ours, subprocess.Popen([sys.executable, "-c", code], stderr=stderr), stderr)
        said = [thread.result() for thread in [pool.submit(started.end, 60) for _ in range(4)]]
        assert said == [(7, "last words")] * 4
    assert stderr.closed


DAEMON = """
import os, sys, time
from attnbench.worker.ending import kill_below
from attnbench.worker.process import take_in_orphans

take_in_orphans()
said, say = os.pipe()
child = os.fork()
if child == 0:
    if os.fork() == 0:
        os.setsid()
        os.write(say, str(os.getpid()).encode())
        time.sleep(3600)
    os._exit(0)
os.waitpid(child, 0)
daemon = int(os.read(said, 20))
os.kill(daemon, 0)
kill_below(60)
try:
    os.kill(daemon, 0)
except ProcessLookupError:
    sys.exit(0)
os.kill(daemon, 9)
sys.exit("it is still there")
"""


def test_what_went_into_a_session_of_its_own_is_ended_too() -> None:
    """No group holds it; it came to the process that takes in orphans."""
    ended = subprocess.run([sys.executable, "-c", DAEMON], capture_output=True, text=True, timeout=100)
    assert (ended.returncode, ended.stderr) == (0, "")
