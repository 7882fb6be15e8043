"""Slots of calls with several threads."""

from __future__ import annotations

import time

from attnbench.worker.slots import settle


def test_a_call_that_keeps_its_core_is_settled_and_one_that_sleeps_is_given_up() -> None:
    calls: list[int] = []

    def sleeps(size: int) -> None:
        calls.append(size)
        time.sleep(0.004)

    assert not settle(sleeps, (3,))
    # Else a backend that waits for threads of its own would be called without end.
    assert 1 < len(calls) <= 6

    def works(size: int) -> None:
        while time.thread_time_ns() < ends_ns:
            pass
        calls.append(size)

    calls.clear()
    ends_ns = time.thread_time_ns() + 1
    settle(works, (3,))
    assert calls
