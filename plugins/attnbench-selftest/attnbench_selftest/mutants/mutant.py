"""A mutant: a backend known to be wrong in one way, or known to be right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from attnbench.testing.mistakes.parts import RIGHT, Form, Mistake, built
from attnbench.types.backend import Layout, Setup
from attnbench.types.case import DTYPES, Case, Dtype, Pass
from attnbench.types.device import DEVICES
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from attnbench.types.backend import Call

Trait = Literal["value", "shape", "timed", "state", "gradient"]
"""The place where a mistake shows. value: the output of any call, on inputs that reach it. shape: outputs of
other sizes than the case has. timed: outputs of many calls on one storage whose contents change. state: what
a call leaves behind besides the values of its output. gradient: gradients; its outputs are right."""

Applies = Callable[[Case, Rule], bool]
BOTH: tuple[str, ...] = ("attention", "multihead")


@dataclass(frozen=True)
class Mutant:
    """One backend that is known to be wrong in one way, or to be right.

    name: without the word that says which of both. summary: what it does, one line. prepare: as of a backend.
    applies: where its mistake can show; for a right one, the cases it is written for. trait: what shows it;
    ``value`` for a right one. operations, dtypes, passes, layout, masks_by_head, ignores_dropped, devices: as
    of a backend.
    """

    name: str
    summary: str
    prepare: Callable[[Setup], Call]
    applies: Applies
    trait: Trait = "value"
    right: bool = False
    operations: tuple[str, ...] = BOTH
    dtypes: tuple[Dtype, ...] = DTYPES
    passes: tuple[Pass, ...] = ("forward",)
    layout: Layout = "BHLD"
    masks_by_head: bool = False
    ignores_dropped: bool = False
    devices: tuple[str, ...] = tuple(DEVICES)

    @property
    def backend_name(self) -> str:
        """Its name as a backend."""
        return f"{'right' if self.right else 'wrong'}_{self.name}"

    def runs(self, case: Case, rule: Rule) -> bool:
        """Return whether it is declared for a case and its mistake can show there."""
        return (
            case.operation in self.operations
            and case.dtype in self.dtypes
            and case.pass_ in self.passes
            and case.device in self.devices
            and (self.masks_by_head or case.mask.ignores("h"))
            and self.applies(case, rule)
        )


def known(mistake: Mistake, applies: Applies, **declared: Any) -> Mutant:
    """A mutant that makes a mistake of attnbench's conformance kit. declared: further fields."""
    return Mutant(mistake.name, mistake.summary, mistake.prepare, applies, **declared)


def mistaken(name: str, summary: str, form: Form, applies: Applies, **declared: Any) -> Mutant:
    """A wrong mutant: the form with a part exchanged. declared: further fields."""
    return Mutant(name, summary, lambda setup: built(form, setup), applies, **declared)


def around_call(
    name: str,
    summary: str,
    around: Callable[[Setup, Call], Call],
    trait: Trait,
    applies: Applies,
    **declared: Any,
) -> Mutant:
    """A wrong mutant: the right function with something wrong around it. declared: further fields."""
    return Mutant(name, summary, lambda setup: around(setup, built(RIGHT, setup)), applies, trait, **declared)
