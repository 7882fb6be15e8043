"""Whether answers stay the same: the same inputs twice, and again after other cases of other shapes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnbench.cases.identity import parse_case
from attnbench.inputs.rounding import EPS
from attnbench.testing.trial import Parts, begin, surroundings
from attnbench.types.source import Source
from attnbench.worker.held import NotPrepared

ROUNDING = 16.0
"""In units of the dtype's rounding of the largest element: what other orders of sums explain."""

TWICE = "two calls on the same inputs gave other bits"
AFTER = "after calls on other cases it gave other bits for the inputs it had before"


def unsteady(
    cases: Sequence[tuple[str, Source]], backend: str, source: Source
) -> list[tuple[str, str, bool]]:
    """What changed: the ids of cases where something did, what was seen, whether rounding explains it.

    All cases are prepared in this process, called twice each, then again in the opposite order.
    """
    trials = []
    found: list[tuple[str, str, bool]] = []
    for name, rule_source in cases:
        case = parse_case(name)
        with surroundings(case):
            try:
                trial = begin(case, backend, source, rule_source)
            except NotPrepared as refusal:
                if refusal.status in ("unsupported", "unavailable"):
                    continue
                raise
            first = trial.call()
            found += _compared(name, TWICE, first, trial.call())
        trials.append((name, case, trial, first))
    for name, case, trial, first in reversed(trials):
        with surroundings(case):
            found += _compared(name, AFTER, first, trial.call())
    return found


def _compared(name: str, what: str, before: Parts, after: Parts) -> list[tuple[str, str, bool]]:
    case = parse_case(name)
    for part, old in before.items():
        new = after[part]
        if np.array_equal(old, new, equal_nan=True):
            continue
        # Where NaN come and go the difference is one, which no rounding explains.
        most = float(np.max(np.abs(new - old)))
        unit = EPS[case.dtype] * float(np.abs(old).max())
        where = "" if part == "out" else f" in the gradient of {part}"
        return [(name, f"{what}{where}", most <= ROUNDING * unit)]
    return []
