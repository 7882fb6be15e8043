"""Twenty right attention kernels, as authors write them: a judge must find all of them right.

Usage: attnbench check --plugin tests/benchmarks/right_kernels.py [--backend right_online_64 …]

They differ in how they walk over queries and keys, where they round, how they apply a mask, and which cases
they take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from attnbench import Backend, Case, Rule, Setup, hookimpl
from attnbench.types.case import PASSES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    Kernel = Callable[[Tensor, Tensor, Tensor], Tensor]

LOWEST = -3.0e38
"""Below every score; finite, so that a block without kept keys gives zeros in place of NaN."""


def scale_of(setup: Setup) -> float:
    """Return what multiplies q·k."""
    dot = setup.scoring.dot
    assert dot is not None
    return dot.scale


def mask_of(setup: Setup) -> Tensor:
    """Return what is added to scores: float32 (B or 1, H or 1, Lq, Lk), -inf where a pair is dropped."""
    import torch

    from attnbench.kit.masks import additive_mask

    case = setup.case
    mask = additive_mask(case, torch.float32, case.device)
    return torch.zeros(1, 1, case.Lq, case.Lk) if mask is None else mask


def keep_of(setup: Setup) -> Tensor:
    """Return the kept pairs: bool (B or 1, H or 1, Lq, Lk)."""
    return mask_of(setup) > -math.inf


def by_head(x: Tensor, case: Case) -> Tensor:
    """Repeat keys or values, (B, Hkv, Lk, D), for all query heads."""
    return x.repeat_interleave(case.group, dim=1)


def softmax(scores: Tensor) -> Tensor:
    """Return weights of masked scores, 0 in rows of -inf, whose gradients are 0 too."""
    empty = scores.isneginf().all(-1, keepdim=True)
    return scores.masked_fill(empty, 0).softmax(-1).masked_fill(empty, 0)


# Whole matrices of scores.


def einsum(setup: Setup) -> Kernel:
    """Write both products as einsum, in float32."""
    import torch

    case, mask, scale = setup.case, mask_of(setup), scale_of(setup)

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = by_head(k, case).float(), by_head(v, case).float()
        weights = softmax(torch.einsum("bhqd,bhkd->bhqk", q.float(), keys) * scale + mask)
        return torch.einsum("bhqk,bhkv->bhqv", weights, values).to(q.dtype)

    return kernel


def grouped_einsum(setup: Setup) -> Kernel:
    """Give the query heads of a group an axis of their own, so that no key is repeated."""
    import torch

    case, scale = setup.case, scale_of(setup)
    B, H, Hkv, G = case.B, case.H, case.Hkv, case.group
    mask = mask_of(setup)
    # (b, h, q, k) to (b, key head, head in its group, q, k)
    mask = mask.unflatten(1, (Hkv, G)) if mask.shape[1] == H > 1 else mask.unsqueeze(1)

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        heads = q.float().reshape(B, Hkv, G, case.Lq, case.D)
        weights = softmax(torch.einsum("bngqd,bnkd->bngqk", heads, k.float()) * scale + mask)
        out = torch.einsum("bngqk,bnkv->bngqv", weights, v.float())
        return out.reshape(B, H, case.Lq, case.Dv).to(q.dtype)

    return kernel


def baddbmm(setup: Setup) -> Kernel:
    """Put batch and heads on one axis, and add the mask inside of the product."""
    import torch

    case, scale = setup.case, scale_of(setup)
    B, H, Lq, Lk = case.B, case.H, case.Lq, case.Lk
    mask = mask_of(setup)
    # -inf in the sum of a product is right, but 0 · -inf would not be, so dropped pairs are filled later.
    keep = (mask > -math.inf).expand(B, H, Lq, Lk).reshape(B * H, Lq, Lk)
    bias = mask.masked_fill(mask.isneginf(), 0).expand(B, H, Lq, Lk).reshape(B * H, Lq, Lk)

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        queries = q.float().reshape(B * H, Lq, case.D)
        keys = by_head(k, case).float().reshape(B * H, Lk, case.D)
        values = by_head(v, case).float().reshape(B * H, Lk, case.Dv)
        scores = torch.baddbmm(bias, queries, keys.mT, beta=1, alpha=scale)
        out = softmax(scores.masked_fill(~keep, -math.inf)).bmm(values)
        return out.view(B, H, Lq, case.Dv).to(q.dtype)

    return kernel


def transposed_keys(setup: Setup) -> Kernel:
    """Store the keys as (D, Lk) first, so that both products read rows."""
    case, mask, scale = setup.case, mask_of(setup), scale_of(setup)

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        columns = by_head(k, case).float().mT.contiguous()
        weights = softmax((q.float() * scale) @ columns + mask)
        return (weights @ by_head(v, case).float()).to(q.dtype)

    return kernel


def half_products(setup: Setup) -> Kernel:
    """Multiply in the dtype of the case; only the softmax is in float32."""
    case, mask, scale = setup.case, mask_of(setup), scale_of(setup)

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = (q @ by_head(k, case).mT).float() * scale + mask
        return softmax(scores).to(q.dtype) @ by_head(v, case)

    return kernel


def float64_inside(setup: Setup) -> Kernel:
    """Compute in float64, and round once at the end."""
    case, mask, scale = setup.case, mask_of(setup).double(), scale_of(setup)

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = softmax(q.double() @ by_head(k, case).double().mT * scale + mask)
        return (weights @ by_head(v, case).double()).to(q.dtype)

    return kernel


def multiplied_mask(setup: Setup) -> Kernel:
    """Multiply exponentials by 0 and 1 in place of adding -inf, and divide after the product with v."""
    case, keep, scale = setup.case, keep_of(setup), scale_of(setup)
    kept = keep.float()

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q.float() @ by_head(k, case).float().mT * scale
        largest = scores.masked_fill(~keep, LOWEST).amax(-1, keepdim=True)
        powers = (scores - largest).masked_fill(~keep, 0).exp() * kept
        total = powers.sum(-1, keepdim=True).clamp(min=1e-30)
        return (powers @ by_head(v, case).float() / total).to(q.dtype)

    return kernel


# Blocks of keys.


def blocks(length: int, size: int) -> Iterator[slice]:
    """Yield slices of at most ``size``."""
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))


def online(setup: Setup, rows: int, cols: int) -> Kernel:
    """Walk over blocks of queries and keys with a running maximum and a running sum."""
    import torch

    case, mask, scale = setup.case, mask_of(setup), scale_of(setup)

    def attend_rows(q: Tensor, k: Tensor, v: Tensor, added: Tensor) -> Tensor:
        largest = q.new_full((*q.shape[:3], 1), LOWEST)
        total, out = torch.zeros_like(largest), q.new_zeros(*q.shape[:3], case.Dv)
        for block in blocks(case.Lk, cols):
            scores = q @ k[:, :, block].mT + added[..., block]
            before, largest = largest, largest.maximum(scores.amax(-1, keepdim=True))
            powers, shrink = (scores - largest).exp(), (before - largest).exp()
            total = total * shrink + powers.sum(-1, keepdim=True)
            out = out * shrink + powers @ v[:, :, block]
        return out / total.masked_fill(total == 0, 1)

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        queries, keys, values = q.float() * scale, by_head(k, case).float(), by_head(v, case).float()
        parts = [
            attend_rows(queries[:, :, part], keys, values, mask[:, :, part]) for part in blocks(case.Lq, rows)
        ]
        return torch.cat(parts, dim=2).to(q.dtype)

    return kernel


def exp2(setup: Setup) -> Kernel:
    """Use powers of two: log2(e) is part of the scale, and of the float mask."""
    import torch

    case, log2e = setup.case, math.log2(math.e)
    mask, scale = mask_of(setup) * log2e, scale_of(setup) * log2e

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q.float() @ by_head(k, case).float().mT * scale + mask
        powers = torch.exp2(scores - scores.amax(-1, keepdim=True).clamp(min=LOWEST))
        total = powers.sum(-1, keepdim=True)
        out = powers.to(v.dtype).float() @ by_head(v, case).float()
        return (out / total.masked_fill(total == 0, 1)).to(q.dtype)

    return kernel


def split_keys(setup: Setup, size: Callable[[Case], int]) -> Kernel:
    """Compute parts of the keys apart, and merge them by the logarithms of their sums."""
    import torch

    case, mask, scale = setup.case, mask_of(setup), scale_of(setup)
    parts = list(blocks(case.Lk, size(case)))

    def part_of(scores: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output of one part, and the logarithm of the sum of its exponentials."""
        empty = scores.isneginf().all(-1, keepdim=True)
        # The gradient of a logarithm of 0 is NaN, even where it is multiplied by 0 later.
        sums = scores.masked_fill(empty, 0).logsumexp(-1, keepdim=True)
        return softmax(scores) @ v, sums.masked_fill(empty, -math.inf)

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        queries, keys, values = q.float(), by_head(k, case).float(), by_head(v, case).float()
        done = [
            part_of(queries @ keys[:, :, part].mT * scale + mask[..., part], values[:, :, part])
            for part in parts
        ]
        # softmax gives 0 to parts without keys, and to all parts of a row without keys.
        shares = softmax(torch.cat([sums for _, sums in done], dim=-1)).unsqueeze(-2)
        return (torch.stack([out for out, _ in done], dim=-1) * shares).sum(-1).to(q.dtype)

    return kernel


