"""A folder on a shared disk through which the driver hands tasks to a job, one after the other.

``driver`` and ``job/beat`` are counters: a side that does not count any more is gone. Of task N, ``N.task``
is what to run, ``N.out`` what it sends home, ``N.end`` its end, and ``N.stop`` says that it is not wanted any
more. ``last`` says that no task follows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from attnbench import PlaceLost, Task
from attnbench.fleet.node import run_here
from attnbench.results.disk import force_to_disk
from attnbench.types.fleet import Ended, Pieces

if TYPE_CHECKING:
    from submitit.core.core import Job

SET_BY_SLURM = (
    "SLURM", "SBATCH_", "SRUN_", "SUBMITIT_", "PMI_", "PMIX_", "OMP_NUM_THREADS", "MKL_NUM_THREADS"
)  # fmt: skip
"""Beginnings of the variables that Slurm, its sites and submitit set. CUDA_VISIBLE_DEVICES stays."""

LOOK_S = 0.3
BEAT_S = 2.0
SILENT_S = 20.0
"""After a silence of this length Slurm is asked whether the job still runs."""
GONE_S = 120.0
"""After this the side is given up, whatever Slurm says. A shared disk may stop for a minute."""
CLOSING_S = 10.0


class Message(Struct, frozen=True):
    """The end of a task. sent: the bytes that it sent home before, which a shared disk may show later."""

    sent: int
    ended: Ended


@dataclass
class Pulse:
    """Tells for how long a counter in a file has stood still, by this machine's clock alone."""

    path: Path
    _seen: bytes = b""
    _since_s: float = field(default_factory=time.monotonic)

    def silent_s(self) -> float:
        """Return the seconds since it last changed, 0 on the first look."""
        try:
            now = self.path.read_bytes()
        except OSError:
            now = b""
        if now != self._seen:
            self._seen, self._since_s = now, time.monotonic()
        return time.monotonic() - self._since_s


def beat(path: Path, ended: Event) -> None:
    """Count in a file until the end."""
    for number in count(1):
        put(path, str(number).encode())
        if ended.wait(BEAT_S):
            return


def put(path: Path, content: bytes) -> None:
    """Write a file that others see whole or not at all."""
    hidden = path.with_name(f"{path.name}.new")
    hidden.write_bytes(content)
    hidden.replace(path)


def serve(folder: str) -> None:
    """Run the tasks of a folder in a job, until none follows or the driver is gone."""
    desk = Path(folder)
    driver = Pulse(desk.parent / "driver")
    ended = Event()
    Thread(target=beat, args=(desk / "beat", ended), daemon=True).start()
    try:
        for number in count():
            while not (desk / f"{number}.task").exists():
                if (desk / "last").exists() or driver.silent_s() > GONE_S:
                    return
                time.sleep(LOOK_S)
            _serve_one(desk, number, driver)
    finally:
        ended.set()


def _serve_one(desk: Path, number: int, driver: Pulse) -> None:
    task = msgspec.json.decode((desk / f"{number}.task").read_bytes(), type=Task)
    unwanted, over = Event(), Event()

    def watch() -> None:
        while not over.wait(LOOK_S):
            if (
                any((desk / name).exists() for name in (f"{number}.stop", "last"))
                or driver.silent_s() > GONE_S
            ):
                unwanted.set()
                return

    Thread(target=watch, daemon=True).start()
    with (desk / f"{number}.out").open("wb") as out:
        try:
            for piece in run_here(replace(task, dropped=SET_BY_SLURM), unwanted):
                if isinstance(piece, Ended):
                    message = Message(out.tell(), piece)
                else:
                    out.write(piece)
                    out.flush()
                    force_to_disk(out.fileno(), desk)
        finally:
            over.set()
    put(desk / f"{number}.end", msgspec.json.encode(message))


@dataclass
class Desk:
    """The driver's side. wait_min: the longest that the job may wait to start. lost: why it is given up."""

    folder: Path
    job: Job[None]
    wait_min: float
    lost: str = ""
    _tasks: count[int] = field(default_factory=count)

    def run(self, task: Task) -> Pieces:
        """Run a task in the job; raises :class:`PlaceLost` if the job is gone."""
        if self.lost:
            raise PlaceLost(self.lost)
        number = next(self._tasks)
        put(self.folder / f"{number}.task", msgspec.json.encode(task))
        try:
            yield from self._followed(number)
        except PlaceLost as failure:
            self.lost = str(failure)
            raise
        finally:
            (self.folder / f"{number}.stop").touch()

    def _followed(self, number: int) -> Iterator[bytes | Ended]:
        """Yield what a task sends home, then its end."""
        out, end = self.folder / f"{number}.out", self.folder / f"{number}.end"
        pulse = Pulse(self.folder / "beat")
        sent = 0
        while True:
            message = msgspec.json.decode(end.read_bytes(), type=Message) if end.exists() else None
            if out.exists() and (new := _from(out, sent)):
                sent += len(new)
                yield new
            if message is not None and sent >= message.sent:
                yield message.ended
                return
            self._check_there(pulse)
            time.sleep(LOOK_S)

    def _check_there(self, pulse: Pulse) -> None:
        """Raise :class:`PlaceLost` if the job is gone."""
        silent_s = pulse.silent_s()
        if not (self.folder / "beat").exists():
            if silent_s > 60 * self.wait_min:
                raise PlaceLost(f"job {self.job.job_id} was not started within {self.wait_min:g} minutes")
            if self.job.done():
                raise PlaceLost(f"job {self.job.job_id} ended before its first task: {self._last_words()}")
        elif silent_s > GONE_S:
            raise PlaceLost(f"job {self.job.job_id} has been silent for {GONE_S:g} s")
        elif silent_s > SILENT_S and self.job.done(force_check=True):
            raise PlaceLost(f"job {self.job.job_id} ended: {self._last_words()}")

    def _last_words(self) -> str:
        """Return the state of the job, and what it said last."""
        lines = (self.job.stderr() or "").strip().splitlines()
        return ": ".join([self.job.state, *lines[-1:]])

    def let_end(self) -> None:
        """Say that no task follows; one that runs is ended."""
        (self.folder / "last").touch()

    def cancel(self) -> None:
        """Cancel the job, but give one that has started time to end by itself."""
        deadline = time.monotonic() + CLOSING_S
        started = (self.folder / "beat").exists()
        while started and not self.job.paths.result_pickle.exists() and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        self.job.cancel(check=False)


def _from(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read()
