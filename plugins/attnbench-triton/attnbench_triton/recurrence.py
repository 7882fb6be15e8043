"""Recurrences in chunks of steps: the rules linear, gated, delta and gated_delta.

With G for the sum of decays since the state S before a chunk, the state after its step i is
e^G_i S + Σ_j≤i e^(G_i - G_j) k_j u_jᵀ. Where the rule corrects, the u solve a triangular system (Yang et al.
2024, Parallelizing Linear Transformers with the Delta Rule; Yang et al. 2025, Gated Delta Networks). Its
inverses do not depend on states, so one kernel makes those of all chunks at once. A second one goes over the
chunks of a head, with some features of v for each program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from attnbench_triton.choices import OPTIONS, power_of_2
from attnbench_triton.pieces import tile

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.case import Case

SIZES = ("H", "group", "L", "parts")
"""Arguments whose values no kernel is compiled for."""
LONG_CHUNK, SHORT_CHUNK = 32, 16
"""Steps at once on a GPU, and where small cases need several chunks."""
WIDEST, WARPS = 32, 8
"""Features of v that a program has at most, and its warps."""


@triton.jit
def sums_of(decay, stride, steps, L, CHUNK: tl.constexpr) -> tl.tensor:
    """Return the sums of decays from the beginning of a chunk on, (CHUNK,). Steps from L on add nothing."""
    decays = tl.zeros([CHUNK], tl.float32)
    if decay is not None:
        decays = tl.load(decay + steps * stride, steps < L, other=0.0).to(tl.float32)
    return tl.cumsum(decays, 0)


@triton.jit
def weights_of(sums, CHUNK: tl.constexpr) -> tl.tensor:
    """Return what is left of a step j in a step i of its chunk, (CHUNK, CHUNK), and 0 where j is later."""
    rows, columns = tl.arange(0, CHUNK)[:, None], tl.arange(0, CHUNK)[None, :]
    # No power overflows: where j is not later, a difference is 0 at most.
    between = tl.where(rows >= columns, sums[:, None] - sums[None, :], 0.0)
    return tl.where(rows >= columns, tl.exp(between), 0.0)


@triton.jit(repr=lambda given: "triton_recurrent_inverses", do_not_specialize=SIZES)
def inverses_kernel(
    k, decay, beta, inverses, k_b, k_h, k_i, decay_b, decay_h, decay_i, beta_b, beta_h, beta_i, H, group, L,
    D: tl.constexpr, D_BLOCK: tl.constexpr, CHUNK: tl.constexpr,
) -> None:  # fmt: skip
    """Write the rows of a chunk of ``inverses`` (B, H, L, CHUNK): (I + A)⁻¹ with columns times beta.

    A is strictly lower: beta_i e^(G_i - G_j) k_i·k_j. Its rows are taken one after the other, since sums of
    its powers lose all digits where keys are alike.
    """
    chunks = tl.cdiv(L, CHUNK)
    head = (tl.program_id(0) // chunks).to(tl.int64)
    b, h = head // H, head % H
    start = tl.program_id(0) % chunks * CHUNK
    steps = start + tl.arange(0, CHUNK)
    if decay is not None:
        decay += b * decay_b + h * decay_h
    betas = tl.load(beta + b * beta_b + h * beta_h + steps * beta_i, steps < L, other=0.0).to(tl.float32)
    keys = tile(k + b * k_b + h // group * k_h, k_i, start, steps < L, D, CHUNK, D_BLOCK, True)
    weights = weights_of(sums_of(decay, decay_i, steps, L, CHUNK), CHUNK)
    rows, columns = tl.arange(0, CHUNK)[:, None], tl.arange(0, CHUNK)[None, :]
    products = tl.dot(keys, tl.trans(keys), input_precision="ieee")
    found = tl.where(rows > columns, betas[:, None] * products * weights, 0.0)
    inverse = tl.where(rows == columns, 1.0, 0.0)
    for i in range(1, CHUNK):
        row = tl.sum(tl.where(rows == i, found, 0.0), 0)
        inverse -= tl.where(rows == i, tl.sum(row[:, None] * inverse, 0)[None, :], 0.0)
    at = inverses + (head * L + steps[:, None]) * CHUNK + columns
    tl.store(at, inverse * betas[None, :], steps[:, None] < L)


@triton.jit(
    repr=lambda given: "triton_recurrent_{CHUNK}x{WIDTH}".format(**given.constants), do_not_specialize=SIZES
)
def chunks_kernel(
    q, k, v, decay, inverses, past, out, state, q_b, q_h, q_i, k_b, k_h, k_i, v_b, v_h, v_i,
    decay_b, decay_h, decay_i, H, group, L, parts, scale,
    D: tl.constexpr, DV: tl.constexpr, D_BLOCK: tl.constexpr, CHUNK: tl.constexpr, WIDTH: tl.constexpr,
) -> None:  # fmt: skip
    """Write WIDTH features of the ``out`` (B, H, L, DV) of a head and of its ``state`` (B, H, D, DV).

    Products with states, and with what they are made of, are in float32.
    """
    head = (tl.program_id(0) // parts).to(tl.int64)
    b, h = head // H, head % H
    features = tl.program_id(0) % parts * WIDTH + tl.arange(0, WIDTH)[None, :]
    places = tl.arange(0, D_BLOCK)[:, None]
    at = head * D * DV + places * DV + features
    there = (places < D) & (features < DV)
    held = tl.load(past + at, there, other=0.0)
    q += b * q_b + h // group * q_h
    k += b * k_b + h // group * k_h
    v += b * v_b + h * v_h
    if decay is not None:
        decay += b * decay_b + h * decay_h
    columns = tl.arange(0, CHUNK)[None, :]
    for start in range(0, L, CHUNK):
        steps = start + tl.arange(0, CHUNK)
        inside, rows = steps < L, steps[:, None].to(tl.int64)
        queries = tile(q, q_i, tl.cast(start, tl.int32), inside, D, CHUNK, D_BLOCK, True)
        keys = tile(k, k_i, tl.cast(start, tl.int32), inside, D, CHUNK, D_BLOCK, True)
        written = inside[:, None] & (features < DV)
        added = tl.load(v + rows * v_i + features, written, other=0.0).to(tl.float32)
        sums = sums_of(decay, decay_i, steps, L, CHUNK)
        kept = tl.exp(sums)[:, None]
        if inverses is not None:
            inverse = tl.load(inverses + (head * L + rows) * CHUNK + columns, inside[:, None], other=0.0)
            expected = tl.dot(keys.to(tl.float32), held, input_precision="ieee")
            added = tl.dot(inverse, added - kept * expected, input_precision="ieee")
        products = tl.dot(queries, tl.trans(keys), input_precision="ieee") * weights_of(sums, CHUNK)
        read = kept * tl.dot(queries.to(tl.float32), held, input_precision="ieee")
        read = tl.dot(products, added, read, input_precision="ieee")
        tl.store(out + (head * L + rows) * DV + features, (scale * read).to(out.dtype.element_ty), written)
        # Behind the last step nothing decays.
        total = tl.sum(tl.where(tl.arange(0, CHUNK) == CHUNK - 1, sums, 0.0), 0)
        left = keys.to(tl.float32) * tl.exp(total - sums)[:, None]
        held = tl.dot(tl.trans(left), added, held * tl.exp(total), input_precision="ieee")
    tl.store(state + at, held, there)


def recurrence(
    case: Case, q: Tensor, k: Tensor, v: Tensor, decay: Tensor | None, beta: Tensor | None, past: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the output (B, H, L, Dv) in the dtype of q, and the state (B, H, D, Dv) in float32.

    q, k: (B, Hkv, L, D); v: (B, H, L, Dv); decay, beta: (B, H, L), or None where the rule has none.
    """
    # The interpreter has short chunks, so that small cases have several.
    short = case.device == "cpu"
    chunk, width = SHORT_CHUNK if short else LONG_CHUNK, min(16 if short else WIDEST, power_of_2(case.Dv))
    heads = case.B * case.H
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    sizes = case.H, case.group, case.Lq
    told: dict[str, Any] = {"D": case.D, "D_BLOCK": power_of_2(case.D), "CHUNK": chunk}
    told |= {"num_warps": WARPS, "num_stages": 1, **OPTIONS}
    strides = [x.stride()[:3] for x in (q, k, v)]
    of_decay = (0, 0, 0) if decay is None else decay.stride()
    inverses = None
    if beta is not None and case.Lq:
        inverses = past.new_empty((case.B, case.H, case.Lq, chunk))
        inverses_kernel[(heads * -(-case.Lq // chunk),)](
            k, decay, beta, inverses, *strides[1], *of_decay, *beta.stride(), *sizes, **told
        )
    out, state = v.new_empty(v.shape), past.new_empty(past.shape)
    parts = -(-case.Dv // width)
    chunks_kernel[(heads * parts,)](
        q, k, v, decay, inverses, past.contiguous(), out, state, *strides[0], *strides[1], *strides[2],
        *of_decay, *sizes, parts, float(case.D**-0.5), DV=case.Dv, WIDTH=width, **told,
    )  # fmt: skip
    return out, state
