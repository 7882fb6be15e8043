"""A plugin with attention to selected keys: a right way, and mistakes of honest authors."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from attnbench import Backend, hookimpl
from attnbench.kit.masks import keep_mask

TOKENS = "selected/scaled_dot/B3-H4-Hkv2-L37-D8-top12/causal/{}"
BLOCKS = "selected/scaled_dot/B3-H4-Hkv2-L37-D8-block8-top3/causal/{}"

MISTAKES = {
    "unused_is_the_last_key": TOKENS,
    "unused_is_the_first_key": TOKENS,
    "unused_in_the_denominator": TOKENS,
    "stops_at_the_first_unused": TOKENS,
    "next_key": TOKENS,
    "causal_by_place": TOKENS,
    "causal_forgotten": TOKENS,
    "last_place_lost": TOKENS,
    "rows_of_the_next_head": TOKENS,
    "rows_of_the_first_query": TOKENS,
    "row_of_the_query_before": TOKENS,
    "heads_tiled": TOKENS,
    "empty_row_is_a_mean": TOKENS,
    "scale_forgotten": TOKENS,
    "without_the_largest_score": TOKENS,
    "keeps_its_first_indices": TOKENS,
    "keeps_outputs_by_address": TOKENS,
    "blocks_of_half_the_size": BLOCKS,
    "blocks_of_twice_the_size": BLOCKS,
    "last_block_left_out": BLOCKS,
    "last_block_read_beyond_its_end": BLOCKS,
    "first_key_of_a_block_alone": BLOCKS,
    "causal_by_block": BLOCKS,
    "own_block_always_read": BLOCKS,
}
"""By name, the case that shows it."""

LATENT = "selected/scaled_dot@scale=0.2/B2-H4-Hkv1-L37-D12-Dv8-top12/causal/{}/kv=latent"
LATENT_MISTAKES = ("values_are_the_last_features", "scale_of_the_latent_head")

PACKED = "selected/scaled_dot/q9s37_q0s5_2q5s20_q4s0_q1s33-H4-Hkv2-D8-top6/causal:lower_right/{}/{}"
PACKED_MISTAKES = {
    "indices_count_from_the_first_sequence": 2,
    "indices_count_from_the_queries_before": 2,
    "indices_of_the_next_sequence": 0,
    "equal_sequences_exchanged": 2,
}
"""By name, the first sequence that is wrong."""


def prepare(setup, mistake=""):
    import torch

    case = setup.case
    block, top = case.size("block"), case.size("top")
    scale = 1 if mistake == "scale_forgotten" else case.D**-0.5
    allowed = keep_mask(case, "cpu")
    remembered = {}
    if allowed is None or mistake == "causal_forgotten":
        allowed = torch.ones(1, 1, case.Lq, case.Lk, dtype=torch.bool)
    allowed = allowed.expand(case.B, case.H, case.Lq, case.Lk)
    size = {"blocks_of_half_the_size": block // 2, "blocks_of_twice_the_size": 2 * block}.get(mistake, block)

    def call(q, k, v, indices):
        address = q.data_ptr()
        if mistake == "keeps_outputs_by_address" and address in remembered:
            return remembered[address].clone()
        if mistake == "keeps_its_first_indices":
            indices = remembered.setdefault("indices", indices.clone())
        if mistake == "rows_of_the_next_head":
            indices = indices.roll(-1, 1)
        if mistake == "rows_of_the_first_query":
            indices = indices[:, :, :1].expand_as(indices)
        if mistake == "row_of_the_query_before":
            indices = torch.cat([indices[:, :, :1], indices[:, :, :-1]], 2)
        if mistake == "last_place_lost":
            indices = indices[..., : top - 1]
        if mistake == "stops_at_the_first_unused":
            indices = indices.masked_fill((indices < 0).cumsum(-1) > 0, -1)
        if mistake == "last_block_left_out":
            indices = indices.masked_fill(indices == (case.Lk - 1) // block, -1)
        if mistake == "own_block_always_read":
            own = (torch.arange(case.Lq) // block)[:, None].expand(*indices.shape[:3], 1)
            indices = torch.cat([indices.masked_fill(indices == own, -1), own.int()], -1)
        order = torch.arange(case.H) // case.group
        if mistake == "heads_tiled":
            order = torch.arange(case.H) % case.Hkv
        k, v, indices = (x[:, order] for x in (k, v, indices))
        places = (indices.long()[..., None] * size + torch.arange(size)).flatten(-2)
        used = (indices >= 0).repeat_interleave(size, -1)
        if mistake == "unused_is_the_last_key":
            places, used = torch.where(used, places, case.Lk - 1), torch.ones_like(used)
        if mistake == "unused_is_the_first_key":
            places, used = torch.where(used, places, 0), torch.ones_like(used)
        if mistake == "next_key":
            places = places + 1
        if mistake == "first_key_of_a_block_alone":
            used = used & (places % block == 0)
        if mistake != "last_block_read_beyond_its_end":
            used = used & (places < case.Lk)
        places = places.clamp(0, case.Lk - 1)
        keys, values = (
            torch.take_along_dim(x[:, :, None].expand(-1, -1, case.Lq, -1, -1), places[..., None], 3)
            for x in (k, v)
        )
        kept = torch.take_along_dim(allowed, places, 3)
        if mistake == "causal_by_place":
            kept = (torch.arange(places.shape[-1]) <= torch.arange(case.Lq)[:, None]).expand_as(used)
        if mistake == "causal_by_block":
            kept = (places // block <= torch.arange(case.Lq)[:, None] // block).expand_as(used)
        scores = (q[:, :, :, None] * keys).sum(-1).float() * scale
        if mistake == "without_the_largest_score":
            powers = scores.exp() * (used & kept)
            total = powers.sum(-1, keepdim=True)
            weights = powers / total.masked_fill(total == 0, 1)
        elif mistake == "unused_in_the_denominator":
            weights = scores.masked_fill(~(used & kept), 0).softmax(-1) * (used & kept)
        elif mistake == "empty_row_is_a_mean":
            weights = scores.masked_fill(~(used & kept), torch.finfo(torch.float32).min).softmax(-1)
        else:
            weights = scores.masked_fill(~(used & kept), -torch.inf).softmax(-1).nan_to_num(0)
        out = (weights.to(v.dtype)[..., None] * values).sum(-2)
        remembered[address] = out.clone()
        return out

    return call


def prepare_latent(setup, mistake=""):
    """Attend to a latent head, whose first features are the values."""
    case = setup.case
    scale = 1 if mistake == "scale_of_the_latent_head" else dict(case.constants)["scale"] * case.D**0.5
    attend = prepare(setup)
    first = case.D - case.Dv if mistake == "values_are_the_last_features" else 0
    return lambda q, indices, kv: attend(q * scale, kv, kv[..., first : first + case.Dv], indices)


def packed(setup, mistake=""):
    """Take one packed sequence after the other."""
    import torch

    def alone(queries, keys):
        sizes = {"batch": "", "storage": "dense", "B": 1, "Lq": queries, "Lk": keys}
        return prepare(replace(setup, case=replace(setup.case, **sizes)))

    def call(q, k, v, indices, ends_q, ends_k):
        out = torch.zeros(len(q), setup.case.H, setup.case.Dv, dtype=q.dtype)
        pairs = list(zip(pairwise(ends_q.tolist()), pairwise(ends_k.tolist()), strict=True))
        if mistake == "equal_sequences_exchanged":
            pairs[2:4] = [(pairs[2][0], pairs[3][1]), (pairs[3][0], pairs[2][1])]
        for (begin, end), (first, last) in pairs:
            own = indices[begin:end]
            if mistake == "indices_of_the_next_sequence":
                own = indices[(torch.arange(begin, end) + 1) % len(q)]
            keys, values = k[first:last], v[first:last]
            if mistake == "indices_count_from_the_first_sequence" and last > first:
                keys, values = k[: last - first], v[: last - first]
            if mistake == "indices_count_from_the_queries_before" and last > first:
                keys, values = k[begin : begin + last - first], v[begin : begin + last - first]
            if end > begin and last > first:
                given = (x.transpose(0, 1)[None] for x in (q[begin:end], keys, values, own))
                out[begin:end] = alone(end - begin, last - first)(*given)[0].transpose(0, 1)
        return out

    return call


@hookimpl
def attnbench_backends():
    for name in ("by_places", *MISTAKES):
        yield Backend(
            name=name,
            summary=name,
            prepare=lambda setup, mistake=name if name in MISTAKES else "": prepare(setup, mistake),
            operations=("selected",),
            rules=("scaled_dot",),
            masks=("any",),
        )
    for name in ("latent_places", *LATENT_MISTAKES):
        yield Backend(
            name=name,
            summary=name,
            prepare=lambda setup, mistake=name: prepare_latent(setup, mistake),
            operations=("selected",),
            rules=("scaled_dot",),
            encodings=("latent",),
            masks=("any",),
        )
    for name in ("packed_places", *PACKED_MISTAKES):
        yield Backend(
            name=name,
            summary=name,
            prepare=lambda setup, mistake=name if name in PACKED_MISTAKES else "": packed(setup, mistake),
            operations=("selected",),
            rules=("scaled_dot",),
            storages=("packed",),
            masks=("any",),
        )
