"""A plugin with choices of keys: right ones in other orders, and mistakes of honest authors."""

from __future__ import annotations

from itertools import pairwise

from attnbench import Backend, hookimpl
from attnbench.kit.masks import keep_mask

MISTAKES = {
    "without_the_relu": "",
    "weights_forgotten": "",
    "largest_head_in_place_of_the_sum": "",
    "weights_of_the_next_head": "",
    "heads_of_all_groups": "",
    "mask_forgotten": "drops",
    "own_key_left_out": "",
    "next_key": "",
    "one_fewer": "leaves places unused",
    "first_twice": "is named a second time",
    "unused_is_zero": "is named a second time",
    "beyond_the_end": "names no key: there are 37",
    "lowest": "",
}
"""By name, words of the fault."""
BLOCK_MISTAKES = {
    "select_mean": {
        "own_block_not_chosen": "",
        "later_blocks": "is a block that the mask drops",
        "first_key_of_the_block": "",
        "largest_key_of_the_block": "",
        "places_of_keys": "names no block: there are 7",
        "blocks_of_the_first_head": "",
    },
    "select_largest": {
        "own_block_not_chosen": "",
        "mean_of_the_block": "",
        "largest_size": "",
        "half_of_the_block": "",
        "heads_together": "",
    },
    "select_compressed": {
        "first_block_not_chosen": "",
        "one_block_at_the_end": "",
        "scores_for_weights": "",
        "parts_that_reach_in_forgotten": "",
        "later_compressed_keys": "",
        "blocks_of_the_first_head": "",
    },
}
"""The same of choices of blocks, by operation."""
RIGHT = ("ascending", "last_of_equals")


