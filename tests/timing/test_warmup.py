"""Warming up by evidence, on traces made by hand."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.timing import warmup
from attnbench.timing.sample import Sample
from attnbench.timing.warmup import FAULT_NS, Limits, calm, settled, warm_up

MS = 1_000_000
MOST_FAULTS = 10 * MS // 100 // FAULT_NS


def calls(*ns: int, faults: tuple[int, ...] = ()) -> Callable[[], Sample]:
    """What makes calls that take so long; of the faults given the last goes on."""
    left = enumerate(ns)

    def take() -> Sample:
        place, wall_ns = next(left)
        found = faults[min(place, len(faults) - 1)] if faults else 0
        return Sample(1, wall_ns, wall_ns, 0, found)

    return take


@pytest.mark.parametrize(
    ("ns", "faults", "limits", "made"),
    [
        ([100] * 20, (), Limits(20, 10), 4),
        # A slow first call is no evidence.
        ([9000, *[100] * 19], (), Limits(20, 10), 4),
        # Times that keep falling.
        ([int(1000 * 0.8**i) for i in range(30)], (), Limits(20, 10), 20),
        # The time is up after one call that takes it all.
        ([5], (), Limits(20, 0.0), 1),
        # As seen at L=512: each of the first calls finds less of its memory missing.
        (
            [20 * MS, 20 * MS, 15 * MS, 11 * MS, 10 * MS],
            (4096, 4097, 2049, 6, 1),
            Limits(20, most_s=0.0, calm_s=60.0),
            4,
        ),
        # Times that agree, while memory is missing.
        ([10 * MS] * 9, (999, 500, 250, 125, 60, 30), Limits(20, 60), 6),
    ],
)
def test_calls_are_made_until_there_is_evidence(
    ns: list[int], faults: tuple[int, ...], limits: Limits, made: int
) -> None:
    assert warm_up(calls(*ns, faults=faults), limits) == ns[:made]


@given(st.lists(st.integers(1, 100), min_size=1, max_size=30), st.integers(0, 25))
def test_warming_up_ends_with_the_first_evidence_or_the_last_call(times: list[int], most_calls: int) -> None:
    trace = warm_up(calls(*times * 25), Limits(most_calls, 60))
    assert trace == (times * 25)[: len(trace)]
    assert not any(settled(trace[:end]) for end in range(len(trace)))
    assert settled(trace) or len(trace) == most_calls


def test_agreement_settles_nothing_before_the_least_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which a call takes a microsecond and nothing else does."""
    monkeypatch.setattr(warmup, "perf_counter_ns", count(step=1_000).__next__)
    trace = warm_up(
        lambda: Sample(1, 1_000, 1_000, 0, 0), Limits(most_calls=10**9, most_s=10.0, least_s=0.005)
    )
    assert len(trace) == 5_000


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
