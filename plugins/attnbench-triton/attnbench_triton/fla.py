"""Recurrences of flash-linear-attention (fla-core): its references in plain torch, and one of its kernels.

Checked with fla-core 0.6.0. Its modules import Triton. The kernel runs in Triton's interpreter here; others
ask Triton's autotuner for a driver, which a CPU lacks. All take (B, L, H, features), but those of the delta
rule without decay and of RWKV-7, which have heads first, and give the state as a case has it.

Gradients of the references are autograd's. Those of naive_chunk_kda are NaN, and the kernel refuses them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from attnbench.kit.dtypes import case_dtype
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES, Pass
from attnbench.types.operation import operation_of
from attnbench_triton.backend import available_interpreted
from attnbench_triton.recurrent import supports_interpreted

if TYPE_CHECKING:
    from torch import Tensor

    Named = dict[str, Any]

CHUNK = 64


def _prepare(module: str, function: str, *, heads_first: bool = False, **words: str) -> Any:
    """Return what prepares a function of fla. words: its arguments, by the names of a case's inputs."""

    def prepare(setup: Setup) -> Callable[..., Any]:
        import torch

        case, compute = setup.case, getattr(import_module(module), function)
        names = [spec.name for spec in operation_of(case).inputs(case, setup.rule)]
        # Zeros behind the last step change no state: neither do they decay, nor is a key written.
        fill = -case.Lq % CHUNK if function == "naive_chunk_kda" else 0

        def call(*inputs: Tensor) -> tuple[Tensor, Tensor]:
            given = dict(zip(names, inputs, strict=True))
            state = given.pop("past_state")
            q, k, v = (given[name] for name in "qkv")
            given |= {"q": q.repeat_interleave(case.group, 1), "k": k.repeat_interleave(case.group, 1)}
            if "decay" in words and "decay" not in given:
                given["decay"] = torch.zeros(v.shape[:3])
            if not heads_first:
                given = {name: x.transpose(1, 2) for name, x in given.items()}
                zeros = {name: x.new_zeros(len(x), fill, *x.shape[2:]) for name, x in given.items()}
                given = {name: torch.cat([x, zeros[name]], 1) for name, x in given.items()}
            told = {word: given[name] for name, word in words.items()}
            q, k, v = (given[name] for name in "qkv")
            out, after = compute(q, k, v, **told, initial_state=state.clone(), output_final_state=True)
            out = (out if heads_first else out.transpose(1, 2))[:, :, : case.Lq]
            return out.to(case_dtype(case)), after.float()

        return call

    return prepare


def _backend(
    name: str, summary: str, prepare: Callable[[Setup], Callable[..., Any]], *rules: str,
    passes: tuple[Pass, ...] = PASSES, **more: Any,
) -> Backend:  # fmt: skip
    return Backend(
        name=f"fla_{name}", summary=summary, prepare=prepare, operations=("recurrent",), rules=rules,
        dtypes=("float32", "bfloat16", "float16"), devices=("cpu",), requires=("fla", "einops", "triton"),
        quadratic_copies=0, passes=passes, **more,
    )  # fmt: skip


_GATED, _SIMPLE, _KDA = (f"fla.ops.{name}.naive" for name in ("gated_delta_rule", "simple_gla", "kda"))
_DELTA, _DPLR = "fla.ops.delta_rule.naive", "fla.ops.generalized_delta_rule.dplr.naive"

FLA = (
    _backend(
        "simple_gla_steps", "fla's plain gated linear attention, one step after the other",
        _prepare(_SIMPLE, "naive_recurrent_simple_gla", decay="g"), "linear", "gated",
    ),
    _backend(
        "simple_gla_chunks", f"fla's plain gated linear attention, {CHUNK} steps at once",
        _prepare(_SIMPLE, "naive_chunk_simple_gla", decay="g"), "linear", "gated",
    ),
    _backend(
        "delta_rule_steps", "fla's plain delta rule, one step after the other",
        _prepare(_DELTA, "delta_rule_recurrence", heads_first=True, beta="beta"), "delta",
    ),
    _backend(
        "gated_delta_rule_steps", "fla's plain gated delta rule, one step after the other",
        _prepare(_GATED, "naive_recurrent_gated_delta_rule", decay="g", beta="beta"), "delta", "gated_delta",
    ),
    _backend(
        "gated_delta_rule_chunks", f"fla's plain gated delta rule, {CHUNK} steps at once",
        _prepare(_GATED, "naive_chunk_gated_delta_rule", decay="g", beta="beta"), "delta", "gated_delta",
    ),
    _backend(
        "kda_steps", "fla's plain Kimi delta attention, one step after the other",
        _prepare(_KDA, "naive_recurrent_kda", decay="g", beta="beta"), "gated_delta_channels",
    ),
    _backend(
        "kda_chunks", f"fla's plain Kimi delta attention, {CHUNK} steps at once",
        _prepare(_KDA, "naive_chunk_kda", decay="g", beta="beta"), "gated_delta_channels",
        passes=("forward",),
    ),
    _backend(
        "dplr_steps", "fla's plain update of RWKV-7, one step after the other",
        _prepare(_DPLR, "dplr_recurrence", heads_first=True, a="alpha", b="beta", decay="gk"), "rwkv7",
    ),
    _backend(
        "fused_recurrent_interpreted",
        "fla's kernel of the gated delta rule's steps in Triton's interpreter: its times mean nothing",
        _prepare(
            "fla.ops.gated_delta_rule", "fused_recurrent_gated_delta_rule", decay="g", beta="beta",
        ),
        "delta", "gated_delta", supports=supports_interpreted, available=available_interpreted,
        passes=("forward",),
    ),
)  # fmt: skip
