"""transformer_engine: DotProductAttention of NVIDIA's Transformer Engine, which chooses its kernel itself.

Checked against ``transformer_engine.pytorch.DotProductAttention`` of 2.20.2:

- ``qkv_format="bshd"``: q is (B, Lq, H, D), k (B, Lk, Hkv, D), v (B, Lk, Hkv, Dv). The output is (B, Lq, H ·
  Dv). ``kv_channels`` is (D, Dv) and ``num_gqa_groups`` is Hkv.
- ``attn_mask_type`` is "causal" by default. "causal" is aligned to the upper left, "causal_bottom_right" to
  the lower right, and a window under "no_mask" to the lower right. A window (left, right) includes both
  ends; under a causal mask right is 0, else both are 0 or more, or (-1, -1).
- ``softcap`` caps the scores after the scale; FlashAttention or the unfused kernel then compute. Its
  argument is given only where a case has a cap, since earlier releases lack it.
- Each kernel treats rows without a key in its own way, so masks with such rows are refused.
- ALiBi, biases and sinks are not given to it. Its sinks are a parameter of the module, and the slopes of
  ALiBi multiply p - j, not the distance.
- Where no fused kernel takes a case, an unfused one does, with memory for all scores: the trace names it.

"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnbench.kit.scores import form_of
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES
from attnbench_cuda.around import with_maps
from attnbench_cuda.bands import band_of, the_band
from attnbench_cuda.device import cannot_call, needs_gpu

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from attnbench.types.backend import Call
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule


def arguments(setup: Setup) -> dict[str, Any]:
    """Return the arguments of ``DotProductAttention``."""
    case, dot = setup.case, setup.scoring.dot
    assert dot is not None
    told: dict[str, Any] = {
        "num_attention_heads": case.H,
        "kv_channels": (case.D, case.Dv),
        "num_gqa_groups": case.Hkv,
        "attention_dropout": case.dropout,
        "qkv_format": "bshd",
        "attn_mask_type": _mask_type(case),
        "attention_type": "self" if case.Lq == case.Lk else "cross",
        "softmax_scale": dot.scale,
    }
    if case.mask.window is not None:
        told["window_size"] = the_band(case).ends()
    return told if dot.cap is None else told | {"softcap": dot.cap}


def library_class() -> Callable[..., Any]:
    """Import the library's class."""
    from transformer_engine.pytorch import DotProductAttention

    made: Callable[..., Any] = DotProductAttention
    return made


def prepare(setup: Setup) -> Call:
    """Make the function of the case, for either operation."""
    attention, heads = library_class()(**arguments(setup)), (setup.case.H, setup.case.Dv)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = attention(q, k, v).unflatten(-1, heads)
        return out

    return with_maps(call, setup)


def available(device: str) -> str | None:
    """Ask for a device, and for the arguments that every case gives, and windows."""
    return needs_gpu("Transformer Engine") or cannot_call(
        library_class, "num_attention_heads", "kv_channels", "num_gqa_groups", "attention_dropout",
        "qkv_format", "attn_mask_type", "attention_type", "softmax_scale", "window_size",
    )  # fmt: skip


def supports(case: Case, rule: Rule) -> str | None:
    """Causal masks of both alignments and windows, none of which leaves a row without a key."""
    form = form_of(case, rule)
    band = band_of(case)
    if isinstance(band, str):
        if not case.mask.is_only_causal:
            return f"DotProductAttention, as it is called here, {band}"
    elif band.leaves_rows_empty(case):
        return "DotProductAttention's kernels differ in what a query without a key gives"
    if form.bias is not None or form.sink is not None:
        return f"DotProductAttention is given no {'bias' if form.sink is None else 'sink'} here"
    return None


def _mask_type(case: Case) -> str:
    if case.mask.causal is None:
        return "no_mask"
    # Where Lq = Lk both alignments are one, and more kernels take "causal".
    lower_right = case.mask.causal == "lower_right" and case.Lq != case.Lk
    return "causal_bottom_right" if lower_right else "causal"


TRANSFORMER_ENGINE = Backend(
    name="transformer_engine",
    summary="Transformer Engine's DotProductAttention, by the kernel that it chooses",
    prepare=prepare,
    supports=supports,
    available=available,
    operations=("attention", "multihead"),
    needs_dot_form=True,
    dtypes=("bfloat16", "float16"),
    devices=("cuda",),
    passes=PASSES,
    layout="BLHD",
    requires=("transformer_engine",),
    forkable=False,
    # The unfused kernel holds the scores and their softmax.
    quadratic_copies=2,
    dropout=True,
)
