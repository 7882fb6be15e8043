"""The devices of this machine: its processor, and each card that torch finds."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Event

import msgspec

from attnbench.fleet.facts import DeviceFacts
from attnbench.fleet.node import run_here
from attnbench.results.disk import lock, open_lock
from attnbench.types.device import CPU, CUDA
from attnbench.types.errors import BadInput, MeasuringFailed
from attnbench.types.fleet import Ended, Executor, Fleet, Pieces, Place, Task

_VISIBLE = "CUDA_VISIBLE_DEVICES"


@contextmanager
def connect(address: str) -> Iterator[Fleet]:
    """Yield the places of this machine; the address must be empty."""
    if address:
        raise BadInput(f"--on local:{address}: local has no address")
    *_, ended = run_here(Task(("attnbench.fleet.facts",)))
    if not isinstance(ended, Ended) or ended.status:
        raise MeasuringFailed("local: can't read the facts of this machine")
    cards = msgspec.json.decode(ended.stdout, type=DeviceFacts).cuda_devices
    visible = [word for word in os.environ.get(_VISIBLE, "").split(",") if word]
    gpus = {f"gpu{n}": visible[n] if visible else str(n) for n in range(len(cards))}
    stop = Event()

    def run(place: Place, task: Task) -> Pieces:
        shown = {_VISIBLE: gpus[place.name]} if place.device == CUDA.name else {}
        # A command that measures nothing waits for nobody.
        with _lease(shown.get(_VISIBLE)) if task.follow else nullcontext():
            yield from run_here(msgspec.structs.replace(task, variables=task.variables | shown), stop)

    try:
        yield Fleet((Place(CPU.name, CPU.name), *(Place(name, CUDA.name) for name in gpus)), run)
    finally:
        stop.set()


@contextmanager
def _lease(card: str | None) -> Iterator[None]:
    """Hold a card, or the processor (None): other runs of this user with ``--on local`` wait for it.

    Cards of one machine may work at the same time. Cases on the processor have the machine for themselves.
    """
    locks = {CPU.name: False} if card is None else {CPU.name: True, f"gpu{card}": False}
    folder = _private_folder()
    with ExitStack() as held:
        for name, shared in locks.items():
            path = folder / f"{name.replace('/', '-')}.lock"
            try:
                fd = held.enter_context(open_lock(path)).fileno()
            except OSError as failure:
                raise BadInput(f"can't lock {str(path)!r}: {failure.strerror}; remove it") from failure
            if not lock(fd, path, shared=shared):
                busy = "the processor" if name == CPU.name else f"the card {card}"
                print(  # noqa: T201
                    f"attnbench: {busy} is measured by another run with --on local: this one waits until "
                    f"{str(path)!r} is free",
                    file=sys.stderr,
                )
                lock(fd, path, shared=shared, wait=True)
        yield


def _private_folder() -> Path:
    """Make the folder of this user's locks.

    Raises:
        BadInput: somebody else made it, or others can write there.
    """
    folder = Path(tempfile.gettempdir()) / f"attnbench-locks-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise BadInput(
            f"{str(folder)!r} must be a folder of yours in which nobody else can write, since runs on this "
            "machine wait for each other there: remove it"
        )
    return folder


LOCAL = Executor("local", "The devices of this machine, one task at a time on each.", connect)
