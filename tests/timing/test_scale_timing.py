"""The scale of the machine: what is measured, in which dtype, how large, and how seldom it's thought over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from attnbench.timing import scale as scale_module
from attnbench.timing.sample import Sample
from attnbench.timing.scale import LEAST_COPY_BYTES, SIDES, SIDES_KEPT, measure_scale
from attnbench.types.case import Dtype

MIB = 1024**2


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    names = ("_fastest_products", "_factors", "_copied", "_convolved")
    for name in names:
        getattr(scale_module, name).cache_clear()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    for name in names:
        getattr(scale_module, name).cache_clear()


class Timer:
    """On it a product of side n takes n³ ns over the rate of its side, and all else a microsecond; a
    convolution a quarter of an hour, if nothing else is said."""

    mode = ""
    default_clock_mhz = 0

    def __init__(self, rates: dict[tuple[torch.dtype, int], float]) -> None:
        self.rates = rates
        self.calls: list[tuple[torch.dtype, int]] = []
        self.convolution_ns = 1e12

    def __call__(self, call: Any, a: Any, b: Any, c: Any, calls: int) -> tuple[Sample, None]:
        each_ns = 1000.0
        if a.dim() == 4:
            each_ns = self.convolution_ns
        if a.dim() == 2:
            self.calls.append((a.dtype, len(a)))
            each_ns = len(a) ** 3 / self.rates.get((a.dtype, len(a)), 100.0)
        return Sample(calls, round(each_ns * calls), 0, 0, 0), None


def with_timer(monkeypatch: pytest.MonkeyPatch, rates: dict[tuple[torch.dtype, int], float]) -> Timer:
    """Rates by dtype and side, in operations a nanosecond; 100 for all others."""
    timer = Timer(rates)
    monkeypatch.setattr(scale_module, "timer_for", lambda device: timer)
    return timer


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_scale_is_complete_and_possible(dtype: Dtype) -> None:
    measured = measure_scale(dtype, "cpu", MIB)
    assert 1 <= len(measured.gemm_ns) <= SIDES_KEPT
    assert all(times and min(times) > 0 for times in measured.gemm_ns.values())
    assert measured.copy_bytes == MIB
    assert measured.copy_ns
    assert min(measured.copy_ns) > 0
    assert measured.empty_ns
    assert 0 < min(measured.empty_ns) < min(measured.copy_call_ns)
    assert min(measured.far_copy_ns) > min(measured.copy_ns)


@pytest.mark.parametrize(
    ("working_set", "expected"),
    [
        (1, LEAST_COPY_BYTES),
        (MIB + 3, MIB),
        (100 * MIB, 32 * MIB),
    ],
)
def test_a_copy_is_as_large_as_the_working_set_within_reason(
    monkeypatch: pytest.MonkeyPatch, working_set: int, expected: int
) -> None:
    monkeypatch.setattr(scale_module, "last_level_cache_bytes", lambda device: 8 * MIB)
    assert measure_scale("float32", "cpu", working_set).copy_bytes == expected


def test_the_two_fastest_sizes_are_kept_and_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = with_timer(monkeypatch, {(torch.float32, 192): 300.0, (torch.float32, 320): 200.0})
    assert list(measure_scale("float32", "cpu", MIB).gemm_ns) == [192, 320]
    tried = {side for _, side in timer.calls}
    assert tried >= {128, 192, 256, 320}
    timer.calls.clear()
    assert list(measure_scale("float32", "cpu", MIB).gemm_ns) == [192, 320]
    assert {side for _, side in timer.calls} == {192, 320}


@pytest.mark.parametrize(("rate", "used"), [(1.0, torch.float32), (1000.0, torch.bfloat16)])
def test_sixteen_bits_are_multiplied_wide_where_that_is_faster(
    monkeypatch: pytest.MonkeyPatch, rate: float, used: torch.dtype
) -> None:
    timer = with_timer(monkeypatch, {(torch.bfloat16, side): rate for side in SIDES})
    measure_scale("bfloat16", "cpu", MIB)
    timer.calls.clear()
    measure_scale("bfloat16", "cpu", MIB)
    assert {dtype for dtype, _ in timer.calls} == {used}


@pytest.mark.parametrize(("share", "least"), [(200.0, 0.5), (0.75, 0.75)])
def test_the_limit_follows_the_faster_of_two_threads_and_one(
    monkeypatch: pytest.MonkeyPatch, share: float, least: float
) -> None:
    """With one busy core two threads take 200 times as long as one; then half of one thread's time counts."""

    class TwoThreads(Timer):
        def __call__(self, call: Any, a: Any, b: Any, c: Any, calls: int) -> tuple[Sample, None]:
            sample, _ = super().__call__(call, a, b, c, calls)
            by = share if torch.get_num_threads() > 1 else 1.0
            return Sample(calls, round(by * sample.wall_ns), 0, 0, 0), None

    monkeypatch.setattr(scale_module, "timer_for", lambda device: TwoThreads({}))
    monkeypatch.setattr(scale_module, "SIDES", (128,))
    torch.set_num_threads(2)
    times = measure_scale("float32", "cpu", MIB).gemm_ns[128]
    assert torch.get_num_threads() == 2
    assert min(times) == pytest.approx(least * 128**3 / 100, rel=1e-3)
    assert max(times) == pytest.approx(share * 128**3 / 100, rel=1e-3)


@pytest.mark.parametrize(("ns", "measured"), [(400_000.0, True), (900_000.0, False)])
def test_convolutions_are_measured_where_they_do_more_than_products(
    monkeypatch: pytest.MonkeyPatch, ns: float, measured: bool
) -> None:
    """The fake's products do 2 · 100 operations a nanosecond; 161 million in 0.4 ms are 401."""
    timer = with_timer(monkeypatch, {})
    timer.convolution_ns = ns
    scale = measure_scale("float32", "cpu", MIB)
    assert bool(scale.convolution_ns) == measured
    if measured:
        assert scale.convolution_flops == 2 * 64 * 64 * 25 * 28 * 28
        assert set(scale.convolution_ns) == {round(ns)}
