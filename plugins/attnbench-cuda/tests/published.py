"""The signatures of the libraries' functions as their releases have them, without annotations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Published:
    """source: release and file. at: module, and attribute or method. arguments: names and defaults."""

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
    "flash_attn_2_varlen": Published(
        "flash-attn 2.8.3.post2, flash_attn/flash_attn_interface.py",
        ("flash_attn", "flash_attn_varlen_func"),
        "q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, "
        "softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, "
        "deterministic=False, return_attn_probs=False, block_table=None",
    ),
    "flash_attn_2_kvcache": Published(
        "flash-attn 2.8.3.post2, flash_attn/flash_attn_interface.py",
        ("flash_attn", "flash_attn_with_kvcache"),
        "q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, "
        "cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, "
        "window_size=(-1, -1), softcap=0.0, rotary_interleaved=True, alibi_slopes=None, num_splits=0, "
        "return_softmax_lse=False",
    ),
    "flash_attn_3_varlen": Published(
        "flash-attn main at c082294, hopper/flash_attn_interface.py",
        ("flash_attn_interface", "flash_attn_varlen_func"),
        "q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q=None, seqused_k=None, "
        "softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None, v_descale=None, "
        "window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1, pack_gqa=None, "
        "deterministic=False, sm_margin=0, return_attn_probs=False",
    ),
    "flash_attn_3_kvcache": Published(
        "flash-attn main at c082294, hopper/flash_attn_interface.py",
        ("flash_attn_interface", "flash_attn_with_kvcache"),
        "q, k_cache, v_cache, k=None, v=None, qv=None, rotary_cos=None, rotary_sin=None, "
        "cache_seqlens=None, cache_batch_idx=None, cache_leftpad=None, page_table=None, "
        "cu_seqlens_q=None, cu_seqlens_k_new=None, max_seqlen_q=None, rotary_seqlens=None, "
        "q_descale=None, k_descale=None, v_descale=None, softmax_scale=None, causal=False, "
        "window_size=(-1, -1), attention_chunk=0, softcap=0.0, rotary_interleaved=True, "
        "scheduler_metadata=None, num_splits=0, pack_gqa=None, sm_margin=0, return_softmax_lse=False",
    ),
    "flash_attn_4_varlen": Published(
        "flash-attn-4 4.0.0b36, flash_attn/cute/interface.py",
        ("flash_attn.cute", "flash_attn_varlen_func"),
        "q, k, v, qv=None, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None, "
        "min_seqlen_k=None, seqused_q=None, seqused_k=None, gather_kv_indices=None, page_table=None, "
        "softmax_scale=None, causal=False, window_size=(None, None), learnable_sink=None, softcap=0.0, "
        "num_splits=1, pack_gqa=None, deterministic=False, score_mod=None, score_mod_bwd=None, "
        "mask_mod=None, block_sparse_tensors=None, aux_tensors=None, aux_scalars=None, return_lse=False, "
        "scheduler_metadata=None, seqlen_k_per_split=None, disable_scheduler_metadata=False, "
        "gather_bwd_recompute_p=False, gather_bwd_token_chunk=None",
    ),
    "flashinfer_ragged.__init__": Published(
        "flashinfer-python 0.7.4, flashinfer/prefill.py",
        ("flashinfer", "BatchPrefillWithRaggedKVCacheWrapper.__init__"),
        "self, float_workspace_buffer, kv_layout='NHD', use_cuda_graph=False, qo_indptr_buf=None, "
        "kv_indptr_buf=None, custom_mask_buf=None, mask_indptr_buf=None, backend='auto', jit_args=None, "
        "jit_kwargs=None, variant_owns_mask=False",
    ),
    "flashinfer_ragged.plan": Published(
        "flashinfer-python 0.7.4, flashinfer/prefill.py",
        ("flashinfer", "BatchPrefillWithRaggedKVCacheWrapper.plan"),
        "self, qo_indptr, kv_indptr, num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo=None, "
        "custom_mask=None, packed_custom_mask=None, causal=False, pos_encoding_mode='NONE', "
        "use_fp16_qk_reduction=False, window_left=-1, logits_soft_cap=None, sm_scale=None, "
        "rope_scale=None, rope_theta=None, q_data_type='float16', kv_data_type=None, o_data_type=None, "
        "non_blocking=True, prefix_len_ptr=None, token_pos_in_items_ptr=None, token_pos_in_items_len=0, "
        "max_item_len_ptr=None, fixed_split_size=None, disable_split_kv=False, seq_lens=None, "
        "seq_lens_q=None, max_token_per_sequence=None, max_sequence_kv=None, v_indptr=None, "
        "o_indptr=None, qo_indptr_cpu=None, kv_indptr_cpu=None, uniform_q_len=None, "
        "use_token_head_sf=False",
    ),
    "flashinfer_ragged.run": Published(
        "flashinfer-python 0.7.4, flashinfer/prefill.py",
        ("flashinfer", "BatchPrefillWithRaggedKVCacheWrapper.run"),
        "self, q, k, v, *args, q_scale=None, k_scale=None, v_scale=None, o_scale=None, out=None, "
        "lse=None, return_lse=False, lse_base='log2', lse_layout='NH', enable_pdl=None, kv_cache_sf=None",
    ),
    "flashinfer_paged.__init__": Published(
        "flashinfer-python 0.7.4, flashinfer/prefill.py",
        ("flashinfer", "BatchPrefillWithPagedKVCacheWrapper.__init__"),
        "self, float_workspace_buffer, kv_layout='NHD', use_cuda_graph=False, qo_indptr_buf=None, "
        "paged_kv_indptr_buf=None, paged_kv_indices_buf=None, paged_kv_last_page_len_buf=None, "
        "custom_mask_buf=None, mask_indptr_buf=None, backend='auto', jit_args=None, jit_kwargs=None, "
        "variant_owns_mask=False, max_total_num_rows=None",
    ),
    "flashinfer_paged.plan": Published(
        "flashinfer-python 0.7.4, flashinfer/prefill.py",
        ("flashinfer", "BatchPrefillWithPagedKVCacheWrapper.plan"),
        "self, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads, "
        "num_kv_heads, head_dim_qk, page_size, head_dim_vo=None, custom_mask=None, "
        "packed_custom_mask=None, causal=False, pos_encoding_mode='NONE', use_fp16_qk_reduction=False, "
        "sm_scale=None, window_left=-1, logits_soft_cap=None, rope_scale=None, rope_theta=None, "
        "q_data_type='float16', kv_data_type=None, o_data_type=None, non_blocking=True, "
        "prefix_len_ptr=None, token_pos_in_items_ptr=None, token_pos_in_items_len=0, "
        "max_item_len_ptr=None, seq_lens=None, seq_lens_q=None, block_tables=None, "
        "max_token_per_sequence=None, max_sequence_kv=None, fixed_split_size=None, "
        "disable_split_kv=False, uniform_q_len=None, use_token_head_sf=False",
    ),
    "flashinfer_paged.run": Published(
        "flashinfer-python 0.7.4, flashinfer/prefill.py",
        ("flashinfer", "BatchPrefillWithPagedKVCacheWrapper.run"),
        "self, q, paged_kv_cache, *args, q_scale=None, k_scale=None, v_scale=None, out=None, lse=None, "
        "return_lse=False, lse_base='log2', lse_layout='NH', enable_pdl=None, window_left=None, "
        "sinks=None, kv_cache_sf=None, skip_softmax_threshold_scale_factor=None, use_fp16_softmax=None, "
        "uses_spcompress=None",
    ),
    "flashinfer_decode.__init__": Published(
        "flashinfer-python 0.7.4, flashinfer/decode.py",
        ("flashinfer", "BatchDecodeWithPagedKVCacheWrapper.__init__"),
        "self, float_workspace_buffer, kv_layout='NHD', use_cuda_graph=False, use_tensor_cores=False, "
        "paged_kv_indptr_buffer=None, paged_kv_indices_buffer=None, paged_kv_last_page_len_buffer=None, "
        "backend='auto', jit_args=None, jit_kwargs=None",
    ),
    "flashinfer_decode.plan": Published(
        "flashinfer-python 0.7.4, flashinfer/decode.py",
        ("flashinfer", "BatchDecodeWithPagedKVCacheWrapper.plan"),
        "self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, "
        "*deprecated_positional_args, **kwargs",
    ),
    "flashinfer_decode.run": Published(
        "flashinfer-python 0.7.4, flashinfer/decode.py",
        ("flashinfer", "BatchDecodeWithPagedKVCacheWrapper.run"),
        "self, q, paged_kv_cache, *args, q_scale=None, k_scale=None, v_scale=None, out=None, lse=None, "
        "return_lse=False, enable_pdl=None, window_left=None, sinks=None, q_len_per_req=None, "
        "skip_softmax_threshold_scale_factor=None, kv_cache_sf=None",
    ),
    "flashinfer_gated_delta": Published(
        "flashinfer-python 0.7.4, flashinfer/gdn_prefill.py",
        ("flashinfer", "chunk_gated_delta_rule"),
        "q, k, v, g=None, beta=None, scale=None, initial_state=None, output_final_state=False, "
        "cu_seqlens=None, use_qk_l2norm_in_kernel=False, output=None, output_state=None, "
        "state_checkpoints=None, checkpoint_cu_starts=None, checkpoint_every_n_tokens=0, use_cp='auto', "
        "state_indices=None, _cp_chunk_len=None, backend='auto', max_seqlen=None, *, "
        "gate_domain='linear', use_gate_in_kernel=False, A_log=None, dt_bias=None, beta_is_logit=False, "
        "cu_seqlens_cpu=None, output_state_indices=None, checkpoint_state_indices=None, prefix_lens=None",
    ),
    "BlockDiagonalMask.from_seqlens": Published(
        "xformers 0.0.35, xformers/ops/fmha/attn_bias.py",
        ("xformers.ops.fmha.attn_bias", "BlockDiagonalMask.from_seqlens"),
        "q_seqlen, kv_seqlen=None, *, device=None",
    ),
    "PagedBlockDiagonalPaddedKeysMask.from_seqlens": Published(
        "xformers 0.0.35, xformers/ops/fmha/attn_bias.py",
        ("xformers.ops.fmha.attn_bias", "PagedBlockDiagonalPaddedKeysMask.from_seqlens"),
        "q_seqlen, kv_seqlen, block_tables, page_size, *, device=None",
    ),
    "chunk_simple_gla": Published(
        "fla-core 0.6.0, fla/ops/simple_gla/chunk.py",
        ("fla.ops.simple_gla", "chunk_simple_gla"),
        "q, k, v, g=None, g_gamma=None, scale=None, initial_state=None, output_final_state=False, "
        "state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None, **kwargs",
    ),
    "fused_recurrent_simple_gla": Published(
        "fla-core 0.6.0, fla/ops/simple_gla/fused_recurrent.py",
        ("fla.ops.simple_gla", "fused_recurrent_simple_gla"),
        "q, k, v, g=None, g_gamma=None, scale=None, initial_state=None, output_final_state=False, "
        "reverse=False, state_v_first=False, cu_seqlens=None, **kwargs",
    ),
    "chunk_delta_rule": Published(
        "fla-core 0.6.0, fla/ops/delta_rule/chunk.py",
        ("fla.ops.delta_rule", "chunk_delta_rule"),
        "q, k, v, beta, scale=None, initial_state=None, output_final_state=False, "
        "use_qk_l2norm_in_kernel=False, cu_seqlens=None, cu_seqlens_cpu=None, **kwargs",
    ),
    "fused_recurrent_delta_rule": Published(
        "fla-core 0.6.0, fla/ops/delta_rule/fused_recurrent.py",
        ("fla.ops.delta_rule", "fused_recurrent_delta_rule"),
        "q, k, v, beta=None, scale=None, initial_state=None, output_final_state=False, "
        "use_qk_l2norm_in_kernel=False, cu_seqlens=None",
    ),
    "chunk_gated_delta_rule": Published(
        "fla-core 0.6.0, fla/ops/gated_delta_rule/chunk.py",
        ("fla.ops.gated_delta_rule", "chunk_gated_delta_rule"),
        "q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False, "
        "use_qk_l2norm_in_kernel=False, use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, "
        "state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None, chunk_indices=None, cp_context=None, "
        "**kwargs",
    ),
    "fused_recurrent_gated_delta_rule": Published(
        "fla-core 0.6.0, fla/ops/gated_delta_rule/fused_recurrent.py",
        ("fla.ops.gated_delta_rule", "fused_recurrent_gated_delta_rule"),
        "q, k, v, g=None, gk=None, gv=None, beta=None, scale=None, initial_state=None, "
        "output_final_state=False, use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, A_log=None, "
        "dt_bias=None, use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, state_v_first=False, "
        "cu_seqlens=None, **kwargs",
    ),
    "chunk_kda": Published(
        "fla-core 0.6.0, fla/ops/kda/chunk.py",
        ("fla.ops.kda", "chunk_kda"),
        "q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False, "
        "use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, use_beta_sigmoid_in_kernel=False, "
        "allow_neg_eigval=False, safe_gate=False, lower_bound=None, disable_recompute=False, "
        "return_intermediate_states=False, state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None, "
        "cp_context=None, use_graph=False, max_num_seqs=None, **kwargs",
    ),
    "fused_recurrent_kda": Published(
        "fla-core 0.6.0, fla/ops/kda/fused_recurrent.py",
        ("fla.ops.kda", "fused_recurrent_kda"),
        "q, k, v, g, beta, A_log=None, dt_bias=None, scale=None, initial_state=None, "
        "output_final_state=False, use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, "
        "use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, lower_bound=None, state_v_first=False, "
        "cu_seqlens=None, **kwargs",
    ),
    "chunk_rwkv7": Published(
        "fla-core 0.6.0, fla/ops/rwkv7/chunk.py",
        ("fla.ops.rwkv7", "chunk_rwkv7"),
        "r, w, k, v, a, b, scale=1.0, initial_state=None, output_final_state=False, cu_seqlens=None, "
        "cu_seqlens_cpu=None, safe_gate=False, chunk_size=None, disable_recompute=False, cp_context=None, "
        "lower_bound=None",
    ),
    "fused_recurrent_rwkv7": Published(
        "fla-core 0.6.0, fla/ops/rwkv7/fused_recurrent.py",
        ("fla.ops.rwkv7", "fused_recurrent_rwkv7"),
        "r, w, k, v, a, b, scale=None, initial_state=None, output_final_state=True, cu_seqlens=None",
    ),
    "mamba_chunk_scan": Published(
        "mamba-ssm 2.3.2.post1, mamba_ssm/ops/triton/ssd_combined.py",
        ("mamba_ssm.ops.triton.ssd_combined", "mamba_chunk_scan_combined"),
        "x, dt, A, B, C, chunk_size, D=None, z=None, dt_bias=None, initial_states=None, seq_idx=None, "
        "cu_seqlens=None, dt_softplus=False, dt_limit=(0.0, inf), return_final_states=False, "
        "return_varlen_states=False",
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
        function: Callable[..., Any] = reduce(getattr, attribute.split("."), import_module(module))
    except Exception:
        return None
    return function
