from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.reports.units import digits, duration, error


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (1, "1.00"), (0.0832, "0.0832"), (1.024, "1.02"), (9.996, "10.0"), (99.96, "100"),
        (213.4, "213"), (12345.6, "12300"), (0.00042, "0.000420"), (-3.14159, "-3.14"),
    ],
)  # fmt: skip
def test_three_digits(value: float, text: str) -> None:
    assert digits(value) == text


@given(st.floats(1e-9, 1e12))
def test_three_digits_are_near_enough_to_be_true(value: float) -> None:
    assert float(digits(value)) == pytest.approx(value, rel=0.0051)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0.0000184, "18.4 ns"), (0.000213, "213 ns"), (0.0009996, "1.00 µs"), (0.00102, "1.02 µs"),
        (0.5, "500 µs"), (48.06, "48.1 ms"), (999.4, "999 ms"), (3200, "3.20 s"), (120000, "120 s"),
        (0, "0 ns"),
    ],
)  # fmt: skip
def test_times_have_the_unit_that_fits(ms: float, text: str) -> None:
    assert duration(ms) == text


@given(st.floats(1e-6, 1e6))
def test_times_are_short_enough_for_a_column(ms: float) -> None:
    assert len(duration(ms)) <= 8


def test_errors_are_powers_of_ten() -> None:
    assert [error(value) for value in (0, 1.23e-7, 0.5)] == ["0", "1.2e-07", "5.0e-01"]
