"""Stand-ins for functions of recurrences, with their published signatures.

Sources and releases are those of ``published.py``. They take one step after the other in float64, refuse what
the library refuses, and round as it does: outputs to the dtype of v, states to float32.

"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from batch_stand_ins import starts
from stand_ins import HALF, expect
from torch import Tensor


def recurrence(
    q: Tensor, k: Tensor, v: Tensor, state: Tensor, scale: float, *, decay: Tensor | None = None,
    beta: Tensor | None = None, a: Tensor | None = None, b: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Equal sequences, (B, L, H, ·), in float64: the output and the state (B, H, D, Dv), both unrounded."""
    group = v.shape[2] // k.shape[2]
    q, k = (x.double().repeat_interleave(group, 2) for x in (q, k))
    v, state = v.double(), state.double()
    outs = []
    for i in range(v.shape[1]):
        found = None if a is None else (a[:, i].double()[..., None] * state).sum(-2, keepdim=True)
        if decay is not None:
            kept = decay[:, i].double().exp()
            state = state * (kept[..., None, None] if kept.dim() == 2 else kept[..., None])
        if found is not None:
            state = state + b[:, i].double()[..., None] * found
        value = v[:, i]
        if beta is not None:
            read = (k[:, i, :, :, None] * state).sum(-2)
            value = beta[:, i].double()[..., None] * (value - read)
        state = state + k[:, i, :, :, None] * value[:, :, None]
        outs.append((q[:, i, :, :, None] * state).sum(-2))
    out = torch.stack(outs, 1) if outs else v * 0
    return scale * out, state


def sequences(
    q: Tensor, k: Tensor, v: Tensor, states: Tensor, scale: float, begins: list[int] | None, **more: Any
) -> tuple[Tensor, Tensor]:
    """The same of packed sequences too, (1, T, H, ·); the output in the dtype of v, states in float32."""
    if begins is None:
        out, state = recurrence(q, k, v, states, scale, **more)
        return out.to(v.dtype), state.float()
    outs, after = [], []
    for number, (start, end) in enumerate(pairwise(begins)):
        own = {name: x if x is None else x[:, start:end] for name, x in more.items()}
        one = slice(start, end)
        out, state = recurrence(q[:, one], k[:, one], v[:, one], states[number][None], scale, **own)
        outs.append(out)
        after.append(state)
    return torch.cat(outs, 1).to(v.dtype), torch.cat(after).float()


