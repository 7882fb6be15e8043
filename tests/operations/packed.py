"""A plugin for the storage packed: a plain backend with gradients, other right ways to compute the same, its
planted mistakes, and a storage of its own that holds numbers in the same way.

Queries are (T, H, D), keys and values (S, Hkv, ·), the log-sum-exp (T, H), and ``cu_seqlens`` say where each
sequence begins.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

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
    "keeps outputs by the first sequence": ("out", 1),
    "all over the first": ("out", 0),
    "keys by the lengths of queries": ("out", 2),
    "padding attended": ("lse", 4),
    "empty rows see a key": ("out", 4),
    "ragged last block dropped": ("out", 2),
    "last head by the first group": ("out", 0),
    "halves averaged": ("out", 0),
    "halves merged in base 2": ("out", 0),
    "lse of empty rows is 0": ("lse", 4),
    "lse without the scale": ("lse", 0),
    "lse of the row before": ("lse", 0),
    "lse of the other half": ("lse", 0),
    "window of one key too many": ("out", 0),
    "sink counted in lse": ("lse", 0),
    "NaN gradients of empty rows": ("q", 4),
    "gradients without queries not written": ("k", 6),
    "lengths of 8 bytes read as 4": ("lse", 0),
}
"""By name, the part and the first sequence that are wrong in the case of the test."""

OTHER_CASES = {"window of one key too many": "window", "sink counted in lse": "sinks"}
"""By name, what the case of a mistake has besides."""


def other_case(text, other):
    """Return the id of a case that has a window or sinks besides."""
    if other == "window":
        return text.replace("causal:lower_right", "causal:lower_right+window:5")
    return text.replace("scaled_dot", "sinks") if other == "sinks" else text


BY_COMPANY = "in double precision in company"
BY_PLACE = "fourth sequence in double precision"
BY_THREADS = "in double precision in company and with two threads"
"""Right, but the bits of a sequence depend on whether there are others, on its place, or on threads too."""

RIGHT = (
    BY_COMPANY,
    BY_PLACE,
    BY_THREADS,
    "halves merged by lse",
    "padded to blocks of 16",
    "in double precision",
    "block after block",
    "in powers of two",
    "last sequence first",
    "queries one at a time",
)
"""Other ways to compute the same, which are right."""


@hookimpl
def attnbench_storages():
    yield replace(storage_named("packed"), name=OWN_STORAGE)


class Packed:
    """The prepared function: attention of one sequence after the other, whose lengths are known before."""

    def __init__(self, setup, mistake):
        self.case, self.mistake, self.places, self.kept = setup.case, mistake, [], {}
        self.sink = setup.scoring.sink

    def renew(self, ahead):
        """Read where sequences begin, untimed."""
        q, k = (ahead[f"cu_seqlens_{of}"] for of in "qk")
        if self.mistake == "lengths of 8 bytes read as 4":
            import torch

            k = k.long().view(torch.int32)[: len(q)]
        q, k = q.tolist(), k.tolist()
        self.places = list(zip(q, q[1:], k, k[1:], strict=False))

    def __call__(self, q, k, v, cu_seqlens_q, cu_seqlens_k):
        import torch

        address = q.data_ptr()
        if self.mistake == "keeps outputs by the first sequence":
            # As if all others stayed the same when it does.
            _, end, _, end_key = self.places[0]
            own = (q[:end], k[:end_key], v[:end_key])
            address = tuple(tuple(x.detach().double().flatten().tolist()) for x in own)
        if self.mistake.startswith("keeps outputs") and address in self.kept:
            return tuple(x.clone() for x in self.kept[address])
        if self.mistake == "gradients without queries not written" and k.requires_grad:
            k, v = self.without(k), self.without(v)
        outs, sums = zip(*self.each(q, k, v), strict=True)
        if self.mistake == "equal sequences exchanged":
            outs = (outs[1], outs[0], *outs[2:])
        if self.mistake == "all over the first":
            outs = (outs[1], *map(torch.zeros_like, outs[1:]))
        found = torch.cat(outs), torch.cat(sums)
        if self.mistake == "lse of the row before":
            found = found[0], found[1].roll(1, 0)
        if self.mistake.startswith("keeps outputs"):
            self.kept[address] = tuple(x.detach().clone() for x in found)
        return found if self.case.returns else found[0]

    def without(self, x):
        """Return keys or values whose gradients stay as they were in memory where no query sees them."""
        import torch

        lost = torch.zeros(len(x), 1, 1, dtype=torch.bool)
        for first, end, first_key, end_key in self.places:
            lost[first_key:end_key] = first == end
        same = x.view_as(x)
        same.register_hook(lambda gradient: gradient.masked_fill(lost, 0.5))
        return same

    def each(self, q, k, v):
        if self.mistake == "last sequence first":
            yield from list(self.in_order(list(enumerate(self.places))[::-1], q, k, v))[::-1]
        else:
            yield from self.in_order(enumerate(self.places), q, k, v)

    def in_order(self, places, q, k, v):
        import torch

        for number, (first, end, first_key, end_key) in places:
            if self.mistake == "keys by the lengths of queries":
                end_key = min(end_key, first_key + max(1, end - first))
            keys, values = k[first_key:end_key], v[first_key:end_key]
            if self.mistake == "no gradient of a key" and number == 2:
                keys = keys.detach() + 0 * keys
            if self.mistake == "gradient of the neighbour" and number < 2:
                other = v[slice(*self.places[1 - number][2:])]
                values = values.detach() + other - other.detach()
            if self.mistake == "first key of the next" and number == 0:
                keys, values = k[first_key : end_key + 1], v[first_key : end_key + 1]
            self.number = number
            if self.mistake == "queries one at a time" and end > first:
                # In a causal case, a query has the keys up to its own.
                seen = [max(0, len(keys) - (end - 1 - at)) for at in range(first, end)]
                rows = [
                    self.one(q[at : at + 1], keys[:count], values[:count], count)
                    for at, count in zip(range(first, end), seen, strict=True)
                ]
                yield tuple(torch.cat(part) for part in zip(*rows, strict=True))
                continue
            yield self.one(q[first:end], keys, values, end_key - first_key)

    def one(self, q, k, v, length):
        import torch

        case, mistake, queries = self.case, self.mistake, len(q)
        heads = torch.arange(case.H) // case.group
        if mistake == "heads tiled":
            heads = torch.arange(case.H) % case.Hkv
        if mistake == "last head by the first group":
            heads[-1] = 0
        if mistake in ("padded to blocks of 16", "padding attended"):
            k, v = (torch.cat([x, x.new_zeros(-len(x) % 16, *x.shape[1:])]) for x in (k, v))
        double = mistake == "in double precision" or (mistake == BY_COMPANY and case.B > 1)
        double |= mistake == BY_PLACE and self.number == 3
        double |= mistake == BY_THREADS and case.B > 1 and torch.get_num_threads() > 1
        wide = torch.float64 if double else torch.float32
        scores = torch.einsum("ihd,jhd->hij", q.to(wide), k[:, heads].to(wide)) * case.D**-0.5
        if not case.mask.is_none:
            offset = 0 if mistake == "upper left" else length - queries
            later = torch.ones(queries, len(k)).triu(offset + 1).bool()
            if mistake != "padded to blocks of 16":
                later[:, length:] = False
            if case.mask.window is not None:
                wide_window = case.mask.window + (mistake == "window of one key too many")
                later |= torch.ones(queries, len(k)).tril(offset - wide_window).bool()
            if mistake == "NaN gradients of empty rows":
                # Gradients of NaN flow through a sum, and not through scores that are replaced.
                scores = scores + torch.zeros(later.shape).masked_fill(later, -torch.inf)
            else:
                scores = scores.masked_fill(later, -torch.inf)
        if mistake == "last key of a decode" and queries == 1 and length > 1:
            scores = torch.cat([scores[..., :-1], torch.full_like(scores[..., -1:], -torch.inf)], -1)
        if mistake == "padded to blocks of 16":
            scores[..., length:] = -torch.inf
        if mistake == "ragged last block dropped" and length > 16:
            scores[..., length // 16 * 16 :] = -torch.inf
        values = v[:, heads].to(wide)
        parts = self.parts(scores, values)
        out, lse = parts[0] if len(parts) == 1 else merged(parts, mistake)
        empty = lse.isneginf()
        if mistake == "empty rows" and len(k):
            out = out.masked_fill(empty.T[..., None], 0.25)
        if mistake == "empty rows see a key" and len(k):
            out = torch.where(empty.T[..., None], values[0], out)
        if self.sink is not None:
            out = out * (lse - self.sink[:, None]).sigmoid().T[..., None]
        if mistake == "sink counted in lse":
            lse = lse.logaddexp(self.sink[:, None]).masked_fill(empty, -torch.inf)
        out = out.to(q.dtype)
        if mistake == "largest score as lse" and len(k):
            lse = scores.amax(-1)
        if mistake == "lse without the scale":
            lse = (scores * case.D**0.5).logsumexp(-1)
        if mistake == "lse of the other half" and len(k) > 1:
            lse = scores[..., : len(k) // 2].logsumexp(-1)
        if mistake == "lse of empty rows is 0":
            lse = lse.masked_fill(empty, 0)
        if mistake == "lse in base 2":
            lse = lse * 1.4426950408889634
        if mistake == "lse of empty rows":
            lse = lse.masked_fill(empty, torch.inf)
        return out, lse.T.float()

    def parts(self, scores, values):
        """Return outputs (Lq, H, Dv) with log-sum-exps (H, Lq) over all keys, or over some of them each."""
        size, ways = len(values), {"block after block": 4, "halves merged by lse": 2}
        count = ways.get(self.mistake, 2 if self.mistake.startswith("halves") else 1)
        ends = [size * part // count for part in range(count + 1)]
        return [attended(scores[..., a:b], values[a:b], self.mistake) for a, b in pairwise(ends)]


def attended(scores, values, way):
    """Return the output and the log-sum-exp of scores (H, Lq, keys); 0 and -inf in rows without keys."""
    import torch

    lse = scores.logsumexp(-1)
    if way == "in powers of two" and len(values):
        largest = scores.amax(-1, keepdim=True).clamp(min=-1e30)
        powers = torch.exp2((scores - largest) * 1.4426950408889634)
        total = powers.sum(-1, keepdim=True)
        weights, lse = powers / total.clamp(min=1e-30), largest[..., 0] + total[..., 0].log()
    else:
        empty = lse.isneginf()[..., None]
        if way != "NaN gradients of empty rows":
            scores = scores.masked_fill(empty, 0)
        weights = scores.softmax(-1).masked_fill(empty, 0)
    return torch.einsum("hij,jhe->ihe", weights, values), lse


def merged(parts, way):
    """Merge outputs over parts of the keys by their log-sum-exps, as cascades and split keys do."""
    import torch

    sums = torch.stack([lse for _, lse in parts])
    lse = sums.logsumexp(0)
    powers = (sums - lse.masked_fill(lse.isneginf(), 0)) * (0.6931 if way == "halves merged in base 2" else 1)
    weights = powers.exp()
    if way == "halves averaged":
        weights = torch.full_like(sums, 1 / len(parts))
    out = sum(w.T[..., None] * out for w, (out, _) in zip(weights, parts, strict=True))
    return out, lse


def supports(case, rule):
    if case.constants:
        return "scales by the root of D alone"
    right = Mask(), Mask(causal="lower_right"), Mask(causal="lower_right", window=case.mask.window)
    return None if case.mask in right else "needs causal:lower_right, with a window or not, or no mask"


def name_of(way):
    """Return the name of a backend that computes in this way."""
    kind = "right_" if way in RIGHT else "wrong_"
    return kind + way.replace(" ", "_") if way else "one_by_one"


@hookimpl
def attnbench_backends():
    for mistake in ("", *RIGHT, *MISTAKES):
        yield Backend(
            name=name_of(mistake),
            summary=mistake or "attention of one sequence after the other",
            prepare=lambda setup, mistake=mistake: Packed(setup, mistake),
            supports=supports,
            rules=("sinks",) if "sink" in mistake else ("scaled_dot",),
            dtypes=("float32", "bfloat16", "float16"),
            passes=("forward",) if mistake in RIGHT else ("forward", "backward", "both"),
            storages=("packed", OWN_STORAGE),
            returns=("lse",),
        )
