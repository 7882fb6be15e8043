"""The limit from the scales of repetitions, on scales made by hand, and what is beyond it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from attnbench.stats.doubts import SUSPECT_ABOVE, Limit, limit_problem, limit_share, limits
from attnbench.types.record import MachineScale, RepetitionLine

LIMIT = Limit(flops_per_s=100e9, bytes_per_s=50e9, empty_call_ns=40.0)
MS_OF_A_GFLOP = 10.0
MS_OF_A_MB = 0.02


def scale(
    gemm_ns: dict[int, list[int]] | None = None,
    copy_ns: list[int] | None = None,
    empty_ns: list[float] | None = None,
    copy_call_ns: list[float] | None = None,
    copy_bytes: int = 1_000_000,
) -> MachineScale:
    """100 GFLOP/s, 50 GB/s net of a microsecond a call, 40 ns, unless said otherwise."""
    return MachineScale(
        gemm_ns={100: [20_000]} if gemm_ns is None else gemm_ns,
        copy_bytes=copy_bytes,
        copy_ns=[21_000] if copy_ns is None else copy_ns,
        empty_ns=[40.0] if empty_ns is None else empty_ns,
        copy_call_ns=[1_000.0] if copy_call_ns is None else copy_call_ns,
    )


def repetitions(*scales: MachineScale | None) -> list[RepetitionLine]:
    return [RepetitionLine("case", i, [], [], {}, {}, [], {}, each) for i, each in enumerate(scales)]


def limit_of(*scales: MachineScale | None) -> Limit:
    limit = limits(repetitions(*scales))
    assert limit is not None
    return limit


@pytest.mark.parametrize(
    ("told", "rate", "value"),
    [
        (scale(), "flops_per_s", 100e9),
        (scale(), "bytes_per_s", 50e9),
        (scale(), "empty_call_ns", 40),
        # The best size counts.
        (scale({100: [20_000], 200: [80_000], 300: [1_000_000]}), "flops_per_s", 2e9 * 200**3 / 80_000),
        # The fast moments of a machine with two speeds count, and one clock reading in hundreds does not.
        (scale({100: [20_000] * 99 + [1]}), "flops_per_s", 100e9),
        (scale({100: [38_000] * 19 + [20_000]}), "flops_per_s", 100e9),
        (scale(copy_ns=[40_000] * 19 + [21_000]), "bytes_per_s", 50e9),
        (scale(empty_ns=[76.0] * 19 + [40.0]), "empty_call_ns", 40),
        # A stored run without the cost of calling a copy has the whole copy.
        (scale(copy_call_ns=[]), "bytes_per_s", 1e6 / 21e-6),
        # The call was measured in a slow moment, the copy in a fast one: bandwidth must stay finite.
        (scale(copy_ns=[800], copy_call_ns=[1_900.0]), "bytes_per_s", 8e6 / 800e-9),
    ],
)
def test_a_scale_gives_rates_and_the_floor(told: MachineScale, rate: str, value: float) -> None:
    assert getattr(limit_of(told), rate) == pytest.approx(value)


def test_without_a_scale_there_is_no_limit_and_one_set_is_enough() -> None:
    assert limits([]) is None
    assert limits(repetitions(None, None)) is None
    empty: list[dict[str, Any]] = [{"gemm_ns": {}}, {"gemm_ns": {100: []}}, {"copy_ns": []}, {"empty_ns": []}]
    for lacks in (*empty, {"copy_bytes": 0}):
        assert limits(repetitions(scale(**lacks))) is None
    assert limit_of(None, scale(), None) == limit_of(scale())
    assert limit_of(*[scale({100: [38_000]}, [40_000], [76.0])] * 19, scale()) == limit_of(scale())


def test_a_clock_that_stood_still_divides_nothing_by_zero() -> None:
    limit = limit_of(scale({100: [0]}, [0], [0.0], [0.0]))
    assert limit_share(1e9, 1e6, 1.0, limit) >= 0


def test_the_share_is_the_larger_of_operations_and_bytes_over_time() -> None:
    assert limit_share(1e9, 0, 2 * MS_OF_A_GFLOP, LIMIT) == pytest.approx(0.5)
    assert limit_share(0, 1e6, 4 * MS_OF_A_MB, LIMIT) == pytest.approx(0.25)
    assert limit_share(1e9, 1e6, MS_OF_A_GFLOP, LIMIT) == pytest.approx(1)
    assert limit_share(1e6, 1e6, MS_OF_A_MB, LIMIT) == pytest.approx(1)


@given(st.floats(1e3, 1e15), st.floats(1, 1e12), st.floats(1e-3, 1e5))
def test_a_row_is_suspect_from_the_allowance_on(flops: float, moved: float, ms: float) -> None:
    """Above a microsecond the floor has no say."""
    share = limit_share(flops, moved, ms, LIMIT)
    assert (limit_problem(flops, moved, ms, LIMIT) != "") == (share > SUSPECT_ABOVE)


def test_what_is_beyond_the_limit_is_said_in_words() -> None:
    assert limit_problem(1e9, 1e3, MS_OF_A_GFLOP / 2, LIMIT) == (
        "5 ms a call is 2 times as fast as this machine's best: "
        "1 GFLOP at 100 GFLOP/s, the rate of the best product of matrices, take 10 ms"
    )
    assert limit_problem(1e3, 1e6, MS_OF_A_MB / 1.6, LIMIT) == (
        "12.5 µs a call is 1.6 times as fast as this machine's best: "
        "1 MB at 50 GB/s, the rate of the best copy of so much, take 20 µs"
    )


def test_nothing_takes_less_than_a_call_that_does_nothing() -> None:
    assert limit_problem(1, 1, 30e-6, LIMIT) == (
        "30 ns a call: calling a function that does nothing takes 40 ns here"
    )
    assert limit_problem(1, 1, 33e-6, LIMIT) == ""


def test_convolutions_count_where_they_are_faster_than_products() -> None:
    """Half of the cores' rate was all that products reached on one machine, and honest kernels more."""
    faster = replace(scale(), convolution_flops=4_000_000, convolution_ns=[20_000])
    assert limit_of(faster).flops_per_s == pytest.approx(200e9)
    assert limit_of(faster).work == "convolution"
    slower = replace(scale(), convolution_flops=4_000_000, convolution_ns=[50_000])
    assert limit_of(slower) == limit_of(scale())
    assert "the rate of the best convolution" in limit_problem(1e9, 1.0, 1.0, limit_of(faster))
