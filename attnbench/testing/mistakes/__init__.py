"""Mistakes that kernels make, as code: the conformance kit compares a wrong answer with theirs.

``attnbench selftest judge`` makes wrong backends of the same mistakes.
"""

from __future__ import annotations

from collections.abc import Iterator

from attnbench.testing.mistakes.gradients import GRADIENTS
from attnbench.testing.mistakes.inputs import ENDS, FIRST_TRIES, HEADS, LAYER, MASKS, WEIGHS
from attnbench.testing.mistakes.parts import Mistake
from attnbench.testing.mistakes.recurrences import UPDATES
from attnbench.testing.mistakes.scores import (
    BLOCKS,
    OVERFLOWS,
    PRECISION,
    RULES,
    RUNNING_SUMS,
    SCORES,
)
from attnbench.testing.mistakes.structures import STRUCTURES
from attnbench.types.case import AUTOCAST, Case
from attnbench.types.operation import operation_of

VALUES: tuple[Mistake, ...] = (
    *FIRST_TRIES, *SCORES, *BLOCKS, *MASKS, *WEIGHS, *HEADS, *ENDS, *RULES, *LAYER, *PRECISION,
)  # fmt: skip
"""Mistakes in outputs. Of two that give the same answer the more particular one comes first."""


def mistakes_for(case: Case) -> Iterator[Mistake]:
    """Yield the mistakes to compare an answer on a case with. Some can't be made in it, and then raise."""
    if operation_of(case).updates:
        yield from UPDATES
        return
    structures = STRUCTURES if case.mask.more else ()
    gradients = GRADIENTS if case.pass_ != "forward" else ()
    overflows = OVERFLOWS if case.dtype == "float16" else ()
    sums = RUNNING_SUMS if case.dtype in AUTOCAST else ()
    for mistake in (*gradients, *structures, *sums, *VALUES, *overflows):
        if not mistake.rules or case.rule in mistake.rules:
            yield mistake
