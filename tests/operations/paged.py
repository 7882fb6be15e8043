"""Backends for the storage paged: right ones, and planted mistakes as kernels for serving have had them."""

from __future__ import annotations

from attnbench import Backend, Mask, hookimpl

MISTAKES = {
    "page order ignored": 0,
    "last page whole": 0,
    "table of the neighbour": 1,
    "length off by one": 0,
    "keys of unused slots": 0,
    "first table kept": 0,
    "one page too many": 2,
    "zero weight times NaN": 0,
    "finite mask": 0,
    "pages twice as large": 0,
    "values a page further": 0,
    "row of the table too short": 1,
    "length of the last page of the neighbour": 0,
    "empty sequence reads its first entry": 4,
    "table kept by its address": 0,
    "first page twice": 0,
    "pages counted from the end": 0,
    "each page belongs to one sequence": 0,
    "first cache kept": 0,
    "slots of a page turned round": 3,
    "values converted as keys": 0,
    "table ignored": 0,
    "offsets of pages overflow": 0,
    "scale of a cache that has none": 0,
}
"""By name, the first sequence that is wrong in the case of the test."""

RIGHT = (
    "pages sorted",
    "slots without a key cleared",
    "whole table, values cleared",
    "own order of the cache",
    "split keys merged by lse",
)
"""Other ways to compute the same, which are right."""


CONVERTS = (
    "own order of the cache",
    "first cache kept",
    "slots of a page turned round",
    "values converted as keys",
)
"""Ways that hold the cache as (pages, Hkv, page, features)."""


