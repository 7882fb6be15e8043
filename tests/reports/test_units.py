from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.reports.units import (
    MOST_DIGITS,
    duration,
    error,
    interval,
    last_place,
    number,
    percent,
    plus_minus,
    ratio,
    reach,
)

values = st.floats(1e-6, 1e6)
shares = st.floats(1e-5, 0.99)


@pytest.mark.parametrize(
    ("value", "low", "high", "text", "ends"),
    [
        (44.13, 41, 47, "44", "[41, 47]"),
        (1.0312, 1.0112, 1.0488, "1.03", "[1.01, 1.05]"),
        (1.0312, 1.0299, 1.0325, "1.031", "[1.029, 1.033]"),
        # Never more than four digits, however tight the interval; ends go outwards all the same.
        (1.03127, 1.031265, 1.031275, "1.031", "[1.031, 1.032]"),
        (96.12, 95.9, 96.4, "96.1", "[95.9, 96.4]"),
        (0.0832, 0.081, 0.085, "0.083", "[0.081, 0.085]"),
        # The farther end counts.
        (1.01, 1.005, 1.31, "1.0", "[1.0, 1.4]"),
        # A number that might be anything has a digit nevertheless.
        (44.13, 3, 300, "40", "[3, 300]"),
        # The lower end never reads as 0, as if the interval of what is slower held 1.
        (37.7, 9.26, 39.1, "40", "[9, 40]"),
        (2.4, 0.0312, 11, "2", "[0.03, 11]"),
        (0.9997, 0.9996, 0.9998, "0.9997", "[0.9996, 0.9998]"),
        # What rounds up to another digit doesn't gain one.
        (0.99996, 0.99991, 1.00001, "1.000", "[0.999, 1.001]"),
        (12345.6, 12000, 12700, "12300", "[12000, 12700]"),
        (0.5, 0.49, 0.51, "0.50", "[0.49, 0.51]"),
    ],
)
def test_no_digit_is_finer_than_the_interval_justifies(
    value: float, low: float, high: float, text: str, ends: str
) -> None:
    assert number(value, reach(value, low, high)) == text
    assert interval(value, low, high) == ends


@pytest.mark.parametrize(
    ("value", "low", "high", "text", "ends"),
    [
        (1.0312, 1.0112, 1.0488, "1.03", "[1.01, 1.05]"),
        # What is proved to be off 1 reads so.
        (1.043, 1.023, 1.7, "1.04", "[1.02, 1.7]"),
        (1.0043, 1.0023, 1.7, "1.004", "[1.002, 1.7]"),
        (0.96, 0.3, 0.98, "0.96", "[0.3, 0.98]"),
        (12, 1.5, 18, "10", "[1.5, 20]"),
        # Not finer than four digits.
        (0.99991, 0.3, 0.99995, "0.9999", "[0.3, 1.0000]"),
        # What may be 1 has no digit more.
        (1.043, 0.99, 1.7, "1.0", "[0.9, 1.7]"),
        (1.2, 1.0, 1.9, "1.2", "[1.0, 1.9]"),
        (2.4, 0.0312, 11, "2", "[0.03, 11]"),
        (1.043, None, None, "1.0", ""),
    ],
)
def test_a_ratio_that_is_proved_to_be_off_1_never_reads_as_1(
    value: float, low: float | None, high: float | None, text: str, ends: str
) -> None:
    assert ratio(value, low, high) == (text, ends)


@given(st.floats(0.01, 100), st.floats(0.03, 0.9), st.floats(0.03, 0.9))
def test_a_printed_ratio_is_on_the_side_of_1_that_its_interval_is_on(
    value: float, below: float, above: float
) -> None:
    low, high = value * (1 - below), value * (1 + above)
    text, ends = ratio(value, low, high)
    first, last = (float(end) for end in ends.strip("[]").split(", "))
    if low > 1.001:
        assert 1 < first <= low * 1.00001
        assert float(text) > 1
    elif high < 0.999:
        assert high * 0.99999 <= last < 1
        assert float(text) < 1
    else:
        assert (first, last) == tuple(float(x) for x in interval(value, low, high).strip("[]").split(", "))


@given(values, shares)
def test_the_last_digit_is_between_a_tenth_of_the_reach_and_all_of_it(value: float, share: float) -> None:
    far = share * value
    step = 10.0 ** last_place(value, far)
    assert step > far / 10.001
    printed = float(number(value, far))
    digits = math.floor(math.log10(printed) + 1e-9) - last_place(value, far) + 1
    assert 1 <= digits <= MOST_DIGITS
    assert step <= far * 1.001 or digits >= MOST_DIGITS
    assert abs(printed - value) <= step * 0.5001