def fla(
    q: Tensor, k: Tensor, v: Tensor, scale: float, initial_state: Tensor, cu_seqlens: Tensor | None, *,
    grouped: bool = False, floats: bool = True, **more: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """What the functions of flash-linear-attention share: steps before heads, states with D first."""
    B, L, HV, Dv = v.shape
    expect(q.dtype == k.dtype == v.dtype and (floats or q.dtype != torch.float32), "dtypes")
    expect(q.shape == k.shape and q.shape[:2] == (B, L), "q and k must have the same shape")
    expect(HV % k.shape[2] == 0 and (grouped or k.shape[2] == HV), "heads")
    for name, x in more.items():
        by_feature = name in "ab" or (x is not None and x.dim() == 4)
        expect(x is None or x.shape == ((B, L, HV, k.shape[3]) if by_feature else (B, L, HV)), name)
    begins = None
    if cu_seqlens is not None:
        expect(B == 1, "The batch size is expected to be 1 when using `cu_seqlens`")
        begins = starts(cu_seqlens, L, torch.int64)
    count = B if begins is None else len(begins) - 1
    expect(initial_state.shape == (count, HV, k.shape[3], Dv), "initial_state")
    expect(initial_state.dtype == torch.float32, "initial_state must be in float32.")
    return sequences(q, k, v, initial_state, scale, begins, **more)


def _scale(scale: float | None, k: Tensor) -> float:
    return k.shape[-1] ** -0.5 if scale is None else scale


def chunk_simple_gla(
    q, k, v, g=None, g_gamma=None, scale=None, initial_state=None, output_final_state=False,
    state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None, **kwargs,
):  # fmt: skip
    return fla(q, k, v, _scale(scale, k), initial_state, cu_seqlens, decay=g)


def fused_recurrent_simple_gla(
    q, k, v, g=None, g_gamma=None, scale=None, initial_state=None, output_final_state=False,
    reverse=False, state_v_first=False, cu_seqlens=None, **kwargs,
):  # fmt: skip
    return fla(q, k, v, _scale(scale, k), initial_state, cu_seqlens, decay=g)


def chunk_delta_rule(
    q, k, v, beta, scale=None, initial_state=None, output_final_state=False,
    use_qk_l2norm_in_kernel=False, cu_seqlens=None, cu_seqlens_cpu=None, **kwargs,
):  # fmt: skip
    return fla(q, k, v, _scale(scale, k), initial_state, cu_seqlens, floats=False, beta=beta)


def fused_recurrent_delta_rule(
    q, k, v, beta=None, scale=None, initial_state=None, output_final_state=False,
    use_qk_l2norm_in_kernel=False, cu_seqlens=None,
):  # fmt: skip
    return fla(q, k, v, _scale(scale, k), initial_state, cu_seqlens, beta=beta)


def chunk_gated_delta_rule(
    q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False,
    use_qk_l2norm_in_kernel=False, use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False,
    state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None, chunk_indices=None, cp_context=None,
    **kwargs,
):  # fmt: skip
    expect(g.dim() == 3, "g must be of shape [B, T, HV]")
    return fla(q, k, v, _scale(scale, k), initial_state, cu_seqlens, grouped=True, decay=g, beta=beta)


def fused_recurrent_gated_delta_rule(
    q, k, v, g=None, gk=None, gv=None, beta=None, scale=None, initial_state=None,
    output_final_state=False, use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, A_log=None,
    dt_bias=None, use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, state_v_first=False,
    cu_seqlens=None, **kwargs,
):  # fmt: skip
    return fla(q, k, v, _scale(scale, k), initial_state, cu_seqlens, grouped=True, decay=g, beta=beta)


def chunk_kda(
    q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False,
    use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, use_beta_sigmoid_in_kernel=False,
    allow_neg_eigval=False, safe_gate=False, lower_bound=None, disable_recompute=False,
    return_intermediate_states=False, state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None,
    cp_context=None, use_graph=False, max_num_seqs=None, **kwargs,
):  # fmt: skip
    expect(k.shape[-1] <= 256 and g.dim() == 4, "Currently we only support key headdim <=256 for KDA")
    return fla(q, k, v, _scale(scale, k), initial_state, cu_seqlens, grouped=True, decay=g, beta=beta)


def fused_recurrent_kda(
    q, k, v, g, beta, A_log=None, dt_bias=None, scale=None, initial_state=None,
    output_final_state=False, use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False,
    use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, lower_bound=None, state_v_first=False,
    cu_seqlens=None, **kwargs,
):  # fmt: skip
    return fla(q, k, v, _scale(scale, k), initial_state, cu_seqlens, grouped=True, decay=g, beta=beta)


def chunk_rwkv7(
    r, w, k, v, a, b, scale=1.0, initial_state=None, output_final_state=False, cu_seqlens=None,
    cu_seqlens_cpu=None, safe_gate=False, chunk_size=None, disable_recompute=False, cp_context=None,
    lower_bound=None,
):  # fmt: skip
    return fla(r, k, v, scale, initial_state, cu_seqlens, decay=w, a=a, b=b)


def fused_recurrent_rwkv7(
    r, w, k, v, a, b, scale=None, initial_state=None, output_final_state=True, cu_seqlens=None,
):  # fmt: skip
    return fla(r, k, v, _scale(scale, k), initial_state, cu_seqlens, decay=w, a=a, b=b)


def flashinfer_gated_delta(
    q, k, v, g=None, beta=None, scale=None, initial_state=None, output_final_state=False,
    cu_seqlens=None, use_qk_l2norm_in_kernel=False, output=None, output_state=None,
    state_checkpoints=None, checkpoint_cu_starts=None, checkpoint_every_n_tokens=0, use_cp="auto",
    state_indices=None, _cp_chunk_len=None, backend="auto", max_seqlen=None, *, gate_domain="linear",
    use_gate_in_kernel=False, A_log=None, dt_bias=None, beta_is_logit=False, cu_seqlens_cpu=None,
    output_state_indices=None, checkpoint_state_indices=None, prefix_lens=None,
):  # fmt: skip
    expect(q.dtype in HALF and q.dtype == k.dtype == v.dtype, "dtypes")
    expect(all(x.is_contiguous() for x in (q, k, v)), "Must be contiguous")
    expect(q.shape == k.shape and q.shape[-1] == v.shape[-1] == 128, "head_size == 128")
    for x in (g, beta):
        expect(x is None or (x.dtype == torch.float32 and x.shape == v.shape[:2]), "gates")
    expect(initial_state.shape[1:] == (v.shape[1], 128, 128) and output_final_state, "[N, H, V, K]")
    expect(output_state.shape == initial_state.shape and output_state.dtype == torch.float32, "output_state")
    expect(cu_seqlens is not None and cu_seqlens.dtype in (torch.int32, torch.int64), "cu_seqlens")
    begins = starts(cu_seqlens, len(q), cu_seqlens.dtype)
    slots = torch.arange(len(begins) - 1) if state_indices is None else state_indices.long()
    expect(len(slots) == len(begins) - 1 and len(set(slots.tolist())) == len(slots), "state_indices")
    expect(state_indices is not None or len(initial_state) == len(slots), "[num_seqs, H, V, K]")
    decay = g if g is None or gate_domain == "log" else g.log()
    more = {name: x if x is None else x[None] for name, x in (("decay", decay), ("beta", beta))}
    steps, before = (x[None] for x in (q, k, v)), initial_state[slots].mT
    out, after = sequences(*steps, before, _scale(scale, k), begins, **more)
    output_state[slots] = after.mT
    return out[0], output_state


def mamba_chunk_scan(
    x, dt, A, B, C, chunk_size, D=None, z=None, dt_bias=None, initial_states=None, seq_idx=None,
    cu_seqlens=None, dt_softplus=False, dt_limit=(0.0, float("inf")), return_final_states=False,
    return_varlen_states=False,
):  # fmt: skip
    batch, seqlen, nheads, headdim = x.shape
    ngroups, dstate = B.shape[2:]
    assert nheads % ngroups == 0
    assert B.shape == C.shape == (batch, seqlen, ngroups, dstate)
    assert dt.shape == (batch, seqlen, nheads)
    assert A.shape == (nheads,)
    assert initial_states.shape == (batch, nheads, headdim, dstate)
    assert B.dtype == C.dtype == x.dtype
    # A kernel multiplies x by dt in float32, and decays by dt · A.
    values = x.double() * dt.double()[..., None]
    out, after = recurrence(C, B, values, initial_states.mT, 1.0, decay=dt.double() * A.double())
    out, after = out.to(x.dtype), after.mT.float().contiguous()
    return (out, after) if return_final_states else out


FUNCTIONS = {
    "chunk_simple_gla": chunk_simple_gla,
    "fused_recurrent_simple_gla": fused_recurrent_simple_gla,
    "chunk_delta_rule": chunk_delta_rule,
    "fused_recurrent_delta_rule": fused_recurrent_delta_rule,
    "chunk_gated_delta_rule": chunk_gated_delta_rule,
    "fused_recurrent_gated_delta_rule": fused_recurrent_gated_delta_rule,
    "chunk_kda": chunk_kda,
    "fused_recurrent_kda": fused_recurrent_kda,
    "chunk_rwkv7": chunk_rwkv7,
    "fused_recurrent_rwkv7": fused_recurrent_rwkv7,
    "flashinfer_gated_delta": flashinfer_gated_delta,
    "mamba_chunk_scan": mamba_chunk_scan,
}
