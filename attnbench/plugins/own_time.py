"""CPU time of this thread without what garbage collections took of it."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Spent:
    """cpu_s: once it is over."""

    cpu_s: float = 0.0


@contextmanager
def own_time() -> Iterator[Spent]:
    """What is done inside, in CPU time of this thread.

    A collection looks through all that this process holds, in a notebook for most of a second. It isn't
    turned off: plugins load as they do elsewhere.
    """
    spent, collecting_s, begun_s = Spent(), 0.0, 0.0

    def watch(phase: str, info: dict[str, int]) -> None:
        nonlocal collecting_s, begun_s
        if phase == "start":
            begun_s = time.thread_time()
        else:
            collecting_s += time.thread_time() - begun_s

    gc.callbacks.append(watch)
    before_s = time.thread_time()
    try:
        yield spent
    finally:
        spent.cpu_s = time.thread_time() - before_s - collecting_s
        gc.callbacks.remove(watch)
