"""Computation on request in a worker: a checked call, many calls, exact gradients, weights."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from attnbench.inputs.kinds import GRADED
from attnbench.ipc.messages import Compute, Outputs
from attnbench.ipc.names import ERROR, HELD, WEIGHTS
from attnbench.ipc.shared_memory import Stored, anonymous_file
from attnbench.kit.dtypes import case_dtype
from attnbench.kit.problems import problem_setups
from attnbench.timing.sample import timer_for
from attnbench.types.operation import operation_of
from attnbench.worker.answers import (
    output_of,
    output_sizes,
    output_words,
    outputs_by_name,
    outputs_of,
    stored_answer,
    written,
)
from attnbench.worker.failures import NotPrepared, WrongOutput
from attnbench.worker.gradients import plain_errors, plain_gradients, recast
from attnbench.worker.guards import (
    check_bands,
    check_unchanged,
    check_written,
    empty_outputs,
    keep,
    ordinals,
    poison,
)
from attnbench.worker.outputs import as_stored, check_output, check_own_memory, exchanged
from attnbench.worker.prepared import PreparedBackend
from attnbench.worker.state import (
    check_company,
    check_idle,
    check_modes,
    nothing_changed,
    read_activity,
    with_call,
)

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.worker.guards import Given


WATCHED_CALLS = 4
OUTPUTS_KEPT, MOST_KEPT_BYTES = 3, 256 * 1024**2
"""A backend that returns buffers in turn is found if it has no more buffers than outputs are kept."""


def checked_call(prepared: PreparedBackend) -> tuple[PreparedBackend, Any, int]:
    """Make one call and check it; return the backend from now on, the output, and the ns of the call.

    Inputs, their bands and the output are checked around every call; switches, threads and children around
    some. The output is kept: outputs of later calls must lie elsewhere.

    Raises:
        WrongOutput: it returned no output of the case, or changed or used what it must not.
    """
    assert prepared.inputs is not None
    past, before = prepared.past, keep(prepared.inputs)
    again = partial(prepared.call, *prepared.inputs)
    # To look at everything takes as long as some dozens of small calls.
    watched = past.calls < WATCHED_CALLS or past.calls % 8 == 0
    on_cpu = prepared.case.on_host
    if watched and on_cpu and prepared.case.threads == 1:
        check_idle(past, again)
    # Calls on inputs with gradients are made with gradients on, which is among what is watched.
    plain = prepared.case.pass_ == "forward" and prepared.delivery != GRADED
    if past.calls == 1 and plain and not prepared.backend.compiles:
        check_modes(prepared.call, prepared.inputs)
    company = read_activity()
    with nothing_changed("the call", draws=bool(prepared.case.dropout)) if watched else nullcontext():
        sizes = output_sizes(prepared) if prepared.buffers else ()
        plugs = [poison(size, prepared.case.device) for size in sizes]
        given = _outputs_to_write(prepared) if plain and past.calls % 2 else ()
        sample, output = timer_for(prepared.case.device, "hot", prepared.case.pass_ != "backward")(
            _writing(prepared.call, given) if given else prepared.call, *prepared.inputs, 1
        )
        del plugs
        now = with_call(past, company)
        if watched:
            check_company(company, past, prepared.case.threads, again if on_cpu else None)
    check_unchanged(prepared.inputs, before)
    check_bands(prepared.buffers)
    if given:
        check_written(output, given)
    check_held_output(prepared, output)
    # Without its graph, which would keep all tensors of the call.
    kept = _detached(output) if prepared.delivery == GRADED else output
    count = OUTPUTS_KEPT if prepared.output_bytes <= MOST_KEPT_BYTES // OUTPUTS_KEPT else 1
    earlier = (*prepared.earlier, kept)[-count:]
    return replace(prepared, past=now, earlier=earlier), output, sample.wall_ns


def _outputs_to_write(prepared: PreparedBackend) -> tuple[Given, ...]:
    """Return tensors for a call to write, in the backend's layout; () of one that takes none."""
    import torch

    if not prepared.backend.writes_out or prepared.case.layout != "own":
        return ()
    shapes = []
    for spec in outputs_of(prepared):
        shape = spec.shape
        if exchanged(prepared.layout, shape):
            shape = (shape[0], shape[2], shape[1], shape[3])
        shapes.append(
            (shape, case_dtype(prepared.case) if spec.kind == "float" else getattr(torch, spec.kind))
        )
    return empty_outputs(shapes, prepared.case.device)


def _writing(call: Callable[..., Any], given: Sequence[Given]) -> Callable[..., Any]:
    outs = tuple(out for out, _ in given)
    return partial(call, out=outs if len(outs) > 1 else outs[0])


def _detached(output: Any) -> Any:
    if isinstance(output, tuple):
        return tuple(each.detach() for each in output)
    return output.detach()


