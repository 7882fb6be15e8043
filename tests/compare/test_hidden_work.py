"""Other threads that work while one is timed are found, what libraries do for themselves is not."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest
from made_sets import block, set_line

from attnbench.stats.doubts import hidden_work
from attnbench.types.record import SetLine


@dataclass(frozen=True)
class Told:
    own_ms: float
    others_ms: float
    mode: str = ""


def sets(*stretches: Told) -> list[SetLine]:
    blocks = []
    for number, told in enumerate(stretches):
        one = block([1_000_000], stretch=number)
        blocks.append(
            msgspec.structs.replace(
                one,
                cpu_ns=[round(told.own_ms * 1e6)],
                others_cpu_ns=round(told.others_ms * 1e6),
                mode=told.mode,
            )
        )
    return [set_line(mine=blocks)]


def test_a_thread_that_does_half_of_the_work_is_found() -> None:
    assert hidden_work(sets(Told(30, 30), Told(30, 30)), "mine", 1) == (
        "other threads of its process had 60 ms of CPU time while its samples, "
        "in a case of one thread, had 60 ms"
    )


@pytest.mark.parametrize("told", [Told(30, 0), Told(30, 5), Told(0.01, 1.9), Told(30, 30, "batch")])
def test_what_libraries_do_and_what_a_device_needs_is_no_doubt(told: Told) -> None:
    assert hidden_work(sets(told), "mine", 1) == ""


def test_a_case_of_several_threads_has_several() -> None:
    assert hidden_work(sets(Told(30, 30)), "mine", 2) == ""


def test_who_has_no_samples_hid_nothing() -> None:
    assert hidden_work(sets(Told(30, 30)), "yours", 1) == ""
