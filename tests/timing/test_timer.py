"""The timer of a device, and what may go wrong in a call that it makes."""

from __future__ import annotations

import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbench.timing.memory import peak_extra_bytes
from attnbench.timing.sample import take_sample, take_sample_synchronised
from attnbench.timing.timer import timer_for
from attnbench.timing.warmup import settled, warm_up


def busy_ns(ns: int) -> None:
    end = time.perf_counter_ns() + ns
    while time.perf_counter_ns() < end:
        pass


def test_a_cpu_waits_for_no_device_and_a_gpu_is_idle_around_its_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    happened: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: happened.append("idle"))

    def call(a: int, b: int, c: int) -> int:
        happened.append("call")
        return a + b + c

    assert timer_for("cpu")(call, 1, 2, 3, 2)[1] == 6
    assert happened == ["call"] * 2
    happened.clear()
    assert timer_for("cuda")(call, 1, 2, 3, 2)[1] == 6
    assert happened == ["idle", "call", "call", "idle"]


def test_the_work_of_a_device_is_in_its_sample() -> None:
    """A call that only queues: the time passes while the device is waited for at the end, not before."""
    queued = [5]

    def wait() -> None:
        busy_ns(10_000_000 * len(queued))
        queued.clear()

    sample, _ = take_sample_synchronised(lambda a, b, c: queued.append(a), 1, 2, 3, 3, wait)
    assert sample.wall_ns >= 30_000_000
    assert sample.calls == 3


@given(st.integers(1, 20))
def test_a_sample_is_as_long_as_its_calls(calls: int) -> None:
    sample, _ = take_sample(lambda a, b, c: busy_ns(50_000), 1, 2, 3, calls)
    assert sample.wall_ns >= 50_000 * calls
    assert min(sample.cpu_ns, sample.switches, sample.faults) >= 0


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


@pytest.mark.parametrize("failing", [1, 2])
def test_a_call_that_fails_is_no_system_that_can_not_tell(failing: int) -> None:
    made: list[int] = []

    def call() -> None:
        made.append(1)
        if len(made) == failing:
            raise OSError("the backend's own file is gone")

    with pytest.raises(OSError, match="the backend's own"):
        peak_extra_bytes(call)


@given(st.lists(st.integers(1, 10**9), max_size=20))
def test_settled_is_what_it_says(trace: list[int]) -> None:
    window = sorted(trace[-8:])
    half = len(window) // 2
    middle = 0 if not window else (window[half] + window[~half]) / 2
    near = [abs(ns - middle) <= 0.05 * middle for ns in trace[-3:]]
    assert settled(trace) == (len(trace) >= 4 and all(near))


@given(st.lists(st.integers(1, 10**6), min_size=8, max_size=40), st.integers(1, 1000))
def test_settling_does_not_depend_on_the_unit(trace: list[int], factor: int) -> None:
    assert settled([ns * 2**10 for ns in trace]) == settled(trace)
    assert settled([trace[0]] * 8 + [trace[0] * (factor + 1)]) is False


@given(st.lists(st.integers(1, 100), min_size=1, max_size=30), st.integers(0, 25))
def test_warming_up_ends_with_the_first_evidence_or_the_last_call(times: list[int], most_calls: int) -> None:
    left = iter(times * 25)
    trace, done = warm_up(lambda: next(left), most_calls, 60)
    assert trace == (times * 25)[: len(trace)]
    assert not any(settled(trace[:end]) for end in range(len(trace)))
    assert done == settled(trace)
    assert done or len(trace) == most_calls
