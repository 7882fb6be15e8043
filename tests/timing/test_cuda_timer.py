"""The logic of the CUDA timer on a device that isn't there: what is in a sample, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fake_cuda import FakeCuda
from hypothesis import given
from hypothesis import strategies as st

from attnbench.timing.cuda import MOST_CAPTURED_CALLS, WARM_CALLS_BEFORE_CAPTURE, CudaTimer
from attnbench.timing.sample import device_fields

Call = Callable[[Any, Any, Any], Any]
A, B, C = object(), object(), object()


def timer(cuda: FakeCuda, *, cold: bool = False) -> CudaTimer:
    return CudaTimer(cuda, cuda.overwrite, cold=cold, now_ns=cuda.now_ns)


def kernel_of(cuda: FakeCuda, ns: int) -> Call:
    def call(a: object, b: object, c: object) -> int:
        assert (a, b, c) == (A, B, C)
        cuda.kernel(ns)
        return ns

    return call


def waits_for_the_device(cuda: FakeCuda, ns: int) -> Call:
    def call(a: object, b: object, c: object) -> str:
        cuda.kernel(ns)
        cuda.synchronize()
        return "out"

    return call


@given(st.integers(2, 50), st.integers(100, 100_000), st.integers(0, 50_000))
def test_a_batch_is_the_time_of_the_device_and_not_of_launching(
    calls: int, kernel_ns: int, launch_ns: int
) -> None:
    cuda = FakeCuda(launch_ns=launch_ns)
    sample, output = timer(cuda)(kernel_of(cuda, kernel_ns), A, B, C, calls)
    assert sample.calls == calls
    assert sample.wall_ns == pytest.approx(calls * kernel_ns, abs=1)
    assert output == kernel_ns


def test_a_batch_is_captured_once_after_warming_up_and_then_replayed() -> None:
    cuda = FakeCuda()
    take = timer(cuda)
    call = kernel_of(cuda, 2000)
    take(call, A, B, C, 40)
    assert cuda.happened.count("kernel") == WARM_CALLS_BEFORE_CAPTURE
    take(call, A, B, C, 40)
    (graph,) = cuda.graphs
    assert graph.kernels == [2000] * 40
    cuda.happened.clear()
    take(call, A, B, C, 40)
    # Idle, timed, idle again, and only then the clock of the device is read.
    assert cuda.happened == ["idle", "replay", "idle", "clock"]
    assert len(cuda.graphs) == 1
    assert take.mode == "batch"
    assert cuda.current is cuda.default


def test_other_inputs_are_captured_anew_and_other_counts_beside_the_first() -> None:
    """A graph computes on the storage it was captured with, whatever it is handed later."""
    cuda = FakeCuda()
    take = timer(cuda)

    def call(a: object, b: object, c: object) -> None:
        cuda.kernel(1000)

    take(call, A, B, C, 2)
    take(call, A, B, C, 3)
    take(call, A, B, C, 2)
    assert len(cuda.graphs) == 2
    take(call, object(), B, C, 2)
    assert len(cuda.graphs) == 3


@pytest.mark.parametrize("calls", [MOST_CAPTURED_CALLS, MOST_CAPTURED_CALLS + 1, 3 * MOST_CAPTURED_CALLS + 7])
def test_many_calls_are_several_replays_and_none_is_lost(calls: int) -> None:
    cuda = FakeCuda()
    sample, output = timer(cuda)(kernel_of(cuda, 700), A, B, C, calls)
    assert sample.wall_ns == calls * 700
    assert max(len(graph.kernels) for graph in cuda.graphs) == MOST_CAPTURED_CALLS
    assert output == 700


def test_a_call_that_waits_for_the_device_is_launched_and_the_mode_says_so() -> None:
    cuda = FakeCuda()
    take = timer(cuda)
    call = waits_for_the_device(cuda, 5000)
    sample, output = take(call, A, B, C, 4)
    assert take.mode == "launches"
    assert take.refused == "RuntimeError: operation not permitted when stream is capturing"
    assert output == "out"
    # What the host does between such calls is theirs: the device stands still meanwhile.
    assert sample.wall_ns >= 4 * 5000 + 3 * cuda.launch_ns
    assert cuda.current is cuda.default
    graphs = len(cuda.graphs)
    take(call, A, B, C, 4)
    assert len(cuda.graphs) == graphs, "it was tried again"


@pytest.mark.parametrize("cold", [False, True])
def test_work_left_on_another_stream_is_in_the_sample(cold: bool) -> None:
    """Events see their own stream; a call that works on another would seem to take nothing."""
    cuda = FakeCuda()
    hidden = cuda.Stream()

    def call(a: object, b: object, c: object) -> None:
        cuda.kernel(100_000, hidden)

    take = timer(cuda, cold=cold)
    take(call, A, B, C, 1)
    sample, _ = take(call, A, B, C, 8)
    assert sample.wall_ns > 0.6 * 8 * 100_000
    assert take.mode == ("cold" if cold else "launches")


def test_each_cold_launch_follows_a_flush_of_twice_the_cache() -> None:
    cuda = FakeCuda(l2_bytes=40 * 2**20)
    take = timer(cuda, cold=True)
    sample, output = take(kernel_of(cuda, 3000), A, B, C, 3)
    assert cuda.happened == ["idle", *["flush", "kernel", "idle"] * 3, "clock"]
    assert cuda.written == [80 * 2**20] * 3
    # The flush itself, ten milliseconds here, is in no sample.
    assert sample.wall_ns == pytest.approx(3 * 3000, abs=3)
    assert (sample.calls, output, take.mode) == (3, 3000, "cold")
    assert cuda.graphs == []


def test_without_a_spin_launching_is_in_the_sample() -> None:
    cuda = FakeCuda(can_spin=False)
    sample, _ = timer(cuda)(kernel_of(cuda, 1000), A, B, C, 1)
    assert 1000 < sample.wall_ns <= 1000 + 2 * cuda.launch_ns


def test_a_block_says_what_its_samples_are_and_how_fast_the_device_ran() -> None:
    cuda = FakeCuda(clock_mhz=1400, clock_khz=1_980_000)
    take = timer(cuda)
    samples = [take(kernel_of(cuda, 1000), A, B, C, 2)[0] for _ in range(2)]
    fields = device_fields(take, samples)
    assert (fields["mode"], fields["clock_mhz"]) == ("batch", [1400, 1400])
    assert fields["default_clock_mhz"] == 1980
    assert fields["host_ns"] == [sample.host_ns for sample in samples]
