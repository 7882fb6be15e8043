"""An animal of the zoo: a backend of which it is known beforehand whether the judge must refuse it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from attnbench.types.backend import Backend, Layout, Setup
from attnbench.types.case import DTYPES, Case, Dtype, Operation, Pass
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from attnbench.types.backend import Call

Trait = Literal["value", "shape", "timed", "state", "gradient"]
"""What shows a mistake. value: the output of any call, on inputs that reach it. shape: outputs of other
sizes than the case has. timed: outputs of many calls on one storage whose contents change. state: what a
call leaves behind besides the values of its output. gradient: gradients; its outputs are right."""

Applies = Callable[[Case, Rule], bool]
BOTH: tuple[Operation, ...] = ("attention", "multihead")


@dataclass(frozen=True)
class Animal:
    """One backend that is known to be right, or wrong in a known way.

    name: without the word that says which of both. summary: what it does, one line. prepare: as of a backend.
    right: whether every check must pass it. trait: what shows it; of a right one always ``value``.
    applies: whether its mistake can show at all in a case; of a right one, whether it is written for it.
    operations, dtypes, passes, layout: as of a backend.
    """

    name: str
    summary: str
    prepare: Callable[[Setup], Call]
    right: bool
    trait: Trait
    applies: Applies
    operations: tuple[Operation, ...] = BOTH
    dtypes: tuple[Dtype, ...] = DTYPES
    passes: tuple[Pass, ...] = ("forward",)
    layout: Layout = "BHLD"

    @property
    def called(self) -> str:
        """Its name as a backend."""
        return f"{'right' if self.right else 'wrong'}_{self.name}"


def runs(animal: Animal, case: Case, rule: Rule) -> bool:
    """Whether an animal can be asked for a case: declared for it, and its mistake can show there."""
    return (
        case.operation in animal.operations
        and case.dtype in animal.dtypes
        and case.pass_ in animal.passes
        and animal.applies(case, rule)
    )


def backend_of(animal: Animal) -> Backend:
    """The animal as a backend, which refuses the cases that it does not apply to."""
    return Backend(
        name=animal.called,
        summary=animal.summary,
        prepare=animal.prepare,
        supports=partial(_supports, animal),
        operations=animal.operations,
        dtypes=animal.dtypes,
        passes=animal.passes,
        layout=animal.layout,
        quadratic_copies=4,
    )


def _supports(animal: Animal, case: Case, rule: Rule) -> str | None:
    if animal.applies(case, rule):
        return None
    return "is not written for such a case" if animal.right else "its mistake can't show in such a case"
