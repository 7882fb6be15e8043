"""The time of one backend from the samples of its sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from made_sets import block, many_sets, set_line, simple_sets

from attnbench.stats.records import Timing, summarise
from attnbench.types.record import SetLine


def summed(sets: list[SetLine], backend: str = "mine") -> Timing:
    found = summarise(sets, backend)
    assert found is not None
    return found


def test_a_worked_example() -> None:
    """Two sets, of two segments and of one, by hand."""
    sets = [
        set_line(
            0,
            mine=[
                block([600_000, 640_000, 620_000], calls=2, faults=4),
                block([1_000_000, 1_400_000], segment=1),
            ],
        ),
        set_line(1, mine=[block([400_000, 500_000])], base=[block([9])]),
    ]
    # Per call in ms: 0.30 0.32 0.31 1.00 1.40, and 0.40 0.50.
    found = summed(sets)
    assert found.median_ms == pytest.approx((0.32 + 0.45) / 2)
    assert (found.sets, found.timed_calls, found.interval) == (2, 10, None)
    assert found.faults_per_call == pytest.approx(12 / 10)
    assert not found.contended


def test_nine_sets_have_an_interval_in_milliseconds() -> None:
    found = summed(simple_sets(mine=[n * 1_000_000 for n in (5, 1, 9, 2, 8, 3, 7, 4, 6)]))
    assert found.median_ms == 5.0
    assert found.interval is not None
    assert (found.interval.low, found.interval.high, found.interval.confidence) == (1.0, 9.0, 0.99609375)


def test_sets_without_it_do_not_count() -> None:
    sets = [*simple_sets(mine=[4, 2]), set_line(2, base=[block([9])]), set_line(3, mine=[])]
    assert summed(sets).sets == 2
    assert summarise(sets, "missing") is None
    assert summarise([], "mine") is None
    assert summarise([set_line(0, mine=[block([])])], "mine") is None


@pytest.mark.parametrize(("preempted", "contended"), [(0, False), (2, False), (3, True), (4, True)])
def test_contended_is_more_than_half_of_the_samples(preempted: int, contended: bool) -> None:
    cpu = [90] * preempted + [100] * (4 - preempted)
    found = summed([set_line(0, mine=[block([100] * 4, cpu_ns=cpu)])])
    assert found.contended is contended
    assert found.median_ms == pytest.approx(100e-6)


@given(many_sets().filter(lambda sets: summarise(sets, "mine") is not None))
def test_the_median_lies_in_its_interval_and_within_the_samples(sets: list[SetLine]) -> None:
    found = summed(sets)
    times = [w / b.calls / 1e6 for line in sets for b in line.blocks.get("mine", []) for w in b.wall_ns]
    assert min(times) <= found.median_ms <= max(times)
    assert found.sets <= len(sets)
    if found.interval is not None:
        assert found.interval.low <= found.median_ms <= found.interval.high
