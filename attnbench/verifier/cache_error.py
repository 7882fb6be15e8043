"""What holding keys and values in few bits changes in the exact output: the error of a cache.

It is a number of the case, not of a backend, and no part of a verdict. The numbers of a cache are drawn in
float64. The exact output for them is compared with that for what the cache holds, and, by the same measure,
with that for numbers rounded to the dtype of the case: so a cache of codes and a cache in bfloat16 stand on
one scale. Queries are the same in all three, in the dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnbench.inputs.draw import draw_inputs, widen_inputs
from attnbench.inputs.encoded import amplified
from attnbench.ipc.names import OUT
from attnbench.types.case import Case
from attnbench.types.encoding import encoding_of
from attnbench.types.rule import Rule
from attnbench.verifier.parts import Drawn

DRAWS = 2
"""Of two ordinary draws the second has large channels (:data:`attnbench.inputs.encoded.OUTLIERS`)."""


@dataclass(frozen=True)
class CacheError:
    """How far the exact output is from that of the drawn numbers, RMS over RMS.

    encoded: for what the cache of the case holds. dtype: for the same numbers in the dtype of the case.
    """

    encoded: float
    dtype: float


Solve = Callable[[Mapping[str, Any]], Mapping[str, NDArray[Any]]]
"""Returns the exact outputs by name, of inputs in float64."""


Ordinary = Callable[[int], Drawn]
"""Returns an ordinary draw of the check by its number, solved."""


def cache_error(problems: Iterable[tuple[Case, Solve, Ordinary]], rule: Rule) -> CacheError:
    """Return the error of a case's cache, over all its problems that have queries and keys.

    The draws are those of the check, which has solved them for what the cache holds.
    """
    encoded = dtype = whole = 0.0
    for case, solve, ordinary in problems:
        for number in range(DRAWS):
            drawn = ordinary(number)
            numbers = amplified(case, rule, draw_inputs(case, rule, case.seed, number), case.seed, number)
            held = dict(drawn.inputs)
            if encoding_of(case).shared:
                numbers["v"] = numbers["k"][..., : case.Dv]
                held["v"] = held["k"][..., : case.Dv]
            others = {name: array for name, array in held.items() if name not in numbers}
            exact = solve(widen_inputs(case, rule, others) | numbers)[OUT]
            # A long cache takes gigabytes, so there is one of it at a time.
            del numbers
            encoded += _squares(drawn.expected[OUT] - exact)
            dtype += _squares(solve(widen_inputs(case, rule, held))[OUT] - exact)
            whole += _squares(exact)
    # An output of zeros alone has no error that could be told as a share.
    return CacheError(*(float(np.sqrt(part / whole)) if whole else 0.0 for part in (encoded, dtype)))


def _squares(array: NDArray[Any]) -> float:
    return float(np.square(array).sum())
