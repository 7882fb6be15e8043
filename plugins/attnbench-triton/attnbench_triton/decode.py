"""Few queries and many keys: programs share the keys of a head, and a second kernel merges their results.

All queries of all heads that share a key/value head are rows of one block, so that its keys are read once.
Dao et al. 2023, Flash-Decoding for long-context inference.
"""

import triton
import triton.language as tl

from attnbench_triton.forward import attend
from attnbench_triton.pieces import LOG2_E, LOWEST, SIZES, named, spans

SPLITS_AT_ONCE = tl.constexpr(16)


@triton.jit(repr=named("triton_decode"), do_not_specialize=SIZES)
def decode_kernel(
    q, k, v, parts, sums, lengths, table, slopes,
    q_b, q_h, q_i, k_b, k_h, k_j, v_b, v_h, v_j, table_b, table_h, table_i,
    B, Hkv, group, Lq, Lk, offset, before, after, scale, cap, splits,
    D: tl.constexpr, DV: tl.constexpr, D_BLOCK: tl.constexpr, DV_BLOCK: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, WARPS: tl.constexpr, STAGES: tl.constexpr,
) -> None:  # fmt: skip
    """Write outputs over one split of the keys to ``parts`` (B, H, Lq, splits, DV), log-sum-exps to ``sums``.

    ``sums`` (B, H, Lq, splits) are in base 2, without the sink, and LOWEST for a split without a kept key.
    """
    split = tl.program_id(0) % splits
    shared = (tl.program_id(0) // splits).to(tl.int64)
    b, h = shared // Hkv, shared % Hkv
    # Row r is query i of head g of the group.
    rows = tl.arange(0, M)
    g, i, used = rows // Lq, rows % Lq, rows < group * Lq
    high = Lk
    if lengths is not None:
        high = tl.load(lengths + b)
    slope = 0.0
    if slopes is not None:
        slope = (tl.load(slopes + h * group + g, used, other=0.0).to(tl.float32) * LOG2_E)[:, None]
    if table is not None:
        table += b * table_b + h * group * table_h
    features = tl.arange(0, D_BLOCK)[None, :]
    q_at = q + b * q_b + h * group * q_h + g[:, None].to(tl.int64) * q_h + i[:, None] * q_i + features
    queries = tl.load(q_at, used[:, None] & (features < D), other=0.0)

    low, seen = offset - before, tl.minimum(high, Lq + offset + after)
    begin, blocks, _, _ = spans(low, seen, 0, 0, N)
    share = tl.cdiv(blocks, splits)
    mine = tl.maximum(tl.minimum(share, blocks - split * share), 0)
    out, total, largest = attend(
        tl.zeros([M, DV_BLOCK], tl.float32), tl.zeros([M], tl.float32), tl.full([M], LOWEST, tl.float32),
        queries, k + b * k_b + h * k_h, v + b * v_b + h * v_h, k_j, v_j, i[:, None] + offset, slope,
        table, g[:, None].to(tl.int64) * table_h + i[:, None] * table_i, used[:, None],
        begin + split * share * N, mine, 0, 0, low, seen, high, before, after, scale, cap,
        D, DV, N, slopes is not None, True,
    )  # fmt: skip

    out /= tl.where(total > 0, total, 1)[:, None]
    at = (shared * group * Lq + rows) * splits + split
    features = tl.arange(0, DV_BLOCK)[None, :]
    tl.store(parts + at[:, None] * DV + features, out, used[:, None] & (features < DV))
    sum_of_split = tl.where(total > 0, largest + tl.log2(tl.where(total > 0, total, 1)), LOWEST)
    tl.store(sums + at, sum_of_split, used)


@triton.jit(repr=lambda given: "triton_merge", do_not_specialize=SIZES)
def merge_kernel(
    parts, sums, out, lse, sinks, out_b, out_h, out_i, H, Lq, splits,
    DV: tl.constexpr, DV_BLOCK: tl.constexpr, SPLITS_BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """Write one row of ``out`` (B, H, Lq, DV) and of ``lse`` (B, H, Lq) from its splits, and the sink."""
    row = tl.program_id(0).to(tl.int64)
    every = tl.arange(0, SPLITS_BLOCK)
    found = tl.load(sums + row * splits + every, every < splits, other=LOWEST)
    largest = tl.max(found, 0)
    sink = LOWEST
    if sinks is not None:
        sink = tl.load(sinks + row // Lq % H).to(tl.float32) * LOG2_E
        largest = tl.maximum(largest, sink)
    total = tl.sum(tl.where(found > LOWEST, tl.exp2(found - largest), 0.0), 0)
    if sinks is not None:
        total += tl.exp2(sink - largest)
    features = tl.arange(0, DV_BLOCK)[None, :]
    summed = tl.zeros([DV_BLOCK], tl.float32)
    for start in range(0, splits, SPLITS_AT_ONCE):
        some = start + tl.arange(0, SPLITS_AT_ONCE)[:, None]
        weights = tl.exp2(tl.load(sums + row * splits + some, some < splits, other=LOWEST) - largest)
        at = parts + (row * splits + some) * DV + features
        # A split without a kept key is 0, whatever its weight.
        summed += tl.sum(tl.load(at, (some < splits) & (features < DV), other=0.0) * weights, 0)
    summed /= tl.where(total > 0, total, 1)
    column = tl.arange(0, DV_BLOCK)
    h, i = row // Lq % H, row % Lq
    at = out + row // Lq // H * out_b + h * out_h + i * out_i
    tl.store(at + column, summed.to(out.dtype.element_ty), column < DV)
    tl.store(lse + row, tl.where(total > 0, largest + tl.log2(tl.where(total > 0, total, 1)), float("inf")))
