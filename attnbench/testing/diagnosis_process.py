"""A process of its own for a close look at a backend, since a backend may end its process.

``python -m attnbench.testing.diagnosis_process`` reads one :class:`Asked` as JSON and writes a
:class:`Reply` a line as soon as it is known. A process that ends early loses only the reply it worked on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from attnbench.cases.ids import parse_case
from attnbench.ipc.process import answer_of, set_import_path, stdout_for_answers
from attnbench.runner.processes import HERE, Interpreter
from attnbench.types.case import Case
from attnbench.types.extensions import Source
from attnbench.types.words import one_line

PER_ANSWER_S, SMALLEST_S, START_S = 20.0, 60.0, 60.0
MOST_COMPUTED = 2**24
"""The largest B·H·Lq·Lk·D for which an answer is compared with all known mistakes in short time."""


def too_large(case: Case) -> bool:
    """Return whether answers to smaller cases of its kind are compared with known mistakes instead."""
    return case.B * case.H * case.Lq * case.Lk * case.D > MOST_COMPUTED


class Look(Struct, frozen=True):
    """A case on which a backend is wrong, on inputs of these families."""

    case: str
    rule_source: Source
    families: tuple[str, ...]


class Asked(Struct, frozen=True):
    """A backend, the cases to diagnose, the cases to compute repeatedly, and where their operations are.

    shrinking: whether to make a case of no known mistake small, which takes longest. two_ways: cases to
    compute in two ways (:mod:`attnbench.testing.two_ways`), with the source of their rule.
    """

    backend: str
    source: Source
    looks: tuple[Look, ...] = ()
    again: tuple[tuple[str, Source], ...] = ()
    operations: tuple[Source, ...] = ()
    shrinking: bool = True
    two_ways: tuple[tuple[str, Source], ...] = ()


Kind = Literal[
    "", "family", "nothing", "sometimes", "kept", "not repeated", "failed", "too large", "unjudged"
]  # fmt: skip
"""A kind of fault. "": wrong in each call, and no more is known; ``family``: on one kind of inputs alone;
``nothing``: no number in the output; ``sometimes``: in some of equal calls; ``kept``: after other inputs;
``not repeated``: not in this process; ``failed``: it raised here; ``too large``: to be compared, and smaller
cases show no known mistake; ``unjudged``: the judge raised."""

SHRUNK: tuple[Kind, ...] = ("", "family")
"""Kinds of faults whose case is made small, if they equal no known mistake."""


class WrongPlaces(Struct, frozen=True):
    """The numbers on one axis of an output that have a wrong element, of ``size``."""

    wrong: tuple[int, ...]
    size: int


class Diagnosed(Struct, frozen=True, tag=True):
    """The diagnosis of a case.

    do: what to do, "" for unknown. mistake: the known one that it equals. kind: the same of all cases that
    show one fault, as far as is known. equals: every known mistake that gives this answer, with what to do:
    several do where a case does not tell them apart. places: by the letter of an axis, where a part of the
    output alone is wrong.
    """

    do: str = ""
    mistake: str = ""
    kind: Kind = ""
    equals: dict[str, str] = {}
    places: dict[str, WrongPlaces] = {}


class Smallest(Struct, frozen=True, tag=True):
    """The smallest case that shows a fault of no known mistake, as the text of a point.

    least: the sizes from which on it is wrong, by name.
    """

    point: str
    least: dict[str, int]


class Unsteady(Struct, frozen=True, tag=True):
    """The failure of cases that are computed repeatedly. case: "" where it ended with an exception."""

    case: str
    what: str


class Unlike(Struct, frozen=True, tag=True):
    """A case with two answers that should be alike: the fault, and what to do."""

    case: str
    what: str
    do: str


Reply = Diagnosed | Smallest | Unsteady | Unlike


def look(asked: Asked, where: Interpreter = HERE) -> list[Reply]:
    """Ask a new process; return its replies in the order of what is asked. The last may be missing.

    A diagnosis in which the judge failed is asked once more, of another process, as cases are.

    where: how it is started.
    """
    if not (asked.looks or asked.again or asked.two_ways):
        return []
    replies = _ask(asked, where)
    failed = [at for at, one in enumerate(replies) if isinstance(one, Diagnosed) and one.kind == "unjudged"]
    if failed:
        # Those of looks come first, one for each.
        again = replace(
            asked, looks=tuple(asked.looks[at] for at in failed), again=(), two_ways=(), shrinking=False
        )
        for at, one in zip(failed, _ask(again, where), strict=False):
            replies[at] = one
    return replies


def _ask(asked: Asked, where: Interpreter) -> list[Reply]:
    answers = len(asked.looks) + len(asked.again) + len(asked.two_ways)
    limit_s = START_S + PER_ANSWER_S * answers + SMALLEST_S
    replies: list[Reply] = []
    question = msgspec.json.encode(asked)
    variables = {"OMP_NUM_THREADS": "1", **where.variables}
    _, written, _ = answer_of(
        where.python, "attnbench.testing.diagnosis_process", variables, question, limit_s
    )
    for line in written.splitlines():
        try:
            replies.append(msgspec.json.decode(line, type=Reply))
        except msgspec.DecodeError:
            break
    return replies


def main() -> None:
    """Read what is asked from stdin and write the replies. What plugins print is discarded."""
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=Asked)
    set_import_path()
    out = stdout_for_answers()
    _answer(asked, lambda reply: out.write(msgspec.json.encode(reply) + b"\n"))


def _answer(asked: Asked, reply: Callable[[Reply], object]) -> None:
    from attnbench.testing.diagnose import diagnose, smallest, unsteady
    from attnbench.testing.two_ways import OF_FORMS, OF_HALVES, may_be_halved, unabsorbed, unmerged
    from attnbench.worker.prepared import loaded_here

    for source in asked.operations:
        loaded_here(source)
    unknown: list[Look] = []
    for one in asked.looks:
        found = diagnose(one, asked.backend, asked.source)
        reply(found)
        if found.kind in SHRUNK and not found.mistake:
            unknown.append(one)
    small = smallest(unknown[0], asked.backend, asked.source) if unknown and asked.shrinking else None
    if small is not None:
        reply(small)
    try:
        for case, what in unsteady(asked.again, asked.backend, asked.source):
            reply(Unsteady(case, what))
    except Exception as failure:
        reply(Unsteady("", f"computing several cases in turn in one process raised {one_line(failure)}"))
    for case, source in asked.two_ways:
        parsed = parse_case(case)
        compute, do = (unmerged, OF_HALVES) if may_be_halved(parsed) else (unabsorbed, OF_FORMS)
        try:
            what = compute(parsed, asked.backend, asked.source, source)
        except Exception as failure:
            what, do = f"computing the case in another way raised {one_line(failure)}", ""
        if what:
            reply(Unlike(case, what, do))


if __name__ == "__main__":
    main()