@given(values, shares, shares)
def test_a_printed_interval_holds_the_one_computed_and_is_hardly_wider(
    value: float, below: float, above: float
) -> None:
    low, high = value * (1 - below), value * (1 + above)
    step = 10.0 ** last_place(value, reach(value, low, high))
    ends = [float(end) for end in interval(value, low, high).strip("[]").split(", ")]
    slack = 1e-5 * step
    assert low - step - slack <= ends[0] <= low + slack
    assert high - slack <= ends[1] <= high + step + slack


@given(values, shares)
def test_a_wider_interval_never_gives_more_digits(value: float, share: float) -> None:
    assert last_place(value, value * share) <= last_place(value, 3 * value * share)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0832, "0.083"), (1.0, "1.0"), (96.12, "96"), (213.4, "210"), (0, "0"), (9.96, "10")],
)
def test_two_digits_where_nothing_is_known(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "far", "text"),
    [
        (1.5, 0.0, "1.500"),
        (0.0, 0.1, "0"),
        (1.5, math.inf, "2"),
        (math.inf, None, "inf"),
        (-3.14159, 0.02, "-3.14"),
    ],
)
def test_odd_numbers(value: float, far: float | None, text: str) -> None:
    assert number(value, far) == text


def test_a_value_outside_its_interval_has_the_reach_of_the_farther_end() -> None:
    assert reach(1.0, 1.1, 1.2) == pytest.approx(0.2)
    assert reach(1.0, 1.0, 1.0) == 0.0
    assert reach(1.0, None, 1.2) is None
    assert reach(1.0, 0.9, None) is None


@pytest.mark.parametrize(
    ("ms", "far_ms", "text"),
    [
        (0.0000184, 0.0000002, "18.4 ns"), (0.000213, 0.000004, "213 ns"), (0.04413, 0.00313, "44 µs"),
        (0.0009996, 0.00002, "1.00 µs"), (0.0009996, 0.0000002, "999.6 ns"), (0.5, 0.01, "500 µs"),
        (0.5, 0.0005, "500.0 µs"), (48.06, 0.9, "48.1 ms"), (3200, 20, "3.20 s"), (120000, 1000, "120 s"),
        (0.96, 0.4, "1.0 ms"), (0, None, "0 ns"), (12.0, None, "12 ms"), (0.0009996, None, "1.0 µs"),
    ],
)  # fmt: skip
def test_times_have_the_unit_that_fits(ms: float, far_ms: float | None, text: str) -> None:
    assert duration(ms, far_ms) == text


@given(st.floats(1e-6, 1e6), st.none() | shares)
def test_times_are_short_enough_for_a_column_and_near_enough_to_be_true(
    ms: float, share: float | None
) -> None:
    text = duration(ms, None if share is None else share * ms)
    assert len(text) <= 9
    count, unit = text.split()
    scale = {"ns": 1e-6, "µs": 1e-3, "ms": 1.0, "s": 1e3}[unit]
    assert abs(float(count) * scale - ms) <= max((share or 0.1) * ms / 1.9, 0.0006 * ms)
    assert float(count) < 1000 or unit == "s"


@pytest.mark.parametrize(
    ("share", "far", "text"),
    [
        (0.734, None, "73%"),
        (0.734, 0.2, "70%"),
        (0.00041, None, "0.041%"),
        (1.1, 0.01, "110%"),
        (0.5, 1e-9, "50%"),
    ],
)
def test_shares_have_two_digits_at_most(share: float, far: float | None, text: str) -> None:
    assert percent(share, far) == text


@pytest.mark.parametrize(
    ("value", "far", "text"),
    [
        (44.13, 3.13, "7%"),
        (1.0, 0.003, "0.3%"),
        (1.0, 0.0096, "1%"),
        (1.0, 0.0004, "<0.1%"),
        (2.0, 5.0, "250%"),
    ],
)
def test_a_reach_as_a_share(value: float, far: float, text: str) -> None:
    assert plus_minus(value, far) == text


def test_errors_are_powers_of_ten() -> None:
    assert [error(value) for value in (0, 1.23e-7, 0.5)] == ["0", "1.2e-07", "5.0e-01"]
