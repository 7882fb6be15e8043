"""Numbers for people: three digits, and a unit that fits."""

from __future__ import annotations

from math import floor, log10


def digits(value: float) -> str:
    """Three significant digits, never in powers of ten: 0.0832, 1.02, 213, 12300."""
    if value == 0:
        return "0"
    places = 2 - floor(log10(abs(value)))
    rounded = round(value, places)
    # Rounding up may add a digit: 9.996 is 10.0.
    places = 2 - floor(log10(abs(rounded)))
    return f"{rounded:.{max(0, places)}f}"


def duration(ms: float) -> str:
    """A time in ms as 213 ns, 1.02 µs, 48.1 ms or 3.20 s."""
    ns = ms * 1e6
    for unit in ("ns", "µs", "ms"):
        if ns < 999.5:
            return f"{digits(ns)} {unit}"
        ns /= 1000
    return f"{digits(ns)} s"


def error(value: float) -> str:
    """An error in two digits and a power of ten: 1.2e-07."""
    return "0" if value == 0 else f"{value:.1e}"
