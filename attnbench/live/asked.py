"""Asking the interpreters of both sides what they have, before anything is measured."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence

import msgspec

from attnbench.live.facts import Facts, Question
from attnbench.live.side import Side
from attnbench.types.errors import BadInput
from attnbench.types.source import Source
from attnbench.types.words import clean

_ANSWER_WITHIN_S = 120.0

_Process = subprocess.Popen[bytes]


def ask_all(sides: Sequence[Side], sources: tuple[Source, ...]) -> dict[str, Facts]:
    """What each side has, by its label; they are asked at the same time.

    sources: the plugins of this environment. The side of an interpreter is asked for those it has itself.

    Raises:
        BadInput: one can't be started, has no attnbench, or doesn't answer.
    """
    processes: list[_Process] = []
    try:
        for side in sides:
            processes.append(_start(side))
            _put(Question(sources if side.tree else None, side.own, side.tree), processes[-1])
        return {side.label: _answer(side, process) for side, process in zip(sides, processes, strict=True)}
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _start(side: Side) -> _Process:
    try:
        # In a session of its own: Ctrl-C reaches us, and we end it.
        return subprocess.Popen(
            [side.python, "-m", "attnbench.live.facts"],
            env=os.environ | side.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as failure:
        raise BadInput(f"{side} can't be started ({side.python!r}): {failure.strerror}") from None


def _put(question: Question, process: _Process) -> None:
    assert process.stdin is not None
    # One that has ended already is told of when its answer is read.
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(msgspec.json.encode(question))
    process.stdin = None


def _answer(side: Side, process: _Process) -> Facts:
    try:
        out, errors = process.communicate(timeout=_ANSWER_WITHIN_S)
    except subprocess.TimeoutExpired:
        raise BadInput(f"{side} has plugins that did not load within {_ANSWER_WITHIN_S:g} s") from None
    said = os.fsdecode(errors).strip().splitlines()
    last = clean(said[-1]) if said else f"exit status {process.returncode}"
    if process.returncode != 0:
        if "No module named 'attnbench'" in last:
            raise BadInput(f"{side} has no attnbench: {side.python} -m pip install attnbench")
        raise BadInput(f"{side} has an attnbench that can't be asked what it has: {last}")
    try:
        return msgspec.json.decode(out, type=Facts)
    except msgspec.DecodeError:
        raise BadInput(f"{side} has another attnbench, which doesn't answer what is asked") from None