def chunked_queries(setup: Setup) -> Kernel:
    """Take 48 queries at a time, with no more keys than one of them may see."""
    import torch

    case, mask, scale = setup.case, mask_of(setup), scale_of(setup)
    chunks = []
    for rows in blocks(case.Lq, 48):
        seen = (mask[:, :, rows] > -math.inf).any(dim=2).flatten(0, 1).any(dim=0).nonzero().flatten()
        # One key at least, so that rows without keys have scores to mask.
        cols = slice(int(seen[0]), int(seen[-1]) + 1) if len(seen) else slice(0, 1)
        chunks.append((rows, cols, mask[:, :, rows, cols]))

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = by_head(k, case).float(), by_head(v, case).float()
        outputs = []
        for rows, cols, added in chunks:
            scores = (q[:, :, rows].float() @ keys[:, :, cols].mT) * scale + added
            outputs.append(softmax(scores) @ values[:, :, cols])
        return torch.cat(outputs, dim=2).to(q.dtype)

    return kernel


def kept_ranges(setup: Setup) -> Kernel:
    """Read for each query only the range of keys that it keeps; no mask is made at all."""
    import numpy as np
    import torch

    from attnbench.masks import kept_ranges as ranges_of

    case, scale = setup.case, scale_of(setup)
    low, high = (
        np.broadcast_to(each, (case.B, case.Lq)).tolist() for each in ranges_of(case, np.arange(case.Lq))
    )

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = by_head(k, case).float(), by_head(v, case).float()
        out = torch.zeros(case.B, case.H, case.Lq, case.Dv)
        for b, i in np.ndindex(case.B, case.Lq):
            first, last = low[b][i], high[b][i]
            if first < last:
                scores = keys[b, :, first:last] @ q[b, :, i, :, None].float() * scale
                out[b, :, i] = (scores.softmax(1) * values[b, :, first:last]).sum(1)
        return out.to(q.dtype)

    return kernel


