"""The backends of recurrences: what they take, and where they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnbench.kit.dtypes import case_dtype
from attnbench.types.backend import Backend, Setup
from attnbench.types.problem import call_inputs
from attnbench_triton.backend import available, available_interpreted

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.case import Case
    from attnbench.types.rule import Rule

WIDEST_HEAD = 128
MOST_INTERPRETED = 1 << 12
"""Steps over all heads: the interpreter takes a few seconds for so many."""


def prepare(setup: Setup) -> Callable[..., Any]:
    """Make the function of q, k, v, decay, beta and the state; on a device, compile it."""
    import torch

    from attnbench_triton.recurrence import recurrence

    case, update = setup.case, setup.rule.update
    assert update is not None
    # Triton's interpreter multiplies the bits of bfloat16 as integers.
    widens = case.device == "cpu" and case.dtype == "bfloat16"

    def call(q: Tensor, k: Tensor, v: Tensor, *more: Tensor) -> tuple[Tensor, Tensor]:
        *others, state = more
        decay = others[0] if update.decays else None
        beta = others[-1] if update.corrects else None
        if widens:
            q, k, v = q.float(), k.float(), v.float()
            beta = None if beta is None else beta.float()
        out, after = recurrence(case, q, k, v, decay, beta, state)
        return out.to(case_dtype(case)), after

    if case.device == "cuda":
        call(
            *(
                torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype(case)), device=case.device)
                for spec in call_inputs(case, setup.rule)
            )
        )
    return call


def supports(case: Case, rule: Rule) -> str | None:
    """Decline wide heads."""
    if max(case.D, case.Dv) > WIDEST_HEAD:
        return f"the kernels take heads of up to {WIDEST_HEAD} features; here D = {case.D} and Dv = {case.Dv}"
    return None


def supports_interpreted(case: Case, rule: Rule) -> str | None:
    """Decline many steps besides."""
    steps = case.B * case.H * case.Lq
    if steps > MOST_INTERPRETED:
        return (
            "Triton's interpreter runs each block of a kernel in Python, to check small cases: "
            f"B·H·L is {MOST_INTERPRETED} at most; here {steps}"
        )
    return supports(case, rule)


TRITON_RECURRENT = Backend(
    name="triton_recurrent",
    summary="recurrences in chunks of steps in Triton, compiled for a GPU",
    prepare=prepare,
    supports=supports,
    available=available,
    operations=("recurrent",),
    rules=("linear", "gated", "delta", "gated_delta"),
    dtypes=("float32", "bfloat16", "float16"),
    devices=("cuda",),
    requires=("triton",),
    forkable=False,
    quadratic_copies=0,
)

TRITON_RECURRENT_INTERPRETED = replace(
    TRITON_RECURRENT,
    name="triton_recurrent_interpreted",
    summary="triton_recurrent in Triton's interpreter on a CPU: checks the kernels; its times mean nothing",
    supports=supports_interpreted,
    available=available_interpreted,
    devices=("cpu",),
    forkable=True,
)
