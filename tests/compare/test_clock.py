"""A worker's clock is held against those of the processes before and after it."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from made_sets import block, set_line

from attnbench.stats.doubts import HANDOFF_NS, clock_problem
from attnbench.types.record import SetLine

US = 1_000


def sets(
    *told_and_asked_us: tuple[float, float], calls: int = 1, ran: float = 0, waited: float = 0
) -> list[SetLine]:
    """Nine sets of two stretches that all have these turns, which ran and waited so long on average, µs."""
    told = [round(told * US) for told, _ in told_and_asked_us]
    asked = [round(asked * US) for _, asked in told_and_asked_us]
    core = {"ran_ns": round(ran * US), "waited_ns": round(waited * US)}
    blocks = [block(told, stretch=i, calls=calls, asked_ns=asked, **core) for i in range(2)]
    return [set_line(i, mine=blocks) for i in range(9)]


@pytest.mark.parametrize(
    ("told", "asked"),
    [(400, 450), (400, 650), (100_000, 200_000), (0.1, 190), (400, 1700)],
    ids=[
        "as it should be",
        "with warm calls",
        "a call before a long one",
        "a short sample",
        "a busy machine",
    ],
)
def test_an_honest_clock_is_believed(told: float, asked: float) -> None:
    assert clock_problem(sets((told, asked)), "mine") == ""


def test_a_clock_that_runs_at_a_hundredth_is_not() -> None:
    assert clock_problem(sets((4, 500)), "mine") == (
        "its turns take 0.004 ms by its own clock (median), "
        "and 0.5 ms or more by the clocks of other processes (19 of 20)"
    )


def test_four_of_five_turns_that_waited_are_no_doubt() -> None:
    """Two repetitions of short samples, on cores that have more than twice as much to do as they can."""
    waited = [(100, 900), (100, 2_400), (100, 110), (100, 4_000), (100, 900), (100, 700)]
    assert clock_problem(sets(*waited)[:2], "mine") == ""


def test_a_clock_that_is_wrong_in_most_turns_is_doubted() -> None:
    assert clock_problem(sets(*[(4, 500)] * 6, *[(400, 450)] * 4), "mine") != ""


def test_a_lie_that_does_not_move_the_median_is_none() -> None:
    assert clock_problem(sets(*[(4, 500)] * 4, *[(400, 500)] * 6), "mine") == ""


def test_turns_that_waited_for_the_core_are_no_doubt() -> None:
    """Where others hold the core for milliseconds at a time, in two turns of three."""
    waited = [(400, 4_500), (430, 8_000), (400, 460)] * 20
    assert clock_problem(sets(*waited), "mine") == ""
    rng = np.random.default_rng(1)
    waits = [(400.0, 450 + (rng.random() < 0.6) * rng.exponential(20_000)) for _ in range(40)]
    assert clock_problem(sets(*waits), "mine") == ""


def test_turns_that_all_waited_are_no_doubt_where_the_system_says_so() -> None:
    """Twelve runs on two cores; and a wrong clock, which an ordinary wait does not explain."""
    turns = [(550.0, 7_700 + 100 * (i % 50)) for i in range(50)]
    assert clock_problem(sets(*turns), "mine") != ""
    assert clock_problem(sets(*turns, ran=700, waited=9_000), "mine") == ""
    assert clock_problem(sets(*turns, ran=700, waited=100), "mine") != "", "it slept"
    assert clock_problem(sets(*turns, ran=7_000, waited=9_000), "mine") != "", "it worked"
    assert clock_problem(sets((4, 500), ran=490, waited=100), "mine") != ""


def test_warm_calls_are_part_of_a_turn() -> None:
    """Forty calls before each sample of ten."""
    asked = sets((100, 750), calls=10)
    assert clock_problem(asked, "mine") != ""
    assert clock_problem(asked, "mine", warm_calls=40) == ""
    assert clock_problem(sets((1, 750), calls=10), "mine", warm_calls=40) != ""


def test_without_the_others_clocks_there_is_nothing_to_doubt() -> None:
    assert clock_problem(sets((4, 0)), "mine") == ""
    assert clock_problem([set_line(0, mine=[block([4])])], "mine") == ""
    assert clock_problem([], "mine") == ""
    assert clock_problem(sets((4, 500)), "another") == ""


def test_turns_that_were_not_told_do_not_count() -> None:
    assert clock_problem(sets((4, 500), (400, 0), (400, 0), (400, 0)), "mine") != ""


def test_one_turn_alone_is_judged() -> None:
    one = [set_line(0, mine=[block([4 * US], asked_ns=[500 * US])])]
    assert clock_problem(one, "mine") != ""


def test_waking_the_next_alone_is_never_doubted() -> None:
    assert clock_problem(sets((0.001, HANDOFF_NS / US)), "mine") == ""


def device_sets(mode: str, wall_us: float, host_us: float, asked_us: float) -> list[SetLine]:
    """Turns of a device."""
    return [
        set_line(
            line.index,
            mine=[
                msgspec.structs.replace(b, mode=mode, host_ns=[round(host_us * US)])
                for b in line.blocks["mine"]
            ],
        )
        for line in sets((wall_us, asked_us))
    ]


def test_on_a_device_launching_counts_and_cold_launches_are_not_judged() -> None:
    assert clock_problem(device_sets("launches", 100, 1_000, 1_300), "mine") == ""
    assert clock_problem(device_sets("batch", 4, 10, 600), "mine") != ""
    assert clock_problem(device_sets("cold", 4, 10, 600), "mine") == ""
