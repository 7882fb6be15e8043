"""Which keys a query may see at all, as a range: what a mask drops at either end is never computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnbench.masks import kept_ranges

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnbench.types.case import Case

    Index = NDArray[np.int64]
    Array = NDArray[Any]


def key_ranges(case: Case) -> tuple[Index, Index]:
    """The half-open range of keys of each query, two arrays (B, Lq), outside of which a mask drops all.

    It may be empty. An explicit mask drops more pairs inside of it.
    """
    low, high = kept_ranges(case, np.arange(case.Lq))
    shape = (case.B, case.Lq)
    return np.broadcast_to(low, shape).copy(), np.broadcast_to(np.maximum(high, 0), shape).copy()
