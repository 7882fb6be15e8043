"""Properties of the CUDA timer on a simulated device: what it reports is what the device did."""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from typing import Any

import pytest
from fake_cuda import FakeCuda, FakeStream
from hypothesis import given
from hypothesis import strategies as st

from attnbench.stats.doubts import mode_notes, slow_clock_note
from attnbench.stats.pairs import LEAST_CLOCK, disturbed
from attnbench.timing.cuda import CudaTimer
from attnbench.timing.sample import device_fields
from attnbench.types.record import Block, SetLine

GRAIN_NS = 500
"""The resolution of events, as the CUDA documentation has it: about half a microsecond."""

B, C = object(), object()
LENGTHS = st.lists(st.integers(200, 200_000), min_size=1, max_size=4)
DELAYS = st.lists(st.integers(0, 15_000), min_size=1, max_size=20)
CALLS = st.integers(1, 60)


class Cell:
    """Memory of the device: inputs, or an output."""

    def __init__(self, value: float = 0.0) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__


A_CELL = Cell(3.0)


def clear(output: Any) -> Callable[[], bool] | None:
    if not isinstance(output, Cell):
        return None
    output.value = nan
    return lambda: output.value != output.value


def timer(cuda: FakeCuda, *, cold: bool = False) -> CudaTimer:
    return CudaTimer(cuda, cuda.overwrite, cold=cold, clear=clear, now_ns=cuda.now_ns)


def delayed(cuda: FakeCuda, delays: list[int]) -> None:
    """Let launches take longer, by each of these in turn."""
    count = iter(range(10**9))
    cuda.delay_ns = lambda: delays[next(count) % len(delays)]


def squaring(cuda: FakeCuda, lengths: list[int], stream: FakeStream | None = None) -> Callable[..., Cell]:
    """A call whose last kernel writes the square of its first input to a new output."""

    def call(a: Cell, b: object, c: object) -> Cell:
        output = Cell(nan)

        def write() -> None:
            output.value = a.value**2

        for ns in lengths[:-1]:
            cuda.kernel(ns, stream)
        cuda.kernel(lengths[-1], stream, effect=write)
        return output

    return call


