"""A checked call: one call, and whether it left alone what it must. Around timed calls little of it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnbench.inputs.families import GRADED
from attnbench.timing.timer import timer_for
from attnbench.types.case import Case
from attnbench.types.shapes import output_shape
from attnbench.worker.activity import (
    check_company,
    check_idle,
    past_here,
    read_activity,
    with_call,
)
from attnbench.worker.answers import output_of
from attnbench.worker.guarding import check_bands, check_unchanged, keep, poison
from attnbench.worker.held import Held
from attnbench.worker.outputs import check_output, check_own_memory
from attnbench.worker.state import nothing_changed

if TYPE_CHECKING:
    from torch import Tensor


WATCHED_CALLS = 4
OUTPUTS_KEPT, MOST_KEPT_BYTES = 3, 256 * 1024**2
"""Buffers that are given in turns are found where there are no more of them than outputs kept."""


def checked_call(held: Held) -> tuple[Held, Any, int]:
    """Make one call; gives what is held from now on, the output, and the ns of the call.

    The output is kept: those that follow must be elsewhere. Settings of the process, threads and children are
    looked at around some calls; the inputs, what is around them, and the output at all.

    Raises:
        WrongOutput: it gave no output, or changed or used what it must not, in words.
    """
    assert held.inputs is not None
    past, before, company = past_here(held.past), keep(held.inputs), read_activity()
    watched = _watched(past.calls)
    on_cpu = held.case.device == "cpu"
    if watched and on_cpu and held.case.threads == 1:
        check_idle(past, company)
    with nothing_changed("the call", draws=draws(held.case)) if watched else nullcontext():
        plug = poison(held.output_bytes, held.case.device) if held.buffers else None
        sample, output = timer_for(held.case.device)(held.call, *held.inputs, 1)
        del plug
        now = with_call(past, company)
        if watched:
            # On a device, threads of its driver and of autograd work for every call.
            check_company(company, past, held.case.threads if on_cpu else 0)
    check_unchanged(held.inputs, before)
    check_bands(held.buffers)
    check_held_output(held, output)
    return replace(held, past=now, earlier=_kept(held, _without_graph(held, output))), output, sample.wall_ns


def _without_graph(held: Held, output: Any) -> Any:
    """The same memory: a graph would keep all that the call has made for as long."""
    return output.detach() if held.delivery == GRADED else output


def _watched(calls: int) -> bool:
    """Whether to look at everything around a call: at the first few of a process, then at one in eight.

    It takes as long as some dozens of small calls.
    """
    return calls < WATCHED_CALLS or calls % 8 == 0


def check_held_output(held: Held, answer: Any) -> None:
    """Raise :class:`WrongOutput` for what is no output of the case, or lies where others do.

    Gradients are made by torch, so they are where they may be.
    """
    output = output_of(held, answer)
    if output is None:
        return
    check_output(output, held.case, output_shape(held.case), held.backend.layout)
    if held.case.Lk == 1 and held.inputs is not None and output is held.inputs[2]:
        # The answer of one key is its value. Such a case tells nothing; self-tests of the clock have it.
        return
    check_own_memory(output, _others(held))


def draws(case: Case) -> bool:
    """Whether a call draws random numbers: where weights are dropped."""
    return bool(case.dropout)


def _others(held: Held) -> Iterator[tuple[str, Tensor]]:
    """All that an output must not lie in."""
    for words, tensor in zip(("first", "second", "third"), held.inputs or (), strict=False):
        yield f"the {words} input", tensor
    for tensor in held.parameters:
        yield "a parameter of the case", tensor
    if held.pool is not None:
        for triple in held.pool.triples:
            yield from (("an input", tensor) for tensor in triple)
    for answer in held.earlier:
        earlier = output_of(held, answer)
        if earlier is not None:
            yield "the output of an earlier call", earlier


def _kept(held: Held, answer: Any) -> tuple[Any, ...]:
    """The outputs that the next must not lie in: of large ones the last alone."""
    count = OUTPUTS_KEPT if held.output_bytes <= MOST_KEPT_BYTES // OUTPUTS_KEPT else 1
    return (*held.earlier, answer)[-count:]
