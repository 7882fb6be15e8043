"""Pairs: who is joined with whom, what is left out, and that it favours nobody."""

from __future__ import annotations

from math import log

from hypothesis import given
from hypothesis import strategies as st
from made_sets import block, blocks

from attnbench.stats.pairs import samples_of, set_log_ratios
from attnbench.types.record import Block

STRETCHES = st.tuples(blocks(0), blocks(1)).map(list)


def ratios(contender: list[Block], baseline: list[Block]) -> list[float]:
    return [round(2.718281828459045**x, 9) for x in set_log_ratios(contender, baseline).log_ratios]


def test_samples_are_joined_by_their_place() -> None:
    assert ratios([block([30, 80, 50])], [block([10, 20, 50])]) == [3, 4, 1]


def test_the_one_with_fewer_samples_lends_each_to_several() -> None:
    """Six and two: the first three with the first, the last three with the second."""
    many, few = [block([20, 20, 20, 90, 90, 90])], [block([10, 30])]
    assert ratios(many, few) == [2, 2, 2, 3, 3, 3]
    assert ratios(few, many) == [0.5, 0.5, 0.5, *[round(1 / 3, 9)] * 3]


def test_every_sample_is_in_a_pair_whatever_the_counts() -> None:
    for m in range(1, 8):
        for n in range(1, 8):
            mine, base = [2 ** (i + 1) for i in range(m)], [3 ** (i + 1) for i in range(n)]
            found = set_log_ratios([block(mine)], [block(base)]).log_ratios
            assert len(found) == max(m, n)
            used = {
                (i, j) for x in found for i in range(m) for j in range(n) if x == log(mine[i]) - log(base[j])
            }
            assert {i for i, _ in used} == set(range(m))
            assert {j for _, j in used} == set(range(n))


def test_times_are_per_call() -> None:
    assert ratios([block([600], calls=2)], [block([100], calls=1)]) == [3]


def test_pairs_are_within_a_stretch_in_the_order_of_its_turns() -> None:
    late, early = block([30], turns=[9]), block([20], turns=[2])
    other = block([1000], stretch=1)
    assert ratios([late, other, early], [block([10, 10], turns=[1, 8])]) == [2, 3]
    assert ratios([other], [block([10])]) == []


def test_a_pair_is_left_out_where_either_side_was_preempted() -> None:
    """97 of 100 ns on the core is the least that counts."""
    mine = block([100, 100, 100, 100], cpu_ns=[96, 97, 100, 100])
    base = block([100, 100, 100, 200], cpu_ns=[100, 100, 96, 194])
    pairs = set_log_ratios([mine], [base])
    assert pairs.log_ratios == (0.0, log(100) - log(200))
    assert pairs.left_out == 2
    assert len(set_log_ratios([mine], [base], leave_out=False).log_ratios) == 4
    assert set_log_ratios([mine], [base], leave_out=False).left_out == 0


def test_more_time_on_the_core_than_passed_is_no_loss_and_none_is_not_told() -> None:
    mine, base = block([100, 100], cpu_ns=[101, 0]), block([100, 100], cpu_ns=[150, 100])
    assert set_log_ratios([mine], [base]).left_out == 0


def test_a_block_of_no_samples_makes_no_pair() -> None:
    assert ratios([block([])], [block([100])]) == []
    assert ratios([], [block([100])]) == []


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


@given(STRETCHES, STRETCHES, st.lists(st.integers(1, 1000), min_size=12, max_size=12))
def test_leaving_out_is_blind_to_times(mine: list[Block], base: list[Block], factors: list[int]) -> None:
    """Whatever each sample of the contender takes, the same pairs stand."""
    changed = []
    for number, old in enumerate(mine):
        by = factors[6 * number : 6 * number + len(old.wall_ns)]
        walls = [wall * f for wall, f in zip(old.wall_ns, by, strict=True)]
        cpus = [cpu * f for cpu, f in zip(old.cpu_ns, by, strict=True)]
        changed.append(block(walls, stretch=old.stretch, calls=old.calls, cpu_ns=cpus))
    assert set_log_ratios(changed, base).left_out == set_log_ratios(mine, base).left_out


@given(STRETCHES)
def test_anything_is_one_to_itself(mine: list[Block]) -> None:
    assert set(set_log_ratios(mine, mine, leave_out=False).log_ratios) == {0.0}
