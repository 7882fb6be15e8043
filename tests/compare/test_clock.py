"""A worker's clock is held against those of the processes before and after it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from made_sets import block, set_line

from attnbench.stats.doubts import HANDOFF_NS, clock_problem
from attnbench.types.record import SetLine

US = 1_000


def sets(*told_and_asked_us: tuple[float, float], host: float = 0, **more: Any) -> list[SetLine]:
    """Nine sets of two stretches that all have these turns; host: launching, µs; more: of the blocks."""
    told = [round(told * US) for told, _ in told_and_asked_us]
    asked = [round(asked * US) for _, asked in told_and_asked_us]
    launched = [round(host * US)] * len(told)
    blocks = [block(told, stretch=i, asked_ns=asked, host_ns=launched, **more) for i in range(2)]
    return [set_line(i, mine=blocks) for i in range(9)]


def random_waits() -> list[tuple[float, float]]:
    rng = np.random.default_rng(1)
    return [(400.0, 450 + (rng.random() < 0.6) * rng.exponential(20_000)) for _ in range(40)]


HONEST = {
    "as it should be": sets((400, 450)),
    "with warm calls": sets((400, 650)),
    "a call before a long one": sets((100_000, 200_000)),
    "a short sample": sets((0.1, 190)),
    "waking the next alone": sets((0.001, HANDOFF_NS / US)),
    "a busy machine": sets((400, 1700)),
    # Two repetitions of short samples, on cores that have more than twice as much to do as they can.
    "four of five turns waited": sets(
        (100, 900), (100, 2_400), (100, 110), (100, 4_000), (100, 900), (100, 700)
    )[:2],
    # Where others hold the core for milliseconds at a time.
    "two of three turns waited": sets(*[(400, 4_500), (430, 8_000), (400, 460)] * 20),
    "waits as they come": sets(*random_waits()),
    "wrong, and the median is not": sets(*[(4, 500)] * 4, *[(400, 500)] * 6),
    "without the others' clocks": sets((4, 0)),
    "never asked": [set_line(0, mine=[block([4])])],
    "no set": [],
    "launching on a device": sets((100, 1_300), mode="launches", host=1_000),
    "cold launches": sets((4, 600), mode="cold", host=10),
}
WRONG = {
    "in most turns": sets(*[(4, 500)] * 6, *[(400, 450)] * 4),
    "in the turns that were told": sets((4, 500), (400, 0), (400, 0), (400, 0)),
    "in one turn alone": [set_line(0, mine=[block([4 * US], asked_ns=[500 * US])])],
    "on a device": sets((4, 600), mode="batch", host=10),
    "what an ordinary wait does not explain": sets((4, 500), ran_ns=490 * US, waited_ns=100 * US),
}


@pytest.mark.parametrize("which", HONEST)
def test_an_honest_clock_is_believed(which: str) -> None:
    assert clock_problem(HONEST[which], "mine") == ""


@pytest.mark.parametrize("which", WRONG)
def test_a_wrong_clock_is_doubted(which: str) -> None:
    assert clock_problem(WRONG[which], "mine") != ""


def test_a_clock_that_runs_at_a_hundredth_is_told_with_both_times() -> None:
    assert clock_problem(sets((4, 500)), "mine") == (
        "its turns take 0.004 ms by its own clock (median), "
        "and 0.5 ms or more by the clocks of other processes (19 of 20)"
    )
    assert clock_problem(sets((4, 500)), "another") == ""


def test_turns_that_all_waited_are_no_doubt_where_the_system_says_so() -> None:
    """Twelve runs on two cores."""
    turns = [(550.0, 7_700 + 100 * (i % 50)) for i in range(50)]
    assert clock_problem(sets(*turns), "mine") != ""
    assert clock_problem(sets(*turns, ran_ns=700 * US, waited_ns=9_000 * US), "mine") == ""
    assert clock_problem(sets(*turns, ran_ns=700 * US, waited_ns=100 * US), "mine") != "", "it slept"
    assert clock_problem(sets(*turns, ran_ns=7_000 * US, waited_ns=9_000 * US), "mine") != "", "it worked"


def test_warm_calls_are_part_of_a_turn() -> None:
    """Forty calls before each sample of ten."""
    asked = sets((100, 750), calls=10)
    assert clock_problem(asked, "mine") != ""
    assert clock_problem(asked, "mine", warm_calls=40) == ""
    assert clock_problem(sets((1, 750), calls=10), "mine", warm_calls=40) != ""
