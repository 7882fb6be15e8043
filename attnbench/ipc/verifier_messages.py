"""Requests of the parent to the verifier, and its answers."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from attnbench.ipc.messages import ArraySpec
from attnbench.plugins.code import Stamp
from attnbench.types.extensions import Source
from attnbench.types.record import Accuracy, DropoutNumbers
from attnbench.types.status import Check

What = Literal["output", "calls", "weights", "exact", "before", "nudged"]
"""The purpose of outputs that the verifier gets, see :class:`Score`."""


class OpenCase(Struct, frozen=True, tag=True):
    """Make the parameters of a case and forget the case before. Answer: :class:`CaseOpened` with them.

    timed_entropy: the seed of the inputs of timed calls, and of where a storage puts numbers. oracle_flops:
    rows are sampled if solving one draw costs more. without: stress inputs that the check leaves out. share:
    so many cases, of which this is one, share the ordinary draws of one check.
    operation_source, storage_source, encoding_source: None for a built-in one.
    """

    case: str
    rule_source: Source
    timed_entropy: int
    timed_draws: int
    oracle_flops: float
    without: tuple[str, ...] = ()
    share: int = 1
    operation_source: Source | None = None
    storage_source: Source | None = None
    encoding_source: Source | None = None


class GetDraw(Struct, frozen=True, tag=True):
    """Ask for inputs. Draws count from 0: first those of the check, then those of timed calls.

    change: the seed of the transform applied to the draw (:mod:`attnbench.inputs.symmetries`); 0 for none.
    nudged: a draw of the check with every number a little changed (:mod:`attnbench.verifier.errors`).
    apart: a tensor for each problem, whatever the storage of the case, and keys and values in the dtype,
    whatever its encoding, as the plain reference gets them.
    chosen: the numbers of the sequences of a batch that a batch of their own has, in that order; () for all.
    Answer: :class:`Arrays` with a descriptor.
    """

    index: int
    change: int = 0
    nudged: bool = False
    apart: bool = False
    chosen: tuple[int, ...] = ()


class Score(Struct, frozen=True, tag=True):
    """Compare the answers in the descriptor, each by its parts, on a draw. Answer: :class:`Scored`.

    who: the backend; "" for the plain reference, which must come first. what: the ``output`` of one call;
    with dropout ``calls``, all of which :class:`Judge` compares together; attention ``weights``; the
    ``exact`` gradients in float64, which become those of the draw; or the outputs ``before`` the draw was
    ``nudged`` and after, for which the next :class:`Judge` looks whether errors scatter.
    """

    who: str
    index: int
    outputs: tuple[tuple[ArraySpec, ...], ...]
    what: What = "output"


class TimedOutput(Struct, frozen=True):
    """An answer of a timed call: its draw, the seed of the transform, and its parts in the descriptor."""

    index: int
    change: int
    parts: tuple[ArraySpec, ...]


class ScoreTimed(Struct, frozen=True, tag=True):
    """Compare outputs of timed calls, each alone; with dropout also those on one draw together.

    arithmetic: to whose limits they are held, "" for those of the dtype. Answer: :class:`Scored` of the first
    wrong output, or of the last one if all are wrong together.
    """

    outputs: tuple[TimedOutput, ...]
    arithmetic: str = ""


class Judge(Struct, frozen=True, tag=True):
    """Ask for the verdict on all check draws of one backend. Answer: :class:`Judged`.

    left_out: stress inputs of other deliveries that it did not get. arithmetic: to whose limits its outputs
    are held, "" for those of the dtype.
    """

    who: str
    left_out: tuple[str, ...] = ()
    arithmetic: str = ""


class TryTrivialAnswers(Struct, frozen=True, tag=True):
    """Try trivial answers on the case, and with dropout whether any row shows it. Answer: :class:`Tried`."""


VerifierRequest = OpenCase | GetDraw | Score | ScoreTimed | Judge | TryTrivialAnswers


class CaseOpened(Struct, frozen=True, tag=True):
    """The case is ready.

    stress_inputs: that of each draw of the check, or ``normal``. pairs: kept (query, key) pairs over all
    batch elements and heads. calls: with dropout, the number of outputs on one draw that the verdict needs;
    else 0. attnbench, modules: the code that the verifier runs, its own and of the plugins of the rule and
    the operation. encoding_error, dtype_error, kv_bytes: as in a record; None of a variant case.
    """

    parameters: tuple[ArraySpec, ...]
    stress_inputs: tuple[str, ...]
    pairs: int
    flops: float
    bytes_moved: float
    attnbench: Stamp
    modules: dict[str, Stamp]
    calls: int = 0
    encoding_error: float | None = None
    dtype_error: float | None = None
    kv_bytes: float | None = None


class Arrays(Struct, frozen=True, tag=True):
    """Arrays in the descriptor."""

    arrays: tuple[ArraySpec, ...]


class Scored(Struct, frozen=True, tag=True):
    """Outputs were compared.

    problem: the fault of the first wrong output; "" if each is within the limits known so far. place: the
    number of that output. check: the check that failed.
    """

    problem: str
    place: int = 0
    check: Check = ""


class Judged(Struct, frozen=True, tag=True):
    """The verdict on a backend.

    accuracy: the numbers of ordinary inputs. problem: the reason of a failure, "" for none. failed: the
    stress inputs that failed. parts: the numbers of each part of an answer with several. dropout: the numbers
    of a case with dropout, which has no others. check: the check that failed. arithmetic: where errors are
    too large and nothing else is wrong, the finest arithmetic that allows them; "" if they were scored on
    nudged inputs and are not its rounding.
    """

    accuracy: Accuracy | None
    problem: str
    failed: tuple[str, ...] = ()
    parts: dict[str, Accuracy] = {}
    dropout: DropoutNumbers | None = None
    check: Check = ""
    arithmetic: str = ""


class Tried(Struct, frozen=True, tag=True):
    """Trivial answers were tried.

    passed: one that passes the whole check, or the rule with a wrong constant; "" if none does. unseen: no
    row shows dropout.
    """

    passed: str
    unseen: bool = False


class RequestFailed(Struct, frozen=True, tag=True):
    """The verifier failed.

    reason: it follows the words "the oracle failed". It names the rule or the operation whose code raised,
    and then that is the check.
    """

    reason: str
    check: Check = ""


VerifierReply = CaseOpened | Arrays | Scored | Judged | Tried | RequestFailed
