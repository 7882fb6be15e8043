"""All mutants: wrong backends, each wrong in one way, and right ones that are written differently.

A plugin that only the self-test loads. Importing it imports no torch. Those that compute wrong values or
gradients are attnbench's own (:mod:`attnbench.testing.mutants`); here are the right ones, and those whose
mistake lies in other calls, lengths, memory or global state.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from attnbench.hookspecs import hookimpl
from attnbench.testing.mutants import (
    gradient_mistakes,
    head_mistakes,
    layer_mistakes,
    mask_mistakes,
    precision_mistakes,
    rule_mistakes,
    score_mistakes,
)
from attnbench.testing.mutants.mutant import Mutant
from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.rule import Rule
from attnbench_selftest.mutants import (
    answers,
    caches,
    outputs,
    right_blocks,
    right_layouts,
    right_orders,
    world,
)

MUTANTS: tuple[Mutant, ...] = tuple(
    mutant
    for module in (
        right_orders,
        right_blocks,
        right_layouts,
        score_mistakes,
        mask_mistakes,
        head_mistakes,
        precision_mistakes,
        rule_mistakes,
        layer_mistakes,
        answers,
        caches,
        outputs,
        world,
        gradient_mistakes,
    )
    for mutant in module.MUTANTS
)
"""Right ones first."""


@hookimpl
def attnbench_backends() -> Iterator[Backend]:
    """Every mutant as a backend, which refuses the cases that it does not apply to."""
    for mutant in MUTANTS:
        yield Backend(
            name=mutant.backend_name,
            summary=mutant.summary,
            prepare=mutant.prepare,
            supports=partial(_supports, mutant),
            operations=mutant.operations,
            dtypes=mutant.dtypes,
            passes=mutant.passes,
            layout=mutant.layout,
            quadratic_copies=4,
        )


def _supports(mutant: Mutant, case: Case, rule: Rule) -> str | None:
    if mutant.applies(case, rule):
        return None
    return "is not written for such a case" if mutant.right else "its mistake can't show in such a case"
