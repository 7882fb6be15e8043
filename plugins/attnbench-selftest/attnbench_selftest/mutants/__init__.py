"""All mutants: wrong backends, each wrong in one way, and right ones that are written differently.

A plugin that only the self-test loads. Importing it imports no torch. Most wrong values and gradients are
mistakes of attnbench's conformance kit (:mod:`attnbench.testing.mistakes`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from attnbench.hookspecs import hookimpl
from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.rule import Rule
from attnbench_selftest.mutants import (
    answers,
    caches,
    gradients,
    known,
    outputs,
    right_blocks,
    right_layouts,
    right_orders,
    values,
    world,
)
from attnbench_selftest.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = tuple(
    mutant
    for module in (
        right_orders,
        right_blocks,
        right_layouts,
        known,
        values,
        answers,
        caches,
        outputs,
        world,
        gradients,
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
            masks_by_head=mutant.masks_by_head,
            ignores_dropped=mutant.ignores_dropped,
            devices=mutant.devices,
            quadratic_copies=4,
        )


def _supports(mutant: Mutant, case: Case, rule: Rule) -> str | None:
    if mutant.applies(case, rule):
        return None
    return "is not written for such a case" if mutant.right else "its mistake can't show in such a case"
