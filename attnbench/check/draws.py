"""How many independent inputs a case is checked on."""

from __future__ import annotations

import math

from attnbench.types.case import Case
from attnbench.types.shapes import output_shape

FEWEST_ELEMENTS = 4096
"""Output elements that errors are pooled over: of fewer, the largest says little about a kernel."""

FEWEST_DRAWS, MOST_DRAWS = 2, 16


def pooled_draws(case: Case) -> int:
    """Independent draws, so that about 4096 output elements are compared: 2 to 16.

    Two at least: a backend that keeps an answer is found by the second.
    """
    needed = math.ceil(FEWEST_ELEMENTS / math.prod(output_shape(case)))
    return min(MOST_DRAWS, max(FEWEST_DRAWS, needed))
