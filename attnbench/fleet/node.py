"""A task on the machine where it runs: executors call this there."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

from attnbench.ipc.process import PARENT, command_of
from attnbench.types.fleet import Ended, Pieces, Task

_EVERY_S = 0.2
_MOST_BYTES = 2**22


def run_here(task: Task, stop: Event | None = None) -> Pieces:
    """Run a task as a process on this machine; yield the followed file piece by piece, then the end.

    The process ends with the thread that iterates, when the iterator is closed, and when stop is set.
    """
    with tempfile.TemporaryDirectory(prefix="attnbench-") as name:
        folder = Path(name)
        for path, content in task.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        with (folder / "stdout").open("w+b") as out, (folder / "stderr").open("w+b") as err:
            process = subprocess.Popen(
                command_of(*task.words),
                cwd=folder,
                env=_environment(task),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
            try:
                yield from _followed(process, folder / task.follow if task.follow else None, stop)
                out.seek(0)
                err.seek(0)
                yield Ended(process.returncode, out.read().decode(), err.read().decode(errors="replace"))
            finally:
                process.kill()
                process.wait()


def _followed(process: subprocess.Popen[bytes], path: Path | None, stop: Event | None) -> Iterator[bytes]:
    """Yield what is appended to a file until a process has ended, or is to be stopped."""
    sent = 0
    ended = False
    while not ended:
        if stop is not None and stop.is_set():
            process.kill()
            process.wait()
        ended = process.poll() is not None
        if path is not None and path.exists():
            with path.open("rb") as file:
                file.seek(sent)
                while piece := file.read(_MOST_BYTES):
                    sent += len(piece)
                    yield piece
        if not ended:
            time.sleep(_EVERY_S)


def _environment(task: Task) -> dict[str, str]:
    """The environment of a task: that of this process, without what the engine has set."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(task.dropped)}
    return kept | task.variables | {PARENT: str(os.getpid())}
