"""Timers and their samples: calls, outputs, CPU time and page faults; and warming up by evidence."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from itertools import count

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbench.timing import warmup
from attnbench.timing.sample import Sample, device_fields, take_sample, timer_for
from attnbench.timing.warmup import FAULT_NS, Limits, calm, settled, warm_up
from attnbench.types.case import CacheMode


def test_a_cpu_waits_for_no_device_and_adds_nothing() -> None:
    timer = timer_for("cpu")
    seen: list[int] = []

    def call(a: int, b: int, c: int) -> int:
        seen.append(a + b + c)
        return len(seen)

    timer.warm(call, 1, 2, 3, 3)
    assert timer(call, 1, 2, 3, 2)[1] == 5
    assert seen == [6] * 5
    assert type(timer).__call__ is take_sample
    assert (timer.mode, device_fields(timer, [])) == ("", {})
    assert timer_for("cpu") is timer


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("cache", "mode"), [("hot", "batch"), ("rotating", "cold")])
def test_on_a_real_device_twice_the_work_takes_about_twice_as_long(cache: CacheMode, mode: str) -> None:
    timer = timer_for("cuda", cache)
    a, b = (torch.rand(4096, 4096, device="cuda") for _ in range(2))

    def once(a: torch.Tensor, b: torch.Tensor, c: None) -> torch.Tensor:
        return a @ b

    def twice(a: torch.Tensor, b: torch.Tensor, c: None) -> torch.Tensor:
        return (a @ b) @ b

    walls = []
    for call, expected in ((once, a @ b), (twice, (a @ b) @ b)):
        samples = [timer(call, a, b, None, 4) for _ in range(9)]
        torch.testing.assert_close(samples[-1][1], expected)
        walls.append(sorted(sample.wall_ns for sample, _ in samples)[4])
    assert timer.mode == mode
    assert 1.5 < walls[1] / walls[0] < 2.5


def test_an_output_is_dropped_before_the_one_after_the_next_is_made() -> None:
    """Never more than two at once: the last, and the one that is being made."""
    alive = most = 0

    class Output:
        def __init__(self) -> None:
            nonlocal alive, most
            alive += 1
            most = max(most, alive)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    _, output = take_sample(lambda a, b, c: Output(), 1, 2, 3, 50)
    assert isinstance(output, Output)
    assert (most, alive) == (2, 1)


def test_cpu_time_is_that_of_this_thread() -> None:
    def burn(a: int, b: int, c: int) -> int:
        return sum(range(200_000))

    sample, _ = take_sample(burn, 1, 2, 3, 3)
    assert 0 < sample.cpu_ns <= 1.5 * sample.wall_ns


def test_page_faults_of_a_call_are_counted() -> None:
    pages = 64

    def touch(a: int, b: int, c: int) -> None:
        with mmap.mmap(-1, pages * mmap.PAGESIZE) as memory:
            for page in range(pages):
                memory[page * mmap.PAGESIZE] = 1

    sample, _ = take_sample(touch, 1, 2, 3, 5)
    assert sample.faults >= 5 * pages


# --- warming up, on traces made by hand -------------------------------------------------------------

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
