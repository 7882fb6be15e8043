"""What transformers computes where no kernel is installed: the gated delta rule, step by step and in chunks.

It takes steps before heads, (B, L, H, D), which inputs are views of, and computes in float32. The functions
are wrapped by one that calls fla or mamba-ssm where these are installed; ``unwrap`` leaves that out.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from inspect import unwrap
from typing import TYPE_CHECKING, Any

from attnbench import Backend, Setup
from attnbench.types.case import PASSES

if TYPE_CHECKING:
    from torch import Tensor

_QWEN3_NEXT = "transformers.models.qwen3_next.modeling_qwen3_next"
_KIMI_LINEAR = "transformers.models.kimi_linear.modeling_kimi_linear"


def _prepare(setup: Setup, module: str, function: str) -> Callable[..., Any]:
    """Return a function of transformers as one of q, k, v, decay, beta and the state."""
    import torch

    case, update = setup.case, setup.rule.update
    assert update is not None
    compute = unwrap(getattr(import_module(module), function))
    by_channel = module == _KIMI_LINEAR

    def call(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v, *more, beta, state = inputs
        if by_channel:  # Its heads are as many.
            q, k = (x.repeat_interleave(case.group, 1) for x in (q, k))
        decay = more[0] if more else torch.zeros(case.B, case.H, case.Lq)
        if by_channel and decay.ndim == 3:
            decay = decay[..., None].expand(*decay.shape, case.D)
        steps = (x.transpose(1, 2) for x in (q, k, v))
        out, after = compute(
            *steps,
            g=decay.transpose(1, 2),
            beta=beta.transpose(1, 2),
            initial_state=state,
            output_final_state=True,
        )
        return out.transpose(1, 2), after

    return call


def _backend(name: str, summary: str, module: str, function: str, rules: tuple[str, ...]) -> Backend:
    return Backend(
        name=name,
        summary=summary,
        prepare=lambda setup: _prepare(setup, module, function),
        operations=("recurrent",),
        rules=rules,
        dtypes=("float32", "bfloat16", "float16"),
        devices=("cpu",),
        passes=PASSES,
        requires=("transformers",),
        quadratic_copies=0,
    )


_HEAD, _CHANNEL = ("delta", "gated_delta"), ("delta", "gated_delta", "gated_delta_channels")

BACKENDS = (
    _backend(
        "transformers_gdn_steps",
        "transformers' gated delta rule, one step after the other",
        _QWEN3_NEXT,
        "torch_recurrent_gated_delta_rule",
        _HEAD,
    ),
    _backend(
        "transformers_gdn_chunks",
        "transformers' gated delta rule, 64 steps at once",
        _QWEN3_NEXT,
        "torch_chunk_gated_delta_rule",
        _HEAD,
    ),
    _backend(
        "transformers_kda_steps",
        "transformers' Kimi delta attention, one step after the other",
        _KIMI_LINEAR,
        "recurrent_kimi_delta_attention",
        _CHANNEL,
    ),
    _backend(
        "transformers_kda_chunks",
        "transformers' Kimi delta attention, 64 steps at once",
        _KIMI_LINEAR,
        "chunk_kimi_delta_attention",
        _CHANNEL,
    ),
)
