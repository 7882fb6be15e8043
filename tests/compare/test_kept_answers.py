"""Answers that are kept are found by the calls in which they can't be; what a pause takes is no doubt."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from made_sets import block, set_line

from attnbench.stats.doubts import FEWEST, kept_answers
from attnbench.types.record import SetLine

US = 1_000
KEPT = [1000] * FEWEST


def sets(renewed_us: Sequence[int], others_us: int = 200, *, turns: int = 4, calls: int = 2) -> list[SetLine]:
    """A set for each call on inputs written anew."""
    walls = [calls * others_us * US] * turns
    return [
        set_line(index, mine=[block(walls, calls=calls, renewed_ns=renewed * US)])
        for index, renewed in enumerate(renewed_us)
    ]


def test_calls_that_do_more_where_inputs_are_new_are_told_with_both_times() -> None:
    assert kept_answers(sets(KEPT), "mine", 1, read_ns=0) == (
        "its first calls on inputs written anew take 1 ms or more (in three of four), "
        "and its others 0.2 ms (median), as where answers are kept"
    )


@pytest.mark.parametrize(
    "renewed_us",
    [
        [200] * FEWEST,
        [325] * FEWEST,  # 100 µs for what has not run for a moment, and a seventh
        [*[200] * (FEWEST // 2), *[1000] * (FEWEST // 2)],  # a busy machine
        [1000] * (FEWEST - 1),
        [0] * FEWEST,
    ],
)
def test_what_noise_and_a_pause_make_is_no_doubt(renewed_us: list[int]) -> None:
    assert kept_answers(sets(renewed_us), "mine", 1, read_ns=0) == ""


def test_small_calls_of_right_kernels_between_other_work_are_believed() -> None:
    """As measured of sdpa_math with two cores for a dozen processes: 91 µs, and 44 µs of all others."""
    assert kept_answers(sets([91] * FEWEST, others_us=44), "mine", 1, read_ns=500) == ""


def test_who_gives_again_what_it_has_is_allowed_the_least() -> None:
    """70 µs saved of a small call: an honest one of that length would be believed."""
    assert kept_answers(sets([80] * FEWEST, others_us=10), "mine", 1, read_ns=0)
    assert kept_answers(sets([60] * FEWEST, others_us=10), "mine", 1, read_ns=0) == ""
    assert kept_answers(sets([170] * FEWEST, others_us=75), "mine", 1, read_ns=0)
    assert kept_answers(sets([160] * FEWEST, others_us=75), "mine", 1, read_ns=0) == ""


def test_one_in_eight_may_be_as_fast_as_the_others() -> None:
    assert kept_answers(sets([200, *KEPT[1:]]), "mine", 1, read_ns=0)


def test_reading_inputs_again_is_allowed_for() -> None:
    assert kept_answers(sets(KEPT), "mine", 1, read_ns=300 * US)
    assert kept_answers(sets(KEPT), "mine", 1, read_ns=400 * US) == ""


def test_of_two_turns_the_other_counts() -> None:
    both = block([1000 * US, 200 * US], renewed_ns=1000 * US)
    assert kept_answers([set_line(mine=[both])] * FEWEST, "mine", 1, read_ns=0)


def test_where_every_call_had_new_inputs_there_is_nothing_to_compare() -> None:
    assert kept_answers(sets(KEPT, turns=1, calls=1), "mine", 1, read_ns=0) == ""


def test_several_threads_and_others_are_not_meant() -> None:
    assert kept_answers(sets(KEPT), "mine", 2, read_ns=0) == ""
    assert kept_answers(sets(KEPT), "yours", 1, read_ns=0) == ""
