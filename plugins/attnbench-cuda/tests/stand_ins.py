"""Stand-ins for the libraries: their published signatures, computed by torch as they document it.

They compute in float64 on the CPU and round the output once. They refuse what the library refuses, and give
no gradient where it has none. What a library leaves open is filled with NaN.

"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import dropout

NAN = float("nan")
HALF = (torch.float16, torch.bfloat16)


def positions(Lq: int, Lk: int, *, lower_right: bool = True) -> Tensor:
    """The distance p - j of each query from each key, (Lq, Lk)."""
    rows = torch.arange(Lq) + (Lk - Lq if lower_right else 0)
    return rows[:, None] - torch.arange(Lk)


def within(distance: Tensor, left: int | None, right: int | None) -> Tensor:
    """The pairs of a window with both ends included; None is a side without end."""
    keep = torch.ones_like(distance, dtype=torch.bool)
    if left is not None:
        keep &= distance <= left
    if right is not None:
        keep &= distance >= -right
    return keep


def attend(
    q: Tensor, k: Tensor, v: Tensor, scale: float, keep: Tensor | None = None, *, cap: float = 0.0,
    added: Tensor | None = None, sink: Tensor | None = None, p: float = 0.0, empty: float = NAN,
    lse: bool = False,
) -> Any:  # fmt: skip
    """Attention of (B, L, heads, D) in float64. empty: what a row without a key gives.

    lse: return the natural log-sum-exp (B, H, Lq) in float64 too, without a sink, -inf without a key.
    """
    group = q.shape[2] // k.shape[2]
    assert q.shape[2] % k.shape[2] == 0
    wide = [x.double().transpose(1, 2) for x in (q, k, v)]
    wide[1:] = [x.repeat_interleave(group, 1) for x in wide[1:]]
    scores = wide[0] @ wide[1].transpose(-1, -2) * scale
    if cap:
        scores = cap * torch.tanh(scores / cap)
    if added is not None:
        scores = scores + added
    if keep is not None:
        scores = scores.masked_fill(~keep, -torch.inf)
    if sink is not None:
        column = sink.double().view(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
        weights = torch.cat((scores, column), -1).softmax(-1)[..., :-1]
    else:
        none = (scores == -torch.inf).all(-1, keepdim=True)
        weights = scores.masked_fill(none, 0).softmax(-1).masked_fill(none, 0)
    out = dropout(weights, p) @ wide[2]
    if sink is None and bool(none.any()):
        out = out.masked_fill(none, empty)
    out = out.transpose(1, 2).to(q.dtype)
    return (out, scores.detach().logsumexp(-1)) if lse else out


def expect(condition: bool, words: str) -> None:
    """What a library checks itself."""
    if not condition:
        raise RuntimeError(words)


def same(q: Tensor, k: Tensor, v: Tensor, dtypes: Iterable[torch.dtype] = HALF) -> None:
    expect(q.dtype in dtypes and q.dtype == k.dtype == v.dtype, f"dtypes {q.dtype}, {k.dtype}, {v.dtype}")
    expect(all(x.stride(-1) == 1 for x in (q, k, v)), "the last axis must be contiguous")
    expect(q.shape[-1] == k.shape[-1] and k.shape[:-1] == v.shape[:-1], "shapes")


def _band(q: Tensor, k: Tensor, window: tuple[Any, Any], causal: bool, endless: int | None) -> Tensor:
    left, right = (None if end == endless else end for end in window)
    return within(positions(q.shape[1], k.shape[1]), left, 0 if causal else right)


def flash_attn_2(
    q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
    alibi_slopes=None, deterministic=False, return_attn_probs=False,
):  # fmt: skip
    same(q, k, v)
    expect(q.shape[-1] <= 256 and q.shape[-1] == v.shape[-1], "head_size")
    expect(not (softcap and dropout_p), "Softcapping does not support dropout for now")
    added = None
    if alibi_slopes is not None:
        expect(alibi_slopes.dtype == torch.float32 and not alibi_slopes.requires_grad, "alibi_slopes")
        expect(alibi_slopes.shape == (q.shape[2],), "alibi_slopes")
        added = -alibi_slopes.double()[:, None, None] * positions(q.shape[1], k.shape[1]).abs()
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    keep = _band(q, k, window_size, causal, -1)
    out = attend(q, k, v, scale, keep, cap=softcap, added=added, p=dropout_p, empty=0.0)
    return (out, None, None) if return_attn_probs else out


def flash_attn_3(
    q, k, v, softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None, v_descale=None,
    window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1, pack_gqa=None, deterministic=False,
    sm_margin=0, return_attn_probs=False,
):  # fmt: skip
    same(q, k, v)
    D, Dv = q.shape[-1], v.shape[-1]
    expect(D % 8 == 0 and Dv % 8 == 0 and D <= 256, "head_size")
    expect(Dv == D or (128 < D <= 192 and 96 < Dv <= 128) or (D <= 64 and Dv <= 512), "V headdim")
    expect(Dv == D or not any(x.requires_grad for x in (q, k, v)), "no gradient with another V headdim")
    scale = D**-0.5 if softmax_scale is None else softmax_scale
    out = attend(q, k, v, scale, _band(q, k, window_size, causal, -1), cap=softcap, empty=0.0)
    return (out, None) if return_attn_probs else out


def flash_attn_4(
    q, k, v, qv=None, gather_kv_indices=None, softmax_scale=None, causal=False, window_size=(None, None),
    learnable_sink=None, softcap=0.0, num_splits=1, pack_gqa=None, deterministic=False, score_mod=None,
    score_mod_bwd=None, mask_mod=None, aux_tensors=None, aux_scalars=None, block_sparse_tensors=None,
    block_sparse_tensors_bwd=None, return_lse=False, gather_bwd_recompute_p=False,
    gather_bwd_token_chunk=None,
):  # fmt: skip
    same(q, k, v)
    D, Dv = q.shape[-1], v.shape[-1]
    expect(D % 8 == 0 and Dv % 8 == 0, "head_dim")
    expect((8 <= D <= 128 and 8 <= Dv <= 128) or (D, Dv) in ((192, 128), (256, 256)), "head_dim")
    expect(all(end is None or end >= 0 for end in window_size), "window_size")
    expect(learnable_sink is None or learnable_sink.shape == (q.shape[2],), "learnable_sink")
    scale = D**-0.5 if softmax_scale is None else softmax_scale
    keep = _band(q, k, window_size, causal, None)
    return attend(q, k, v, scale, keep, cap=softcap, sink=learnable_sink), None


def get_kernel(
    repo_id, *, revision=None, version=None, backend=None, user_agent=None, trust_remote_code=False,
    check_arch=True,
):  # fmt: skip
    """A cache that holds version 1 alone."""
    expect((revision is None) != (version is None), "Either `version` or `revision` must be specified")
    if (repo_id, version) != ("kernels-community/flash-attn3", 1):
        raise ValueError(f"Version {version} not found, available versions: 1")
    return module("flash_attn3", flash_attn_func=flash_attn_3)


def packbits(x, bitorder="big"):
    expect(x.dim() == 1 and x.dtype == torch.bool and x.is_contiguous(), "packbits takes a row of bits")
    import numpy as np

    return torch.from_numpy(np.packbits(x.numpy(), bitorder=bitorder))


def flashinfer(
    q, k, v, scale_q=None, scale_k=None, scale_v=None, o_dtype=None, custom_mask=None,
    packed_custom_mask=None, causal=False, kv_layout="NHD", pos_encoding_mode="NONE",
    use_fp16_qk_reduction=False, sm_scale=None, window_left=-1, logits_soft_cap=None, rope_scale=None,
    rope_theta=None, backend="auto", return_lse=False, kv_cache_sf=None, k_scale=None, v_scale=None,
):  # fmt: skip
    same(q, k, v)
    expect(q.dim() == 3 and kv_layout == "NHD", "one request in NHD")
    expect(q.shape[-1] == v.shape[-1] and q.shape[-1] in (64, 128, 256), "head_dim")
    Lq, Lk = q.shape[0], k.shape[0]
    keep = within(positions(Lq, Lk), None if window_left < 0 else window_left, 0 if causal else None)
    if custom_mask is not None and packed_custom_mask is None:
        packed_custom_mask = packbits(custom_mask.contiguous().view(-1), bitorder="little")
    if packed_custom_mask is not None:
        import numpy as np

        bits = np.unpackbits(packed_custom_mask.numpy(), bitorder="little")[: Lq * Lk]
        own = torch.from_numpy(bits).view(Lq, Lk).bool()
        keep = own & within(positions(Lq, Lk), None if window_left < 0 else window_left, None)
    scale = q.shape[-1] ** -0.5 if sm_scale is None else sm_scale
    out = attend(*(x.detach()[None] for x in (q, k, v)), scale, keep, cap=logits_soft_cap or 0.0)[0]
    return (out, None) if return_lse else out


class LowerTriangularMask:
    lower_right, left = False, None


class LowerTriangularFromBottomRightMask:
    lower_right, left = True, None


class LowerTriangularFromBottomRightLocalAttentionMask:
    lower_right = True

    def __init__(self, _window_size: int) -> None:
        self.left = _window_size - 1


OWN = (
    LowerTriangularMask,
    LowerTriangularFromBottomRightMask,
    LowerTriangularFromBottomRightLocalAttentionMask,
)


def xformers(query, key, value, attn_bias=None, p=0.0, scale=None, *, op=None, output_dtype=None):
    same(query, key, value, (*HALF, torch.float32))
    expect(query.shape[2:-1] == key.shape[2:-1], "xFormers will not broadcast the inputs")
    from batch_stand_ins import xformers_of_sequences

    q, k, v, heads = query, key, value, query.shape[2:-1]
    if query.dim() == 5:
        expect(not any(x.requires_grad for x in (q, k, v)), "grouped queries are for the forward pass alone")
        q, k, v = (x.flatten(2, 3) for x in (q, k, v))
    keep = added = None
    if isinstance(attn_bias, OWN):
        distance = positions(q.shape[1], k.shape[1], lower_right=attn_bias.lower_right)
        keep = within(distance, attn_bias.left, 0)
    elif hasattr(attn_bias, "queries"):
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        out = xformers_of_sequences(q, k, v, attn_bias, scale)
        return out if query.dim() == 4 else out.unflatten(2, heads)
    elif attn_bias is not None:
        expect(attn_bias.dtype == query.dtype, "invalid dtype for bias")
        expect(attn_bias.shape == (q.shape[0], *heads, q.shape[1], k.shape[1]), "shape of attn_bias")
        steps = attn_bias.stride()
        expect(steps[-1] == 1 and all(step % 8 == 0 for step in steps[:-1]), "attn_bias is not aligned")
        expect(not attn_bias.requires_grad, "the gradient of the bias isn't asked for")
        added = attn_bias.double().reshape(q.shape[0], -1, q.shape[1], k.shape[1])
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    out = attend(q, k, v, scale, keep, added=added, p=p)
    return out if query.dim() == 4 else out.unflatten(2, heads)


class TransformerEngine(torch.nn.Module):
    def __init__(
        self, num_attention_heads, kv_channels, num_gqa_groups=None, attention_dropout=0.0, qkv_format="sbhd",
        attn_mask_type="causal", window_size=None, bottom_right_diagonal=None, softcap=0.0,
        sequence_parallel=False, tp_size=1, get_rng_state_tracker=None, tp_group=None, layer_number=None,
        attention_type="self", cp_group=None, cp_global_ranks=None, cp_stream=None, cp_comm_type="p2p",
        softmax_scale=None, softmax_type="vanilla", return_max_logit=False, name=None,
    ):  # fmt: skip
        super().__init__()
        self.heads = num_attention_heads, num_gqa_groups or num_attention_heads
        self.features = (kv_channels, kv_channels) if isinstance(kv_channels, int) else kv_channels
        self.scale = self.features[0] ** -0.5 if softmax_scale is None else softmax_scale
        self.kind, self.format = attn_mask_type, qkv_format
        self.p, self.cap, self.attention_type = attention_dropout, softcap, attention_type
        expect(attn_mask_type in ("no_mask", "causal", "causal_bottom_right"), "attn_mask_type")
        causal = "causal" in attn_mask_type
        left, right = ((-1, 0) if causal else (-1, -1)) if window_size is None else window_size
        whole = (-1, 0) if causal else (-1, -1)
        expect(
            (left, right) == whole or (left >= 0 and (right == 0 if causal else right >= 0)), "window_size"
        )
        self.window = tuple(None if end < 0 else end for end in (left, right))
        aligned = attn_mask_type != "causal" if bottom_right_diagonal is None else bottom_right_diagonal
        self.lower_right = {"causal": False, "causal_bottom_right": True}.get(attn_mask_type, aligned)

    def forward(self, query_layer=None, key_layer=None, value_layer=None):
        q, k, v = query_layer, key_layer, value_layer
        if self.format == "sbhd":
            q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        same(q, k, v)
        expect((q.shape[2], k.shape[2]) == self.heads, "num_attention_heads")
        expect((q.shape[3], v.shape[3]) == self.features, "kv_channels")
        expect((self.attention_type == "cross") == (q.shape[1] != k.shape[1]), "attention_type")
        keep = within(positions(q.shape[1], k.shape[1], lower_right=self.lower_right), *self.window)
        return attend(q, k, v, self.scale, keep, cap=self.cap, p=self.p).flatten(2)


def sageattention(q, k, v, tensor_layout="HND", is_causal=False, sm_scale=None, return_lse=False, **kwargs):
    """As on compute capability 9.0: q and k in int8, weights and v in float8."""
    expect(not kwargs, f"arguments that nothing reads: {sorted(kwargs)}")
    same(q, k, v)
    if tensor_layout == "HND":
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    expect(q.shape[-1] <= 128 and q.shape[-1] == v.shape[-1], "head_dim")
    expect(not is_causal or q.shape[1] == k.shape[1], "is_causal is for qo_len == kv_len")
    scale = q.shape[-1] ** -0.5 if sm_scale is None else sm_scale
    group = q.shape[2] // k.shape[2]
    wide = [x.detach().double().transpose(1, 2) for x in (q, k, v)]
    q8, k8 = _int8(wide[0]), _int8(wide[1] - wide[1].mean(2, keepdim=True))
    scores = q8 @ k8.repeat_interleave(group, 1).transpose(-1, -2) * scale
    if is_causal:
        scores = scores.masked_fill(positions(q.shape[1], k.shape[1]) < 0, -torch.inf)
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    values = wide[2].repeat_interleave(group, 1)
    step = values.abs().amax(2, keepdim=True) / 448
    out = (_float8(weights * 448) / 448) @ (_float8(values / step.clamp_min(1e-30)) * step)
    out = (out / weights.sum(-1, keepdim=True)).transpose(1, 2).to(q.dtype)
    out = out if tensor_layout == "NHD" else out.transpose(1, 2)
    return (out, None) if return_lse else out


def _int8(x: Tensor) -> Tensor:
    step = (x.abs().amax(-1, keepdim=True) / 127).clamp_min(1e-30)
    return (x / step).round() * step


def _float8(x: Tensor) -> Tensor:
    return x.float().to(torch.float8_e4m3fn).double()


FUNCTIONS = {
    "flash_attn_2": flash_attn_2,
    "flash_attn_3": flash_attn_3,
    "flash_attn_4": flash_attn_4,
    "get_kernel": get_kernel,
    "flashinfer": flashinfer,
    "packbits": packbits,
    "xformers": xformers,
    "transformer_engine": TransformerEngine,
    "sageattention": sageattention,
}


def module(name: str, **content: Any) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(content)
    return made