@given(LENGTHS, DELAYS, CALLS, st.integers(0, 2_000), st.integers(500, 40_000), st.booleans())
def test_the_time_is_that_of_the_kernels_whatever_the_launches_take(
    lengths: list[int], delays: list[int], calls: int, node_ns: int, launch_ns: int, cold: bool
) -> None:
    """The first samples too: a graph of many kernels takes far longer to launch than a call before."""
    cuda = FakeCuda(launch_ns=launch_ns, node_ns=node_ns, event_grain_ns=GRAIN_NS)
    take, call, a = timer(cuda, cold=cold), squaring(cuda, lengths), Cell()
    for _ in range(2):
        take(call, a, B, C, 1)
    delayed(cuda, [delay // len(lengths) for delay in delays])
    for _ in range(3):
        sample, _ = take(call, a, B, C, calls)
        events = calls if cold else 1
        assert sample.wall_ns == pytest.approx(calls * sum(lengths), abs=events * GRAIN_NS)
    assert take.mode == ("cold" if cold else "batch" if calls > 1 else "launches")


@given(st.integers(200, 5_000), CALLS, st.integers(600, 3_000))
def test_a_device_that_states_no_clock_rate_gets_a_head_start_too(ns: int, calls: int, mhz: int) -> None:
    cuda = FakeCuda(clock_khz=0, clock_mhz=mhz)
    cuda._sleep = lambda cycles: cuda.current.push(cycles * 1000 // mhz)
    take, call = timer(cuda), squaring(cuda, [ns])
    for _ in range(3):
        sample, _ = take(call, A_CELL, B, C, calls)
    assert sample.wall_ns == calls * ns
    assert take.default_clock_mhz == 0


@given(st.integers(500, 300_000), st.integers(0, 50_000), CALLS, st.integers(500, 40_000), st.booleans())
def test_work_on_a_stream_that_nothing_joins_is_included(
    hidden_ns: int, own_ns: int, calls: int, launch_ns: int, cold: bool
) -> None:
    """Also work that is shorter than its launch: no waiting shows it, and a capture leaves it out."""
    cuda = FakeCuda(launch_ns=launch_ns)
    elsewhere = squaring(cuda, [hidden_ns], cuda.Stream())

    def call(a: Cell, b: object, c: object) -> Cell:
        cuda.kernel(own_ns)
        return elsewhere(a, b, c)

    take = timer(cuda, cold=cold)
    take(call, A_CELL, B, C, 1)
    for _ in range(2):
        sample, output = take(call, A_CELL, B, C, calls)
        assert sample.wall_ns >= calls * max(hidden_ns, own_ns)
        assert output.value == 9.0
    assert take.mode == ("cold" if cold else "launches")
    assert take.refused == "it leaves work on other streams"


@given(st.integers(500, 100_000), st.integers(500, 100_000), st.integers(2, 40))
def test_streams_that_are_joined_are_captured_with_the_call(one_ns: int, other_ns: int, calls: int) -> None:
    cuda = FakeCuda()
    side = cuda.Stream()

    def call(a: Cell, b: object, c: object) -> Cell:
        main = cuda.current_stream()
        side.wait_stream(main)
        cuda.kernel(other_ns, side)
        output = squaring(cuda, [one_ns])(a, b, c)
        main.wait_stream(side)
        return output

    take = timer(cuda)
    for _ in range(3):
        sample, output = take(call, A_CELL, B, C, calls)
    assert sample.wall_ns == calls * max(one_ns, other_ns)
    assert (take.mode, take.refused, output.value) == ("batch", "", 9.0)


def test_a_fork_that_is_not_joined_is_launched() -> None:
    cuda = FakeCuda()
    side = cuda.Stream()

    def call(a: Cell, b: object, c: object) -> Cell:
        side.wait_stream(cuda.current_stream())
        return squaring(cuda, [400], side)(a, b, c)

    take = timer(cuda)
    for _ in range(3):
        take(call, A_CELL, B, C, 5)
    assert take.mode == "launches"
    assert "unjoined" in take.refused


@given(LENGTHS, st.integers(2, 40), st.lists(st.floats(-9, 9), min_size=1, max_size=5))
def test_a_replay_computes_what_a_call_computes_on_inputs_that_change(
    lengths: list[int], calls: int, values: list[float]
) -> None:
    cuda = FakeCuda()
    take, call, a = timer(cuda), squaring(cuda, lengths), Cell()
    for value in values:
        a.value = value
        sample, output = take(call, a, B, C, calls)
        assert output.value == call(a, B, C).value
        assert sample.wall_ns == calls * sum(lengths)


@given(
    st.integers(1, 80), st.lists(st.integers(1, 300), min_size=1, max_size=3), st.integers(1, 8),
    st.integers(1, 3),
)  # fmt: skip
def test_no_cold_launch_finds_its_inputs_in_the_cache(
    l2_mib: int, inputs_mib: list[int], calls: int, samples: int
) -> None:
    cuda = FakeCuda(l2_bytes=l2_mib * 2**20)
    reads = {f"input {i}": mib * 2**20 for i, mib in enumerate(inputs_mib)}

    def call(a: object, b: object, c: object) -> None:
        cuda.kernel(1000, reads=reads)

    take = timer(cuda, cold=True)
    for _ in range(samples):
        take(call, B, B, C, calls)
    timed = [hits for hits, overwritten in cuda.hit_bytes if overwritten]
    assert timed == [0] * (calls * samples)


@given(st.lists(st.integers(300, 2_200), min_size=1, max_size=30))
def test_a_clock_that_drops_is_seen_in_the_times_and_told(clocks: list[int]) -> None:
    cuda = FakeCuda(clock_khz=1_980_000, slows=True)
    take, call = timer(cuda, cold=True), squaring(cuda, [100_000])
    samples = []
    for mhz in clocks:
        cuda.clock_mhz = mhz
        samples.append(take(call, A_CELL, B, C, 1)[0])
        assert samples[-1].wall_ns == pytest.approx(100_000 * 1980 / mhz, abs=2)
    block = Block(
        0, list(range(len(samples))), 1, [s.wall_ns for s in samples], [0] * len(samples),
        [0] * len(samples), [0] * len(samples), [], **device_fields(take, samples),
    )  # fmt: skip
    slow = [mhz < LEAST_CLOCK * 1980 for mhz in clocks]
    assert disturbed(block) == slow
    sets = [SetLine("case", 0, [], ["flash"], {}, {"flash": [block]}, [], {})]
    note = slow_clock_note(sets, "flash")
    if 2 * sum(slow) > len(slow):
        assert f"in {sum(slow)} of {len(slow)} samples" in note
    else:
        assert note == ""
    assert len(mode_notes(sets, "flash")) == 1


@given(st.integers(200, 100_000), st.integers(1, 30), st.integers(100_000, 3_000_000))
def test_a_launch_that_is_held_up_costs_at_most_itself(ns: int, calls: int, held_ns: int) -> None:
    """The device runs dry where the host is held up; the time that the host took is stored beside."""
    cuda = FakeCuda()
    take, call = timer(cuda), squaring(cuda, [ns])
    for _ in range(3):
        take(call, A_CELL, B, C, calls)
    cuda.delay_ns = lambda: held_ns
    sample, _ = take(call, A_CELL, B, C, calls)
    assert calls * ns <= sample.wall_ns <= calls * ns + sample.host_ns
    assert sample.host_ns >= held_ns


@pytest.mark.parametrize("cold", [False, True])
def test_short_hidden_work_that_only_prepares_the_output_is_missed_and_a_batch_is_then_wrong(
    cold: bool,
) -> None:
    """The limit of the timer. The judge compares outputs of timed calls on refreshed inputs, and sees it."""
    cuda, a, between = FakeCuda(), Cell(3.0), Cell()
    hidden = cuda.Stream()

    def call(a: Cell, b: object, c: object) -> Cell:
        output = Cell(nan)

        def square() -> None:
            between.value = a.value**2

        def write() -> None:
            output.value = between.value

        cuda.kernel(6_000, hidden, effect=square)
        cuda.kernel(1_000, effect=write)
        return output

    take = timer(cuda, cold=cold)
    for _ in range(3):
        sample, _ = take(call, a, B, C, 4)
    assert sample.wall_ns == 4 * 1_000
    a.value = 5.0
    _, output = take(call, a, B, C, 4)
    assert output.value == (25.0 if cold else 9.0)
