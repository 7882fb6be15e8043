"""Which keys a query may see at all, as a range: what a mask drops at either end is never computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnbench.masks import key_lengths

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnbench.types.case import Case

    Index = NDArray[np.int64]
    Array = NDArray[Any]


def key_ranges(case: Case) -> tuple[Index, Index]:
    """The half-open range of keys of each query, two arrays (B, Lq): causal, window, padding; may be empty.

    An explicit mask drops more pairs inside of it.
    """
    mask = case.mask
    position = np.arange(case.Lq, dtype=np.int64) + case.query_offset
    low, high = np.zeros_like(position), np.full_like(position, case.Lk)
    if mask.causal is not None:
        high = np.minimum(high, position + 1)
    if mask.window is not None:
        low = np.maximum(low, position - mask.window + 1)
        high = np.minimum(high, position + mask.window)
    low, high = (np.tile(bound, (case.B, 1)) for bound in (low, high))
    lengths = key_lengths(case)
    if lengths is not None:
        high = np.minimum(high, np.asarray(lengths, np.int64)[:, None])
    return low, np.maximum(high, 0)
