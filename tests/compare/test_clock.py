"""A worker's clock is held against the parent's wait for the whole block."""

from __future__ import annotations

import pytest

from attnbench.compare.summary import MESSAGE_NS, clock_problem
from attnbench.types.record import Block, SetLine

MS = 1_000_000


def sets(*told_and_asked_ms: tuple[float, float]) -> list[SetLine]:
    blocks = [
        Block(i, 0, 1, [int(told * MS)], [0], [0], [0], asked_ns=int(asked * MS))
        for i, (told, asked) in enumerate(told_and_asked_ms)
    ]
    return [SetLine("case", 0, [0], ["mine"], {}, {"mine": blocks}, [], {})]


@pytest.mark.parametrize(
    "told_and_asked",
    [(7, 7.5), (7, 9), (0.1, 2.3), (5, 11), (5, 20)],
    ids=["quick answer", "slow answer", "mostly messages", "a call before it", "a busy machine"],
)
def test_an_honest_clock_is_believed(told_and_asked: tuple[float, float]) -> None:
    assert clock_problem(sets(*[told_and_asked] * 16), "mine") == ""


def test_a_clock_that_runs_at_a_hundredth_is_not() -> None:
    words = clock_problem(sets(*[(0.07, 7.5)] * 16), "mine")
    assert words == "its samples add up to 1.12 ms by the worker's clock, and took 88 ms by the parent's"


def test_one_slow_answer_among_many_is_no_doubt() -> None:
    assert clock_problem(sets(*[(7, 7.5)] * 15, (7, 200)), "mine") == ""


def test_without_the_parents_clock_there_is_nothing_to_doubt() -> None:
    assert clock_problem(sets((0.01, 0)), "mine") == ""
    assert clock_problem([], "mine") == ""


def test_a_message_alone_is_never_doubted() -> None:
    assert clock_problem(sets(*[(0.0001, MESSAGE_NS / MS)] * 100), "mine") == ""
