"""A plugin for the storage packed: a plain backend with gradients, its planted mistakes, and a storage of its
own that holds numbers in the same way.

Queries are (T, H, D), keys and values (S, Hkv, ·), the log-sum-exp (T, H), and ``cu_seqlens`` say where each
sequence begins.
"""

from __future__ import annotations

from dataclasses import replace

from attnbench import Backend, Mask, hookimpl
from attnbench.types.storage import storage_named

OWN_STORAGE = "one_after_another"
MISTAKES = {
    "last key of a decode": ("out", 3),
    "upper left": ("lse", 4),
    "heads tiled": ("out", 0),
    "first key of the next": ("out", 0),
    "equal sequences exchanged": ("out", 0),
    "empty rows": ("out", 4),
    "lse in base 2": ("lse", 0),
    "lse of empty rows": ("lse", 4),
    "largest score as lse": ("lse", 0),
    "no gradient of a key": ("k", 2),
    "gradient of the neighbour": ("v", 0),
    "keeps outputs by address": ("out", 0),
}
"""By name, the part and the first sequence that are wrong in the case of the test."""


@hookimpl
def attnbench_storages():
    yield replace(storage_named("packed"), name=OWN_STORAGE)


class Packed:
    """The prepared function: attention of one sequence after the other, whose lengths are known before."""

    def __init__(self, setup, mistake):
        self.case, self.mistake, self.places, self.kept = setup.case, mistake, [], {}

    def renew(self, ahead):
        """Read where sequences begin, untimed."""
        q, k = (ahead[f"cu_seqlens_{of}"].tolist() for of in "qk")
        self.places = list(zip(q, q[1:], k, k[1:], strict=False))

    def __call__(self, q, k, v, cu_seqlens_q, cu_seqlens_k):
        import torch

        address = q.data_ptr()
        if self.mistake == "keeps outputs by address" and address in self.kept:
            return tuple(x.clone() for x in self.kept[address])
        outs, sums = zip(*self.each(q, k, v), strict=True)
        if self.mistake == "equal sequences exchanged":
            outs = (outs[1], outs[0], *outs[2:])
        found = torch.cat(outs), torch.cat(sums)
        if self.mistake == "keeps outputs by address":
            self.kept[address] = tuple(x.detach().clone() for x in found)
        return found if self.case.returns else found[0]

    def each(self, q, k, v):
        for number, (first, end, first_key, end_key) in enumerate(self.places):
            keys, values = k[first_key:end_key], v[first_key:end_key]
            if self.mistake == "no gradient of a key" and number == 2:
                keys = keys.detach() + 0 * keys
            if self.mistake == "gradient of the neighbour" and number < 2:
                other = v[slice(*self.places[1 - number][2:])]
                values = values.detach() + other - other.detach()
            if self.mistake == "first key of the next" and number == 0:
                keys, values = k[first_key : end_key + 1], v[first_key : end_key + 1]
            yield self.one(q[first:end], keys, values, end_key - first_key)

    def one(self, q, k, v, length):
        import torch

        case, mistake, queries = self.case, self.mistake, len(q)
        heads = torch.arange(case.H) // case.group
        if mistake == "heads tiled":
            heads = torch.arange(case.H) % case.Hkv
        scores = torch.einsum("ihd,jhd->hij", q.float(), k[:, heads].float()) * case.D**-0.5
        if not case.mask.is_none:
            offset = 0 if mistake == "upper left" else length - queries
            later = torch.ones(queries, len(k)).triu(offset + 1).bool()
            later[:, length:] = False
            scores = scores.masked_fill(later, -torch.inf)
        if mistake == "last key of a decode" and queries == 1 and length > 1:
            scores = torch.cat([scores[..., :-1], torch.full_like(scores[..., -1:], -torch.inf)], -1)
        lse = scores.logsumexp(-1)
        empty = lse.isneginf()
        weights = scores.softmax(-1)
        if mistake != "empty rows":
            weights = weights.masked_fill(empty[..., None], 0)
        out = torch.einsum("hij,jhe->ihe", weights, v[:, heads].float()).to(q.dtype)
        if mistake == "largest score as lse" and len(k):
            lse = scores.amax(-1)
        if mistake == "lse in base 2":
            lse = lse * 1.4426950408889634
        if mistake == "lse of empty rows":
            lse = lse.masked_fill(empty, torch.inf)
        return out, lse.T


def supports(case, rule):
    if case.constants:
        return "scales by the root of D alone"
    return (
        None if case.mask in (Mask(), Mask(causal="lower_right")) else "needs causal:lower_right or no mask"
    )


@hookimpl
def attnbench_backends():
    for mistake in ("", *MISTAKES):
        yield Backend(
            name="wrong_" + mistake.replace(" ", "_") if mistake else "one_by_one",
            summary=mistake or "attention of one sequence after the other",
            prepare=lambda setup, mistake=mistake: Packed(setup, mistake),
            supports=supports,
            rules=("scaled_dot",),
            dtypes=("float32", "bfloat16", "float16"),
            passes=("forward", "backward", "both"),
            storages=("packed", OWN_STORAGE),
            returns=("lse",),
        )
