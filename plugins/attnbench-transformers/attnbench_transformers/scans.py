"""What transformers computes where mamba-ssm is not installed: the scans of Mamba and Mamba-2, and a step.

Mamba-2's scan multiplies A and x by one dt. So dt is -g, A is -1 and x is v / dt, in float32. Mamba's takes
dt and A as a case of ``selective`` has them, of one head at a time. It begins with zeros: the initial state
is written by steps before the first, one for each feature of k, whose dt of 2^-40 lets nothing decay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from inspect import unwrap
from typing import TYPE_CHECKING, Any

from attnbench import Backend, Case, Rule, Setup
from attnbench.types.case import PASSES

if TYPE_CHECKING:
    from torch import Tensor

LEAST = 2.0**-40
"""The dt where a decay is 0: it keeps all of a state in float32."""
CHUNK = 256
"""The default of Mamba2Config.chunk_size."""


def prepare_scan(setup: Setup) -> Callable[..., Any]:
    """Return mamba2_chunk_scan as a function of q, k, v, decay and the state."""
    import torch
    from transformers.models.mamba2.modeling_mamba2 import mamba2_chunk_scan

    scan = unwrap(mamba2_chunk_scan)
    case = setup.case
    A, scale = -torch.ones(case.H), case.D**-0.5

    def call(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        *steps, state = inputs
        q, k, v, *more = (x.transpose(1, 2) for x in steps)
        x, dt = _divided(v, more)
        out, after = scan(x, dt, A, k, q, CHUNK, initial_states=state.mT, return_final_states=True)
        return (scale * out).to(v.dtype).transpose(1, 2), after.mT

    return call


def prepare_step(setup: Setup) -> Callable[..., Any]:
    """Return mamba2_selective_state_update as a function of q, k, v, decay and the state of one step."""
    import torch
    from transformers.models.mamba2.modeling_mamba2 import mamba2_selective_state_update

    update = unwrap(mamba2_selective_state_update)
    case = setup.case
    scale = case.D**-0.5
    A = -torch.ones(case.H, case.Dv, case.D)

    def call(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        *steps, state = inputs
        q, k, v, *more = (x[:, :, 0] for x in steps)
        x, dt = _divided(v, more)
        after = state.mT.clone(memory_format=torch.contiguous_format)  # it is written
        out = update(after, x, dt[..., None].expand(x.shape), A, k, q)
        return (scale * out).to(v.dtype)[:, :, None], after.mT

    return call


def prepare_selective_scan(setup: Setup) -> Callable[..., Any]:
    """Return mamba_selective_scan as a function of q, k, v, dt, rate and the state."""
    import torch
    from transformers.models.mamba.modeling_mamba import mamba_selective_scan

    scan = unwrap(mamba_selective_scan)
    case = setup.case
    keys = torch.eye(case.D).expand(case.B, -1, -1)

    def of_head(q: Tensor, k: Tensor, v: Tensor, dt: Tensor, rate: Tensor, state: Tensor) -> Any:
        steps = (v.float(), state / LEAST), (dt, torch.full_like(state, LEAST)), (k.float(), keys)
        x, dt, k = (torch.cat([before, own], 1).mT for own, before in steps)
        q = torch.cat([torch.zeros_like(keys), q.float()], 1).mT
        out, after = scan(x, dt, rate.mT, k, q, return_last_state=True)
        return out[..., case.D :].mT, after.mT

    return _by_head(setup, of_head)


def prepare_selective_step(setup: Setup) -> Callable[..., Any]:
    """Return mamba_selective_state_update as a function of q, k, v, dt, rate and the state of one step."""
    import torch
    from transformers.models.mamba.modeling_mamba import mamba_selective_state_update

    update = unwrap(mamba_selective_state_update)

    def of_head(q: Tensor, k: Tensor, v: Tensor, dt: Tensor, rate: Tensor, state: Tensor) -> Any:
        after = state.mT.clone(memory_format=torch.contiguous_format)  # it is written
        x, dt, k, q = (one[:, 0] for one in (v.float(), dt, k.float(), q.float()))
        out = update(after, x, dt, rate.mT, k, q)
        return out[:, None], after.mT

    return _by_head(setup, of_head)


def _by_head(setup: Setup, of_head: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of all heads of one that takes q, k, v and dt (B, L, any), a rate and a state."""
    import torch

    case = setup.case
    scale = case.D**-0.5

    def call(
        q: Tensor, k: Tensor, v: Tensor, dt: Tensor, rate: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        shared = (h // case.group for h in range(case.H))
        found = [
            of_head(q[:, g], k[:, g], v[:, h], dt[:, h], rate[h], state[:, h]) for h, g in enumerate(shared)
        ]
        out, after = (torch.stack(parts, 1) for parts in zip(*found, strict=True))
        return (scale * out).to(v.dtype), after

    return call


def _divided(v: Tensor, decays: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return x and dt."""
    import torch

    dt = -decays[0].clamp(max=-LEAST) if decays else torch.full(v.shape[:-1], LEAST)
    return v / dt[..., None], dt


def _one_step(case: Case, rule: Rule) -> str | None:
    return None if case.Lq == 1 else f"takes one step, not {case.Lq}"


TRANSFORMERS_MAMBA2_SCAN = Backend(
    name="transformers_mamba2_scan",
    summary=f"transformers' scan of Mamba-2, {CHUNK} steps at once",
    prepare=prepare_scan,
    operations=("recurrent",),
    rules=("linear", "gated"),
    dtypes=("float32", "bfloat16", "float16"),
    devices=("cpu",),
    requires=("transformers",),
    quadratic_copies=0,
)

TRANSFORMERS_MAMBA2_STEP = replace(
    TRANSFORMERS_MAMBA2_SCAN,
    name="transformers_mamba2_step",
    summary="transformers' step of Mamba-2",
    prepare=prepare_step,
    supports=_one_step,
)

TRANSFORMERS_SELECTIVE_SCAN = replace(
    TRANSFORMERS_MAMBA2_SCAN,
    name="transformers_selective_scan",
    summary="transformers' scan of Mamba, one step after the other",
    prepare=prepare_selective_scan,
    passes=PASSES,
    rules=("selective",),
)

TRANSFORMERS_SELECTIVE_STEP = replace(
    TRANSFORMERS_SELECTIVE_SCAN,
    name="transformers_selective_step",
    summary="transformers' step of Mamba",
    prepare=prepare_selective_step,
    passes=("forward",),
    supports=_one_step,
)

SCANS = (
    TRANSFORMERS_MAMBA2_SCAN, TRANSFORMERS_MAMBA2_STEP, TRANSFORMERS_SELECTIVE_SCAN,
    TRANSFORMERS_SELECTIVE_STEP,
)  # fmt: skip
