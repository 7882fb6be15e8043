"""Taking turns, in a real worker: a sample when the baton comes, then the baton on, until it's called off."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import chain, pairwise
from pathlib import Path

import pytest
from asked import ENOUGH_S, Asked, handoff

from attnbench.ipc import messages as m
from attnbench.ipc.names import CALLED_OFF
from attnbench.runner.link import WorkerFailed

New = Callable[[str], Asked]

SMALL = "attention/dot/B2-H2-Lq3-Lk5-D4-Dv4/none/float32"
IDLE = ("S", "I")


@pytest.fixture
def worker(prepared_worker: New) -> Asked:
    ready = prepared_worker(SMALL)
    ready.prepare("counts_calls")
    ready.give()
    return ready


def calls_made(worker: Asked) -> int:
    """By the last output of a timed call."""
    (count,) = set(worker.last().ravel())
    return int(count)


def descriptors(worker: Asked) -> int:
    # It answers before it closes what came with a question; this one comes with nothing.
    worker.link.ask(m.Reap(os.getpid()), m.Ended, ENOUGH_S)
    return len(list(Path(f"/proc/{worker.link.pid}/fd").iterdir()))


def test_each_turn_is_warm_calls_and_one_sample(worker: Asked) -> None:
    taken = worker.slots(calls=3, samples=5, warm_calls=2)
    assert taken.block.turns == [1, 4, 7, 10, 13]
    assert len(taken.block.wall_ns) == len(taken.received_ns) == len(taken.passed_ns) == 5
    assert calls_made(worker) == 5 * (2 + 3)


def test_turns_are_told_one_after_the_other_around_their_samples(worker: Asked) -> None:
    taken = worker.slots(calls=20, samples=6, warm_calls=10)
    times = list(chain.from_iterable(zip(taken.received_ns, taken.passed_ns, strict=True)))
    assert all(earlier <= later for earlier, later in pairwise(times))
    for wall, began, ended in zip(taken.block.wall_ns, taken.received_ns, taken.passed_ns, strict=True):
        assert 0 < wall < ended - began
    assert taken.block.asked_ns == [], "that is for others to tell"


def test_nothing_is_called_before_the_baton_comes(worker: Asked) -> None:
    """It waits in its sleep; then it goes on."""
    with handoff() as own, handoff() as other:
        worker.link.tell(m.TakeSlots(0, (0, 2), (1, -1), 1, 0), (own, other))
        watch = Path(f"/proc/{worker.link.pid}/stat")
        while watch.read_text().rpartition(")")[2].split()[0] not in IDLE:
            pass
        os.set_blocking(other, False)
        with pytest.raises(BlockingIOError):
            os.eventfd_read(other)
        os.set_blocking(other, True)
        os.eventfd_write(own, 1)
        assert os.eventfd_read(other) == 1
        os.eventfd_write(own, 1)
        taken, _ = worker.link.hear("TakeSlots", m.SlotsTaken, ENOUGH_S)
        assert taken.block.turns == [0, 2]
        os.set_blocking(other, False)
        with pytest.raises(BlockingIOError):
            os.eventfd_read(other)
    assert calls_made(worker) == 2


def test_called_off_before_its_first_turn_it_has_no_samples(worker: Asked) -> None:
    with handoff(CALLED_OFF) as own:
        request = m.TakeSlots(3, (0, 1), (0, -1), 2, 1)
        taken, _ = worker.link.ask(request, m.SlotsTaken, ENOUGH_S, (own,))
    assert (taken.block.stretch, taken.block.turns, taken.block.wall_ns) == (3, [], [])
    assert taken.received_ns == taken.passed_ns == []
    assert set(worker.output().ravel()) == {1}


def test_called_off_while_it_holds_the_baton_it_stops_after_that_turn(worker: Asked) -> None:
    """The baton that it got and the end of the stretch may come at once."""
    with handoff() as own, handoff() as other:
        worker.link.tell(m.TakeSlots(0, (0, 2, 4), (1, 1, -1), 4, 0), (own, other))
        os.eventfd_write(own, 1)
        assert os.eventfd_read(other) == 1
        os.eventfd_write(own, 1 + CALLED_OFF)
        taken, _ = worker.link.hear("TakeSlots", m.SlotsTaken, ENOUGH_S)
    assert taken.block.turns == [0]
    assert [len(column) for column in (taken.block.wall_ns, taken.received_ns, taken.passed_ns)] == [1] * 3
    assert calls_made(worker) == 4


def test_a_call_that_raises_in_its_turn_does_not_pass_the_baton_on(prepared_worker: New) -> None:
    worker = prepared_worker(SMALL)
    worker.prepare("raises_once_warm")
    worker.give()
    before = descriptors(worker)
    with handoff(1) as own, handoff() as other:
        request = m.TakeSlots(0, (0, 1), (0, 1), 2, 0)
        with pytest.raises(WorkerFailed, match=r"^the call raised ArithmeticError: tired$"):
            worker.link.ask(request, m.SlotsTaken, ENOUGH_S, (own, other))
        os.set_blocking(other, False)
        with pytest.raises(BlockingIOError):
            os.eventfd_read(other)
    assert worker.block(calls=1, samples=1).turns == [1]
    assert descriptors(worker) == before
