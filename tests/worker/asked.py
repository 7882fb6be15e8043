"""Requests to a worker: prepare a backend, give it inputs, read its outputs as arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnbench.cases.ids import parse_case
from attnbench.inputs.draw import draw_activations, draw_parameters, draw_upstream
from attnbench.ipc import messages as m
from attnbench.ipc.names import ACTIVATIONS, UPSTREAM, parameter_names
from attnbench.ipc.shared_memory import pack, unpack
from attnbench.rules import attnbench_rules
from attnbench.runner.processes import WorkerLink
from attnbench.types.case import Case
from attnbench.types.extensions import Source

Stored = NDArray[Any]

RULES = {rule.name: rule for rule in attnbench_rules() if rule.kind == "scores"}
BUILT_IN_RULES = Source("rules", "attnbench.rules", "attnbench", "0")
BUILT_IN_BACKENDS = Source("backends", "attnbench.backends", "attnbench", "0")
OUTSPOKEN = Source("outspoken", "outspoken_plugin", "outspoken", "1.0")
ENOUGH_S = 60.0


@dataclass(frozen=True)
class Asked:
    """A worker or a fork of one, with its case."""

    link: WorkerLink
    case: str
    made: list[WorkerLink] = field(default_factory=list)

    def prepare(
        self, backend: str, source: Source | None = OUTSPOKEN, limit: int | None = None
    ) -> m.Prepared:
        """Prepare with the case's own parameters; the answer."""
        case = parse_case(self.case)
        drawn = draw_parameters(case, RULES[case.rule])
        fd, specs = pack(parameter_names(drawn.rule, drawn.projections), case.dtype)
        request = m.Prepare(self.case, backend, source, BUILT_IN_RULES, specs, limit)
        try:
            return self.link.ask(request, m.Prepared, ENOUGH_S, (fd,))[0]
        finally:
            os.close(fd)

    def give(
        self, draw: int | tuple[Stored, Stored, Stored] = 0, *, guarded: bool = False, delivery: str = ""
    ) -> tuple[Stored, ...]:
        """Give inputs, those of a draw or arrays; return them."""
        with inputs_of(parse_case(self.case), draw) as (arrays, specs, fd):
            request = m.Activations(specs, guarded=guarded, delivery=delivery)
            self.link.ask(request, m.Done, ENOUGH_S, (fd,))
        return arrays

    def output(self) -> Stored:
        """The output of one call."""
        answer, fd = self.link.ask(m.Compute(), m.Outputs, ENOUGH_S)
        try:
            return unpack(fd, answer.outputs[0])["out"]
        finally:
            os.close(fd)

    def kept(self) -> list[tuple[m.KeptOutput, Stored]]:
        """Take the logged outputs of timed calls; the log is empty afterwards."""
        answer, fd = self.link.ask(m.TimedOutputs(), m.Kept, ENOUGH_S)
        try:
            return [(each, unpack(fd, each.parts)["out"]) for each in answer.outputs]
        finally:
            if fd >= 0:
                os.close(fd)

    def block(self, calls: int, samples: int, warm_calls: int = 0) -> Any:
        """Take every third slot of a segment; the worker hands over to itself. Return their block."""
        slots = tuple(3 * number + 1 for number in range(samples))
        successors = tuple(0 if number + 1 < samples else -1 for number in range(samples))
        with handoff(1) as own:
            request = m.TakeSlots(4, slots, successors, calls, warm_calls)
            return self.link.ask(request, m.SlotsTaken, ENOUGH_S, (own,))[0].samples

    def fork(self) -> Asked:
        """Return a fork."""
        timed = self.link.fork(timed=True, cpus=tuple(os.sched_getaffinity(0)))
        self.made.append(timed)
        return Asked(timed, self.case, self.made)


New = Callable[..., Asked]


@contextmanager
def inputs_of(
    case: Case, draw: int | tuple[Stored, Stored, Stored]
) -> Iterator[tuple[tuple[Stored, ...], tuple[m.ArraySpec, ...], int]]:
    """Inputs of a draw, or arrays; in shared memory too, there with what a backward pass needs."""
    arrays = draw_activations(case, RULES[case.rule], 1, draw) if isinstance(draw, int) else draw
    held = dict(zip(ACTIVATIONS, arrays, strict=True))
    if case.pass_ != "forward":
        held[UPSTREAM] = draw_upstream(case, 1, draw)
    fd, specs = pack(held, case.dtype)
    try:
        yield arrays, specs, fd
    finally:
        os.close(fd)


@contextmanager
def handoff(value: int = 0) -> Iterator[int]:
    """An eventfd, closed at the end."""
    fd = os.eventfd(0, os.EFD_CLOEXEC)
    try:
        os.eventfd_write(fd, value)
        yield fd
    finally:
        os.close(fd)


def segment(worker: Asked, draw: int, calls: int, samples: int, warm_calls: int = 0) -> m.SlotsTaken:
    """Take the slots of a segment that refreshes inputs with another draw."""
    successors = (*(0 for _ in range(samples - 1)), -1)
    with inputs_of(parse_case(worker.case), draw) as (_, specs, fd), handoff(1) as own:
        request = m.TakeSlots(0, tuple(range(samples)), successors, calls, warm_calls, specs)
        return worker.link.ask(request, m.SlotsTaken, ENOUGH_S, (own, fd))[0]


def attend(q: Stored, k: Stored, v: Stored, scale: float = 1.0) -> Stored:
    """Attention by dot products in float64, heads repeated."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    powers = np.exp(scale * np.einsum("bhid,bhjd->bhij", q, k))
    return np.einsum("bhij,bhjd->bhid", powers / powers.sum(-1, keepdims=True), v)
