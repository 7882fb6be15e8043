"""Backends for the storage paged with planted mistakes, as kernels for serving have had them."""

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
}
"""By name, the first sequence that is wrong in the case of the test."""


class Paged:
    """The prepared function: pages copied together, then matmul, softmax, matmul of each sequence."""

    def __init__(self, setup, mistake):
        self.case, self.mistake, self.places = setup.case, mistake, []

    def renew(self, ahead):
        if self.mistake == "first table kept" and self.places:
            return
        ends = ahead["cu_seqlens_q"].tolist()
        tables = ahead["block_table"].long()
        if self.mistake == "table of the neighbour":
            tables = tables.index_select(0, tables.new_tensor([0, 0, *range(2, len(tables))]))
        lengths = ahead["seqused_k"].tolist()
        self.places = list(zip(ends, ends[1:], tables.clone(), lengths, strict=False))

    def __call__(self, q, k, v, *places):
        import torch

        return torch.cat([self.one(q[a:b], k, v, table, length) for a, b, table, length in self.places])

    def one(self, q, k_pages, v_pages, table, length):
        import torch

        page, count = k_pages.shape[1], -(-length // k_pages.shape[1])
        pages = table[:count]
        if self.mistake == "page order ignored":
            pages = pages.sort().values
        if self.mistake == "one page too many" and len(q) == 1:
            pages, length = table[: count + 1].clamp(min=0), length + 1
        k, v = (x[pages].flatten(0, 1) for x in (k_pages, v_pages))
        if self.mistake == "length off by one":
            length -= 1
        if self.mistake == "last page whole":
            length = count * page
        if self.mistake != "keys of unused slots":
            k, v = k[:length], v[:length]
        group = self.case.group
        k, v = (x.repeat_interleave(group, 1).transpose(0, 1).float() for x in (k, v))
        scores = q.transpose(0, 1).float() @ k.mT * self.case.D**-0.5
        later = torch.ones(len(q), k.shape[1]).triu(length - len(q) + 1).bool()
        scores = scores.masked_fill(later, -torch.inf)
        weights = scores.softmax(-1).nan_to_num(0)
        return (weights @ v).to(q.dtype).transpose(0, 1)


def supports(case, rule):
    if case.constants:
        return "scales by the root of D alone"
    return None if case.mask == Mask(causal="lower_right") else "needs causal:lower_right"


@hookimpl
def attnbench_backends():
    for mistake in ("", *MISTAKES):
        yield Backend(
            name="wrong_" + mistake.replace(" ", "_") if mistake else "copied_pages",
            summary=mistake or "pages copied together, then each sequence",
            prepare=lambda setup, mistake=mistake: Paged(setup, mistake),
            supports=supports,
            rules=("scaled_dot",),
            storages=("paged",),
        )
