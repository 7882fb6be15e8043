"""One time and one ratio from the samples of sets, on samples whose answer is known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.compare.summary import median_ms, paired_log_ratio, ratio, set_median_ns, timed_calls
from attnbench.types.record import Block, SetLine


def block(round_: int, calls: int, *wall_ns: int) -> Block:
    zeros = [0] * len(wall_ns)
    return Block(round_, 0, calls, list(wall_ns), zeros, zeros, zeros)


def set_line(index: int, **blocks: list[Block]) -> SetLine:
    return SetLine("case", index, 0, list(blocks), {}, blocks, [], {})


def test_a_block_counts_per_call() -> None:
    assert set_median_ns([block(0, 10, 100, 300, 200)]) == 20


def test_the_median_of_a_set_is_over_all_its_samples() -> None:
    assert set_median_ns([block(0, 1, 10, 20), block(1, 1, 90)]) == 20


def test_pairs_are_taken_within_a_round() -> None:
    """The machine is twice as slow in round 1: paired, nothing of it is left in the ratio."""
    base = [block(0, 1, 100), block(1, 1, 200)]
    mine = [block(0, 1, 150), block(1, 1, 300)]
    assert math.exp(paired_log_ratio(mine, base) or 0) == pytest.approx(1.5)


def test_a_round_without_the_baseline_makes_no_pair() -> None:
    assert paired_log_ratio([block(3, 1, 100)], [block(0, 1, 100)]) is None


def test_median_over_sets_in_milliseconds() -> None:
    sets = [set_line(i, a=[block(0, 1, ns)]) for i, ns in enumerate((1_000_000, 9_000_000, 2_000_000))]
    assert median_ms(sets, "a") == 2.0


def test_sets_without_the_backend_do_not_count() -> None:
    sets = [set_line(0, a=[block(0, 1, 4)], b=[block(0, 1, 2)]), set_line(1, b=[block(0, 1, 2)])]
    assert ratio(sets, "a", "b") == pytest.approx(2.0)
    assert timed_calls(sets, "a") == 1
    assert timed_calls(sets, "b") == 2


def test_nothing_measured_gives_nothing() -> None:
    assert median_ms([], "a") is None
    assert ratio([set_line(0, a=[block(0, 1, 1)])], "a", "missing") is None


@given(
    st.lists(st.tuples(st.integers(1, 10**9), st.integers(1, 10**9)), min_size=1, max_size=9),
)
def test_the_ratio_of_the_inverse_pair_is_the_inverse(pairs: list[tuple[int, int]]) -> None:
    sets = [set_line(i, a=[block(0, 1, x)], b=[block(0, 1, y)]) for i, (x, y) in enumerate(pairs)]
    forward, backward = ratio(sets, "a", "b"), ratio(sets, "b", "a")
    assert forward is not None
    assert backward is not None
    assert forward * backward == pytest.approx(1.0)


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=9), st.integers(1, 1000))
def test_a_machine_uniformly_slower_leaves_the_ratio(times: list[int], factor: int) -> None:
    quick = [set_line(i, a=[block(0, 1, t)], b=[block(0, 1, 7 * t)]) for i, t in enumerate(times)]
    slow = [
        set_line(i, a=[block(0, 1, factor * t)], b=[block(0, 1, 7 * factor * t)]) for i, t in enumerate(times)
    ]
    assert ratio(slow, "a", "b") == pytest.approx(ratio(quick, "a", "b"))