def check_held_output(prepared: PreparedBackend, answer: Any) -> None:
    """Raise :class:`WrongOutput` if it is not an output of the case, or shares memory with other tensors.

    torch makes the gradients, so they are not checked.
    """
    output = output_of(prepared, answer)
    if output is None:
        return
    outputs = outputs_by_name(prepared, output)
    for spec in outputs_of(prepared):
        what = output_words(spec.name, outputs)
        check_output(outputs[spec.name], prepared.case, spec.shape, prepared.layout, spec.kind, what)
    others = list(_others(prepared))
    for name, tensor in outputs.items():
        check_own_memory(tensor, others)
        others.append((f"the output {name!r}", tensor))


def _others(prepared: PreparedBackend) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor whose memory the output must not share."""
    for words, tensor in zip(ordinals(), prepared.inputs or (), strict=False):
        yield f"the {words} input", tensor
    for tensor in prepared.setup.parameters:
        yield "a parameter of the case", tensor
    if prepared.pool is not None:
        yield from (("an input", stack) for stack in prepared.pool.stacks)
    for answer in prepared.earlier:
        earlier = output_of(prepared, answer)
        if earlier is not None:
            for tensor in outputs_by_name(prepared, earlier).values():
                yield "the output of an earlier call", tensor


def computed(prepared: PreparedBackend, request: Compute) -> tuple[PreparedBackend, Outputs, int]:
    """Do the request; return the backend from now on, the answers, and their descriptor.

    Raises:
        WrongOutput: see :func:`checked_call`; the descriptor is closed then.
    """
    fd, at, outputs, ns = anonymous_file(), 0, [], 0
    try:
        for _ in range(request.count):
            dtype: str = prepared.case.dtype
            match request.what:
                case "outputs":
                    prepared, output, ns = checked_call(prepared)
                    parts = stored_answer(prepared, output)
                case "weights":
                    parts = computed_weights(prepared)
                case _:
                    parts, dtype = exact_gradients(prepared), "float64"
            specs, at = written(fd, at, parts, dtype)
            outputs.append(specs)
    except BaseException:
        os.close(fd)
        raise
    return prepared, Outputs(tuple(outputs), ns), fd


def exact_gradients(prepared: PreparedBackend) -> dict[str, Stored]:
    """Return gradients on the present inputs by name, in float64.

    In a batch ``3.NAME`` is of problem 3. ``held.NAME`` is what the verifier takes the scale of its errors
    from, in attention, ``error.NAME`` the error of the plain reference in the dtype of the case.
    """
    assert prepared.inputs is not None
    assert prepared.passed is not None
    setups = problem_setups(prepared.setup)
    named: dict[str, Any] = {}
    for number, setup in enumerate(setups):
        # Apart, each input and each gradient of an output comes as one tensor for each problem.
        inputs = prepared.inputs[number :: len(setups)]
        upstreams = prepared.passed.upstreams[number :: len(setups)]
        own = f"{number}." if prepared.case.batch else ""
        wide, sources = recast(setup, inputs, "float64")
        wide_upstreams = [x.double() for x in upstreams]
        exact = plain_gradients(wide, sources, *wide_upstreams)
        errors = plain_errors(setup, inputs, *upstreams)
        named |= {own + name: x for name, x in exact.items()}
        if operation_of(setup.case).heads is not None:
            units = plain_gradients(wide, sources, *wide_upstreams, held=True)
            named |= {HELD + own + name: x for name, x in units.items()}
        named |= {ERROR + own + name: x for name, x in errors.items()}
    return {name: x.detach().contiguous().cpu().numpy() for name, x in named.items()}


def computed_weights(prepared: PreparedBackend) -> dict[str, Stored]:
    """Return the weights of the present inputs, (B, H, Lq, Lk), by the function that the backend declares.

    Raises:
        NotPrepared: it declares none.
        WrongOutput: their form is wrong, or the call changed what it must leave alone.
    """
    case = prepared.case
    if prepared.backend.weights is None or case.layer is not None:
        raise NotPrepared("error", f"{prepared.backend.name} gives no weights of such a case")
    assert prepared.inputs is not None
    before = keep(prepared.inputs)
    with nothing_changed("computing the weights"):
        weigh = prepared.backend.weights(prepared.setup)
        weights = weigh(*prepared.inputs[:2])
    check_unchanged(prepared.inputs, before)
    check_bands(prepared.buffers)
    try:
        check_output(weights, case, (case.B, case.H, case.Lq, case.Lk), "BHLD")
    except WrongOutput as wrong:
        raise WrongOutput(str(wrong).replace("the output", "what it gives", 1), "weights") from wrong
    return {WEIGHTS: as_stored(weights, case)}
