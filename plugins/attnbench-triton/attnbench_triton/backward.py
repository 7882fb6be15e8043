"""The backward kernels: one for the gradients of queries, one for those of keys and values.

Each program owns what it writes, so nothing is added by atomics, and equal inputs give equal bits. Weights
are computed once more, from the log-sum-exps of the forward pass (Dao et al. 2022, FlashAttention, algorithm
4). The kernel of queries goes first: it also writes the sums that the other one needs.
"""

import triton
import triton.language as tl

from attnbench_triton.pieces import LOG2_E, SIZES, block_start, named, scores_of, spans, tanh, tile


@triton.jit
def gradient_of_scores(
    weights, d_weights, delta, keep, product, scale, cap, MASKED: tl.constexpr
) -> tuple[tl.tensor, ...]:  # fmt: skip
    """Return the gradients of scores, and of the products before the cap, without the scale."""
    d_scores = weights * (d_weights - delta)
    if MASKED:
        d_scores = tl.where(keep, d_scores, 0.0)
    if cap is not None:
        capped = tanh(product * scale)
        return d_scores, d_scores * (1 - capped * capped)
    return d_scores, d_scores


@triton.jit
def of_queries(
    dq, d_slope, q, d_out, k, v, lse, delta, k_stride, v_stride, p, slope, table, table_at, inside,
    begin, blocks, whole, wholes, low, seen, high, before, after, scale, cap,
    D: tl.constexpr, DV: tl.constexpr, N: tl.constexpr, ALIBI: tl.constexpr, MASKED: tl.constexpr,
) -> tuple[tl.tensor, ...]:  # fmt: skip
    """Add blocks of keys to the gradients of some queries, without the scale, and of their slope."""
    for number in range(0, blocks):
        start = block_start(number, begin, whole, wholes, N, MASKED)
        j = start + tl.arange(0, N)
        read = (j >= low) & (j < seen)
        j = j[None, :]
        keys = tile(k, k_stride, start, read, D, N, q.shape[1], MASKED)
        values = tile(v, v_stride, start, read, DV, N, d_out.shape[1], MASKED)
        product = tl.dot(q, tl.trans(keys), input_precision="ieee")
        scores, keep = scores_of(
            product, p, j, high, before, after, scale, cap, slope, table, table_at, inside, ALIBI, MASKED
        )
        d_weights = tl.dot(d_out, tl.trans(values), input_precision="ieee")
        d_scores, d_product = gradient_of_scores(
            tl.exp2(scores - lse), d_weights, delta, keep, product, scale, cap, MASKED
        )
        if MASKED and table is not None:
            # What no query of the block keeps may be NaN, and 0 · NaN is NaN.
            keys = tl.where((tl.max(keep.to(tl.int32), 0) > 0)[:, None], keys, 0.0)
        if ALIBI:
            d_slope -= tl.sum(d_scores * tl.abs(p - j).to(tl.float32), 1)
        dq = tl.dot(d_product.to(keys.dtype), keys, dq, input_precision="ieee")
    return dq, d_slope


