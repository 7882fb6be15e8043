"""Properties of the CUDA timer on a simulated device: what it reports is what the device did."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, cycle
from math import nan
from typing import Any

import pytest
from fake_cuda import FakeCuda, FakeStream
from hypothesis import example, given
from hypothesis import strategies as st

from attnbench.stats.doubts import mode_notes, slow_clock_note
from attnbench.stats.pairs import LEAST_CLOCK, disturbed
from attnbench.timing.cuda import MOST_CAPTURED_CALLS, CudaTimer
from attnbench.timing.sample import device_fields
from attnbench.types.record import RepetitionLine, SegmentSamples

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


A_CELL = Cell(3.0)


def clear(output: Any) -> Callable[[], bool] | None:
    if not isinstance(output, Cell):
        return None
    output.value = nan
    return lambda: output.value != output.value


def timer(cuda: FakeCuda, *, cold: bool = False) -> CudaTimer:
    return CudaTimer(cuda, cuda.overwrite, cold=cold, clear=clear, now_ns=cuda.now_ns)


def squaring(cuda: FakeCuda, lengths: list[int], stream: FakeStream | None = None) -> Callable[..., Cell]:
    """A call whose last kernel writes the square of its first input to a new output."""

    def call(a: Cell, *others: object) -> Cell:
        output = Cell(nan)

        def write() -> None:
            output.value = a.value**2

        for ns in lengths[:-1]:
            cuda.kernel(ns, stream)
        cuda.kernel(lengths[-1], stream, effect=write)
        return output

    return call


@given(
    LENGTHS, DELAYS, CALLS, st.integers(0, 2_000), st.integers(500, 40_000), st.integers(0, 15_000),
    st.booleans(),
)  # fmt: skip
def test_the_time_is_that_of_the_kernels_whatever_launching_and_waiting_take(
    lengths: list[int], delays: list[int], calls: int, node_ns: int, launch_ns: int, wait_ns: int, cold: bool
) -> None:
    """The first samples too: a graph of many kernels takes far longer to launch than a call before."""
    cuda = FakeCuda(
        launch_ns=launch_ns, node_ns=node_ns, wait_ns=wait_ns, upload_ns=50_000, event_grain_ns=GRAIN_NS
    )
    take, call, a = timer(cuda, cold=cold), squaring(cuda, lengths), Cell()
    for _ in range(2):
        take(call, a, B, C, 1)
    delay = cycle(delays)
    cuda.delay_ns = lambda: next(delay) // len(lengths)
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


@pytest.mark.parametrize(("l2_mib", "written_mib"), [(1, 2), (50, 100), (0, 256)])
def test_each_cold_launch_follows_a_write_over_twice_the_cache(l2_mib: int, written_mib: int) -> None:
    """A device that states no cache gets more than any has: a B200 has 126 MiB."""
    cuda = FakeCuda(l2_bytes=l2_mib * 2**20)
    take, call = timer(cuda, cold=True), squaring(cuda, [1_000])
    for _ in range(3):
        cuda.happened.clear()
        take(call, A_CELL, B, C, 4)
    assert cuda.happened == ["idle", *["flush", "kernel", "idle"] * 4, "clock"]
    assert set(cuda.written) == {written_mib * 2**20}


@given(st.lists(st.integers(300, 2_200), min_size=1, max_size=30))
def test_a_clock_that_drops_is_seen_in_the_times_and_told(clocks: list[int]) -> None:
    cuda = FakeCuda(clock_khz=1_980_000, slows=True)
    take, call = timer(cuda, cold=True), squaring(cuda, [100_000])
    samples = []
    for mhz in clocks:
        cuda.clock_mhz = mhz
        samples.append(take(call, A_CELL, B, C, 1)[0])
        assert samples[-1].wall_ns == pytest.approx(100_000 * 1980 / mhz, abs=2)
    block = SegmentSamples(
        0, list(range(len(samples))), 1, [s.wall_ns for s in samples], [0] * len(samples),
        [0] * len(samples), [0] * len(samples), **device_fields(take, samples),
    )  # fmt: skip
    slow = [mhz < LEAST_CLOCK * 1980 for mhz in clocks]
    assert disturbed(block) == slow
    repetitions = [RepetitionLine("case", 0, [], ["flash"], {}, {"flash": [block]}, [], {})]
    note = slow_clock_note(repetitions, "flash")
    if 2 * sum(slow) > len(slow):
        assert f"in {sum(slow)} of {len(slow)} samples" in note
    else:
        assert note == ""
    assert len(mode_notes(repetitions, "flash")) == 1


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


def not_captured(cuda: FakeCuda, ns: int) -> Callable[..., None]:
    """A call that a capture refuses, but that does not wait for the device."""

    def call(a: object, b: object, c: object) -> None:
        if cuda.capturing is not None:
            raise RuntimeError("it can't be captured")
        cuda.kernel(ns)

    return call


@given(st.integers(200, 5_000), st.integers(1, 12), st.integers(500, 150_000), st.integers(0, 15_000))
def test_calls_that_are_launched_one_by_one_wait_for_each_other_on_the_device_alone(
    ns: int, calls: int, launch_ns: int, wait_ns: int
) -> None:
    """From the third sample on: then it is known how long launching takes, and that nothing is hidden."""
    cuda = FakeCuda(launch_ns=launch_ns, wait_ns=wait_ns)
    take, call = timer(cuda), not_captured(cuda, ns)
    for _ in range(2):
        take(call, A_CELL, B, C, calls)
    for _ in range(3):
        before = cuda.host_ns
        sample, _ = take(call, A_CELL, B, C, calls)
        assert sample.wall_ns == calls * ns
        assert sample.host_ns >= calls * launch_ns
        # The head start is not much longer than it must be.
        assert cuda.host_ns - before < calls * (2 * launch_ns + ns) + 100_000
    # A look at a single call tells too that it can't be captured.
    take(call, A_CELL, B, C, 4)
    assert (take.mode, len(cuda.graphs)) == ("launches", 1)


@given(LENGTHS, st.lists(st.integers(1, 30), min_size=1, max_size=5), st.integers(0, 10**7), st.booleans())
def test_calls_begin_after_all_work_before_and_the_device_is_idle_afterwards(
    lengths: list[int], counts: list[int], before_ns: int, cold: bool
) -> None:
    """New inputs are still being written when a sample is asked for."""
    cuda = FakeCuda()
    take, call, a = timer(cuda, cold=cold), squaring(cuda, lengths), Cell(2.0)
    for calls in counts:
        cuda.kernel(before_ns)
        take.warm(call, a, B, C, 2)
        take(call, a, B, C, calls)
        assert cuda.idle
    assert all(end <= begin for (_, end), (begin, _) in zip(cuda.worked, cuda.worked[1:], strict=False))


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("others", [(), (B, C, Cell())])
def test_a_call_may_have_any_number_of_inputs(others: tuple[object, ...], cold: bool) -> None:
    cuda = FakeCuda()
    take, call = timer(cuda, cold=cold), squaring(cuda, [5_000])
    take.warm(call, A_CELL, *others, 2)
    for _ in range(3):
        sample, output = take(call, A_CELL, *others, 4)
        assert (sample.calls, output.value) == (4, 9.0)


@given(LENGTHS, st.integers(1, 20))
def test_warm_calls_are_launched(lengths: list[int], calls: int) -> None:
    cuda = FakeCuda(launch_ns=100)
    take = timer(cuda)
    take.warm(squaring(cuda, lengths), A_CELL, B, C, calls)
    assert len(cuda.worked) == calls * len(lengths)
    assert not cuda.idle


@pytest.mark.parametrize("calls", [1, 5])
def test_what_happens_in_the_first_call_alone_is_in_the_first_sample_unless_it_is_captured(
    calls: int,
) -> None:
    """Libraries compile, or wait for the device, when they are first called."""
    cuda, first = FakeCuda(), [True]

    def call(a: object, b: object, c: object) -> None:
        cuda.kernel(1_000)
        if first:
            first.clear()
            cuda.synchronize()
            cuda.kernel(10**6)

    take = timer(cuda)
    times = [take(call, A_CELL, B, C, calls)[0].wall_ns for _ in range(3)]
    assert times[1:] == [calls * 1_000] * 2
    assert times[0] == pytest.approx(10**6 if calls == 1 else 5_000, rel=0.05)
    assert take.mode == ("launches" if calls == 1 else "batch")


@given(LENGTHS, CALLS, st.sets(st.integers(0, 8), max_size=2), st.integers(30_000, 10**7))
@example([1_000], 5, {1, 2}, 30_000)
def test_a_host_that_is_late_twice_condemns_no_call(
    lengths: list[int], calls: int, late: set[int], late_ns: int
) -> None:
    cuda = FakeCuda()
    wait, waits = cuda.synchronize, count()

    def synchronize() -> None:
        wait()
        cuda.host_ns += late_ns if next(waits) in late else 0

    take, call = timer(cuda), squaring(cuda, lengths)
    take(call, A_CELL, B, C, 1)
    cuda.synchronize = synchronize  # type: ignore[method-assign]
    for _ in range(3):
        take(call, A_CELL, B, C, calls)
    assert take.refused == ""


@given(LENGTHS, CALLS, st.integers(20_000, 200_000))
def test_a_host_that_always_waits_long_condemns_no_call(lengths: list[int], calls: int, wait_ns: int) -> None:
    """As seen on a virtual machine with an H100: waiting for an idle device took 5 µs or over 20 µs."""
    cuda = FakeCuda(wait_ns=wait_ns)
    take, call = timer(cuda), squaring(cuda, lengths)
    take(call, A_CELL, B, C, 1)
    for _ in range(3):
        sample, _ = take(call, A_CELL, B, C, calls)
        assert sample.wall_ns == calls * sum(lengths)
    assert take.refused == ""


@given(LENGTHS, CALLS, st.integers(2, 6), st.integers(30_000, 10**6))
def test_a_host_that_is_late_after_one_sample_adds_nothing_to_it(
    lengths: list[int], calls: int, sample_no: int, late_ns: int
) -> None:
    cuda = FakeCuda()
    take, call = timer(cuda), squaring(cuda, lengths)
    for _ in range(sample_no):
        take(call, A_CELL, B, C, calls)
    wait, waits = cuda.synchronize, count()

    def synchronize() -> None:
        wait()
        # The second wait of a sample is the one after its end.
        cuda.host_ns += late_ns if next(waits) == 1 else 0

    cuda.synchronize = synchronize  # type: ignore[method-assign]
    sample, _ = take(call, A_CELL, B, C, calls)
    assert sample.wall_ns == calls * sum(lengths)
    assert take.refused == ""


def test_short_work_on_another_stream_adds_up_where_no_output_can_be_cleared() -> None:
    cuda = FakeCuda(launch_ns=1_000)
    hidden = cuda.Stream()
    take = timer(cuda)

    def call(a: object, b: object, c: object) -> None:
        cuda.kernel(6_000, hidden)

    for _ in range(3):
        sample, _ = take(call, A_CELL, B, C, 4)
    assert take.refused == "it leaves work on other streams"
    assert sample.wall_ns >= 4 * 6_000


def test_a_call_whose_output_cant_be_written_is_captured() -> None:
    """As one that is expanded, whose elements share memory."""

    def refuse(output: Any) -> None:
        raise RuntimeError("more than one element refers to a single memory location")

    cuda = FakeCuda()
    take = CudaTimer(cuda, cuda.overwrite, cold=False, clear=refuse, now_ns=cuda.now_ns)
    call = squaring(cuda, [6_000])
    for _ in range(3):
        sample, _ = take(call, A_CELL, B, C, 4)
    assert (take.mode, take.refused, sample.wall_ns) == ("batch", "", 4 * 6_000)


def test_a_clock_that_is_not_told_is_asked_for_once() -> None:
    cuda = FakeCuda(clock_mhz=None)
    take, call = timer(cuda), squaring(cuda, [1_000])
    assert [take(call, A_CELL, B, C, 2)[0].clock_mhz for _ in range(3)] == [0, 0, 0]
    assert cuda.happened.count("clock") == 1


def test_the_host_never_waits_longer_than_five_milliseconds_for_its_own_head_start() -> None:
    cuda = FakeCuda(launch_ns=50_000_000)
    take, call = timer(cuda), not_captured(cuda, 1_000)
    for _ in range(3):
        before = cuda.host_ns
        take(call, A_CELL, B, C, 2)
    assert cuda.host_ns - before < 2 * 50_000_000 + 6_000_000


@pytest.mark.parametrize("cold", [False, True])
def test_work_that_is_hidden_in_the_first_call_or_only_later_is_included(cold: bool) -> None:
    """Streams are looked at once. Before and after, waiting for the device shows work that is long.

    The device works on it during the head start already.
    """
    cuda, hides = FakeCuda(l2_bytes=4096), [True]
    hidden = cuda.Stream()

    def call(a: object, b: object, c: object) -> None:
        cuda.kernel(1_000, hidden if hides[0] else None)
        cuda.kernel(1_000_000, hidden if hides[0] else None)

    take = timer(cuda, cold=cold)
    assert take(call, A_CELL, B, C, 1)[0].wall_ns == pytest.approx(1_001_000, rel=0.1)
    hides[0] = False
    for _ in range(2):
        assert take(call, A_CELL, B, C, 1)[0].wall_ns == 1_001_000
    assert take.refused == ""
    hides[0] = True
    assert take(call, A_CELL, B, C, 1)[0].wall_ns == pytest.approx(1_001_000, rel=0.1)


def test_a_batch_is_captured_once_for_its_call_its_inputs_and_its_count() -> None:
    """A graph computes on the storage it was captured with, whatever it is handed later."""
    cuda = FakeCuda()
    take, call = timer(cuda), squaring(cuda, [2_000])
    for _ in range(3):
        take(call, A_CELL, B, C, 40)
    captured = len(cuda.graphs)
    cuda.happened.clear()
    take(call, A_CELL, B, C, 40)
    # Idle, timed, idle again, and only then the clock of the device is read.
    assert cuda.happened == ["idle", "replay", "idle", "clock"]
    for calls in (3, 40):
        take(call, A_CELL, B, C, calls)
    assert len(cuda.graphs) == captured + 1
    take(call, a := Cell(), B, C, 40)
    assert len(cuda.graphs) == captured + 2
    sample, _ = take(squaring(cuda, [3_000]), a, B, C, 40)
    assert sample.wall_ns == 40 * 3_000


@pytest.mark.parametrize("calls", [MOST_CAPTURED_CALLS, MOST_CAPTURED_CALLS + 1, 3 * MOST_CAPTURED_CALLS + 7])
def test_many_calls_are_several_replays_and_none_is_lost(calls: int) -> None:
    cuda = FakeCuda()
    sample, output = timer(cuda)(squaring(cuda, [700]), A_CELL, B, C, calls)
    assert sample.wall_ns == calls * 700
    assert max(len(graph.kernels) for graph in cuda.graphs) == MOST_CAPTURED_CALLS
    assert output.value == 9.0


def test_a_call_that_waits_for_the_device_is_launched_and_captured_no_more() -> None:
    cuda = FakeCuda()
    take = timer(cuda)

    def call(a: object, b: object, c: object) -> str:
        cuda.kernel(5_000)
        cuda.synchronize()
        return "out"

    sample, output = take(call, A_CELL, B, C, 4)
    assert (take.mode, output) == ("launches", "out")
    assert take.refused == "RuntimeError: operation not permitted when stream is capturing"
    # What the host does between such calls is theirs: the device stands still meanwhile.
    assert sample.wall_ns >= 4 * 5_000 + 3 * cuda.launch_ns
    assert cuda.current is cuda.default
    graphs = len(cuda.graphs)
    for calls, inputs in ((4, A_CELL), *((calls, Cell()) for calls in (1, 1, 4, 4))):
        take(call, inputs, B, C, calls)
    assert len(cuda.graphs) == graphs
    take(squaring(cuda, [5_000]), A_CELL, B, C, 4)
    assert (take.mode, take.refused) == ("batch", "")


def test_without_a_spin_launching_is_in_the_sample() -> None:
    cuda = FakeCuda(can_spin=False)
    sample, _ = timer(cuda)(squaring(cuda, [1_000]), A_CELL, B, C, 1)
    assert 1_000 < sample.wall_ns <= 1_000 + 2 * cuda.launch_ns
