"""A check in numbers."""

from __future__ import annotations

from msgspec import Struct


class Accuracy(Struct, frozen=True):
    """The check in numbers, pooled over draws.

    rms_error, max_error: of the output against the oracle. reference_rms, reference_max: the same of
    the plain computation in the case's dtype. rms_limit, max_limit: what was allowed. rows: query rows
    compared, of how many (all unless the oracle would have cost too much). draws: independent inputs.
    """

    rms_error: float
    max_error: float
    reference_rms: float
    reference_max: float
    rms_limit: float
    max_limit: float
    rows: int
    rows_of: int
    draws: int

    @property
    def error_budget(self) -> float:
        """RMS error over the plain reference's RMS error; 0 where both are exact."""
        return _ratio(self.rms_error, self.reference_rms)

    @property
    def max_error_budget(self) -> float:
        """Largest error over the plain reference's largest error; 0 where both are exact."""
        return _ratio(self.max_error, self.reference_max)


class DropoutNumbers(Struct, frozen=True):
    """The check of dropout in numbers.

    calls: outputs looked at. rows, rows_of: rows (of a batch element, a head and a query) that tell
    something, of how many compared; 0 where nothing is dropped that could be seen. scale: of the mean of the
    outputs over the oracle's answer. spread: variance between calls over what p gives, and least and most
    that were allowed. p: that of which the spread would be; p_least, p_most: those of which the limits would
    be.
    """

    calls: int
    rows: int
    rows_of: int
    scale: float
    spread: float
    spread_least: float
    spread_most: float
    p: float
    p_least: float
    p_most: float


def _ratio(part: float, whole: float) -> float:
    if whole == 0:
        return 0.0 if part == 0 else float("inf")
    return part / whole
