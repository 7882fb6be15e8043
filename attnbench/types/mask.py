"""Masks: which (query, key) pairs count, as a frozen value of parts that combine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnbench.types.errors import BadCase

Align = Literal["upper_left", "lower_right"]
Padding = Literal["seeded"] | tuple[int, ...]
Explicit = Literal["bool", "float"]


@dataclass(frozen=True)
class Mask:
    """Parts of a mask; a pair is kept if every part keeps it.

    causal: a query sees no later key. ``upper_left`` puts query i at key i (torch SDPA); ``lower_right`` puts
    the last query at the last key (flash-attn). For Lq=2, Lk=5::

        upper_left   1 0 0 0 0        lower_right   1 1 1 1 0
                     1 1 0 0 0                      1 1 1 1 1

    window: a query at position p sees keys j with ``|p - j| < window``; with causal, the last ``window`` keys
    up to its own. padding: only the first ``length`` keys of each batch element count. ``seeded`` draws the
    lengths from the seed of the case; a tuple gives one for each batch element. explicit: ``bool`` is a
    random matrix of kept pairs; ``float`` is random numbers, some -inf, that are added to the scores after
    the scale. Both are drawn from the seed of the case.
    """

    causal: Align | None = None
    window: int | None = None
    padding: Padding | None = None
    explicit: Explicit | None = None

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise BadCase(f"window of {self.window} keys: a window holds at least 1 key")
        if isinstance(self.padding, tuple):
            if not self.padding:
                raise BadCase("padding without lengths: give one length for each batch element")
            if min(self.padding) < 0:
                raise BadCase(f"padding lengths {list(self.padding)}: a length is 0 or more")

    @property
    def is_none(self) -> bool:
        """Whether every pair is kept and nothing is added."""
        return self == EVERYTHING

    @property
    def is_only_causal(self) -> bool:
        """Whether the mask is causal and nothing else."""
        return self.causal is not None and self == Mask(causal=self.causal)

    def query_offset(self, Lq: int, Lk: int) -> int:
        """Return the position of query 0 on the key axis.

        0 for ``upper_left``; otherwise ``Lk - Lq``, so that the last query is at the last key, as in
        decoding.
        """
        return 0 if self.causal == "upper_left" else Lk - Lq


EVERYTHING = Mask()
"""Every pair is kept and nothing is added."""
