"""The forward kernel: a program for some queries of a head goes over the keys that they see.

The online softmax is that of Milakov & Gimelshein 2018, Online normalizer calculation for softmax; queries
outside and keys inside are the loops of Dao 2023, FlashAttention-2. Blocks without a dropped pair go first
and compute no mask.
"""

import triton
import triton.language as tl

from attnbench_triton.pieces import LOG2_E, LOWEST, SIZES, block_start, named, scores_of, spans, tile


@triton.jit
def attend(
    out, total, largest, q, k, v, k_stride, v_stride, p, slope, table, table_at, inside,
    begin, blocks, whole, wholes, low, seen, high, before, after, scale, cap,
    D: tl.constexpr, DV: tl.constexpr, N: tl.constexpr, ALIBI: tl.constexpr, MASKED: tl.constexpr,
) -> tuple[tl.tensor, ...]:  # fmt: skip
    """Add blocks of keys to the sums of some queries.

    out (M, DV padded): the sum of e^(score - largest) times values. total (M,): that of e^(score - largest).
    Keys before ``low`` and from ``seen`` on are not read.
    """
    for number in range(0, blocks):
        start = block_start(number, begin, whole, wholes, N, MASKED)
        j = start + tl.arange(0, N)
        read = (j >= low) & (j < seen)
        keys = tile(k, k_stride, start, read, D, N, q.shape[1], MASKED)
        product = tl.dot(q, tl.trans(keys), input_precision="ieee")
        scores, keep = scores_of(
            product, p, j[None, :], high, before, after, scale, cap, slope, table, table_at, inside, ALIBI,
            MASKED,
        )  # fmt: skip
        now = tl.maximum(largest, tl.max(scores, 1))
        weights, shrink = tl.exp2(scores - now[:, None]), tl.exp2(largest - now)
        if MASKED and table is not None:
            # What no query of the block keeps may be infinite, and 0 · inf is NaN.
            read = read & (tl.max(keep.to(tl.int32), 0) > 0)
        values = tile(v, v_stride, start, read, DV, N, out.shape[1], MASKED)
        out = tl.dot(weights.to(values.dtype), values, out * shrink[:, None], input_precision="ieee")
        total, largest = total * shrink + tl.sum(weights, 1), now
    return out, total, largest


@triton.jit(repr=named("triton_forward"), do_not_specialize=SIZES)
def forward_kernel(
    q, k, v, out, lse, lengths, table, slopes, sinks,
    q_b, q_h, q_i, k_b, k_h, k_j, v_b, v_h, v_j, out_b, out_h, out_i, table_b, table_h, table_i,
    B, H, group, Lq, Lk, offset, before, after, scale, cap,
    D: tl.constexpr, DV: tl.constexpr, D_BLOCK: tl.constexpr, DV_BLOCK: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, WARPS: tl.constexpr, STAGES: tl.constexpr,
) -> None:  # fmt: skip
    """Write M rows of ``out`` (B, H, Lq, DV) and of ``lse`` (B, H, Lq), their log-sum-exps in base 2.

    A row that keeps no key is 0, and its log-sum-exp infinite, so that its weights are 0 in a backward pass.
    B is only part of what the tuner tells cases apart by.
    """
    row_blocks = tl.cdiv(Lq, M)
    head = (tl.program_id(0) // row_blocks).to(tl.int64)
    b, h = head // H, head % H
    # Under a causal mask the last rows see most keys; they begin first.
    top = (row_blocks - 1 - tl.program_id(0) % row_blocks) * M
    rows = top + tl.arange(0, M)
    p, inside = rows[:, None] + offset, rows[:, None] < Lq
    first_p, last_p = top + offset, tl.minimum(top + M, Lq) - 1 + offset
    high = Lk
    if lengths is not None:
        high = tl.load(lengths + b)
    slope = 0.0
    if slopes is not None:
        slope = tl.load(slopes + h).to(tl.float32) * LOG2_E
    if table is not None:
        table += b * table_b + h * table_h
    k += b * k_b + h // group * k_h
    v += b * v_b + h // group * v_h
    queries = tile(q + b * q_b + h * q_h, q_i, top, rows < Lq, D, M, D_BLOCK, True)
    largest, total = tl.full([M], LOWEST, tl.float32), tl.zeros([M], tl.float32)
    if sinks is not None:
        largest, total = total + tl.load(sinks + h).to(tl.float32) * LOG2_E, total + 1
    summed = tl.zeros([M, DV_BLOCK], tl.float32)

    begin, blocks, whole, wholes = spans(
        first_p - before, tl.minimum(high, last_p + after + 1), last_p - before,
        0 if table is not None else tl.minimum(high, first_p + after + 1), N,
    )  # fmt: skip
    # Keys that no query of any block sees may hold anything.
    low, seen = offset - before, tl.minimum(high, Lq + offset + after)
    for masked in tl.static_range(0 if table is None else 1, 2):
        summed, total, largest = attend(
            summed, total, largest, queries, k, v, k_j, v_j, p, slope, table,
            rows[:, None].to(tl.int64) * table_i, inside,
            begin, blocks - wholes if masked else wholes, whole, wholes,
            low, seen, high, before, after, scale, cap,
            D, DV, N, slopes is not None, masked == 1,
        )  # fmt: skip

    summed /= tl.where(total > 0, total, 1)[:, None]
    features = tl.arange(0, DV_BLOCK)[None, :]
    at = out + b * out_b + h * out_h + rows[:, None].to(tl.int64) * out_i + features
    tl.store(at, summed.to(out.dtype.element_ty), inside & (features < DV))
    sums = tl.where(total > 0, largest + tl.log2(tl.where(total > 0, total, 1)), float("inf"))
    tl.store(lse + head * Lq + rows, sums, rows < Lq)
