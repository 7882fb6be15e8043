"""An executor whose places are processes of this machine, and which goes wrong as its address says.

Its address is one word: ``fine``, ``loses`` (the place that measures first is gone after its first case),
``loses_all`` (places go away as soon as a task sends a line), ``kills`` (the process that measures first is
killed at its first line), ``damages`` (a byte of the first unit changes on its way), ``raises`` (its code
fails), ``unlike`` (``b`` has another torch).
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from msgspec.structs import replace

from attnbench import Executor, Fleet, Place, PlaceLost, Task, hookimpl
from attnbench.fleet.node import run_here
from attnbench.types.fleet import Pieces

RECORD = b'"kind":"record"'
TORCH = """
__version__ = "2.0.0"

class cuda:
    @staticmethod
    def device_count():
        return 0

def get_device_module(device):
    return cuda
"""


@contextmanager
def connect(address: str) -> Iterator[Fleet]:
    gone: set[str] = set()
    killed: set[str] = set()
    damaged: set[str] = set()
    first: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "torch").mkdir()
        (Path(folder) / "torch" / "__init__.py").write_text(TORCH)

        def run(place: Place, task: Task) -> Pieces:
            if address == "raises":
                raise RuntimeError("no such queue")
            if place.name in gone:
                raise PlaceLost("its machine does not answer")
            if address == "unlike" and place.name == "b":
                task = replace(task, variables=task.variables | {"PYTHONPATH": folder})
            seen = b""
            for piece in run_here(task):
                if isinstance(piece, bytes):
                    seen += piece
                    doomed = first.setdefault("place", place.name) == place.name
                    if address == "loses" and doomed:
                        lines = piece.splitlines(keepends=True)
                        before = seen.removesuffix(piece).count(RECORD)
                        ends = [n for n, line in enumerate(lines, 1) if RECORD in line]
                        if before + len(ends) >= 2:
                            gone.add(place.name)
                            yield b"".join(lines[: ends[1 - before]])
                            raise PlaceLost("its machine was switched off")
                if address == "damages" and isinstance(piece, bytes) and RECORD in piece and not damaged:
                    damaged.add(place.name)
                    piece = piece.replace(RECORD, b'"kind":"recorb"', 1)
                yield piece
                if address == "loses_all" and seen:
                    raise PlaceLost("its machine was switched off")
                if address == "kills" and seen and not killed:
                    killed.add(place.name)
                    for child in psutil.Process().children():
                        if "run" in child.cmdline():
                            os.kill(child.pid, signal.SIGKILL)

        yield Fleet((Place("a", "cpu", {"rack": "one"}), Place("b", "cpu", {"rack": "two"})), run)


@hookimpl
def attnbench_executors() -> tuple[Executor, ...]:
    return (Executor("pretended", "Processes of this machine.", connect),)
