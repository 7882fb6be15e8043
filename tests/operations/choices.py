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
    "own_block_not_chosen": "",
    "later_blocks": "is a block that the mask drops",
    "first_key_of_the_block": "",
    "largest_key_of_the_block": "",
    "places_of_keys": "names no block: there are 7",
    "blocks_of_the_first_head": "",
}
"""The same of choices of blocks."""
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
    """The choice of blocks, for equal heads of queries and keys under a causal mask."""
    import torch

    case = setup.case
    block, top = case.size("block"), case.size("top")
    count = -(-case.Lk // block)

    def call(q, k):
        padded = torch.nn.functional.pad(k, (0, 0, 0, count * block - case.Lk)).unflatten(2, (count, block))
        sizes = torch.full((count, 1), float(block))
        sizes[-1] = case.Lk - (count - 1) * block
        means = padded.float().sum(3) / sizes
        if way == "first_key_of_the_block":
            means = padded[:, :, :, 0].float()
        scores = q.float() @ means.mT
        if way == "largest_key_of_the_block":
            scores = (q.float() @ padded.flatten(2, 3).float().mT).unflatten(-1, (count, block)).amax(-1)
        if way == "blocks_of_the_first_head":
            scores = scores[:, :1].expand_as(scores).clone()
        own = (torch.arange(case.Lq) + case.Lk - case.Lq)[:, None] // block
        places = torch.arange(count)
        if way != "own_block_not_chosen":
            scores = scores.masked_fill(places == own, torch.inf)
        if way != "later_blocks":
            scores = scores.masked_fill(places > own, -torch.inf)
        best, indices = scores.topk(min(top, count), -1)
        indices = indices.masked_fill(best.isneginf(), -1)
        if way == "places_of_keys":
            indices = torch.where(indices >= 0, indices * block, indices)
        return torch.nn.functional.pad(indices, (0, top - indices.shape[-1]), value=-1).int()

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
    for name in ("blocks", *BLOCK_MISTAKES):
        yield Backend(
            name=name,
            summary=name,
            prepare=lambda setup, way=name: prepare_blocks(setup, way),
            operations=("select",),
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
