"""Numbers for people: their digits follow the interval, and a printed interval holds the computed one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.reports import units

values = st.floats(1e-6, 1e6)
shares = st.floats(1e-5, 0.99)


@pytest.mark.parametrize(
    ("value", "low", "high", "text", "ends"),
    [
        (44.13, 41, 47, "44", "[41, 47]"),
        (1.0312, 1.0112, 1.0488, "1.03", "[1.01, 1.05]"),
        # Never more than four digits, however tight the interval; ends are rounded outwards.
        (1.03127, 1.031265, 1.031275, "1.031", "[1.031, 1.032]"),
        (0.0832, 0.081, 0.085, "0.083", "[0.081, 0.085]"),
        # The farther end counts.
        (1.01, 1.005, 1.31, "1.0", "[1.0, 1.4]"),
        # Two digits are always printed.
        (44.13, 3, 300, "44", "[3, 300]"),
        (512.3, 488, 893, "510", "[480, 900]"),
        # The lower end never reads as 0.
        (37.7, 0.26, 39.1, "38", "[0.2, 40]"),
        (2.4, 0.0312, 11, "2.4", "[0.03, 11.0]"),
        # Rounding up adds no digit.
        (0.99996, 0.99991, 1.00001, "1.000", "[0.999, 1.001]"),
        (12345.6, 12000, 12700, "12300", "[12000, 12700]"),
    ],
)
def test_digits_follow_the_interval(value: float, low: float, high: float, text: str, ends: str) -> None:
    assert units.number(value, units.reach(value, low, high)) == text
    assert units.interval(value, low, high) == ends


@pytest.mark.parametrize(
    ("value", "low", "high", "text", "ends"),
    [
        (1.0312, 1.0112, 1.0488, "1.03", "[1.01, 1.05]"),
        (1.043, 1.023, 1.7, "1.04", "[1.02, 1.7]"),
        (1.0043, 1.0023, 1.7, "1.004", "[1.002, 1.7]"),
        (0.96, 0.3, 0.98, "0.96", "[0.30, 0.98]"),
        (12, 1.5, 18, "12", "[1.5, 18]"),
        (0.99991, 0.3, 0.99995, "0.9999", "[0.3, 1.0000]"),
        # An interval that holds 1 gets no further digit.
        (1.043, 0.99, 1.7, "1.0", "[0.9, 1.7]"),
        (1.2, 1.0, 1.9, "1.2", "[1.0, 1.9]"),
        (1.043, None, None, "1.0", ""),
    ],
)
def test_a_ratio_whose_interval_leaves_out_1_does_not_read_as_1(
    value: float, low: float | None, high: float | None, text: str, ends: str
) -> None:
    assert units.ratio(value, low, high) == (text, ends)


@given(st.floats(0.01, 100), st.floats(0.03, 0.9), st.floats(0.03, 0.9))
def test_a_printed_ratio_is_on_the_side_of_its_interval(value: float, below: float, above: float) -> None:
    low, high = value * (1 - below), value * (1 + above)
    text, ends = units.ratio(value, low, high)
    first, last = (float(end) for end in ends.strip("[]").split(", "))
    if low > 1.001:
        assert 1 < first <= low * 1.00001
        assert float(text) > 1
    elif high < 0.999:
        assert high * 0.99999 <= last < 1
        assert float(text) < 1
    elif low <= 1 <= high:
        assert (first, last) == tuple(
            float(x) for x in units.interval(value, low, high).strip("[]").split(", ")
        )


@given(st.floats(1.01, 100), st.floats(0.0001, 0.5), st.floats(0.0001, 0.5))
def test_a_printed_interval_exceeds_the_bound_that_the_computed_one_exceeds(
    above: float, by: float, width: float
) -> None:
    low = above * (1 + by)
    text, ends = units.ratio(low * (1 + width / 2), low, low * (1 + width), above=above)
    first = float(ends.strip("[").partition(",")[0])
    assert above < first <= low * 1.00001
    assert first <= float(text)


@given(values, shares, shares)
def test_digits_and_ends_of_any_interval(value: float, below: float, above: float) -> None:
    low, high = value * (1 - below), value * (1 + above)
    far = units.reach(value, low, high)
    assert far is not None
    step = 10.0 ** units.last_place(value, far)
    printed = float(units.number(value, far))
    digits = math.floor(math.log10(printed) + 1e-9) - units.last_place(value, far) + 1
    assert step > far / 10.001 or digits == units.LEAST_DIGITS
    assert units.LEAST_DIGITS <= digits <= units.MOST_DIGITS
    assert step <= far * 1.001 or digits >= units.MOST_DIGITS
    assert abs(printed - value) <= step * 0.5001
    assert units.last_place(value, far) <= units.last_place(value, 3 * far)
    ends = [float(end) for end in units.interval(value, low, high).strip("[]").split(", ")]
    slack = 1e-5 * step
    assert low - step - slack <= ends[0] <= low + slack
    assert high - slack <= ends[1] <= high + step + slack


@given(st.floats(1e-6, 1e6), st.none() | shares)
def test_times_are_short_and_near_the_truth(ms: float, share: float | None) -> None:
    text = units.duration(ms, None if share is None else share * ms)
    assert len(text) <= 9
    count, unit = text.split()
    scale = {"ns": 1e-6, "µs": 1e-3, "ms": 1.0, "s": 1e3}[unit]
    assert abs(float(count) * scale - ms) <= max((share or 0.1) * ms / 1.9, 0.0006 * ms)
    assert float(count) < 1000 or unit == "s"


@pytest.mark.parametrize(
    ("function", "arguments", "text"),
    [
        *((units.number, (value,), text) for value, text in (
            (0.0832, "0.083"), (1.0, "1.0"), (96.12, "96"), (213.4, "210"), (0, "0"), (9.96, "10"),
        )),
        *((units.number, both, text) for both, text in (
            ((1.5, 0.0), "1.500"), ((0.0, 0.1), "0"), ((1.5, math.inf), "1.5"), ((math.inf, None), "inf"),
            ((-3.14159, 0.02), "-3.14"),
        )),
        *((units.duration, both, text) for both, text in (
            ((0.0000184, 0.0000002), "18.4 ns"), ((0.04413, 0.00313), "44 µs"), ((0.5, 0.0005), "500.0 µs"),
            ((0.0009996, 0.00002), "1.00 µs"), ((0.0009996, 0.0000002), "999.6 ns"),
            ((48.06, 0.9), "48.1 ms"),
            ((3200, 20), "3.20 s"), ((120000, 1000), "120 s"), ((0.96, 0.4), "960 µs"), ((0, None), "0 ns"),
            ((12.0, None), "12 ms"), ((0.0009996, None), "1.0 µs"),
        )),
        *((units.percent, both, text) for both, text in (
            ((0.734, None), "73%"), ((0.734, 0.2), "73%"), ((0.00041, None), "0.041%"), ((1.1, 0.01), "110%"),
        )),
        *((units.plus_minus, both, text) for both, text in (
            ((44.13, 3.13), "7%"), ((1.0, 0.003), "0.3%"), ((1.0, 0.0096), "1%"), ((1.0, 0.0004), "<0.1%"),
            ((2.0, 5.0), "250%"),
        )),
        *((units.figure, both, text) for both, text in (
            ((16.0, 4), "16"), ((16.25, 2), "16"), ((16.25, 3), "16.2"), ((1234.0, 2), "1200"),
            ((0.0, 2), "0"), ((0.00123, 2), "0.0012"), ((-0.5, 1), "-0.5"), ((1.5e-7, 2), "1.5e-07"),
            ((2.5e9, 3), "2.50e+09"),
        )),
        *((units.error, (value,), text) for value, text in ((0, "0"), (1.23e-7, "1.2e-07"))),
        *((units.reach, ends, far) for ends, far in (
            ((1.0, 1.0, 1.0), 0.0), ((1.0, None, 1.2), None), ((1.0, 0.9, None), None), ((1, 3, 5), 4),
        )),
    ],
)  # fmt: skip
def test_numbers_as_text(function: Callable[..., Any], arguments: tuple[Any, ...], text: Any) -> None:
    assert function(*arguments) == text
