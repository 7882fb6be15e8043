"""A draw with its exact answer, and the verdict on all answers to such draws: what the referee remembers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from attnbench.check.errors import Errors
from attnbench.inputs.laws import Triple
from attnbench.inputs.rounding import Stored
from attnbench.types.accuracy import Accuracy, DropoutNumbers
from attnbench.types.checks import Check

if TYPE_CHECKING:
    from attnbench.types.rule import Array


@dataclass(frozen=True)
class Drawn:
    """One draw: q, k, v or the sources; the exact answer by parts (on the chosen rows); the gradient of the
    output that gradients are made with, where the case has any.

    held: for each gradient what it is a difference of, and plain_errors how far the plain reference is off.
    """

    inputs: Triple
    expected: dict[str, Array]
    upstream: Stored | None = None
    held: dict[str, Array] = field(default_factory=dict)
    plain_errors: dict[str, Errors] = field(default_factory=dict)


@dataclass(frozen=True)
class Judgement:
    """The verdict on all that somebody has computed for the check.

    accuracy: in numbers, of ordinary inputs; parts: of each part of the answer, where there are several.
    problem: what is wrong in words, "" for nothing; check: the check that failed. failed: the families in
    which anything is. dropout: what takes the place of both numbers in a case with dropout.
    """

    accuracy: Accuracy | None
    parts: dict[str, Accuracy]
    problem: str
    failed: tuple[str, ...]
    dropout: DropoutNumbers | None = None
    check: Check = ""
