"""Processes that judge points, since a backend may end or block the process that it runs in.

``python -m attnbench.search.process`` reads :class:`JudgingQuestion` as a line of JSON, then texts of points,
one a line, and writes a :class:`Judgement` a line.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from selectors import EVENT_READ, DefaultSelector
from time import monotonic
from typing import IO

import msgspec
from msgspec import Struct

from attnbench.ipc.process import also_from_here, command_of, kill_group, set_import_path, stdout_for_answers
from attnbench.trial.judge import MOST_DRAWS, TrialOutcome
from attnbench.types.extensions import Source
from attnbench.types.words import one_line

START_S = 60.0
"""The longest wait for the first answer of a process beyond that for any: it imports torch and the plugin."""


class JudgingQuestion(Struct, frozen=True):
    """The backend of a search, its rules by name, and where operations, storages and encodings are.

    draws: the most of each kind of inputs.
    """

    backend: str
    source: Source
    rules: dict[str, Source]
    others: tuple[Source, ...]
    draws: int = MOST_DRAWS


class Judgement(Struct, frozen=True):
    """The outcome of a point. telling: whether a point like this can show most faults."""

    outcome: TrialOutcome
    telling: bool = True


class JudgingProcess:
    """A process that judges points of a backend, one at a time; a new one follows where it has ended."""

    def __init__(self, asked: JudgingQuestion, limit_s: float) -> None:
        self.asked, self.limit_s = asked, limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._until = 0.0
        self.judged = 0

    def ask(self, point: str) -> None:
        """Ask for the outcome of a point; :meth:`answer` gives it later."""
        self._until = monotonic() + self.limit_s
        if self._process is None:
            self._start()
            self._until += START_S
        # An end of the process shows when the answer is read.
        with suppress(OSError):
            self._write(point.encode())

    def _start(self) -> None:
        self.judged = 0
        self._process = subprocess.Popen(
            command_of("attnbench.search.process"),
            env=os.environ | also_from_here() | {"OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._write(msgspec.json.encode(self.asked))

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def _write(self, line: bytes) -> None:
        stdin = self._pipes()[0]
        stdin.write(line + b"\n")
        stdin.flush()

    def fileno(self) -> int:
        """Return the descriptor that can be read when an answer, or the end of the process, is there."""
        return self._pipes()[1].fileno()

    @property
    def left_s(self) -> float:
        """The time until the answer is late."""
        return self._until - monotonic()

    def answer(self) -> Judgement:
        """Return the answer that is there, or what its end or its silence means."""
        if self.left_s <= 0:
            self.end()
            return Judgement(TrialOutcome("late", f"it gave no answer within {self.limit_s:.0f} s"))
        line = self._pipes()[1].readline()
        try:
            found = msgspec.json.decode(line, type=Judgement)
        except msgspec.DecodeError:
            status = self.end()
            how = f"signal {-status}" if status < 0 else f"status {status}"
            return Judgement(TrialOutcome("error", f"it ended its process with {how}"))
        self.judged += 1
        return found

    def end(self) -> int:
        """End the process and all that it started; return its status."""
        process, self._process = self._process, None
        if process is None:
            return 0
        with suppress(OSError), process:
            if process.stdin is not None:
                process.stdin.close()
            # One that ends by itself, as it does where stdin does, keeps its status.
            with suppress(subprocess.TimeoutExpired):
                process.wait(min(0.5, max(0.0, self.left_s)))
            kill_group(process.pid)
        return process.wait()


@contextmanager
def judges(asked: JudgingQuestion, count: int, limit_s: float) -> Iterator[list[JudgingProcess]]:
    """Give some processes, which end with the block."""
    made = [JudgingProcess(asked, limit_s) for _ in range(count)]
    try:
        yield made
    finally:
        for judge in made:
            judge.end()


def first_ready(busy: list[JudgingProcess]) -> JudgingProcess:
    """Wait until one of these has an answer, or is late; return it."""
    with DefaultSelector() as selector:
        for judge in busy:
            selector.register(judge, EVENT_READ, judge)
        while True:
            late = [judge for judge in busy if judge.left_s <= 0]
            if late:
                return late[0]
            for key, _ in selector.select(min(judge.left_s for judge in busy)):
                found: JudgingProcess = key.data
                return found


def main() -> None:
    """Judge each point that stdin names. What plugins print is discarded."""
    asked = msgspec.json.decode(sys.stdin.buffer.readline(), type=JudgingQuestion)
    set_import_path()
    out = stdout_for_answers()
    from attnbench.worker.prepared import loaded_here

    for source in asked.others:
        loaded_here(source)
    while line := sys.stdin.buffer.readline():
        out.write(msgspec.json.encode(_answer(asked, line.decode().strip(), asked.rules)) + b"\n")


def _answer(asked: JudgingQuestion, text: str, rules: Mapping[str, Source]) -> Judgement:
    from attnbench.cases.variant import weights_matter
    from attnbench.inputs.kinds import applies
    from attnbench.trial.judge import judge
    from attnbench.trial.point import parse_point
    from attnbench.types.problem import is_empty, problems_of
    from attnbench.worker.prepared import judges_rule

    try:
        point = parse_point(text)
        source = rules[point.case.rule]
        outcome = judge(point, asked.backend, asked.source, source, asked.draws)
        rule = judges_rule(source, point.case.rule)
        problems = [one for one in problems_of(point.case) if not is_empty(one)]
        # A recurrence has no weights: one step reads and updates its state.
        telling = any(
            applies(one, rule, point.values) and (rule.update is not None or weights_matter(one))
            for one in problems
        )
        return Judgement(outcome, telling=telling)
    except Exception as failure:
        return Judgement(TrialOutcome("unjudged", one_line(failure)))


if __name__ == "__main__":
    main()
