"""Answers that are kept are found by the calls in which they can't be; what a pause takes is no doubt."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from made_repetitions import block, repetition_line

from attnbench.stats.doubts import FEWEST, kept_answers
from attnbench.types.record import RepetitionLine

US = 1_000
KEPT = [1000] * FEWEST


def repetitions(
    refreshed_us: Sequence[int], others_us: int = 200, *, slots: int = 4, calls: int = 2
) -> list[RepetitionLine]:
    """A repetition for each call on inputs written anew."""
    walls = [calls * others_us * US] * slots
    return [
        repetition_line(index, mine=[block(walls, calls=calls, refreshed_ns=refreshed * US)])
        for index, refreshed in enumerate(refreshed_us)
    ]


def test_calls_that_do_more_where_inputs_are_new_are_told_with_both_times() -> None:
    assert kept_answers(repetitions(KEPT), "mine", 1, read_ns=0) == (
        "its first calls on new inputs take 1 ms or more (three of four), "
        "its other calls 0.2 ms (median), as if it kept answers"
    )


def test_on_a_busy_machine_it_is_doubted_all_the_same_but_may_not_be_to_blame() -> None:
    lines = [
        repetition_line(
            index, mine=[block([400 * US] * 4, cpu_ns=[200 * US] * 4, calls=2, refreshed_ns=10**6)]
        )
        for index in range(FEWEST)
    ]
    found = kept_answers(lines, "mine", 1, read_ns=0)
    assert found.endswith(", or the machine was busy: measure again: attnbench run case --backend mine")


@pytest.mark.parametrize(
    ("mine_us", "others_us", "doubted"),
    [
        ((135, 57), [(20, 18)], True),
        ((135, 57), [(91, 44), (91, 44), (20, 18)], False),
        # Most others must have 25 µs more than a seventh, which 70 is not.
        ((135, 57), [(91, 44), (70, 44)], True),
        # As measured of eager on a busy machine, where what ran beside it was slow on new inputs too.
        ((135, 57), [(91, 44)], False),
        # What keeps answers is found there all the same.
        ((135, 10), [(91, 44)], True),
        ((1000, 400), [(91, 44)], True),
        # One that keeps answers excuses another by no more than a busy machine.
        ((135, 10), [(135, 10)], True),
    ],
)
def test_fresh_calls_of_others_tell_of_a_busy_machine(
    mine_us: tuple[int, int], others_us: list[tuple[int, int]], doubted: bool
) -> None:
    names = ("mine", "eager", "bmm", "sdpa_math")
    blocks = {
        name: [block([others * US] * 4, refreshed_ns=fresh * US)]
        for name, (fresh, others) in zip(names, (mine_us, *others_us), strict=False)
    }
    lines = [repetition_line(index, **blocks) for index in range(FEWEST)]
    assert bool(kept_answers(lines, "mine", 1, read_ns=0)) == doubted


@pytest.mark.parametrize(
    ("refreshed_us", "others_us", "read_us", "doubted"),
    [
        ([200] * FEWEST, 200, 0, False),
        ([325] * FEWEST, 200, 0, False),  # 100 µs for what has not run for a moment, and a seventh
        ([200, *KEPT[1:]], 200, 0, True),  # one in eight may be as fast as the others
        ([*[200] * (FEWEST // 2), *[1000] * (FEWEST // 2)], 200, 0, False),  # a busy machine
        ([1000] * (FEWEST - 1), 200, 0, False),
        ([0] * FEWEST, 200, 0, False),
        # As measured of sdpa_math with two cores for a dozen processes: 91 µs, and 44 µs of all others.
        ([91] * FEWEST, 44, 0.5, False),
        # A backend that keeps answers is allowed the least: an honest call of that length would be believed.
        ([80] * FEWEST, 10, 0, True),
        ([60] * FEWEST, 10, 0, False),
        ([170] * FEWEST, 75, 0, True),
        ([160] * FEWEST, 75, 0, False),
        # Inputs have to be read again.
        (KEPT, 200, 300, True),
        (KEPT, 200, 400, False),
    ],
)
def test_what_noise_a_pause_and_reading_make_is_no_doubt(
    refreshed_us: list[int], others_us: int, read_us: float, doubted: bool
) -> None:
    found = kept_answers(repetitions(refreshed_us, others_us), "mine", 1, read_ns=read_us * US)
    assert bool(found) == doubted


def test_of_two_turns_the_other_counts() -> None:
    both = block([1000 * US, 200 * US], refreshed_ns=1000 * US)
    assert kept_answers([repetition_line(mine=[both])] * FEWEST, "mine", 1, read_ns=0)


def test_where_every_call_had_new_inputs_there_is_nothing_to_compare() -> None:
    assert kept_answers(repetitions(KEPT, slots=1, calls=1), "mine", 1, read_ns=0) == ""


def test_several_threads_and_others_are_not_meant() -> None:
    assert kept_answers(repetitions(KEPT), "mine", 2, read_ns=0) == ""
    assert kept_answers(repetitions(KEPT), "yours", 1, read_ns=0) == ""
