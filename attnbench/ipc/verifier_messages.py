"""Requests of the parent to the verifier, and its answers."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from attnbench.ipc.messages import ArraySpec
from attnbench.types.checks import Check
from attnbench.types.extensions import Source
from attnbench.types.record import Accuracy, DropoutNumbers


class OpenCase(Struct, frozen=True, tag=True):
    """Make a case's parameters and get ready to judge it; forgets the case before.

    timed_entropy: what seeds the inputs of timed calls. oracle_flops: what solving one draw may cost
    before rows are sampled. without: families that the check leaves out. operation_source: None for one
    of attnbench's own. Answer: :class:`CaseOpened` with the
    parameters in a descriptor.
    """

    case: str
    rule_source: Source
    timed_entropy: int
    timed_draws: int
    oracle_flops: float
    without: tuple[str, ...] = ()
    operation_source: Source | None = None


class GetDraw(Struct, frozen=True, tag=True):
    """Ask for inputs. Draws count from 0: first those of the check, then the timed ones.

    change: seed of the transform applied to the draw (:mod:`attnbench.inputs.symmetries`); 0 for none.
    Answer: :class:`Arrays` with a descriptor.
    """

    index: int
    change: int = 0


class Score(Struct, frozen=True, tag=True):
    """Compare answers on a draw, in the descriptor, each by its parts. Answer: :class:`Scored`.

    who: the backend; "" is the plain reference, which must come first. what: the ``output`` of one call;
    ``calls``, with dropout, of which more may follow before :class:`Judge` compares all of them; attention
    ``weights``; or the ``exact`` gradients, in float64, which the verifier takes for those of the draw.
    """

    who: str
    index: int
    outputs: tuple[tuple[ArraySpec, ...], ...]
    what: Literal["output", "calls", "weights", "exact"] = "output"


class TimedOutput(Struct, frozen=True):
    """An answer of a timed call, in the descriptor that comes with it: on which draw, after which change."""

    index: int
    change: int
    parts: tuple[ArraySpec, ...]


class ScoreTimed(Struct, frozen=True, tag=True):
    """Compare outputs of timed calls, each alone; with dropout also those on one draw together.

    Answer: :class:`Scored`, of the first that is wrong, or of the last where they are so together.
    """

    outputs: tuple[TimedOutput, ...]


class Judge(Struct, frozen=True, tag=True):
    """Ask for the verdict on all check draws of one backend. Answer: :class:`Judged`.

    left_out: families of other deliveries that it was not given.
    """

    who: str
    left_out: tuple[str, ...] = ()


class TryTrivialAnswers(Struct, frozen=True, tag=True):
    """Ask whether an answer that anybody can give would pass, of dropout whether it can be seen at all.

    Answer: :class:`Tried`.
    """


VerifierRequest = OpenCase | GetDraw | Score | ScoreTimed | Judge | TryTrivialAnswers


class CaseOpened(Struct, frozen=True, tag=True):
    """The case is ready. families: of each draw of the check, its family. pairs: kept (query, key) pairs over
    all batch elements and heads. calls: with dropout, outputs on one draw that the verdict needs; else 0."""

    parameters: tuple[ArraySpec, ...]
    families: tuple[str, ...]
    pairs: int
    flops: float
    bytes_moved: float
    calls: int = 0


class Arrays(Struct, frozen=True, tag=True):
    """Arrays in the descriptor."""

    arrays: tuple[ArraySpec, ...]


class Scored(Struct, frozen=True, tag=True):
    """Outputs were compared. problem: "" where each alone is within the limits known so far; else which of
    them isn't (``place``), what is wrong with it, and which check failed.

    transform: the one in force then, in words; "" for none.
    """

    problem: str
    place: int = 0
    transform: str = ""
    check: Check = ""


class Judged(Struct, frozen=True, tag=True):
    """The verdict: the numbers of ordinary inputs, and "" or the reason why it isn't passed.

    failed: the families in which it isn't. parts: the numbers of each part of the answer, where it has
    several. dropout: the numbers of a case with dropout, which has no others. check: the check that failed.
    """

    accuracy: Accuracy | None
    problem: str
    failed: tuple[str, ...] = ()
    parts: dict[str, Accuracy] = {}
    dropout: DropoutNumbers | None = None
    check: Check = ""


class Tried(Struct, frozen=True, tag=True):
    """Trivial answers were tried.

    passed: one that passes the whole check; "" where none does. unseen: whether no row shows dropout.
    """

    passed: str
    unseen: bool = False


class RequestFailed(Struct, frozen=True, tag=True):
    """The verifier failed; the reason says how, for example that a rule's reference raised."""

    reason: str


VerifierReply = CaseOpened | Arrays | Scored | Judged | Tried | RequestFailed
