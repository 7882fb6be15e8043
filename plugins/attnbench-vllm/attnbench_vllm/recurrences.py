"""Recurrences with their state: the gated delta rule in chunks, and the scan and the step of Mamba-2."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnbench import Backend, Case, Rule, Setup
from attnbench.types.operation import operation_of
from attnbench_vllm.library import absent, operators

if TYPE_CHECKING:
    from torch import Tensor

HEAD_SIZES = 64, 128
LEAST = 2.0**-40
"""A scan multiplies A and x by one dt. So dt is -g, A is -1 and x is v / dt. Where g is 0, this dt keeps all
of a state in float32."""


def prepare_delta(setup: Setup) -> Callable[..., Any]:
    """Return chunk_gated_delta_rule_cpu as a function of q, k, v, decay, beta, the state and where it is.

    It reads and writes a pool in place, so a copy is given.
    """
    import torch

    library = operators()

    def call(starts: Tensor, slots: Tensor, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v, *more, beta, state = inputs
        decay = more[0] if more else torch.zeros(beta.shape)
        steps = (x.contiguous()[None] for x in (q, k, v, decay, beta))
        pool = state.clone(memory_format=torch.contiguous_format)
        out, _ = library.chunk_gated_delta_rule_cpu(*steps, pool, True, starts, False, False, slots, 1e-6)
        return out[0], pool

    return _prepared(setup, call)


def prepare_scan(setup: Setup) -> Callable[..., Any]:
    """Return mamba_chunk_scan_fwd_cpu as a function of q, k, v, decay and the state."""
    import torch

    library, A, scale = operators(), -torch.ones(setup.case.H), setup.case.D**-0.5

    def call(starts: Tensor, slots: Tensor, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v, *more, state = inputs
        dt = _dt(v, more)
        after, out = _copied(state.mT), v.new_empty(v.shape)
        x, q, k = v / dt[..., None], scale * q, k.contiguous()
        library.mamba_chunk_scan_fwd_cpu(out, after, x, dt, A, k, q, None, None, starts)
        return out, after.mT

    return _prepared(setup, call)


def prepare_step(setup: Setup) -> Callable[..., Any]:
    """Return selective_state_update_cpu as a function of q, k, v, decay and the state of one step."""
    import torch

    case, library, scale = setup.case, operators(), setup.case.D**-0.5
    A = -torch.ones(case.H, 1, 1).expand(case.H, case.Dv, case.D)

    def call(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        *steps, state = inputs
        q, k, v, *more = (x[:, :, 0] for x in steps)
        dt = _dt(v, more)[..., None]
        after, out = _copied(state.mT), torch.empty(v.shape)
        given = v / dt, dt.expand(v.shape), A, k.contiguous(), scale * q
        # Without D, z and a bias; without softplus; without a pool, of which -1 would be no slot.
        library.selective_state_update_cpu(after, *given, *[None] * 3, False, None, None, -1, out, None, None)
        return out[:, :, None], after.mT

    return call


def _copied(state: Tensor) -> Tensor:
    """Return a copy that a kernel may write: with one feature the transposed state is contiguous already."""
    import torch

    return state.clone(memory_format=torch.contiguous_format)


def _dt(v: Tensor, decays: list[Tensor]) -> Tensor:
    import torch

    return -decays[0].clamp(max=-LEAST) if decays else torch.full(v.shape[:-1], LEAST)


def _prepared(setup: Setup, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of the inputs of a case from one of steps before heads, in the order of sequences.

    call: takes where sequences begin, the slots of their states, (T, H, D) and (T, H), and the states.
    """
    import torch

    case = setup.case
    if case.batch:
        count = len(operation_of(case).inputs(case, setup.rule))

        def packed(*inputs: Tensor) -> tuple[Tensor, Tensor]:
            starts, *slots = inputs[count:]
            every = torch.arange(len(starts) - 1, dtype=torch.int32)
            found: tuple[Tensor, Tensor] = call(starts, slots[0] if slots else every, *inputs[:count])
            return found

        return packed
    starts = torch.arange(case.B + 1, dtype=torch.int32) * case.Lq
    slots = torch.arange(case.B, dtype=torch.int32)

    def dense(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        *steps, state = inputs
        laid = (x.transpose(1, 2).reshape(-1, x.shape[1], *x.shape[3:]) for x in steps)
        out, after = call(starts, slots, *laid, state)
        return out.view(case.B, case.Lq, case.H, case.Dv).transpose(1, 2), after

    return dense


def _delta_sizes(case: Case, rule: Rule) -> str | None:
    if case.Dv != case.D or case.D not in HEAD_SIZES:
        return f"takes D and Dv of {' or '.join(map(str, HEAD_SIZES))} alike, not {case.D} and {case.Dv}"
    return None


def _one_step(case: Case, rule: Rule) -> str | None:
    return None if case.Lq == 1 else f"takes one step, not {case.Lq}"


VLLM_GATED_DELTA_CHUNKS = Backend(
    name="vllm_gated_delta_chunks",
    summary="vLLM's gated delta rule in chunks, its kernel for CPUs",
    prepare=prepare_delta,
    # Its state, in float32, sums products in bfloat16.
    computes_in="bfloat16",
    supports=_delta_sizes,
    available=absent,
    operations=("recurrent",),
    rules=("delta", "gated_delta"),
    dtypes=("bfloat16",),
    devices=("cpu",),
    storages=("dense", "packed", "pooled"),
    quadratic_copies=0,
)

VLLM_MAMBA2_SCAN = Backend(
    name="vllm_mamba2_scan",
    summary="vLLM's scan of Mamba-2, its kernel for CPUs",
    prepare=prepare_scan,
    available=absent,
    operations=("recurrent",),
    rules=("linear", "gated"),
    dtypes=("float32",),
    devices=("cpu",),
    storages=("dense", "packed"),
    quadratic_copies=0,
)

VLLM_MAMBA2_STEP = replace(
    VLLM_MAMBA2_SCAN,
    name="vllm_mamba2_step",
    summary="vLLM's step of Mamba-2, its kernel for CPUs",
    prepare=prepare_step,
    supports=_one_step,
    storages=("dense",),
)
