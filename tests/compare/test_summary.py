"""The time of one backend from the samples of its repetitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from made_repetitions import block, many_repetitions, repetition_line, simple_repetitions

from attnbench.stats.records import Timing, summarise
from attnbench.types.record import RepetitionLine


def summed(repetitions: list[RepetitionLine], backend: str = "mine") -> Timing:
    found = summarise(repetitions, backend)
    assert found is not None
    return found


def test_a_worked_example() -> None:
    """Two repetitions, of two segments and of one, by hand."""
    repetitions = [
        repetition_line(
            0,
            mine=[
                block([600_000, 640_000, 620_000], calls=2, faults=4),
                block([1_000_000, 1_400_000], segment=1),
            ],
        ),
        repetition_line(1, mine=[block([400_000, 500_000])], base=[block([9])]),
    ]
    # Per call in ms: 0.30 0.32 0.31 1.00 1.40, and 0.40 0.50.
    found = summed(repetitions)
    assert found.median_ms == pytest.approx((0.32 + 0.45) / 2)
    assert (found.repetitions, found.timed_calls, found.interval) == (2, 10, None)
    assert found.faults_per_call == pytest.approx(12 / 10)
    assert not found.contended


def test_nine_repetitions_have_an_interval_in_milliseconds() -> None:
    found = summed(simple_repetitions(mine=[n * 1_000_000 for n in (5, 1, 9, 2, 8, 3, 7, 4, 6)]))
    assert found.median_ms == 5.0
    assert found.interval is not None
    assert (found.interval.low, found.interval.high, found.interval.confidence) == (1.0, 9.0, 0.99609375)


def test_repetitions_without_it_do_not_count() -> None:
    repetitions = [
        *simple_repetitions(mine=[4, 2]),
        repetition_line(2, base=[block([9])]),
        repetition_line(3, mine=[]),
    ]
    assert summed(repetitions).repetitions == 2
    assert summarise(repetitions, "missing") is None
    assert summarise([], "mine") is None
    assert summarise([repetition_line(0, mine=[block([])])], "mine") is None


@pytest.mark.parametrize(("preempted", "contended"), [(0, False), (2, False), (3, True), (4, True)])
def test_contended_is_more_than_half_of_the_samples(preempted: int, contended: bool) -> None:
    cpu = [90] * preempted + [100] * (4 - preempted)
    found = summed([repetition_line(0, mine=[block([100] * 4, cpu_ns=cpu)])])
    assert found.contended is contended
    assert found.median_ms == pytest.approx(100e-6)


@given(many_repetitions().filter(lambda repetitions: summarise(repetitions, "mine") is not None))
def test_the_median_lies_in_its_interval_and_within_the_samples(repetitions: list[RepetitionLine]) -> None:
    found = summed(repetitions)
    times = [
        w / b.calls / 1e6 for line in repetitions for b in line.samples.get("mine", []) for w in b.wall_ns
    ]
    assert min(times) <= found.median_ms <= max(times)
    assert found.repetitions <= len(repetitions)
    if found.interval is not None:
        assert found.interval.low <= found.median_ms <= found.interval.high
