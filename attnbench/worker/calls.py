"""What a worker computes on request: a checked call, many calls, exact gradients, weights."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnbench.check.gradients import plain_errors, plain_gradients, recast
from attnbench.check.reference import in_turn
from attnbench.inputs.kinds import GRADED
from attnbench.ipc.messages import Outputs
from attnbench.ipc.names import ERROR, HELD, WEIGHTS
from attnbench.ipc.shared_memory import Stored, anonymous_file
from attnbench.timing.sample import timer_for
from attnbench.types.case import Case
from attnbench.worker.activity import check_company, check_idle, past_here, read_activity, with_call
from attnbench.worker.answers import output_of, outputs_by_name, outputs_of, stored_answer, written
from attnbench.worker.guards import check_bands, check_unchanged, keep, ordinals, poison
from attnbench.worker.outputs import WrongOutput, as_stored, check_output, check_own_memory
from attnbench.worker.prepared import Held, NotPrepared
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
    outputs = outputs_by_name(held, output)
    for spec in outputs_of(held.case):
        check_output(outputs[spec.name], held.case, spec.shape, held.layout)
    if held.case.Lk == 1 and held.inputs is not None and output is held.inputs[-1]:
        # The answer of one key is its value. Such a case tells nothing; self-tests of the clock have it.
        return
    others = list(_others(held))
    for name, tensor in outputs.items():
        check_own_memory(tensor, others)
        others.append((f"the output {name!r}", tensor))


def draws(case: Case) -> bool:
    """Whether a call draws random numbers: where weights are dropped."""
    return bool(case.dropout)


def _others(held: Held) -> Iterator[tuple[str, Tensor]]:
    """All that an output must not lie in."""
    for words, tensor in zip(ordinals(), held.inputs or (), strict=False):
        yield f"the {words} input", tensor
    for tensor in held.parameters:
        yield "a parameter of the case", tensor
    if held.pool is not None:
        for triple in held.pool.triples:
            yield from (("an input", tensor) for tensor in triple)
    for answer in held.earlier:
        earlier = output_of(held, answer)
        if earlier is not None:
            for tensor in outputs_by_name(held, earlier).values():
                yield "the output of an earlier call", tensor


def _kept(held: Held, answer: Any) -> tuple[Any, ...]:
    """The outputs that the next must not lie in: of large ones the last alone."""
    count = OUTPUTS_KEPT if held.output_bytes <= MOST_KEPT_BYTES // OUTPUTS_KEPT else 1
    return (*held.earlier, answer)[-count:]


def many_outputs(held: Held, count: int) -> tuple[Held, Outputs, int]:
    """Make ``count`` checked calls; gives what is held from now on, the outputs, and their descriptor.

    Each is written down before the next call is made: memory of this process holds two at most.

    Raises:
        WrongOutput: of the first call that did what it must not.
    """
    fd, at, outputs = anonymous_file(), 0, []
    try:
        for _ in range(count):
            held, computed, _ = checked_call(held)
            specs, at = written(fd, at, stored_answer(held, computed), held.case.dtype)
            outputs.append(specs)
    except BaseException:
        os.close(fd)
        raise
    return held, Outputs(tuple(outputs)), fd


def exact_gradients(held: Held) -> dict[str, Stored]:
    """Gradients on the inputs that a worker holds, by name, all in float64.

    With each, under ``held.NAME``, what the units of its errors come from
    (:func:`attnbench.check.gradients.gradient_scale`), and under ``error.NAME`` by how much the plain
    reference in the case's dtype is off.
    """
    assert held.inputs is not None
    assert held.passed is not None
    upstream = held.passed.upstream
    wide, sources = recast(held.setup, held.inputs, "float64")
    named: dict[str, Any] = plain_gradients(wide, sources, upstream.double())
    units = plain_gradients(wide, sources, upstream.double(), held=True)
    errors = plain_errors(held.setup, held.inputs, upstream)
    named |= {HELD + name: x for name, x in units.items()}
    named |= {ERROR + name: x for name, x in errors.items()}
    return {name: x.detach().contiguous().cpu().numpy() for name, x in named.items()}


def answer_in_turn(held: Held, *, backwards: bool) -> dict[str, Stored]:
    """Its output on the inputs that a worker holds, features added in turn, or backwards."""
    assert held.inputs is not None
    call = held.backend.prepare(in_turn(held.setup, backwards=backwards))
    return stored_answer(held, call(*held.inputs))


def computed_weights(held: Held) -> dict[str, Stored]:
    """The weights of the inputs that are held, (B, H, Lq, Lk), by the function that the backend declares.

    Raises:
        NotPrepared: it declares none.
        WrongOutput: they aren't what is asked for, or the call changed what it must leave alone.
    """
    case = held.case
    if held.backend.weights is None or case.layer is not None:
        raise NotPrepared("error", f"{held.backend.name} gives no weights of such a case")
    assert held.inputs is not None
    before = keep(held.inputs)
    with nothing_changed("computing the weights"):
        weigh = held.backend.weights(held.setup)
        weights = weigh(*held.inputs[:2])
    check_unchanged(held.inputs, before)
    check_bands(held.buffers)
    try:
        check_output(weights, case, (case.B, case.H, case.Lq, case.Lk), "BHLD")
    except WrongOutput as wrong:
        raise WrongOutput(str(wrong).replace("the output", "what it gives", 1), "weights") from wrong
    return {WEIGHTS: as_stored(weights, case)}