@triton.jit(repr=named("triton_backward_q"), do_not_specialize=SIZES)
def queries_kernel(
    q, k, v, out, d_out, lse, delta, dq, d_slopes, lengths, table, slopes,
    q_b, q_h, q_i, k_b, k_h, k_j, v_b, v_h, v_j, out_b, out_h, out_i, d_b, d_h, d_i,
    table_b, table_h, table_i,
    B, H, group, Lq, Lk, offset, before, after, scale, cap, last_scale,
    D: tl.constexpr, DV: tl.constexpr, D_BLOCK: tl.constexpr, DV_BLOCK: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, WARPS: tl.constexpr, STAGES: tl.constexpr,
) -> None:  # fmt: skip
    """Write M rows of ``dq`` (B, H, Lq, D), and of ``delta`` and ``d_slopes`` (B, H, Lq).

    delta: the sum of an output times its upstream gradient. d_slopes: the parts of a slope's gradient.
    """
    row_blocks = tl.cdiv(Lq, M)
    head = (tl.program_id(0) // row_blocks).to(tl.int64)
    b, h = head // H, head % H
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
    upstream = tile(d_out + b * d_b + h * d_h, d_i, top, rows < Lq, DV, M, DV_BLOCK, True)
    outputs = tile(out + b * out_b + h * out_h, out_i, top, rows < Lq, DV, M, DV_BLOCK, True)
    products = tl.sum(outputs.to(tl.float32) * upstream.to(tl.float32), 1)
    tl.store(delta + head * Lq + rows, products, rows < Lq)
    sums = tl.load(lse + head * Lq + rows, rows < Lq, other=float("inf"))
    begin, blocks, whole, wholes = spans(
        first_p - before, tl.minimum(high, last_p + after + 1), last_p - before,
        0 if table is not None else tl.minimum(high, first_p + after + 1), N,
    )  # fmt: skip
    low, seen = offset - before, tl.minimum(high, Lq + offset + after)
    summed, d_slope = tl.zeros([M, D_BLOCK], tl.float32), tl.zeros([M], tl.float32)
    for masked in tl.static_range(0 if table is None else 1, 2):
        summed, d_slope = of_queries(
            summed, d_slope, queries, upstream, k, v, sums[:, None], products[:, None], k_j, v_j, p, slope,
            table, rows[:, None].to(tl.int64) * table_i, inside,
            begin, blocks - wholes if masked else wholes, whole, wholes,
            low, seen, high, before, after, scale, cap,
            D, DV, N, slopes is not None, masked == 1,
        )  # fmt: skip
    features = tl.arange(0, D_BLOCK)[None, :]
    at = dq + (head * Lq + top) * D + tl.arange(0, M)[:, None] * D + features
    tl.store(at, (summed * last_scale).to(dq.dtype.element_ty), inside & (features < D))
    if slopes is not None:
        tl.store(d_slopes + head * Lq + rows, d_slope, rows < Lq)


@triton.jit
def of_keys(
    dk, dv, keys, values, q, d_out, lse, delta, q_stride, d_stride, offset, j, slope, table, table_stride,
    begin, blocks, whole, wholes, Lq, high, before, after, scale, cap,
    D: tl.constexpr, DV: tl.constexpr, M: tl.constexpr, ALIBI: tl.constexpr, MASKED: tl.constexpr,
) -> tuple[tl.tensor, ...]:  # fmt: skip
    """Add blocks of queries of one head to the gradients of some keys, without the scale, and of values."""
    for number in range(0, blocks):
        start = block_start(number, begin, whole, wholes, M, MASKED)
        rows = start + tl.arange(0, M)
        queries = tile(q, q_stride, start, rows < Lq, D, M, keys.shape[1], MASKED)
        upstream = tile(d_out, d_stride, start, rows < Lq, DV, M, values.shape[1], MASKED)
        # Rows behind the last one have weight 0.
        sums = tl.load(lse + rows, rows < Lq, other=float("inf"))
        deltas = tl.load(delta + rows, rows < Lq, other=0.0)
        product = tl.dot(keys, tl.trans(queries), input_precision="ieee")
        scores, keep = scores_of(
            product, rows[None, :] + offset, j, high, before, after, scale, cap, slope, table,
            rows[None, :].to(tl.int64) * table_stride, rows[None, :] < Lq, ALIBI, MASKED,
        )  # fmt: skip
        weights = tl.exp2(scores - sums[None, :])
        dv = tl.dot(weights.to(upstream.dtype), upstream, dv, input_precision="ieee")
        d_weights = tl.dot(values, tl.trans(upstream), input_precision="ieee")
        _, d_product = gradient_of_scores(
            weights, d_weights, deltas[None, :], keep, product, scale, cap, MASKED
        )
        dk = tl.dot(d_product.to(queries.dtype), queries, dk, input_precision="ieee")
    return dk, dv


@triton.jit(repr=named("triton_backward_kv"), do_not_specialize=SIZES)
def keys_kernel(
    q, k, v, d_out, lse, delta, dk, dv, lengths, table, slopes,
    q_b, q_h, q_i, k_b, k_h, k_j, v_b, v_h, v_j, d_b, d_h, d_i, table_b, table_h, table_i,
    B, Hkv, group, Lq, Lk, offset, before, after, scale, cap, last_scale,
    D: tl.constexpr, DV: tl.constexpr, D_BLOCK: tl.constexpr, DV_BLOCK: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, WARPS: tl.constexpr, STAGES: tl.constexpr,
) -> None:  # fmt: skip
    """Write N rows of ``dk`` (B, Hkv, Lk, D) and ``dv`` (B, Hkv, Lk, DV), sums over the heads of a group."""
    key_blocks = tl.cdiv(Lk, N)
    shared = (tl.program_id(0) // key_blocks).to(tl.int64)
    b, first_h = shared // Hkv, shared % Hkv * group
    # Under a causal mask most queries see the first keys, whose programs begin first.
    top = tl.program_id(0) % key_blocks * N
    js = top + tl.arange(0, N)
    j = js[:, None]
    high = Lk
    if lengths is not None:
        high = tl.load(lengths + b)
    # Keys that no query sees may hold anything.
    read = (js >= offset - before) & (js < tl.minimum(high, Lq + offset + after))
    keys = tile(k + b * k_b + shared % Hkv * k_h, k_j, top, read, D, N, D_BLOCK, True)
    values = tile(v + b * v_b + shared % Hkv * v_h, v_j, top, read, DV, N, DV_BLOCK, True)
    bottom = tl.minimum(top + N, Lk)
    kept = tl.minimum(bottom, high)
    last = tl.where(kept > top, tl.minimum(Lq, kept + before - offset), 0)
    whole_last = tl.where(kept == bottom, tl.minimum(Lq, top + 1 + before - offset), 0)
    begin, blocks, whole, wholes = spans(
        top - after - offset, last, bottom - 1 - after - offset, 0 if table is not None else whole_last, M
    )
    dk_sum, dv_sum = tl.zeros([N, D_BLOCK], tl.float32), tl.zeros([N, DV_BLOCK], tl.float32)
    for h in range(first_h, first_h + group):
        rows_at = (shared // Hkv * Hkv * group + h) * Lq
        slope = 0.0
        if slopes is not None:
            slope = tl.load(slopes + h).to(tl.float32) * LOG2_E
        for masked in tl.static_range(0 if table is None else 1, 2):
            dk_sum, dv_sum = of_keys(
                dk_sum, dv_sum, keys, values, q + b * q_b + h * q_h, d_out + b * d_b + h * d_h,
                lse + rows_at, delta + rows_at, q_i, d_i, offset, j, slope,
                table if table is None else table + b * table_b + h * table_h, table_i,
                begin, blocks - wholes if masked else wholes, whole, wholes,
                Lq, high, before, after, scale, cap,
                D, DV, M, slopes is not None, masked == 1,
            )  # fmt: skip
    features = tl.arange(0, D_BLOCK)[None, :]
    at = dk + (shared * Lk + top) * D + tl.arange(0, N)[:, None] * D + features
    tl.store(at, (dk_sum * last_scale).to(dk.dtype.element_ty), (j < Lk) & (features < D))
    features = tl.arange(0, DV_BLOCK)[None, :]
    at = dv + (shared * Lk + top) * DV + tl.arange(0, N)[:, None] * DV + features
    tl.store(at, dv_sum.to(dv.dtype.element_ty), (j < Lk) & (features < DV))