class Paged:
    """The prepared function: pages copied together, then matmul, softmax, matmul of each sequence."""

    def __init__(self, setup, mistake):
        self.case, self.mistake, self.places, self.kept = setup.case, mistake, [], {}

    def convert(self, cache):
        if self.mistake == "first cache kept" and self.kept:
            return self.kept
        self.kept = {name: x.transpose(1, 2).contiguous() for name, x in cache.items()}
        if self.mistake == "slots of a page turned round":
            self.kept["v"] = self.kept["v"].flip(2)
        if self.mistake == "values converted as keys":
            self.kept["v"] = self.kept["k"].clone()
        return self.kept

    def renew(self, ahead):
        if self.mistake == "first table kept" and self.places:
            return
        if self.mistake == "table kept by its address":
            address = ahead["block_table"].data_ptr()
            ahead = self.kept.setdefault(address, {name: x.clone() for name, x in ahead.items()})
        ends = ahead["cu_seqlens_q"].tolist()
        tables = ahead["block_table"].long()
        if self.mistake == "table of the neighbour":
            tables = tables.index_select(0, tables.new_tensor([0, 0, *range(2, len(tables))]))
        lengths = ahead["seqused_k"].tolist()
        if self.mistake == "row of the table too short":
            entries, width = tables.flatten(), tables.shape[1]
            tables = tables.new_tensor(
                [
                    [
                        int(entries[min(row * (width - 1) + column, len(entries) - 1)])
                        for column in range(width)
                    ]
                    for row in range(len(tables))
                ]
            )
        self.tables, self.lengths = tables, lengths
        self.places = list(zip(ends, ends[1:], tables.clone(), lengths, strict=False))

    def __call__(self, q, k, v, *places):
        import torch

        if self.mistake in CONVERTS:
            k, v = (x.transpose(1, 2) for x in (k, v))
        if self.mistake == "pages twice as large":
            # As if the size of a page were another than that of the cache.
            k, v = (x[: len(x) // 2 * 2].reshape(-1, 2 * x.shape[1], *x.shape[2:]) for x in (k, v))
        places = self.places
        if self.mistake == "length of the last page of the neighbour":
            page, lengths = k.shape[1], [length for *_, length in places]
            lengths = [
                max(0, (own - 1) // page * page + (other - 1) % page + 1)
                for own, other in zip(lengths, lengths[1:] + lengths[:1], strict=True)
            ]
            places = [(*place[:3], length) for place, length in zip(places, lengths, strict=True)]
        found = []
        for self.number, (a, b, table, length) in enumerate(places):
            found.append(self.one(q[a:b], k, v, table, length))
        return torch.cat(found)

    def one(self, q, k_pages, v_pages, table, length):
        import torch

        page, count = k_pages.shape[1], -(-length // k_pages.shape[1])
        pages = table[:count]
        if self.mistake == "page order ignored":
            pages = pages.sort().values
        if self.mistake == "one page too many" and len(q) == 1:
            pages, length = table[: count + 1].clamp(min=0), length + 1
        if self.mistake == "empty sequence reads its first entry" and length == 0:
            pages, length = table[:1].clamp(min=0), 1
        if self.mistake == "each page belongs to one sequence":
            # As with a table from pages to sequences, in which a later sequence replaces an earlier one.
            used = [x[: -(-n // page)].tolist() for x, n in zip(self.tables, self.lengths, strict=True)]
            last = {one: number for number, own in enumerate(used) for one in own}
            kept = [last[one] == self.number for one in pages.tolist()]
        if self.mistake == "table ignored":
            before = [-(-n // page) for n in self.lengths[: self.number]]
            pages = sum(before) + torch.arange(count)
        if self.mistake == "offsets of pages overflow":
            # As if an offset were a number of 6 bits.
            pages = pages % (64 // page)
        if self.mistake == "first page twice" and count > 1:
            pages = torch.cat([pages[:1], pages[:1], pages[2:]])
        if self.mistake == "pages counted from the end":
            pages = len(k_pages) - 1 - pages
        if self.mistake == "pages twice as large":
            pages = pages.clamp(max=len(k_pages) - 1)
        if self.mistake in ("whole table, values cleared", "finite mask"):
            pages = table.clamp(min=0)
        k, v = (x[pages].flatten(0, 1) for x in (k_pages, v_pages))
        if self.mistake == "values a page further":
            v = v_pages[(pages + 1) % len(v_pages)].flatten(0, 1)
        if self.mistake == "pages sorted":
            # Sorted pages read the cache in order; what was read then goes back to its place.
            order = pages.argsort()
            back = order.argsort()
            k, v = (x[pages[order]][back].flatten(0, 1) for x in (k_pages, v_pages))
        if self.mistake in ("slots without a key cleared", "whole table, values cleared"):
            k, v = (x.index_fill(0, torch.arange(length, len(x)), 0) for x in (k, v))
        if self.mistake == "length off by one":
            length -= 1
        if self.mistake == "last page whole":
            length = count * page
        all_slots = (
            "keys of unused slots", "zero weight times NaN", "finite mask", "slots without a key cleared",
            "whole table, values cleared",
        )  # fmt: skip
        if self.mistake not in all_slots:
            k, v = k[:length], v[:length]
        group = self.case.group
        wide = torch.float64 if q.dtype == torch.float64 else torch.float32
        k, v = (x.repeat_interleave(group, 1).transpose(0, 1).to(wide) for x in (k, v))
        if self.mistake == "scale of a cache that has none":
            k, v = 0.31 * k, 0.13 * v
        scores = q.transpose(0, 1).to(wide) @ k.mT * self.case.D**-0.5
        later = torch.ones(len(q), k.shape[1]).triu(length - len(q) + 1).bool()
        if self.mistake == "keys of unused slots":
            # As if it took them for a maximum before it masks them.
            scores = scores + 0 * scores[..., -1:]
        scores = scores.masked_fill(later, -1e4 if self.mistake == "finite mask" else -torch.inf)
        if self.mistake == "each page belongs to one sequence":
            theirs = ~torch.tensor(kept, dtype=torch.bool).repeat_interleave(page)[:length]
            scores = scores.masked_fill(theirs, -torch.inf)
        if self.mistake == "split keys merged by lse":
            return self.merged(scores, v).to(q.dtype).transpose(0, 1)
        weights = scores.softmax(-1).nan_to_num(0)
        return (weights @ v).to(q.dtype).transpose(0, 1)

    def merged(self, scores, v):
        """Merge the outputs over two halves of the keys, as split keys do."""
        import torch

        half = scores.shape[-1] // 2
        parts = (scores[..., :half], v[:, :half]), (scores[..., half:], v[:, half:])
        outs = [part.softmax(-1).nan_to_num(0) @ values for part, values in parts]
        sums = torch.stack([part.logsumexp(-1, keepdim=True) for part, _ in parts])
        shares = (sums - sums.logsumexp(0)).exp().nan_to_num(0)
        return sum(share * out for share, out in zip(shares, outs, strict=True))


def supports(case, rule):
    if case.constants:
        return "scales by the root of D alone"
    return None if case.mask == Mask(causal="lower_right") else "needs causal:lower_right"


def name_of(way):
    """Return the name of a backend that computes in this way."""
    kind = "wrong_" if way in MISTAKES else "right_"
    return kind + way.replace(" ", "_").replace(",", "") if way else "copied_pages"


@hookimpl
def attnbench_backends():
    for mistake in ("", *RIGHT, *MISTAKES):
        yield Backend(
            name=name_of(mistake),
            summary=mistake or "pages copied together, then each sequence",
            prepare=lambda setup, mistake=mistake: Paged(setup, mistake),
            supports=supports,
            rules=("scaled_dot",),
            storages=("paged",),
            converts=("k", "v") if mistake in CONVERTS else (),
        )
