"""Numbers for people: rounded to the precision that their interval supports, with a unit that fits.

The *reach* of a number is the distance to the farther end of its interval. The last digit printed has the
place of the first digit of the reach: 44.13 in [41, 47] is 44, 1.0312 in [1.0299, 1.0325] is 1.031. At least
``LEAST_DIGITS`` are printed and at most ``MOST_DIGITS``. Ends of intervals
have the same last place as their value. They are rounded outwards, so a printed interval holds the computed
one.
"""

from __future__ import annotations

from math import ceil, floor, isfinite, log10

MOST_DIGITS = 4
LEAST_DIGITS = 2
"""A number without an interval has as many."""


def reach(value: float, low: float | None, high: float | None) -> float | None:
    """The distance from a value to the farther end of its interval; None without an interval."""
    return None if low is None or high is None else max(value - low, high - value, 0.0)


def last_place(value: float, reach: float | None = None, most: int = MOST_DIGITS) -> int:
    """The power of ten of the last digit to print: -2 for hundredths."""
    place = _place(value, reach, most)
    # Rounding up may add a digit: 9.9996 in four is 10.00.
    return _place(round(value, -place), reach, most)


def as_shown(value: float, reach: float | None) -> float:
    """A value rounded to the digits that are shown of it."""
    return round(value, -last_place(value, reach))


def _place(value: float, reach: float | None, most: int) -> int:
    if value == 0:
        return 0
    first = floor(log10(abs(value)))
    coarsest, finest = first - min(LEAST_DIGITS, most) + 1, first - most + 1
    if reach is None or not isfinite(reach):
        return coarsest
    # Computed ends have rounding errors: 0.0099999999999 is 0.01.
    reach = float(f"{reach:.6g}")
    return finest if reach <= 0 else min(coarsest, max(finest, floor(log10(reach))))


def number(value: float, reach: float | None = None, most: int = MOST_DIGITS) -> str:
    """A number rounded to the precision of its reach, never in powers of ten."""
    return _at(value, last_place(value, reach, most)) if isfinite(value) else str(value)


def interval(value: float, low: float, high: float) -> str:
    """The interval of a value: [1.01, 1.05]."""
    place = last_place(value, reach(value, low, high))
    return f"[{_low_end(low, place)}, {_high_end(high, place)}]"


def ratio(
    value: float,
    low: float | None,
    high: float | None,
    most: int = MOST_DIGITS,
    above: float | None = None,
    coarsest: int | None = None,
) -> tuple[str, str]:
    """A ratio and its interval; "" without an interval.

    coarsest: the last digit has this place or a finer one.
    If the interval leaves out 1, the printed numbers do too, with a further digit where needed: 1.0 in
    [1.0, 1.7] makes no sense beside "slower". above: a bound that the whole interval exceeds, if any; the
    printed one exceeds it too.
    """
    if low is None or high is None:
        return number(value), ""
    place = last_place(value, reach(value, low, high), most)
    if above is not None and low > above:
        place = min(place, _first_apart(low, above))
    place = place if coarsest is None else min(place, coarsest)
    text, first, last = _at(value, place), _low_end(low, place), _high_end(high, place)
    if low > 1 or high < 1:
        text = text if float(text) != 1 else _at(value, _place_beside_1(value))
    if low > 1 and float(first) <= 1:
        first = _low_end(low, _place_beside_1(low))
    if high < 1 and float(last) >= 1:
        last = _high_end(high, _place_beside_1(high))
    return text, f"[{first}, {last}]"


def upper_end(value: float, low: float, high: float) -> str:
    """The upper end of an interval, as it is printed: 1.4 for [1.05, 1.37]."""
    return _high_end(high, last_place(value, reach(value, low, high)))


def times(value: float, low: float | None, high: float | None, *, tenths: bool = False) -> tuple[str, str]:
    """A time over the fastest's and its interval: as a ratio, in three digits at most, from 10 on in two.

    tenths: below 10 it has tenths at least.
    """
    near = value < _TENS
    return ratio(value, low, high, most=3 if near else 2, coarsest=-1 if near and tenths else None)


_TENS = 9.95
"""From here on a ratio is told as 10."""


def _place_beside_1(value: float) -> int:
    """The place of the first digit in which a number differs from 1: -2 for 1.043, -1 for 1.5."""
    finest = _place(value, 0.0, MOST_DIGITS)
    return max(finest, _first_apart(value, 1.0)) if value != 1 else finest


def _first_apart(one: float, other: float) -> int:
    """The place of the first digit of a difference: -2 for 1.278 and 1.26."""
    return floor(log10(max(float(f"{abs(one - other):.6g}"), 1e-12)))


def _low_end(low: float, place: int) -> str:
    bottom = floor(round(low / 10.0**place, 6))
    if bottom == 0 < low:
        # A lower end above 0 does not read as 0: it gets its own first digit.
        place = floor(log10(low))
        bottom = floor(round(low / 10.0**place, 6))
    return _at(bottom * 10.0**place, place)


def _high_end(high: float, place: int) -> str:
    return _at(ceil(round(high / 10.0**place, 6)) * 10.0**place, place)


def _at(value: float, place: int) -> str:
    return f"{round(value, -place):.{max(0, -place)}f}"


def percent(share: float, reach: float | None = None) -> str:
    """A share in two digits at most: 73%."""
    return f"{number(100 * share, None if reach is None else 100 * reach, most=2)}%"


def plus_minus(value: float, reach: float) -> str:
    """A reach as a share of its value: 7%, 0.3%."""
    share = 100 * reach / abs(value)
    if share < 0.05:
        return "<0.1%"
    return f"{share:.1f}%" if share < 0.95 else f"{share:.0f}%"


def duration(ms: float, reach_ms: float | None = None) -> str:
    """A time in ms with a unit: 213 ns, 44 µs, 48.1 ms or 3.20 s."""
    value, off = ms * 1e6, None if reach_ms is None else reach_ms * 1e6
    for unit in ("ns", "µs", "ms"):
        if abs(round(value, -last_place(value, off))) < 1000:
            return f"{number(value, off)} {unit}"
        value, off = value / 1000, None if off is None else off / 1000
    return f"{number(value, off)} s"


def duration_interval(ms: float, low_ms: float, high_ms: float) -> str:
    """The interval of a time, in the unit that :func:`duration` gives it: [40, 42]."""
    unit = duration(ms, reach(ms, low_ms, high_ms)).split()[1]
    scale = {"ns": 1e6, "µs": 1e3, "ms": 1.0, "s": 1e-3}[unit]
    return interval(scale * ms, scale * low_ms, scale * high_ms)


def figure(value: float, digits: int) -> str:
    """A number with so many digits, in powers of ten if it is far from 1."""
    if value and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.{digits - 1}e}"
    text = number(value, 0.0, most=digits)
    # A whole number needs no digit after the point.
    return f"{value:.0f}" if "." in text and float(value).is_integer() else text


def error(value: float) -> str:
    """An error in two digits and a power of ten: 1.2e-07."""
    return "0" if value == 0 else f"{value:.1e}"