def paged_cache(setup: Setup) -> Kernel:
    """Copy keys and values into pages of 16 positions, (page, position, head, features), and read those."""
    import torch

    case, mask, scale, size = setup.case, mask_of(setup), scale_of(setup), 16
    count = math.ceil(case.Lk / size)
    # Pages of all batch elements lie in one pool, in an order of their own.
    table = torch.randperm(case.B * count, generator=torch.Generator().manual_seed(0)).view(case.B, count)

    def into_pages(x: Tensor) -> Tensor:
        B, heads, Lk, width = x.shape
        pool = x.new_zeros(B * count, size, heads, width)
        padded = torch.nn.functional.pad(x.transpose(1, 2), (0, 0, 0, 0, 0, count * size - Lk))
        pool[table.flatten()] = padded.reshape(B * count, size, heads, width)
        return pool

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        key_pages, value_pages = into_pages(k), into_pages(v)
        largest = torch.full((case.B, case.H, case.Lq, 1), LOWEST)
        total, out = torch.zeros_like(largest), torch.zeros(case.B, case.H, case.Lq, case.Dv)
        for number, cols in enumerate(blocks(case.Lk, size)):
            there = cols.stop - cols.start
            keys = by_head(key_pages[table[:, number], :there].transpose(1, 2), case).float()
            values = by_head(value_pages[table[:, number], :there].transpose(1, 2), case).float()
            scores = q.float() @ keys.mT * scale + mask[..., cols]
            before, largest = largest, largest.maximum(scores.amax(-1, keepdim=True))
            powers, shrink = (scores - largest).exp(), (before - largest).exp()
            total = total * shrink + powers.sum(-1, keepdim=True)
            out = out * shrink + powers @ values
        return (out / total.masked_fill(total == 0, 1)).to(q.dtype)

    return kernel


