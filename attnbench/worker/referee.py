"""The referee: makes inputs, solves them in float64, judges outputs. No torch, no backend.

Started by the parent as ``python -m attnbench.worker.referee DESCRIPTOR PARENT``.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from attnbench.cases.counts import bytes_moved, flops
from attnbench.cases.identity import parse_case
from attnbench.check.draws import pooled_draws
from attnbench.check.errors import Errors, compare, pool
from attnbench.check.verdict import scale_of, verdict
from attnbench.inputs.draw import Parameters, draw_activations, draw_parameters
from attnbench.inputs.rounding import widen
from attnbench.masks import kept_pairs, kept_rows
from attnbench.oracle.rows import choose_rows
from attnbench.oracle.solve import solve
from attnbench.plugins.loading import load
from attnbench.plugins.sources import Source
from attnbench.types.case import Case
from attnbench.types.record import Accuracy
from attnbench.types.rule import Rule
from attnbench.types.shapes import output_shape
from attnbench.types.words import one_line
from attnbench.worker import messages as m
from attnbench.worker import referee_messages as rm
from attnbench.worker.channel import Channel, ChannelClosed, close_all
from attnbench.worker.names import ACTIVATIONS, parameter_names
from attnbench.worker.process import die_with_parent, leave_terminal, silence
from attnbench.worker.shared import Stored, pack, unpack

if TYPE_CHECKING:
    from attnbench.types.rule import Array

Line = Channel[rm.RefereeReply, rm.RefereeRequest]


class OpenedCase:
    """A case with its parameters, and what has been drawn, solved and compared on it so far."""

    def __init__(self, request: rm.OpenCase) -> None:
        self.case: Case = parse_case(request.case)
        self.rule = _load_rule(request.rule_source, self.case.rule)
        self.entropy = request.timed_entropy
        self.check_draws = pooled_draws(self.case)
        self.parameters = draw_parameters(self.case, self.rule)
        self.wide = _widened(self.parameters, self.case)
        rng = np.random.default_rng(request.timed_entropy)
        self.rows = choose_rows(self.case, self.rule, request.oracle_flops, rng)
        self._draws: dict[int, tuple[tuple[Stored, Stored, Stored], Array]] = {}
        self._scores: dict[str, dict[int, Errors]] = {}

    def draw(self, index: int) -> tuple[tuple[Stored, Stored, Stored], Array]:
        """Inputs of a draw and the oracle's answer (on the chosen rows)."""
        if index not in self._draws:
            timed = index >= self.check_draws
            entropy = self.entropy if timed else self.case.seed
            inputs = draw_activations(self.case, self.rule, entropy, index)
            wide = tuple(widen(array, self.case.dtype) for array in inputs)
            expected = solve(self.case, self.rule, self.wide, (wide[0], wide[1], wide[2]), self.rows)
            self._draws[index] = (inputs, expected)
        return self._draws[index]

    def score(self, who: str, index: int, output: Stored) -> str:
        """Compare an output with the oracle's answer; gives what is wrong with it alone, or ""."""
        _, expected = self.draw(index)
        axis = 1 if self.case.layer is not None else 2
        shown = output if self.rows is None else np.take(output, self.rows, axis=axis)
        errors = compare(shown, expected, self.case.dtype)
        if index < self.check_draws or who == "":
            self._scores.setdefault(who, {})[index] = errors
            return ""
        known = {*range(self.check_draws), *self._scores.get("", {})}
        return self._verdict(pool([errors]), {index}, known)[1]

    def judge(self, who: str) -> tuple[Accuracy, str]:
        """The verdict on all that ``who`` has computed for the check."""
        scores = self._scores.get(who, {})
        missing = set(range(self.check_draws)) - set(scores)
        if missing:
            raise ValueError(f"no outputs of draws {sorted(missing)} to judge")
        return self._verdict(pool(list(scores.values())), set(scores), set(scores))

    def _verdict(self, errors: Errors, draws: set[int], reference_draws: set[int]) -> tuple[Accuracy, str]:
        plain = self._scores.get("", {})
        missing = reference_draws - set(plain)
        if missing:
            raise ValueError(f"no plain reference of draws {sorted(missing)} to judge by")
        reference = pool([plain[index] for index in sorted(reference_draws)])
        return verdict(
            errors,
            reference,
            output=scale_of([self._draws[i][1] for i in sorted(draws)]),
            values=scale_of([widen(self._draws[i][0][2], self.case.dtype) for i in sorted(draws)]),
            dtype=self.case.dtype,
            rows=self.case.Lq if self.rows is None else len(self.rows),
            rows_of=self.case.Lq,
            draws=len(draws),
        )


