"""One candidate against another over repetitions: a worked example, and what may not change a number."""

from __future__ import annotations

from dataclasses import replace
from math import exp
from random import Random
from statistics import median

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_repetitions import block, many_repetitions, repetition_line, simple_repetitions

from attnbench.stats.pairs import Comparison, compare
from attnbench.stats.tests import ratio_interval, ratio_p_value
from attnbench.types.record import RepetitionLine, SegmentSamples

COMPARABLE = many_repetitions().filter(lambda repetitions: compare(repetitions, "mine", "base") is not None)


def compared(
    repetitions: list[RepetitionLine], candidate: str = "mine", baseline: str = "base"
) -> Comparison:
    found = compare(repetitions, candidate, baseline)
    assert found is not None
    return found


def test_a_worked_example() -> None:
    """Two repetitions of two segments, by hand."""
    repetitions = [
        repetition_line(
            0,
            mine=[block([600, 640, 900], calls=2), block([1000], calls=2, segment=1)],
            base=[block([100, 100, 450]), block([250], segment=1)],
        ),
        repetition_line(1, mine=[block([200, 800], calls=2)], base=[block([100, 100])]),
    ]
    # Of the first repetition 300/100, 320/100, 450/450 and 500/250: between 2 and 3. Of the second 1 and 4.
    found = compared(repetitions)
    assert found.ratio == pytest.approx((6**0.5 * 2) ** 0.5)
    assert found.repetition_log_ratios == pytest.approx((0.5 * 1.791759469, 0.5 * 1.386294361))
    assert (found.repetitions, found.pairs, found.left_out, found.contended) == (2, 6, 0, False)
    assert (found.interval, found.p_value) == (None, 1.0)


def test_nine_repetitions_have_an_interval_from_the_least_to_the_largest() -> None:
    found = compared(simple_repetitions(mine=[101, 109, 103, 107, 105, 104, 106, 102, 108], base=[100] * 9))
    assert found.ratio == pytest.approx(1.05)
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == (pytest.approx(1.01), pytest.approx(1.09))
    assert found.interval.confidence == 0.99609375
    assert found.p_value == 2 / 512


def test_repetitions_without_either_do_not_count() -> None:
    both = simple_repetitions(mine=[200], base=[100])
    alone = [
        repetition_line(1, mine=[block([9])]),
        repetition_line(2, base=[block([9])]),
        repetition_line(3),
        repetition_line(4, mine=[]),
    ]
    apart = repetition_line(5, mine=[block([9], segment=0)], base=[block([1], segment=1)])
    assert compared([*both, *alone, apart]) == compared(both)
    assert compare([*alone, apart], "mine", "base") is None
    assert compare([], "mine", "base") is None


def test_where_more_than_half_would_go_all_stay() -> None:
    def repetitions(disturbed: int) -> list[RepetitionLine]:
        cpu = [50] * disturbed + [100] * (4 - disturbed)
        return [repetition_line(0, mine=[block([100] * 4, cpu_ns=cpu)], base=[block([100] * 4)])]

    half, more = compared(repetitions(2)), compared(repetitions(3))
    assert (half.pairs, half.left_out, half.contended) == (2, 2, False)
    assert (more.pairs, more.left_out, more.contended) == (4, 0, True)


def test_a_set_that_would_lose_all_its_pairs_keeps_them() -> None:
    repetitions = simple_repetitions(mine=[105] * 8, base=[100] * 8)
    repetitions.append(repetition_line(8, mine=[block([120], cpu_ns=[60])], base=[block([100])]))
    found = compared(repetitions)
    assert (found.repetitions, found.pairs, found.left_out, found.contended) == (9, 9, 0, False)
    assert found.p_value == 2 / 512


@given(COMPARABLE)
def test_exchanging_the_two_inverts_everything(repetitions: list[RepetitionLine]) -> None:
    there, back = compared(repetitions), compared(repetitions, "base", "mine")
    assert back.repetition_log_ratios == tuple(-x for x in there.repetition_log_ratios)
    assert back.ratio * there.ratio == pytest.approx(1.0, rel=1e-12)
    assert (back.interval is None) == (there.interval is None)
    if back.interval is not None and there.interval is not None:
        assert back.interval.low * there.interval.high == pytest.approx(1.0, rel=1e-12)
        assert back.interval.high * there.interval.low == pytest.approx(1.0, rel=1e-12)
        assert back.interval.confidence == there.interval.confidence
    for name in ("p_value", "repetitions", "pairs", "left_out", "contended"):
        assert getattr(back, name) == getattr(there, name)


@given(COMPARABLE, st.integers(2, 1000), st.integers(1, 1000))
def test_a_machine_of_another_speed_leaves_the_ratio(
    repetitions: list[RepetitionLine], factor: int, calls: int
) -> None:
    """All times longer by a factor, and samples of as many more calls."""

    def slower(old: SegmentSamples) -> SegmentSamples:
        by = factor * calls
        return msgspec.structs.replace(
            old,
            calls=old.calls * calls,
            wall_ns=[by * ns for ns in old.wall_ns],
            cpu_ns=[by * ns for ns in old.cpu_ns],
        )

    other = [
        repetition_line(
            line.index, **{name: [slower(b) for b in found] for name, found in line.samples.items()}
        )
        for line in repetitions
    ]
    before, after = compared(repetitions), compared(other)
    assert after.repetition_log_ratios == pytest.approx(before.repetition_log_ratios, abs=1e-12)
    assert (after.pairs, after.left_out) == (before.pairs, before.left_out)


@given(COMPARABLE, st.integers(0, 2**16))
def test_the_order_of_repetitions_and_blocks_is_of_no_account(
    repetitions: list[RepetitionLine], seed: int
) -> None:
    rng = Random(seed)
    mixed = [
        repetition_line(line.index, **{name: rng.sample(b, len(b)) for name, b in line.samples.items()})
        for line in rng.sample(repetitions, len(repetitions))
    ]
    straight, other = compared(repetitions), compared(mixed)
    assert sorted(other.repetition_log_ratios) == sorted(straight.repetition_log_ratios)
    assert replace(other, repetition_log_ratios=()) == replace(straight, repetition_log_ratios=())


@given(COMPARABLE)
def test_all_of_it_is_made_of_the_repetitions_log_ratios(repetitions: list[RepetitionLine]) -> None:
    found = compared(repetitions)
    assert found.repetitions == len(found.repetition_log_ratios) <= len(repetitions)
    assert found.pairs >= found.repetitions
    assert found.p_value == ratio_p_value(found.repetition_log_ratios)
    assert found.interval == ratio_interval(found.repetition_log_ratios)
    assert found.ratio == pytest.approx(exp(median(found.repetition_log_ratios)))