# Other libraries.


def sdpa(setup: Setup, transposed: bool) -> Kernel:
    """Call torch's function, with its own causal mask where that is enough; in either layout."""
    from torch.nn.functional import scaled_dot_product_attention

    case, scale = setup.case, scale_of(setup)
    plain = case.mask.is_none
    causal = case.mask.is_only_causal and (case.mask.causal == "upper_left" or case.Lq == case.Lk)
    keep = None if plain or causal else keep_of(setup)

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if transposed:
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        k, v = by_head(k, case), by_head(v, case)
        out = scaled_dot_product_attention(q, k, v, attn_mask=keep, is_causal=causal, scale=scale)
        return out.transpose(1, 2) if transposed else out

    return kernel


def numpy_rows(setup: Setup) -> Kernel:
    """Compute each head with NumPy in float32, 40 rows at a time."""
    import numpy as np
    import torch

    case, scale = setup.case, np.float32(scale_of(setup))
    mask = np.broadcast_to(mask_of(setup).numpy(), (case.B, case.H, case.Lq, case.Lk))

    def head(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], added: NDArray[Any]) -> NDArray[np.float32]:
        scores = q @ k.T * scale + added
        powers = np.exp(scores - np.maximum(scores.max(axis=1, keepdims=True), LOWEST))
        total = powers.sum(axis=1, keepdims=True)
        return (powers / np.where(total == 0, 1, total)) @ v

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        queries, keys, values = (np.asarray(x) for x in (q, k, v))
        out = np.empty((case.B, case.H, case.Lq, case.Dv), np.float32)
        for b, h in np.ndindex(case.B, case.H):
            shared = h // case.group
            for rows in blocks(case.Lq, 40):
                out[b, h, rows] = head(
                    queries[b, h, rows], keys[b, shared], values[b, shared], mask[b, h, rows]
                )
        return torch.from_numpy(out)

    return kernel


# Gradients by hand.


def own_backward(setup: Setup) -> Kernel:
    """Keep the weights, and write the gradients of both products and of the softmax by hand."""
    import torch

    case, mask, scale = setup.case, mask_of(setup), scale_of(setup)
    groups = (case.B, case.Hkv, case.group, case.Lk, -1)

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            weights = softmax(q.float() @ by_head(k, case).float().mT * scale + mask)
            ctx.save_for_backward(q, k, v, weights)
            return (weights @ by_head(v, case).float()).to(q.dtype)

        @staticmethod
        def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v, weights = ctx.saved_tensors
            upstream, keys, values = upstream.float(), by_head(k, case).float(), by_head(v, case).float()
            of_weights = upstream @ values.mT
            of_scores = weights * (of_weights - (weights * of_weights).sum(-1, keepdim=True)) * scale
            of_k = (of_scores.mT @ q.float()).view(groups).sum(2)
            of_v = (weights.mT @ upstream).view(groups).sum(2)
            return (of_scores @ keys).to(q.dtype), of_k.to(k.dtype), of_v.to(v.dtype)

    return Attention.apply


def flash_backward(setup: Setup) -> Kernel:
    """Keep the logarithms of the sums, and compute the weights of each 64 keys again for the gradients."""
    import torch

    case, mask, scale = setup.case, mask_of(setup), scale_of(setup)
    forward_in_blocks = online(setup, 64, 64)

    def scores_of(q: Tensor, keys: Tensor, cols: slice) -> Tensor:
        return q.float() @ keys[:, :, cols].mT * scale + mask[..., cols]

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys = by_head(k, case).float()
            parts = [scores_of(q, keys, cols).logsumexp(-1, keepdim=True) for cols in blocks(case.Lk, 64)]
            sums = torch.cat(parts, dim=-1).logsumexp(-1, keepdim=True)
            out = forward_in_blocks(q, k, v)
            ctx.save_for_backward(q, k, v, sums.masked_fill(sums.isneginf(), 0))
            return out

        @staticmethod
        def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v, sums = ctx.saved_tensors
            upstream, keys, values = upstream.float(), by_head(k, case).float(), by_head(v, case).float()
            # The output in float32, since its rounding to half precision would be multiplied by keys.
            out = forward_in_blocks(q.float(), k.float(), v.float())
            delta = (upstream * out).sum(-1, keepdim=True)
            of_q, of_k, of_v = torch.zeros_like(q, dtype=torch.float32), [], []
            for cols in blocks(case.Lk, 64):
                weights = (scores_of(q, keys, cols) - sums).exp()
                of_scores = weights * (upstream @ values[:, :, cols].mT - delta) * scale
                of_q += of_scores @ keys[:, :, cols]
                of_k.append(summed(of_scores.mT @ q.float()))
                of_v.append(summed(weights.mT @ upstream))
            return of_q.to(q.dtype), torch.cat(of_k, 2).to(k.dtype), torch.cat(of_v, 2).to(v.dtype)

    def summed(x: Tensor) -> Tensor:
        return x.unflatten(1, (case.Hkv, case.group)).sum(2)

    return Attention.apply


