"""What the parent says to the referee, and what it answers."""

from __future__ import annotations

from msgspec import Struct

from attnbench.types.record import Accuracy
from attnbench.worker.messages import ArraySpec, PluginSource


class OpenCase(Struct, frozen=True, tag=True):
    """Make a case's parameters and get ready to judge it; forgets the case before.

    timed_entropy: what seeds the inputs of timed calls. oracle_flops: what solving one draw may cost
    before rows are sampled. Answer: :class:`CaseOpened` with the parameters in a descriptor.
    """

    case: str
    rule_source: PluginSource
    timed_entropy: int
    timed_draws: int
    oracle_flops: float


class GetDraw(Struct, frozen=True, tag=True):
    """Ask for inputs. Draws count from 0: first those of the check, then the timed ones.

    Answer: :class:`Arrays` with a descriptor.
    """

    index: int


class Score(Struct, frozen=True, tag=True):
    """Compare an output (in the descriptor) on a draw. Answer: :class:`Scored`.

    who: the backend; "" is the plain reference.
    """

    who: str
    index: int
    array: ArraySpec


class Judge(Struct, frozen=True, tag=True):
    """Ask for the verdict on all check draws of one backend. Answer: :class:`Judged`."""

    who: str


RefereeRequest = OpenCase | GetDraw | Score | Judge


class CaseOpened(Struct, frozen=True, tag=True):
    """The case is ready. pairs: kept (query, key) pairs over all batch elements and heads."""

    parameters: tuple[ArraySpec, ...]
    check_draws: int
    pairs: int
    flops: float
    bytes_moved: float


class Arrays(Struct, frozen=True, tag=True):
    """Arrays in the descriptor."""

    arrays: tuple[ArraySpec, ...]


class Scored(Struct, frozen=True, tag=True):
    """The output was compared. problem: "" where it alone is within the limits known so far."""

    problem: str


class Judged(Struct, frozen=True, tag=True):
    """The verdict: the numbers, and "" or the reason why they don't pass."""

    accuracy: Accuracy
    problem: str


class RefereeFailed(Struct, frozen=True, tag=True):
    """The referee could not do it, in words: a rule's reference that raises."""

    reason: str


RefereeReply = CaseOpened | Arrays | Scored | Judged | RefereeFailed
