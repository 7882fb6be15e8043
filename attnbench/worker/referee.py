"""The referee: makes inputs, solves them in float64, judges outputs. No torch, no backend.

Started by the parent as ``python -m attnbench.worker.referee DESCRIPTOR PARENT``.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from attnbench.cases.counts import bytes_moved, flops
from attnbench.cases.identity import parse_case
from attnbench.check.draws import pooled_draws
from attnbench.check.errors import Errors, compare_wide, pool
from attnbench.check.verdict import Scale, scale_of, together, verdict
from attnbench.inputs.draw import Parameters, draw_activations, draw_parameters
from attnbench.inputs.laws import Change, Triple, changed, draw_change, no_change, place_after, undone
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

NORMAL = "normal"
"""The family of ordinary inputs."""

PLAIN = ""
"""The plain reference, among those whose outputs are compared."""

_CHANGES_REMEMBERED = 8


class OpenedCase:
    """A case with its parameters, and what has been drawn, solved and compared on it so far."""

    def __init__(self, request: rm.OpenCase) -> None:
        self.case: Case = parse_case(request.case)
        self.rule = _load_rule(request.rule_source, self.case.rule)
        self.entropy = request.timed_entropy
        self.families = (NORMAL,) * pooled_draws(self.case)
        self.parameters = draw_parameters(self.case, self.rule)
        self.wide = _widened(self.parameters, self.case)
        rng = np.random.default_rng(request.timed_entropy)
        self.rows = choose_rows(self.case, self.rule, request.oracle_flops, rng)
        self._draws: dict[int, tuple[Triple, Array]] = {}
        self._changes: dict[int, Change] = {0: no_change(self.case)}
        self._scales: dict[int, tuple[Scale, Scale]] = {}
        self._scores: dict[str, dict[int, Errors]] = {}

    @property
    def check_draws(self) -> int:
        """How many draws the check has; those of timed calls follow."""
        return len(self.families)

    def draw(self, index: int) -> tuple[Triple, Array]:
        """Inputs of a draw and the oracle's answer (on the chosen rows)."""
        if index not in self._draws:
            timed = index >= self.check_draws
            entropy = self.entropy if timed else self.case.seed
            inputs = draw_activations(self.case, self.rule, entropy, index)
            wide = tuple(widen(array, self.case.dtype) for array in inputs)
            expected = solve(self.case, self.rule, self.wide, (wide[0], wide[1], wide[2]), self.rows)
            self._draws[index] = (inputs, expected)
        return self._draws[index]

    def change(self, seed: int) -> Change:
        """The composition of laws that a seed stands for, 0 for none; the last few are remembered."""
        if seed not in self._changes:
            while len(self._changes) > _CHANGES_REMEMBERED:
                del self._changes[next(seed for seed in self._changes if seed)]
            self._changes[seed] = draw_change(self.case, self.rule, np.random.default_rng(seed))
        return self._changes[seed]

    def inputs(self, index: int, change: int) -> Triple:
        """Inputs of a draw, after a change where one is named."""
        inputs, _ = self.draw(index)
        return changed(self.case, self.change(change), inputs) if change else inputs

    def score(self, who: str, index: int, output: Stored) -> str:
        """Compare an output with the oracle's answer; gives what is wrong with it where that is plain."""
        errors = self._errors(index, self.change(0), output)
        self._scores.setdefault(who, {})[index] = errors
        return errors.not_finite if who else ""

    def score_timed(self, index: int, change: int, output: Stored) -> tuple[str, str]:
        """Compare an output of a timed call; gives what is wrong with it ("" for nothing), and the law."""
        law = self.change(change)
        errors = self._errors(index, law, output)
        after = replace(errors, worst=place_after(self.case, law, errors.worst))
        references = [at for at in self._scores.get(PLAIN, {}) if self._family(at) == NORMAL]
        _, problem = self._verdict([after], [index], references)
        return problem, str(law) if change else ""

    def judge(self, who: str) -> tuple[Accuracy, str, tuple[str, ...]]:
        """The verdict on all that ``who`` has computed for the check, family by family."""
        scores = self._scores.get(who, {})
        missing = set(range(self.check_draws)) - set(scores)
        if missing:
            raise ValueError(f"no outputs of draws {sorted(missing)} to judge")
        by_family: dict[str, list[int]] = {}
        for index in sorted(scores):
            by_family.setdefault(self._family(index), []).append(index)
        verdicts = {
            family: self._verdict([scores[index] for index in draws], draws, draws)
            for family, draws in by_family.items()
        }
        failed = tuple(family for family, (_, problem) in verdicts.items() if problem)
        problem = verdicts[failed[0]][1] if failed else ""
        if failed and failed[0] != NORMAL:
            problem = f"on inputs of the family {failed[0]}: {problem}"
        return verdicts[NORMAL][0], problem, failed

    def _family(self, index: int) -> str:
        return self.families[index] if index < self.check_draws else NORMAL

    def _errors(self, index: int, change: Change, output: Stored) -> Errors:
        _, expected = self.draw(index)
        before = undone(self.case, change, widen(output, self.case.dtype), self.rows)
        return compare_wide(before, expected)

    def _verdict(
        self, errors: Sequence[Errors], draws: Sequence[int], references: Sequence[int]
    ) -> tuple[Accuracy, str]:
        plain = self._scores.get(PLAIN, {})
        missing = set(references) - set(plain)
        if missing or not references:
            raise ValueError(f"no plain reference of draws {sorted(missing or draws)} to judge by")
        return verdict(
            pool(errors),
            pool([plain[index] for index in references]),
            output=together([self._scales_of(i)[0] for i in draws]),
            values=together([self._scales_of(i)[1] for i in draws]),
            dtype=self.case.dtype,
            rows=self.case.Lq if self.rows is None else len(self.rows),
            rows_of=self.case.Lq,
            draws=len(draws),
        )

    def _scales_of(self, index: int) -> tuple[Scale, Scale]:
        """Of the exact output of a draw, and of its values (or their source)."""
        if index not in self._scales:
            inputs, expected = self.draw(index)
            self._scales[index] = scale_of([expected]), scale_of([widen(inputs[2], self.case.dtype)])
        return self._scales[index]


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
        families=opened.families,
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
            inputs = opened.inputs(request.index, request.change)
            fd, specs = pack(dict(zip(ACTIVATIONS, inputs, strict=True)), opened.case.dtype)
            return rm.Arrays(specs), (fd,)
        case rm.Score():
            return rm.Scored(
                _wrong_shape(opened.case, request.array)
                or opened.score(request.who, request.index, _output(fds[0], request.array))
            ), ()
        case rm.ScoreTimed():
            for place, each in enumerate(request.outputs):
                problem, law = _wrong_shape(opened.case, each.array), ""
                if not problem:
                    output = _output(fds[0], each.array)
                    problem, law = opened.score_timed(each.index, each.change, output)
                if problem:
                    return rm.Scored(problem, place, law), ()
            return rm.Scored(""), ()
        case rm.Judge():
            return rm.Judged(*opened.judge(request.who)), ()
        case _:
            return rm.RefereeFailed(f"no such request: {type(request).__name__}"), ()


def _wrong_shape(case: Case, array: m.ArraySpec) -> str:
    if tuple(array.shape) == output_shape(case):
        return ""
    return f"the output has shape {tuple(array.shape)}"


def _output(fd: int, array: m.ArraySpec) -> Stored:
    return unpack(fd, [array])[array.name]


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