def prepare(setup, way="", queries=None, keys=None):
    import torch

    case = setup.case
    Lq, Lk, top = queries or case.Lq, keys or case.Lk, case.size("top")
    # causal:lower_right in all cases here
    kept = torch.ones(Lq, Lk, dtype=torch.bool).tril(Lk - Lq)
    if not case.batch:
        kept = keep_mask(case, "cpu")[0, 0]

    def call(q, k, weights):
        H, group = q.shape[1], q.shape[1] // k.shape[1]
        scores = (q @ k.repeat_interleave(group, 1).mT).float()
        weights = weights.float()
        if way == "weights_forgotten":
            weights = torch.ones_like(weights)
        if way == "weights_of_the_next_head":
            weights = weights.roll(-1, 1)
        parts = weights[..., None] * (scores if way == "without_the_relu" else scores.relu())
        grouped = parts.unflatten(1, (H // group, group))
        total = grouped.amax(2) if way == "largest_head_in_place_of_the_sum" else grouped.sum(2)
        if way == "heads_of_all_groups":
            total = total.sum(1, keepdim=True).expand_as(total)
        seen = kept.tril(Lk - Lq - 1) if way == "own_key_left_out" else kept
        if way != "mask_forgotten":
            total = total.masked_fill(~seen, -torch.inf)
        if way == "lowest":
            total = torch.where(total.isneginf(), total, -total)
        if way == "last_of_equals":
            best, indices = total.flip(-1).topk(min(top, Lk), -1)
            indices = Lk - 1 - indices
        else:
            best, indices = total.topk(min(top, Lk), -1)
        indices = indices.masked_fill(best.isneginf(), 0 if way == "unused_is_zero" else -1)
        if way == "next_key":
            indices = torch.where((indices >= 0) & (indices < Lk - 1), indices + 1, indices)
        if way == "one_fewer":
            indices[..., -1] = -1
        if way == "first_twice":
            indices[..., 1] = indices[..., 0]
        if way == "beyond_the_end":
            indices = torch.where(indices == Lk - 1, Lk, indices)
        indices = torch.nn.functional.pad(indices, (0, top - indices.shape[-1]), value=-1)
        return (indices.sort(-1).values if way == "ascending" else indices).int()

    return call


def prepare_blocks(setup, way=""):
    """The choice of blocks under a causal mask, one query and head at a time."""
    import torch

    case = setup.case
    block, top, operation = case.size("block"), case.size("top"), case.operation
    count = -(-case.Lk // block)

    def scores_of(i, q, k):
        """Return the score of each block for query i: q of one head, or of those that choose together."""
        own = i + case.Lk - case.Lq
        dots = q @ k.mT
        found = torch.full((count,), -torch.inf)
        if operation == "select_compressed":
            stride, length = case.size("stride"), case.size("length")
            seen = max(0, (own + 1 - length) // stride + 1)
            seen = len(k) if way == "later_compressed_keys" else seen
            weights = dots[:, :seen] * case.D**-0.5
            weights = (weights if way == "scores_for_weights" else weights.softmax(-1)).sum(0).tolist()
        for n in range(own // block + 1):
            keys = slice(n * block, min(case.Lk, (n + 1) * block))
            if operation == "select_mean":
                one = {"first_key_of_the_block": k[keys][:1], "largest_key_of_the_block": k[keys]}
                found[n] = (q @ one.get(way, k[keys].mean(0, keepdim=True)).mT).amax()
            elif operation == "select_largest":
                last = keys.start + block // 2 if way == "half_of_the_block" else own + 1
                some = dots[:, keys.start : min(last, keys.stop)].sum(0)
                found[n] = some.mean() if way == "mean_of_the_block" else some.amax()
                found[n] = some.abs().amax() if way == "largest_size" else found[n]
            else:
                # Strides of this block, and of a compressed key each that lies in it.
                total = 0.0
                for c in range(max(0, (keys.start - length) // stride), min(seen, (n + 1) * block // stride)):
                    reach = range(c * stride, c * stride + length, stride)
                    inside = sum(keys.start <= at < (n + 1) * block for at in reach)
                    if way == "parts_that_reach_in_forgotten":
                        inside = (inside == len(reach)) * inside
                    total += weights[c] * inside
                found[n] = total
        ends = {own // block}
        if operation == "select_compressed":
            ends |= {0, max(0, own // block - 1)}
            ends -= {0} if way == "first_block_not_chosen" else set()
            ends -= {own // block - 1} if way == "one_block_at_the_end" else set()
        if way != "own_block_not_chosen":
            found[list(ends)] = torch.inf
        if way == "later_blocks":
            found[own // block + 1 :] = (q @ k[own + 1 :].mT).amax() if own + 1 < case.Lk else 0
        return found

    def call(q, k):
        q, k = q.float(), k.float()
        heads = case.Hkv if operation == "select_compressed" else case.H
        indices = torch.full((case.B, heads, case.Lq, top), -1, dtype=torch.int32)
        for b in range(case.B):
            for h in range(heads):
                group = case.H // heads
                some = q[b, h * group : (h + 1) * group]
                if way == "heads_together":
                    some = q[b]
                if way == "blocks_of_the_first_head":
                    some = q[b, :1]
                keys = k[b, h * group // case.group]
                for i in range(case.Lq):
                    best, found = scores_of(i, some[:, i], keys).topk(min(top, count))
                    found = found.masked_fill(best.isneginf(), -1)
                    if way == "places_of_keys":
                        found = torch.where(found >= 0, found * block, found)
                    indices[b, h, i, : len(found)] = found
        return indices

    return call


def packed(setup, way=""):
    """Take one packed sequence after the other."""
    import torch

    def call(q, k, weights, ends_q, ends_k):
        out = torch.full((len(q), setup.case.Hkv, setup.case.size("top")), -1, dtype=torch.int32)
        for (begin, end), (first, last) in zip(
            pairwise(ends_q.tolist()), pairwise(ends_k.tolist()), strict=True
        ):
            if end > begin and last > first:
                given = (x.transpose(0, 1)[None] for x in (q[begin:end], k[first:last], weights[begin:end]))
                found = prepare(setup, "", end - begin, last - first)(*given)[0].transpose(0, 1)
                offset = first if way == "counts_from_the_first_sequence" else 0
                out[begin:end] = torch.where(found >= 0, found + offset, found)
        return out

    return call


@hookimpl
def attnbench_backends():
    for name in (*RIGHT, *MISTAKES):
        yield Backend(
            name=name,
            summary=name,
            prepare=lambda setup, way=name: prepare(setup, way),
            operations=("select",),
            rules=("scaled_dot",),
            masks=("any",),
        )
    for name in ("blocks", *{way for ways in BLOCK_MISTAKES.values() for way in ways}):
        yield Backend(
            name=name,
            summary=name,
            prepare=lambda setup, way=name: prepare_blocks(setup, way),
            operations=tuple(BLOCK_MISTAKES),
            rules=("scaled_dot",),
            masks=("any",),
        )
    for name in ("packed_choice", "counts_from_the_first_sequence"):
        yield Backend(
            name=name,
            summary=name,
            prepare=lambda setup, way=name: packed(setup, way),
            operations=("select",),
            rules=("scaled_dot",),
            storages=("packed",),
            masks=("any",),
        )
