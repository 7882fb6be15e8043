"""Stand-ins for the functions of packed sequences and pages, with their published signatures.

Sources and releases are those of ``published.py``. Like :mod:`stand_ins` they compute in float64, refuse
what the library refuses, and give NaN where it leaves a number open.

"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import Any, ClassVar

import torch
from stand_ins import HALF, NAN, attend, expect, positions, within
from torch import Tensor


def starts(x: Tensor, count: int | None = None, dtype: torch.dtype = torch.int32) -> list[int]:
    """What cumulative lengths say, as numbers; a library takes them contiguous in one dtype."""
    expect(x.dim() == 1 and x.dtype == dtype and x.is_contiguous(), "cumulative lengths")
    found = x.tolist()
    expect(found[0] == 0 and found == sorted(found) and count in (None, found[-1]), "cumulative lengths")
    return found


def lengths(x: Tensor, count: int) -> list[int]:
    expect(x.shape == (count,) and x.dtype == torch.int32 and x.is_contiguous(), "lengths")
    return x.tolist()


def parts(x: Tensor, begins: Sequence[int]) -> list[Tensor]:
    return [x[start:end] for start, end in pairwise(begins)]


def pages(cache: Tensor, table: Tensor, used: Sequence[int]) -> Iterator[Tensor]:
    """The keys of each sequence, (L, Hkv, D), from a cache of pages."""
    expect(cache.dim() == 4 and cache.stride(-1) == 1, "a cache is (pages, page, Hkv, D)")
    expect(table.dtype == torch.int32 and table.stride(-1) == 1 and len(table) == len(used), "block_table")
    for row, length in zip(table.tolist(), used, strict=True):
        own = row[: -(-length // cache.shape[1])]
        expect(len(own) * cache.shape[1] >= length, "block_table is too narrow")
        yield cache[own].flatten(0, 1)[:length]


def same(*tensors: Tensor, dtypes: Sequence[torch.dtype] = HALF) -> None:
    expect(len({x.dtype for x in tensors}) == 1 and tensors[0].dtype in dtypes, "dtypes")
    expect(all(x.stride(-1) == 1 for x in tensors), "the last axis must be contiguous")


def each(
    queries: Sequence[Tensor], keys: Sequence[Tensor], values: Sequence[Tensor], scale: float,
    left: int | None, right: int | None, *, slopes: Tensor | None = None, **more: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Attention of each sequence: (T, H, Dv), and the natural log-sum-exp (H, T), -inf without a key."""
    outs, sums = [], []
    for q, k, v in zip(queries, keys, values, strict=True):
        distance = positions(len(q), len(k))
        added = None if slopes is None else -slopes.double()[:, None, None] * distance.abs()
        keep = within(distance, left, right)
        out, lse = attend(q[None], k[None], v[None], scale, keep, added=added, lse=True, **more)
        outs.append(out[0])
        sums.append(lse[0].float())
    return torch.cat(outs), torch.cat(sums, -1)


def ends(window: Sequence[int | None], causal: bool, endless: int | None) -> tuple[int | None, int | None]:
    left, right = (None if end == endless else end for end in window)
    return left, 0 if causal else right


def _slopes(slopes: Tensor | None, heads: int) -> None:
    if slopes is not None:
        expect(slopes.dtype == torch.float32 and not slopes.requires_grad, "alibi_slopes")
        expect(slopes.shape == (heads,), "alibi_slopes")


def _flipped(lse: Tensor) -> Tensor:
    return lse.masked_fill(lse == -torch.inf, torch.inf)