def main(argv: list[str]) -> None:
    """Serve on the descriptor until the line closes."""
    descriptor, parent = (int(word) for word in argv)
    die_with_parent(parent)
    leave_terminal()
    silence()
    line: Line = Channel(socket.socket(fileno=descriptor), rm.RefereeRequest)  # type: ignore[arg-type]
    opened: OpenedCase | None = None
    while True:
        try:
            request, fds = line.receive()
        except (ChannelClosed, msgspec.DecodeError):
            os._exit(0)
        out: tuple[int, ...] = ()
        reply: rm.RefereeReply
        try:
            if isinstance(request, rm.OpenCase):
                opened = None
                opened = OpenedCase(request)
                reply, out = _opened(opened)
            elif opened is None:
                reply = rm.RefereeFailed(f"{type(request).__name__} before a case is open")
            else:
                reply, out = _answer(opened, request, fds)
        except BaseException as failure:
            reply = rm.RefereeFailed(one_line(failure))
        line.send(reply, out)
        close_all([*fds, *out])


def _opened(opened: OpenedCase) -> tuple[rm.RefereeReply, tuple[int, ...]]:
    case, rule = opened.case, opened.rule
    fd, specs = pack(parameter_names(opened.parameters.rule, opened.parameters.projections), case.dtype)
    pairs = kept_pairs(case)
    reply = rm.CaseOpened(
        parameters=specs,
        check_draws=opened.check_draws,
        pairs=pairs,
        flops=float(flops(case, rule, pairs)),
        bytes_moved=float(bytes_moved(case, rule, kept_rows(case))),
    )
    return reply, (fd,)


def _answer(
    opened: OpenedCase, request: rm.RefereeRequest, fds: list[int]
) -> tuple[rm.RefereeReply, tuple[int, ...]]:
    match request:
        case rm.GetDraw():
            inputs, _ = opened.draw(request.index)
            fd, specs = pack(dict(zip(ACTIVATIONS, inputs, strict=True)), opened.case.dtype)
            return rm.Arrays(specs), (fd,)
        case rm.Score():
            if tuple(request.array.shape) != output_shape(opened.case):
                return rm.Scored(f"the output has shape {tuple(request.array.shape)}"), ()
            output = unpack(fds[0], [request.array])[request.array.name]
            return rm.Scored(opened.score(request.who, request.index, output)), ()
        case rm.Judge():
            accuracy, problem = opened.judge(request.who)
            return rm.Judged(accuracy, problem), ()
        case _:
            return rm.RefereeFailed(f"no such request: {type(request).__name__}"), ()


def _widened(parameters: Parameters, case: Case) -> Parameters:
    return Parameters(
        rule={name: widen(array, case.dtype) for name, array in parameters.rule.items()},
        projections={name: widen(array, case.dtype) for name, array in parameters.projections.items()},
    )


def _load_rule(source: m.PluginSource, name: str) -> Rule:
    loaded = load(Source(source.name, source.module, source.distribution, source.version))
    for rule in loaded.rules:
        if rule.name == name:
            return rule
    raise ValueError("; ".join(loaded.faults) or f"{loaded.source} brings no rule {name!r} here")


if __name__ == "__main__":
    main(sys.argv[1:])
