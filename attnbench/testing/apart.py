"""A process of its own in which a backend is looked at closely, since whatever it does may end a process.

``python -m attnbench.testing.apart`` reads one :class:`Asked` as JSON and writes an answer a line, each as
soon as it is known, so that a process that ends loses no more than the answer that it was at.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from typing import Any

import msgspec
from msgspec import Struct

from attnbench.types.source import Source
from attnbench.types.words import one_line
from attnbench.worker.ending import kill_group

PER_ANSWER_S, START_S = 20.0, 60.0


class Look(Struct, frozen=True):
    """A case on which a backend is wrong, on inputs of these families."""

    case: str
    rule_source: Source
    families: tuple[str, ...]


class Asked(Struct, frozen=True):
    """A backend, the cases to diagnose, and those to compute again and again."""

    backend: str
    source: Source
    looks: tuple[Look, ...] = ()
    again: tuple[tuple[str, Source], ...] = ()


class Diagnosed(Struct, frozen=True, tag=True):
    """What to do about a look, in words; "" where nothing is known."""

    case: str
    do: str


class Unsteady(Struct, frozen=True, tag=True):
    """Answers changed. explained: no more than rounding does."""

    case: str
    what: str
    explained: bool


class Raised(Struct, frozen=True, tag=True):
    """Computing cases again ended with an exception, in words."""

    words: str


Reply = Diagnosed | Unsteady | Raised


def look(asked: Asked) -> list[Reply]:
    """Ask it of a new process; gives what came back, which may be less than was asked for."""
    if not asked.looks and not asked.again:
        return []
    limit_s = START_S + PER_ANSWER_S * (len(asked.looks) + len(asked.again))
    replies: list[Reply] = []
    for line in _said(msgspec.json.encode(asked), limit_s).splitlines():
        try:
            replies.append(msgspec.json.decode(line, type=Reply))
        except msgspec.DecodeError:
            break
    return replies


def _said(asked: bytes, limit_s: float) -> bytes:
    """What the process has written when it ends, or when it is ended after so many seconds.

    To a file: of a pipe the end comes only when all that the backend has forked have closed it too.
    """
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "attnbench.testing.apart"],
            stdin=subprocess.PIPE, stdout=out, stderr=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": "1"}, start_new_session=True,
        )  # fmt: skip
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(asked, timeout=limit_s)
        finally:
            kill_group(process.pid)
            process.wait()
        out.seek(0)
        return out.read()


def main() -> None:
    """Answer what stdin asks; what plugins print goes nowhere."""
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=Asked)
    out = os.dup(1)
    os.dup2(2, 1)
    _answer(asked, lambda reply: os.write(out, msgspec.json.encode(reply) + b"\n"))


def _answer(asked: Asked, tell: Any) -> None:
    from attnbench.testing.diagnosis import diagnose
    from attnbench.testing.steady import unsteady

    for one in asked.looks:
        try:
            do = diagnose(one.case, asked.backend, asked.source, one.rule_source, one.families)
        except Exception as failure:
            do = f"Asked for it again, alone, it raised {one_line(failure)}."
        tell(Diagnosed(one.case, do))
    try:
        for case, what, explained in unsteady(asked.again, asked.backend, asked.source):
            tell(Unsteady(case, what, explained))
    except Exception as failure:
        tell(Raised(one_line(failure)))


if __name__ == "__main__":
    main()
