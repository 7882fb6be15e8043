"""Statistics of samples: a worked example, and what may not change a number."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.compare.summary import (
    block_ns,
    median_ms,
    ratio,
    set_medians_ms,
    timed_calls,
)
from attnbench.types.record import Block, SetLine


def block(number: int, calls: int, wall_ns: list[int]) -> Block:
    zeros = [0] * len(wall_ns)
    return Block(number, 0, calls, wall_ns, zeros, zeros, zeros)


def line(index: int, **blocks: list[Block]) -> SetLine:
    return SetLine("case", index, [0], list(blocks), {}, blocks, [], {})


def test_a_worked_example() -> None:
    """Two sets of two rounds, by hand."""
    sets = [
        line(
            0,
            mine=[block(0, 2, [600, 640, 620]), block(1, 2, [1000, 1400, 1200])],
            base=[block(0, 1, [100, 100, 400]), block(1, 1, [150, 150, 150])],
        ),
        line(
            1,
            mine=[block(0, 2, [400, 400, 400]), block(1, 2, [400, 400, 1000])],
            base=[block(0, 1, [100, 100, 100]), block(1, 1, [100, 100, 100])],
        ),
    ]
    # Per call: 300 320 310 | 500 700 600 and 200 200 200 | 200 200 500.
    assert set_medians_ms(sets, "mine") == pytest.approx([410e-6, 200e-6])
    assert median_ms(sets, "mine") == pytest.approx(305e-6)
    # Ratios of the rounds: 310/100, 600/150 and 200/100, 200/100; medians are taken of their logarithms.
    first = math.sqrt(3.1 * 4.0)
    assert ratio(sets, "mine", "base") == pytest.approx(math.sqrt(first * 2.0))
    assert timed_calls(sets, "mine") == 24
    assert timed_calls(sets, "base") == 12


SAMPLES = st.lists(st.integers(1, 10**9), min_size=1, max_size=5)
SETS = st.lists(st.lists(st.tuples(SAMPLES, SAMPLES), min_size=1, max_size=4), min_size=1, max_size=5)
Walls = list[list[tuple[list[int], list[int]]]]


def sets_of(walls: Walls, calls: int = 1, shuffled: Random | None = None) -> list[SetLine]:
    lines = []
    for index, rounds in enumerate(walls):
        mine = [block(number, calls, a) for number, (a, _) in enumerate(rounds)]
        base = [block(number, calls, b) for number, (_, b) in enumerate(rounds)]
        if shuffled:
            shuffled.shuffle(mine)
            shuffled.shuffle(base)
        lines.append(line(index, mine=mine, base=base))
    if shuffled:
        shuffled.shuffle(lines)
    return lines


@given(SETS, st.integers(0, 2**16))
def test_the_order_of_lines_and_blocks_is_of_no_account(walls: Walls, seed: int) -> None:
    straight, mixed = sets_of(walls), sets_of(walls, shuffled=Random(seed))
    assert median_ms(mixed, "mine") == median_ms(straight, "mine")
    assert ratio(mixed, "mine", "base") == ratio(straight, "mine", "base")
    assert sorted(set_medians_ms(mixed, "mine")) == sorted(set_medians_ms(straight, "mine"))


@given(SETS)
def test_numbers_lie_within_the_samples(walls: Walls) -> None:
    sets = sets_of(walls)
    mine = [wall for rounds in walls for a, _ in rounds for wall in a]
    base = [wall for rounds in walls for _, b in rounds for wall in b]
    time, relative = median_ms(sets, "mine"), ratio(sets, "mine", "base")
    assert time is not None
    assert relative is not None
    assert min(mine) / 1e6 <= time <= max(mine) / 1e6
    least, most = min(mine) / max(base), max(mine) / min(base)
    assert least * (1 - 1e-9) <= relative <= most * (1 + 1e-9)


@given(SETS, st.integers(2, 1000))
def test_longer_samples_of_as_many_more_calls_are_the_same_time(walls: Walls, times: int) -> None:
    longer: Walls = [
        [([x * times for x in a], [y * times for y in b]) for a, b in rounds] for rounds in walls
    ]
    assert median_ms(sets_of(longer, times), "mine") == pytest.approx(median_ms(sets_of(walls), "mine"))
    assert ratio(sets_of(longer, times), "mine", "base") == pytest.approx(
        ratio(sets_of(walls), "mine", "base")
    )
    assert timed_calls(sets_of(longer, times), "mine") == times * timed_calls(sets_of(walls), "mine")


@given(SETS)
def test_anything_is_one_to_itself(walls: Walls) -> None:
    assert ratio(sets_of(walls), "mine", "mine") == 1.0


@given(st.lists(st.integers(1, 10**6), min_size=3, max_size=9), st.integers(10**7, 10**12))
def test_one_interrupted_sample_of_three_or_more_moves_nothing_out_of_reach(
    walls: list[int], pause: int
) -> None:
    """The median holds where a mean would follow the pause."""
    disturbed = [walls[0] + pause, *walls[1:]]
    assert block_ns(block(0, 1, disturbed)) <= max(walls[1:])
