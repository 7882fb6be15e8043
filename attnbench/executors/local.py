"""The devices of this machine: its processor, and each card that torch finds."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from threading import Event

import msgspec

from attnbench.fleet.facts import Facts
from attnbench.fleet.node import run_here
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
    cards = msgspec.json.decode(ended.stdout, type=Facts).cuda_devices
    visible = [word for word in os.environ.get(_VISIBLE, "").split(",") if word]
    gpus = {f"gpu{n}": visible[n] if visible else str(n) for n in range(len(cards))}
    stop = Event()

    def run(place: Place, task: Task) -> Pieces:
        shown = {_VISIBLE: gpus[place.name]} if place.device == "cuda" else {}
        # What measures nothing waits for nobody.
        with _lease(shown.get(_VISIBLE)) if task.follow else nullcontext():
            yield from run_here(msgspec.structs.replace(task, variables=task.variables | shown), stop)

    try:
        yield Fleet((Place("cpu", "cpu"), *(Place(name, "cuda") for name in gpus)), run)
    finally:
        stop.set()


@contextmanager
def _lease(card: str | None) -> Iterator[None]:
    """Hold a card, or the processor (None): other runs of this user with ``--on local`` wait for it.

    Cards of one machine may work at the same time. Cases on the processor have the machine for themselves.
    """
    import fcntl

    locks = {"cpu": fcntl.LOCK_EX} if card is None else {"cpu": fcntl.LOCK_SH, f"gpu{card}": fcntl.LOCK_EX}
    with ExitStack() as held:
        for name, kind in locks.items():
            path = Path(tempfile.gettempdir()) / f"attnbench-{os.getuid()}-{name.replace('/', '-')}.lock"
            fcntl.flock(held.enter_context(path.open("w")), kind)
        yield


LOCAL = Executor("local", "The devices of this machine, one task at a time on each.", connect)