def flash_attn_2_varlen(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None,
    causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False,
    return_attn_probs=False, block_table=None,
):  # fmt: skip
    same(q, k, v)
    expect(q.shape[-1] <= 256 and q.shape[-1] == v.shape[-1], "head_size")
    _slopes(alibi_slopes, q.shape[1])
    begins = starts(cu_seqlens_q, len(q))
    count = [end - start for start, end in pairwise(begins)]
    expect(max_seqlen_q >= max(count), "max_seqlen_q")
    windows = tuple(window_size) != (-1, -1)
    if max_seqlen_q == 1 and q.shape[1] > k.shape[-2] and not windows and alibi_slopes is None:
        expect(len(q) == len(count), "shape is invalid for input: one query of each sequence")
    if block_table is None:
        own = starts(cu_seqlens_k, len(k))
        keys, values = parts(k, own), parts(v, own)
    else:
        expect(k.shape[1] % 256 == 0, "Paged KV cache block size must be divisible by 256")
        expect(not any(x.requires_grad for x in (q, k, v)), "no gradient with a block_table")
        used = cu_seqlens_k.diff().tolist()
        starts(cu_seqlens_k)
        keys, values = (list(pages(x, block_table, used)) for x in (k, v))
    expect(max_seqlen_k >= max(map(len, keys)), "max_seqlen_k")
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    more = {"slopes": alibi_slopes, "cap": softcap, "empty": 0.0}
    out, lse = each(parts(q, begins), keys, values, scale, *ends(window_size, causal, -1), **more)
    return (out, _flipped(lse), None) if return_attn_probs else out


def flash_attn_2_kvcache(
    q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None,
    cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None, causal=False,
    window_size=(-1, -1), softcap=0.0, rotary_interleaved=True, alibi_slopes=None, num_splits=0,
    return_softmax_lse=False,
):  # fmt: skip
    same(q, k_cache, v_cache)
    expect(q.dim() == 4 and q.shape[-1] <= 256 and k is None and v is None, "q is (N, Lq, H, D)")
    expect(k_cache.shape[1] % 256 == 0, "Paged KV cache block size must be divisible by 256")
    _slopes(alibi_slopes, q.shape[2])
    used = lengths(cache_seqlens, len(q))
    keys, values = (list(pages(x, block_table, used)) for x in (k_cache, v_cache))
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    more = {"slopes": alibi_slopes, "cap": softcap, "empty": 0.0}
    out, lse = each(list(q), keys, values, scale, *ends(window_size, causal, -1), **more)
    lse = lse.unflatten(1, q.shape[:2]).transpose(0, 1).contiguous()
    out = out.unflatten(0, q.shape[:2])
    return (out, _flipped(lse)) if return_softmax_lse else out


def _hopper(q: Tensor, v: Tensor) -> None:
    D, Dv = q.shape[-1], v.shape[-1]
    expect(D % 8 == 0 and Dv % 8 == 0 and max(D, Dv) <= 512, "head_size should be a multiple of 8")
    if Dv != D:
        expect(D <= 64 or (128 < D <= 192 and 96 < Dv <= 128), "V headdim")


def flash_attn_3_varlen(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q=None, seqused_k=None,
    softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None, v_descale=None,
    window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1, pack_gqa=None,
    deterministic=False, sm_margin=0, return_attn_probs=False,
):  # fmt: skip
    same(q, k, v)
    _hopper(q, v)
    begins, own = starts(cu_seqlens_q, len(q)), starts(cu_seqlens_k, len(k))
    queries, keys = parts(q, begins), parts(k, own)
    expect(max_seqlen_q >= max(map(len, queries)) and max_seqlen_k >= max(map(len, keys)), "max_seqlen")
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    window = ends(window_size, causal, -1)
    out, lse = each(queries, keys, parts(v, own), scale, *window, cap=softcap, empty=0.0)
    return (out, lse) if return_attn_probs else out


def flash_attn_3_kvcache(
    q, k_cache, v_cache, k=None, v=None, qv=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None,
    cache_batch_idx=None, cache_leftpad=None, page_table=None, cu_seqlens_q=None, cu_seqlens_k_new=None,
    max_seqlen_q=None, rotary_seqlens=None, q_descale=None, k_descale=None, v_descale=None,
    softmax_scale=None, causal=False, window_size=(-1, -1), attention_chunk=0, softcap=0.0,
    rotary_interleaved=True, scheduler_metadata=None, num_splits=0, pack_gqa=None, sm_margin=0,
    return_softmax_lse=False,
):  # fmt: skip
    same(q, k_cache, v_cache)
    _hopper(q, v_cache)
    queries = parts(q, starts(cu_seqlens_q, len(q)))
    expect(k is None and max_seqlen_q >= max(map(len, queries)), "max_seqlen_q")
    used = lengths(cache_seqlens, len(queries))
    keys, values = (list(pages(x, page_table, used)) for x in (k_cache, v_cache))
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    out, lse = each(queries, keys, values, scale, *ends(window_size, causal, -1), cap=softcap, empty=0.0)
    return (out, lse, None, None) if return_softmax_lse else out


