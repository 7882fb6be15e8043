"""The signatures of the libraries' functions as their releases have them, without annotations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Published:
    """source: release and file. at: module and attribute. arguments: names and defaults, in order."""

    source: str
    at: tuple[str, str]
    arguments: str


PUBLISHED = {
    "flash_attn_2": Published(
        "flash-attn 2.8.3.post2, flash_attn/flash_attn_interface.py",
        ("flash_attn", "flash_attn_func"),
        "q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, "
        "alibi_slopes=None, deterministic=False, return_attn_probs=False",
    ),
    "flash_attn_3": Published(
        "flash-attn main at 01afd16, hopper/flash_attn_interface.py; kernels-community/flash-attn3",
        ("flash_attn_interface", "flash_attn_func"),
        "q, k, v, softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None, v_descale=None, "
        "window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1, pack_gqa=None, "
        "deterministic=False, sm_margin=0, return_attn_probs=False",
    ),
    "flash_attn_4": Published(
        "flash-attn-4 4.0.0b36, flash_attn/cute/interface.py",
        ("flash_attn.cute", "flash_attn_func"),
        "q, k, v, qv=None, gather_kv_indices=None, softmax_scale=None, causal=False, "
        "window_size=(None, None), learnable_sink=None, softcap=0.0, num_splits=1, pack_gqa=None, "
        "deterministic=False, score_mod=None, score_mod_bwd=None, mask_mod=None, aux_tensors=None, "
        "aux_scalars=None, block_sparse_tensors=None, block_sparse_tensors_bwd=None, return_lse=False, "
        "gather_bwd_recompute_p=False, gather_bwd_token_chunk=None",
    ),
    "get_kernel": Published(
        "kernels 0.17.2, kernels/load.py",
        ("kernels", "get_kernel"),
        "repo_id, *, revision=None, version=None, backend=None, user_agent=None, trust_remote_code=False, "
        "check_arch=True",
    ),
    "flashinfer": Published(
        "flashinfer-python 0.7.2.post1, flashinfer/prefill.py",
        ("flashinfer", "single_prefill_with_kv_cache"),
        "q, k, v, scale_q=None, scale_k=None, scale_v=None, o_dtype=None, custom_mask=None, "
        "packed_custom_mask=None, causal=False, kv_layout='NHD', pos_encoding_mode='NONE', "
        "use_fp16_qk_reduction=False, sm_scale=None, window_left=-1, logits_soft_cap=None, rope_scale=None, "
        "rope_theta=None, backend='auto', return_lse=False, kv_cache_sf=None, k_scale=None, v_scale=None",
    ),
    "packbits": Published(
        "flashinfer-python 0.7.2.post1, flashinfer/quantization/packbits.py",
        ("flashinfer", "packbits"),
        "x, bitorder='big'",
    ),
    "xformers": Published(
        "xformers 0.0.35, xformers/ops/fmha/__init__.py",
        ("xformers.ops", "memory_efficient_attention"),
        "query, key, value, attn_bias=None, p=0.0, scale=None, *, op=None, output_dtype=None",
    ),
    "transformer_engine": Published(
        "transformer-engine 2.20.2, pytorch/attention/dot_product_attention/dot_product_attention.py",
        ("transformer_engine.pytorch", "DotProductAttention"),
        "num_attention_heads, kv_channels, num_gqa_groups=None, attention_dropout=0.0, qkv_format='sbhd', "
        "attn_mask_type='causal', window_size=None, bottom_right_diagonal=None, softcap=0.0, "
        "sequence_parallel=False, tp_size=1, get_rng_state_tracker=None, tp_group=None, layer_number=None, "
        "attention_type='self', cp_group=None, cp_global_ranks=None, cp_stream=None, cp_comm_type='p2p', "
        "softmax_scale=None, softmax_type='vanilla', return_max_logit=False, name=None",
    ),
    "sageattention": Published(
        "thu-ml/SageAttention at 0116592, sageattention/core.py",
        ("sageattention", "sageattn"),
        "q, k, v, tensor_layout='HND', is_causal=False, sm_scale=None, return_lse=False, **kwargs",
    ),
}


def arguments_of(function: Callable[..., Any]) -> str:
    """The names and defaults of a function, in order, without annotations."""
    found = inspect.signature(function)
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in found.parameters.values()]
    return str(inspect.Signature(bare))[1:-1]


def installed(published: Published) -> Callable[..., Any] | None:
    """The library's own function, or None where it can't be imported."""
    module, attribute = published.at
    try:
        function: Callable[..., Any] = getattr(import_module(module), attribute)
    except Exception:
        return None
    return function