# What they take.


def no_float_mask(case: Case, rule: Rule) -> str | None:
    """Decline numbers to add."""
    return "it keeps or drops pairs, and adds nothing" if case.mask.explicit == "float" else None


def only_positions(case: Case, rule: Rule) -> str | None:
    """Decline masks that are not ranges of keys."""
    return "each query must keep a range of keys" if case.mask.explicit else None


def few_queries(case: Case, rule: Rule) -> str | None:
    """Decline more queries than one step of decoding has."""
    return "at most 20 queries" if case.Lq > 20 else None


def no_masked_gradients(case: Case, rule: Rule) -> str | None:
    """Decline numbers to add, and gradients under a mask that may leave rows without keys."""
    if case.pass_ != "forward" and not case.mask.is_none and not case.mask.is_only_causal:
        return "no gradients under a mask that may leave rows without keys"
    return no_float_mask(case, rule)


def _backend(name: str, summary: str, prepare: Callable[[Setup], Any], **declared: Any) -> Backend:
    said = {"rules": ("scaled_dot",), "dtypes": ("float32", "float16", "bfloat16"), "devices": ("cpu",)}
    return Backend(name=f"right_{name}", summary=summary, prepare=prepare, **(said | declared))


@hookimpl
def attnbench_backends() -> Iterator[Backend]:
    """Yield the twenty."""
    graded, heads = {"passes": PASSES}, {"masks_by_head": True}
    every = {**graded, **heads}
    yield _backend("einsum", "two einsums in float32", einsum, **every)
    yield _backend("grouped_einsum", "a group of heads has an axis", grouped_einsum, **every)
    yield _backend("baddbmm", "batch and heads on one axis, the mask in baddbmm", baddbmm, **every)
    yield _backend("transposed_keys", "keys stored as (D, Lk)", transposed_keys, **every)
    yield _backend("half_products", "products in the dtype of the case", half_products, **every)
    yield _backend("float64_inside", "all in float64, rounded once", float64_inside, **every)
    yield _backend(
        "multiplied_mask", "dropped pairs multiplied by 0", multiplied_mask, supports=no_float_mask, **heads
    )
    yield _backend("online_16", "online softmax, 16 by 16", partial(online, rows=16, cols=16), **heads)
    yield _backend("online_64", "online softmax, 64 by 64", partial(online, rows=64, cols=64), **every)
    yield _backend("exp2", "powers of two, rounded to the dtype of the case", exp2, **heads)
    thirds = partial(split_keys, size=lambda case: math.ceil(case.Lk / 3))
    yield _backend("split_keys", "three parts of the keys, merged by their sums", thirds, **every)
    by_32 = partial(split_keys, size=lambda case: 32)
    yield _backend("decode", "parts of 32 keys for few queries", by_32, supports=few_queries, **heads)
    yield _backend("chunked_queries", "48 queries and the keys that they see", chunked_queries, **every)
    yield _backend("kept_ranges", "the range of keys of each query", kept_ranges, supports=only_positions)
    yield _backend("paged_cache", "pages of 16 positions, as in a server", paged_cache, **heads)
    yield _backend(
        "sdpa", "torch's function", partial(sdpa, transposed=False), supports=no_masked_gradients, **every
    )
    yield _backend(
        "sdpa_blhd",
        "torch's function behind (B, L, H, D)",
        partial(sdpa, transposed=True),
        supports=no_masked_gradients,
        layout="BLHD",
        **every,
    )
    yield _backend("numpy_rows", "NumPy, 40 rows at a time", numpy_rows, dtypes=("float32",), **heads)
    yield _backend("own_backward", "gradients by hand, weights kept", own_backward, **every)
    yield _backend("flash_backward", "gradients by hand, weights computed again", flash_backward, **every)