def flash_attn_4_varlen(
    q, k, v, qv=None, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None,
    min_seqlen_k=None, seqused_q=None, seqused_k=None, gather_kv_indices=None, page_table=None,
    softmax_scale=None, causal=False, window_size=(None, None), learnable_sink=None, softcap=0.0,
    num_splits=1, pack_gqa=None, deterministic=False, score_mod=None, score_mod_bwd=None, mask_mod=None,
    block_sparse_tensors=None, aux_tensors=None, aux_scalars=None, return_lse=False,
    scheduler_metadata=None, seqlen_k_per_split=None, disable_scheduler_metadata=False,
    gather_bwd_recompute_p=False, gather_bwd_token_chunk=None,
):  # fmt: skip
    same(q, k, v)
    D, Dv = q.shape[-1], v.shape[-1]
    expect(D % 8 == 0 and Dv % 8 == 0, "head_dim")
    expect((8 <= D <= 128 and 8 <= Dv <= 128) or (D, Dv) in ((192, 128), (256, 256)), "head_dim")
    queries = parts(q, starts(cu_seqlens_q, len(q)))
    if page_table is None:
        own = starts(cu_seqlens_k, len(k))
        keys, values = parts(k, own), parts(v, own)
    else:
        expect(cu_seqlens_k is None, "page_table is not supported with cu_seqlens_k")
        used = lengths(seqused_k, len(queries))
        whole = [-(-length // k.shape[1]) * k.shape[1] for length in used]
        loaded = [x for cache in (k, v) for x in pages(cache, page_table, whole)]
        expect(all(bool(x.isfinite().all()) for x in loaded), "rows past seqused_k must be finite")
        keys, values = (list(pages(x, page_table, used)) for x in (k, v))
    scale = D**-0.5 if softmax_scale is None else softmax_scale
    more = {"cap": softcap, "sink": learnable_sink}
    out, lse = each(queries, keys, values, scale, *ends(window_size, causal, None), **more)
    if learnable_sink is not None:
        lse = torch.logaddexp(lse, learnable_sink.float()[:, None])
    return out, lse if return_lse or q.requires_grad else None


class Wrapper:
    """What FlashInfer's wrappers share: plans in buffers of the caller's."""

    planned: dict[str, Any]

    def _made(self, workspace: Tensor, kv_layout: str, graph: bool, **buffers: Tensor | None) -> None:
        expect(workspace.dtype == torch.uint8 and workspace.numel() >= 1 << 20, "the workspace is of bytes")
        expect(workspace.data_ptr() % 16 == 0 and kv_layout == "NHD", "the workspace is aligned")
        expect(all(x is not None for x in buffers.values()) or not graph, "buffers in CUDA graph mode")
        self.buffers = {name: x for name, x in buffers.items() if x is not None}

    def _written(self, **given: Tensor) -> dict[str, list[int]]:
        """Each plan is in int32; in CUDA graph mode it is written into a buffer that it fits in."""
        for name, x in given.items():
            expect(x.dtype == torch.int32 and x.dim() == 1, name)
            if name in self.buffers:
                own = self.buffers[name]
                expect(own.dtype == x.dtype and len(x) <= len(own), f"the buffer of {name}")
                expect(name == "indices" or len(x) == len(own), f"the batch size of {name} is fixed")
                own[: len(x)].copy_(x)
        return {name: x.tolist() for name, x in given.items()}

    def _paged(self, indptr: list[int], indices: list[int], last: list[int], page: int) -> None:
        expect(all(1 <= length <= page for length in last), "last_page_len is from 1 to a page")
        rows = [indices[a:b] for a, b in pairwise(indptr)]
        expect(all(rows) and len(rows) == len(last) and indptr[-1] == len(indices), "indptr")
        self.rows = [(row, (len(row) - 1) * page + length) for row, length in zip(rows, last, strict=True)]

    def _gathered(self, caches: tuple[Tensor, Tensor], page: int) -> list[list[Tensor]]:
        expect(all(x.dim() == 4 and x.shape[1] == page for x in caches), "a cache is (pages, page, Hkv, D)")
        return [[x[row].flatten(0, 1)[:length] for row, length in self.rows] for x in caches]

    def _attend(self, queries: list[Tensor], keys: list[Tensor], values: list[Tensor]) -> Any:
        of = self.planned
        q, k = queries[0], keys[0]
        same(q, k, values[0])
        expect(of["q_data_type"] in (q.dtype, str(q.dtype)[6:]), "the planned dtype")
        expect((q.shape[1], k.shape[1], q.shape[2]) == of["sizes"], "the planned heads")
        expect(q.shape[-1] in (64, 128, 256) and q.shape[-1] == values[0].shape[-1], "head_dim")
        scale = q.shape[-1] ** -0.5 if of["sm_scale"] is None else of["sm_scale"]
        left = None if of["window_left"] < 0 else of["window_left"]
        window = left, 0 if of["causal"] else None
        out, lse = each(queries, keys, values, scale, *window, cap=of["logits_soft_cap"] or 0.0)
        return out.detach(), lse.T.contiguous()


def _in_base(lse: Tensor, lse_base: str) -> Tensor:
    expect(lse_base in ("log2", "ln"), "lse_base")
    return lse if lse_base == "ln" else lse / log(2)


class Ragged(Wrapper):
    def __init__(
        self, float_workspace_buffer, kv_layout="NHD", use_cuda_graph=False, qo_indptr_buf=None,
        kv_indptr_buf=None, custom_mask_buf=None, mask_indptr_buf=None, backend="auto", jit_args=None,
        jit_kwargs=None, variant_owns_mask=False,
    ) -> None:  # fmt: skip
        buffers = {"qo_indptr": qo_indptr_buf, "kv_indptr": kv_indptr_buf}
        self._made(float_workspace_buffer, kv_layout, use_cuda_graph, **buffers)

    def plan(
        self, qo_indptr, kv_indptr, num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo=None,
        custom_mask=None, packed_custom_mask=None, causal=False, pos_encoding_mode="NONE",
        use_fp16_qk_reduction=False, window_left=-1, logits_soft_cap=None, sm_scale=None,
        rope_scale=None, rope_theta=None, q_data_type="float16", kv_data_type=None, o_data_type=None,
        non_blocking=True, prefix_len_ptr=None, token_pos_in_items_ptr=None, token_pos_in_items_len=0,
        max_item_len_ptr=None, fixed_split_size=None, disable_split_kv=False, seq_lens=None,
        seq_lens_q=None, max_token_per_sequence=None, max_sequence_kv=None, v_indptr=None,
        o_indptr=None, qo_indptr_cpu=None, kv_indptr_cpu=None, uniform_q_len=None,
        use_token_head_sf=False,
    ):  # fmt: skip
        self.begins = self._written(qo_indptr=qo_indptr, kv_indptr=kv_indptr)
        sizes = num_qo_heads, num_kv_heads, head_dim_qk
        self.planned = {
            "sizes": sizes, "causal": causal, "window_left": window_left, "q_data_type": q_data_type,
            "logits_soft_cap": logits_soft_cap, "sm_scale": sm_scale,
        }  # fmt: skip

    def run(
        self, q, k, v, *args, q_scale=None, k_scale=None, v_scale=None, o_scale=None, out=None,
        lse=None, return_lse=False, lse_base="log2", lse_layout="NH", enable_pdl=None, kv_cache_sf=None,
    ):  # fmt: skip
        queries, own = self.begins["qo_indptr"], self.begins["kv_indptr"]
        expect(len(q) == queries[-1] and len(k) == len(v) == own[-1], "q.shape[0] does not match qo_indptr")
        found, sums = self._attend(parts(q, queries), parts(k, own), parts(v, own))
        return (found, _in_base(sums, lse_base)) if return_lse else found


class Paged(Wrapper):
    def __init__(
        self, float_workspace_buffer, kv_layout="NHD", use_cuda_graph=False, qo_indptr_buf=None,
        paged_kv_indptr_buf=None, paged_kv_indices_buf=None, paged_kv_last_page_len_buf=None,
        custom_mask_buf=None, mask_indptr_buf=None, backend="auto", jit_args=None, jit_kwargs=None,
        variant_owns_mask=False, max_total_num_rows=None,
    ) -> None:  # fmt: skip
        buffers = {
            "qo_indptr": qo_indptr_buf, "indptr": paged_kv_indptr_buf, "indices": paged_kv_indices_buf,
            "last": paged_kv_last_page_len_buf,
        }  # fmt: skip
        self._made(float_workspace_buffer, kv_layout, use_cuda_graph, **buffers)

    def plan(
        self, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads,
        num_kv_heads, head_dim_qk, page_size, head_dim_vo=None, custom_mask=None,
        packed_custom_mask=None, causal=False, pos_encoding_mode="NONE", use_fp16_qk_reduction=False,
        sm_scale=None, window_left=-1, logits_soft_cap=None, rope_scale=None, rope_theta=None,
        q_data_type="float16", kv_data_type=None, o_data_type=None, non_blocking=True,
        prefix_len_ptr=None, token_pos_in_items_ptr=None, token_pos_in_items_len=0,
        max_item_len_ptr=None, seq_lens=None, seq_lens_q=None, block_tables=None,
        max_token_per_sequence=None, max_sequence_kv=None, fixed_split_size=None,
        disable_split_kv=False, uniform_q_len=None, use_token_head_sf=False,
    ):  # fmt: skip
        told = {"indptr": paged_kv_indptr, "indices": paged_kv_indices, "last": paged_kv_last_page_len}
        given = self._written(qo_indptr=qo_indptr, **told)
        self.begins, self.page = given.pop("qo_indptr"), page_size
        self._paged(**given, page=page_size)
        sizes = num_qo_heads, num_kv_heads, head_dim_qk
        self.planned = {
            "sizes": sizes, "causal": causal, "window_left": window_left, "q_data_type": q_data_type,
            "logits_soft_cap": logits_soft_cap, "sm_scale": sm_scale,
        }  # fmt: skip

    def run(
        self, q, paged_kv_cache, *args, q_scale=None, k_scale=None, v_scale=None, out=None, lse=None,
        return_lse=False, lse_base="log2", lse_layout="NH", enable_pdl=None, window_left=None,
        sinks=None, kv_cache_sf=None, skip_softmax_threshold_scale_factor=None, use_fp16_softmax=None,
        uses_spcompress=None,
    ):  # fmt: skip
        expect(len(q) == self.begins[-1], "q.shape[0] does not match qo_indptr")
        found, sums = self._attend(parts(q, self.begins), *self._gathered(paged_kv_cache, self.page))
        return (found, _in_base(sums, lse_base)) if return_lse else found


DECODE_PLAN = {
    "pos_encoding_mode",
    "window_left",
    "logits_soft_cap",
    "q_data_type",
    "kv_data_type",
    "sm_scale",
}
"""Some of the named arguments that decode's ``plan`` documents."""


class Decode(Wrapper):
    def __init__(
        self, float_workspace_buffer, kv_layout="NHD", use_cuda_graph=False, use_tensor_cores=False,
        paged_kv_indptr_buffer=None, paged_kv_indices_buffer=None, paged_kv_last_page_len_buffer=None,
        backend="auto", jit_args=None, jit_kwargs=None,
    ) -> None:  # fmt: skip
        buffers = {
            "indptr": paged_kv_indptr_buffer, "indices": paged_kv_indices_buffer,
            "last": paged_kv_last_page_len_buffer,
        }  # fmt: skip
        self.cores = use_tensor_cores
        self._made(float_workspace_buffer, kv_layout, use_cuda_graph, **buffers)

    def plan(
        self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size,
        *deprecated_positional_args, **kwargs,
    ):  # fmt: skip
        expect(not deprecated_positional_args and kwargs.keys() <= DECODE_PLAN, "arguments of plan")
        self._paged(**self._written(indptr=indptr, indices=indices, last=last_page_len), page=page_size)
        expect(self.cores or num_qo_heads // num_kv_heads in (1, 2, 3, 4, 8), "group size")
        self.page = page_size
        defaults = {"window_left": -1, "logits_soft_cap": None, "sm_scale": None, "q_data_type": "float16"}
        sizes = num_qo_heads, num_kv_heads, head_dim
        self.planned = defaults | kwargs | {"sizes": sizes, "causal": False}

    def run(
        self, q, paged_kv_cache, *args, q_scale=None, k_scale=None, v_scale=None, out=None, lse=None,
        return_lse=False, enable_pdl=None, window_left=None, sinks=None, q_len_per_req=None,
        skip_softmax_threshold_scale_factor=None, kv_cache_sf=None,
    ):  # fmt: skip
        expect(len(q) == len(self.rows), "one query of each request")
        found, sums = self._attend(list(q[:, None]), *self._gathered(paged_kv_cache, self.page))
        return (found, _in_base(sums, "log2")) if return_lse else found


@dataclass
class BlockDiagonalMask:
    queries: list[int]
    keys: list[int]
    device: Any
    window: tuple[int | None, int | None] = (None, None)

    @classmethod
    def from_seqlens(cls, q_seqlen, kv_seqlen=None, *, device=None):
        expect(all(isinstance(x, list) for x in (q_seqlen, kv_seqlen)), "lengths are lists")
        return cls(q_seqlen, kv_seqlen, device)

    def _causal(self, left: int | None) -> BlockDiagonalMask:
        for queries, keys in zip(self.queries, self.keys, strict=True):
            expect(keys >= queries, "Expected `num_keys >= num_queries`")
        return BlockDiagonalMask(self.queries, self.keys, self.device, (left, 0))

    def make_causal_from_bottomright(self) -> BlockDiagonalMask:
        return self._causal(None)

    def make_local_attention_from_bottomright(self, window_size: int) -> BlockDiagonalMask:
        expect(window_size > 0, "window_size")
        return self._causal(window_size - 1)

    def split(self, k: Tensor) -> list[Tensor]:
        return list(k.split(self.keys))


@dataclass
class PagedBlockDiagonalPaddedKeysMask:
    queries: list[int]
    keys: list[int]
    block_tables: Tensor
    page_size: int
    window: ClassVar[tuple[int | None, int | None]] = (None, None)

    @classmethod
    def from_seqlens(cls, q_seqlen, kv_seqlen, block_tables, page_size, *, device=None):
        expect(len(q_seqlen) == len(kv_seqlen) == len(block_tables), "lengths")
        return cls(q_seqlen, kv_seqlen, block_tables, page_size)

    def split(self, k: Tensor) -> list[Tensor]:
        expect(self.page_size % 256 == 0, "Paged KV cache block size must be divisible by 256")
        return list(pages(k.unflatten(0, (-1, self.page_size)), self.block_tables, self.keys))


@dataclass
class PagedBlockDiagonalCausalWithOffsetPaddedKeysMask(PagedBlockDiagonalPaddedKeysMask):
    window: ClassVar[tuple[int | None, int | None]] = (None, 0)


SEQUENCES = (
    BlockDiagonalMask, PagedBlockDiagonalPaddedKeysMask, PagedBlockDiagonalCausalWithOffsetPaddedKeysMask,
)  # fmt: skip


def xformers_of_sequences(q: Tensor, k: Tensor, v: Tensor, mask: Any, scale: float) -> Tensor:
    """What xFormers gives under a mask of sequences, of (1, T, H, D)."""
    expect(len(q) == len(k) == len(v) == 1 and q.shape[1] == sum(mask.queries), "one batch entry")
    queries, keys, values = list(q[0].split(mask.queries)), mask.split(k[0]), mask.split(v[0])
    return each(queries, keys, values, scale, *mask.window, empty=NAN)[0][None]


FUNCTIONS = {
    "flash_attn_2_varlen": flash_attn_2_varlen,
    "flash_attn_2_kvcache": flash_attn_2_kvcache,
    "flash_attn_3_varlen": flash_attn_3_varlen,
    "flash_attn_3_kvcache": flash_attn_3_kvcache,
    "flash_attn_4_varlen": flash_attn_4_varlen,
    "flashinfer_ragged": Ragged,
    "flashinfer_paged": Paged,
    "flashinfer_decode": Decode,
    "BlockDiagonalMask": BlockDiagonalMask,
    "PagedBlockDiagonalPaddedKeysMask": PagedBlockDiagonalPaddedKeysMask,
}
