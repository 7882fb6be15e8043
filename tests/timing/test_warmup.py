"""Warming up by evidence, on traces made by hand."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from attnbench.timing import warmup
from attnbench.timing.sample import Sample
from attnbench.timing.warmup import FAULT_NS, Limits, calm, settled, warm_up


def calls(*ns: int, faults: tuple[int, ...] = ()) -> Callable[[], Sample]:
    """What makes calls that take so long; of the faults given the last goes on."""
    left = enumerate(ns)

    def take() -> Sample:
        place, wall_ns = next(left)
        found = faults[min(place, len(faults) - 1)] if faults else 0
        return Sample(1, wall_ns, wall_ns, 0, found)

    return take


def test_a_steady_trace_settles_as_soon_as_there_is_evidence() -> None:
    trace = warm_up(calls(*[100] * 20), Limits(20, 10))
    assert trace == [100] * 4


def test_a_slow_first_call_does_not_count_as_settled() -> None:
    assert not settled([9000, 100, 100])
    assert settled([9000, 100, 100, 100])


def test_times_that_keep_falling_do_not_settle() -> None:
    trace = warm_up(calls(*[int(1000 * 0.8**i) for i in range(30)]), Limits(20, 10))
    assert len(trace) == 20


def test_time_is_up_after_one_call_that_takes_it_all() -> None:
    trace = warm_up(calls(5), Limits(20, 0.0))
    assert trace == [5]


def test_agreement_settles_nothing_before_the_least_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which a call takes a microsecond and nothing else does."""
    monkeypatch.setattr(warmup, "perf_counter_ns", count(step=1_000).__next__)
    trace = warm_up(
        lambda: Sample(1, 1_000, 1_000, 0, 0), Limits(most_calls=10**9, most_s=10.0, least_s=0.005)
    )
    assert len(trace) == 5_000
    quick = warm_up(calls(*[1_000] * 9), Limits(most_calls=10**9, most_s=10.0))
    assert len(quick) == 4


MS = 1_000_000


MOST_FAULTS = 10 * MS // 100 // FAULT_NS


@pytest.mark.parametrize(
    ("trace_ns", "faults", "expected"),
    [
        ([10 * MS], [MOST_FAULTS], True),
        ([10 * MS], [MOST_FAULTS + 1], False),
        ([], [], False),
        # Three calls in a row with as many faults: the call maps and unmaps its memory itself.
        ([MS] * 2, [4096, 4100], False),
        ([MS] * 3, [4000, 4096, 4100], True),
        ([MS] * 3, [4096, 4097, 2049], False),
    ],
)
def test_calm_calls_have_few_faults_or_always_as_many(
    trace_ns: list[int], faults: list[int], expected: bool
) -> None:
    assert calm(trace_ns, faults) is expected


def test_warming_up_goes_on_until_the_heap_has_grown() -> None:
    """As seen at L=512: each of the first calls finds less of its memory missing."""
    take = calls(*[20 * MS, 20 * MS, 15 * MS, 11 * MS, 10 * MS], faults=(4096, 4097, 2049, 6, 1))
    trace = warm_up(take, Limits(20, most_s=0.0, calm_s=60.0))
    assert len(trace) == 4


def test_times_that_agree_settle_nothing_while_memory_is_missing() -> None:
    take = calls(*[10 * MS] * 9, faults=(999, 500, 250, 125, 60, 30))
    trace = warm_up(take, Limits(20, 60))
    assert len(trace) == 6
