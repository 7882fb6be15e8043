"""Shares in words."""

from __future__ import annotations

from math import expm1


def percent(share: float) -> str:
    """A share to two digits, whole from 10 on: 2.3 %, 12 %, 120 %."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 9.95 else f"{value:.2g} %"


def percent_of_log(log_share: float) -> str:
    """How far a ratio lies from 1 by its logarithm, always upwards: 0.1 and -0.1 are 11 %."""
    return percent(expm1(abs(log_share)))
