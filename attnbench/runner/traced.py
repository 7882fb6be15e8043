"""What a contender's call ran, and whose kernel that is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from attnbench.runner.link import WorkerFailed, WorkerLink
from attnbench.types.backend import Backend
from attnbench.types.words import clean
from attnbench.worker import messages as m

_COUNT = re.compile(r" x\d+$")


@dataclass(frozen=True)
class Ran:
    """What one call ran, names with counts in order (``bmm x2``). notes: what could not be told, and why."""

    ops: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def trace_call(link: WorkerLink, timeout_s: float) -> Ran:
    """Have a prepared worker that has inputs tell what one call runs; where it can't, a note says why.

    The worker is to be timed no more: it may be gone then.
    """
    try:
        traced, _ = link.ask(m.TraceCall(), m.Traced, timeout_s)
    except WorkerFailed as failure:
        return Ran(notes=(clean(f"what ran is not known: {failure.reason}"),))
    return Ran(tuple(clean(text) for text in traced.ran), (clean(traced.problem),) if traced.problem else ())


def kernel_of(ran: Sequence[str], backend: Backend, others: Iterable[Backend]) -> str:
    """The name of the other backend whose kernel is among what ran; "" where there is none.

    A mark that the backend declares too is its own. Of several the one that ran first.
    """
    owners = {mark: other.name for other in others if other.name != backend.name for mark in other.marks}
    names = (_COUNT.sub("", text) for text in ran)
    return next((owners[name] for name in names if name in owners and name not in backend.marks), "")
