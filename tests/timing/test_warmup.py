"""Warming up by evidence, on traces made by hand."""

from __future__ import annotations

from collections.abc import Iterator

from attnbench.timing.warmup import settled, warm_up


def calls(*ns: int) -> Iterator[int]:
    yield from ns


def test_a_steady_trace_settles_as_soon_as_there_is_evidence() -> None:
    times = calls(*[100] * 20)
    trace, done = warm_up(lambda: next(times), 20, 10)
    assert done
    assert trace == [100] * 4


def test_a_slow_first_call_does_not_count_as_settled() -> None:
    assert not settled([9000, 100, 100])
    assert settled([9000, 100, 100, 100])


def test_times_that_keep_falling_do_not_settle() -> None:
    times = calls(*[int(1000 * 0.8**i) for i in range(30)])
    trace, done = warm_up(lambda: next(times), 20, 10)
    assert not done
    assert len(trace) == 20


def test_time_is_up_after_one_call_that_takes_it_all() -> None:
    trace, done = warm_up(lambda: 5, 20, 0.0)
    assert trace == [5]
    assert not done


def test_agreement_settles_nothing_before_the_least_time() -> None:
    """A clock of its own: each call is said to take a microsecond, and the time that passes is real."""
    trace, done = warm_up(lambda: 1_000, most_calls=10**9, most_s=10.0, least_s=0.005)
    assert done
    assert len(trace) > 10
    quick, _ = warm_up(lambda: 1_000, most_calls=10**9, most_s=10.0)
    assert len(quick) == 4
