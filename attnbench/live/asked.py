"""Asking the interpreters of both sides what they have, before anything is measured."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO

import msgspec

from attnbench.live.facts import Facts, Question
from attnbench.live.side import Side
from attnbench.types.errors import BadInput
from attnbench.types.source import Source
from attnbench.types.words import clean
from attnbench.worker.ending import kill_group

_ANSWER_WITHIN_S = 120.0


@dataclass(frozen=True)
class _Asked:
    """A side's process. out, errors: files that get what it writes."""

    side: Side
    process: subprocess.Popen[bytes]
    out: IO[bytes]
    errors: IO[bytes]


def ask_all(sides: Sequence[Side], sources: tuple[Source, ...]) -> dict[str, Facts]:
    """What each side has, by its label; they are asked at the same time.

    sources: the plugins of this environment. The side of an interpreter is asked for those it has itself.

    Raises:
        BadInput: one can't be started, has no attnbench, or doesn't answer.
    """
    with ExitStack() as ending:
        asked = []
        for side in sides:
            question = Question(sources if side.tree else None, side.own, side.tree)
            asked.append(ending.enter_context(_started(side, question)))
        return {one.side.label: _answer(one) for one in asked}


@contextlib.contextmanager
def _started(side: Side, question: Question) -> Iterator[_Asked]:
    """A side's process, which has its question; killed at the end with all that its plugins have started.

    It writes to files: of a pipe the end comes only when all that they have started have closed it too.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        try:
            # In a session of its own: Ctrl-C reaches us, and we end it.
            process = subprocess.Popen(
                [side.python, "-m", "attnbench.live.facts"],
                env=os.environ | side.environment(),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as failure:
            raise BadInput(f"{side} can't be started ({side.python!r}): {failure.strerror}") from None
        try:
            assert process.stdin is not None
            # One that has ended already is told of when its answer is read.
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write(msgspec.json.encode(question))
            yield _Asked(side, process, out, errors)
        finally:
            kill_group(process.pid)
            process.wait()


def _answer(asked: _Asked) -> Facts:
    side = asked.side
    try:
        status = asked.process.wait(timeout=_ANSWER_WITHIN_S)
    except subprocess.TimeoutExpired:
        raise BadInput(f"{side} has plugins that did not load within {_ANSWER_WITHIN_S:g} s") from None
    said = os.fsdecode(_read(asked.errors)).strip().splitlines()
    last = clean(said[-1]) if said else f"exit status {status}"
    if status != 0:
        if "No module named 'attnbench'" in last:
            raise BadInput(f"{side} has no attnbench: {side.python} -m pip install attnbench")
        raise BadInput(f"{side} has an attnbench that can't be asked what it has: {last}")
    try:
        return msgspec.json.decode(_read(asked.out), type=Facts)
    except msgspec.DecodeError:
        raise BadInput(f"{side} has another attnbench, which doesn't answer what is asked") from None


def _read(written: IO[bytes]) -> bytes:
    written.seek(0)
    return written.read()
