"""Outputs of calls with dropout, kept as what their check needs of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from attnbench.check.errors import element
from attnbench.inputs.rounding import Stored, widen
from attnbench.oracle.moments import Moments, in_groups
from attnbench.types.case import Case

if TYPE_CHECKING:
    from attnbench.types.rule import Array


@dataclass
class Tally:
    """Outputs of calls on the same inputs, added one by one.

    total: (B, G, R, F), the sum of their deviations from ``moments.mean``. sums: for each output its
    deviation along both directions, (2, B, G, R). digests: of each output's bytes. not_finite: the first
    number that is NaN or infinite, in words; nothing is added of such an output.
    """

    case: Case
    moments: Moments
    total: Array = field(init=False)
    sums: list[Array] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    not_finite: str = ""

    def __post_init__(self) -> None:
        self.total = np.zeros(self.moments.mean.shape)

    def add(self, output: Stored) -> None:
        """Add the output of one more call as it is stored, of the query rows that the moments are of.

        Raises:
            ValueError: it has other rows.
        """
        self.add_wide(widen(output, self.case.dtype))

    def add_wide(self, output: Array) -> None:
        """As :meth:`add`, in float64."""
        shown = in_groups(self.case, output)
        if shown.shape != self.moments.mean.shape:
            raise ValueError(f"moments of {self.moments.mean.shape} for an output of shape {output.shape}")
        finite = np.isfinite(shown)
        if not finite.all():
            first = tuple(int(i) for i in np.argwhere(~finite)[0])
            place, got = place_of(self.case, first), float(shown[first])
            self.not_finite = self.not_finite or f"element {place} is not finite: got {got}"
            return
        deviation = shown - self.moments.mean
        self.total += deviation
        self.sums.append(np.einsum("sbgrf,bgrf->sbgr", self.moments.directions, deviation))
        self.digests.append(hashlib.sha256(np.ascontiguousarray(output).tobytes()).digest())


def place_of(case: Case, index: tuple[int, ...]) -> str:
    """An index of :func:`attnbench.oracle.moments.in_groups` by the axes of the output."""
    b, g, r, f = index
    if case.layer is None:
        return element(index)
    return element((b, r, f) if case.layer.out else (b, r, g * case.Dv + f))
