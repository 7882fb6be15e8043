"""Pairs: who is joined with whom, what is left out, and that it favours nobody."""

from __future__ import annotations

from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_repetitions import block, blocks

from attnbench.stats.pairs import repetition_log_ratios, samples_of
from attnbench.types.record import SegmentSamples

SEGMENTS = st.tuples(blocks(0), blocks(1)).map(list)


OTHER = block([1000], segment=1)


@pytest.mark.parametrize(
    ("candidate", "baseline", "ratios"),
    [
        # Samples are joined by their place, and times are per call.
        ([block([30, 80, 50])], [block([10, 20, 50])], [3, 4, 1]),
        ([block([600], calls=2)], [block([100], calls=1)], [3]),
        # The one with fewer samples lends each to several: of two, each to the three at its place.
        ([block([20, 20, 20, 90, 90, 90])], [block([10, 30])], [2, 2, 2, 3, 3, 3]),
        ([block([10, 30])], [block([20, 20, 20, 90, 90, 90])], [1 / 2, 1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 3]),
        # Pairs are within a segment, in the order of its slots.
        (
            [block([30], slots=[9]), OTHER, block([20], slots=[2])],
            [block([10, 10], slots=[1, 8])],
            [2, 3],
        ),
        ([OTHER], [block([10])], []),
        ([block([])], [block([100])], []),
        ([], [block([100])], []),
    ],
)
def test_who_is_joined_with_whom(
    candidate: list[SegmentSamples], baseline: list[SegmentSamples], ratios: list[float]
) -> None:
    found = repetition_log_ratios(candidate, baseline).log_ratios
    assert [exp(x) for x in found] == pytest.approx(ratios)


def test_every_sample_is_in_a_pair_whatever_the_counts() -> None:
    for m in range(1, 8):
        for n in range(1, 8):
            mine, base = [2 ** (i + 1) for i in range(m)], [3 ** (i + 1) for i in range(n)]
            found = repetition_log_ratios([block(mine)], [block(base)]).log_ratios
            assert len(found) == max(m, n)
            used = {
                (i, j) for x in found for i in range(m) for j in range(n) if x == log(mine[i]) - log(base[j])
            }
            assert {i for i, _ in used} == set(range(m))
            assert {j for _, j in used} == set(range(n))


def test_a_pair_is_left_out_where_either_side_was_preempted() -> None:
    """97 of 100 ns on the core is the least that counts."""
    mine = block([100, 100, 100, 100], cpu_ns=[96, 97, 100, 100])
    base = block([100, 100, 100, 200], cpu_ns=[100, 100, 96, 194])
    pairs = repetition_log_ratios([mine], [base])
    assert pairs.log_ratios == (0.0, log(100) - log(200))
    assert pairs.left_out == 2
    assert len(repetition_log_ratios([mine], [base], leave_out=False).log_ratios) == 4
    assert repetition_log_ratios([mine], [base], leave_out=False).left_out == 0


def test_more_time_on_the_core_than_passed_is_no_loss_and_none_is_not_told() -> None:
    mine, base = block([100, 100], cpu_ns=[101, 0]), block([100, 100], cpu_ns=[150, 100])
    assert repetition_log_ratios([mine], [base]).left_out == 0


def test_a_device_that_slowed_its_clock_is_left_out() -> None:
    slow = block(
        [9] * 4, cpu_ns=[50_000] * 4, mode="batch", host_ns=[50_000] * 4, clock_mhz=[1980, 1485, 1484, 0],
        default_clock_mhz=1980,
    )  # fmt: skip
    assert samples_of([slow])[0].disturbed == [False, False, True, False]


def test_on_a_device_it_is_launching_that_may_not_be_preempted() -> None:
    """The time of the device says nothing of the thread's; reading two clocks is no preemption."""
    cpu, launching = [9_500, 10_000, 50_000], [10_000, 40_000, 50_000]
    found = block([10**6] * 3, cpu_ns=cpu, mode="launches", host_ns=launching)
    assert samples_of([found])[0].disturbed == [False, True, False]


@given(SEGMENTS, SEGMENTS, st.lists(st.integers(1, 1000), min_size=12, max_size=12))
def test_leaving_out_is_blind_to_times(
    mine: list[SegmentSamples], base: list[SegmentSamples], factors: list[int]
) -> None:
    """Whatever each sample of the candidate takes, the same pairs stand."""
    changed = []
    for number, old in enumerate(mine):
        by = factors[6 * number : 6 * number + len(old.wall_ns)]
        walls = [wall * f for wall, f in zip(old.wall_ns, by, strict=True)]
        cpus = [cpu * f for cpu, f in zip(old.cpu_ns, by, strict=True)]
        changed.append(block(walls, segment=old.segment, calls=old.calls, cpu_ns=cpus))
    assert repetition_log_ratios(changed, base).left_out == repetition_log_ratios(mine, base).left_out


@given(SEGMENTS)
def test_anything_is_one_to_itself(mine: list[SegmentSamples]) -> None:
    assert set(repetition_log_ratios(mine, mine, leave_out=False).log_ratios) == {0.0}
