"""A plugin with an encoding of its own: int8 keys with a scale for each token, whose first features are the
values. It brings a kernel, other right ways to compute the same, and planted mistakes.

Codes are (S, Hkv, D) in packed sequences and (B, Hkv, Lk, D) in dense ones, scales the same without D.
"""

from __future__ import annotations

from dataclasses import replace

from attnbench import Backend, hookimpl
from attnbench.types.encoding import Encoding
from attnbench.types.operation import TensorSpec

MISTAKES = {
    "scales ignored": ("out", 0),
    "scales squared": ("out", 0),
    "scales in bfloat16": ("out", 0),
    "scale of the next token": ("out", 0),
    "scale of the next head": ("out", 0),
    "scales from the first sequence on": ("out", 1),
    "scales of the first call": ("out", 0),
    "keys without their scale": ("out", 0),
    "values without their scale": ("out", 0),
    "values with the first scale": ("out", 0),
    "values are the last features": ("out", 0),
    "every second feature is a value": ("out", 0),
    "codes without sign": ("out", 0),
    "codes of seven bits": ("out", 0),
    "root of the features of values": ("out", 0),
    "last token of a decode": ("out", 1),
    "upper left": ("out", 0),
    "first key of the next": ("lse", 3),
    "heads tiled": ("out", 0),
    "lse of the codes": ("lse", 0),
    "lse of empty rows is 0": ("lse", 3),
}
"""By name, the part and the first sequence that are wrong in the case of the test."""

RIGHT = ("in double precision", "scores times the scale", "last sequence first")
"""Other ways to compute the same, which are right."""


def tensors(case, specs):
    keys = specs[0]
    scale = TensorSpec("kv_scale", keys.shape[:-1], "float32", axes=keys.axes[:-1])
    return replace(keys, name="kv", kind="int8"), scale


def encode(case, specs, numbers):
    import numpy as np

    keys = numbers[0]
    largest = np.abs(keys).max(-1, initial=0)
    scale = np.where(largest == 0, 1, largest / 127).astype(np.float32)
    return np.rint(keys / scale.astype(float)[..., None]).clip(-127, 127).astype(np.int8), scale


def decode(case, specs, stored):
    codes, scale = stored
    keys = codes * scale.astype(float)[..., None]
    return keys, keys[..., : case.Dv]


@hookimpl
def attnbench_encodings():
    yield Encoding(
        name="codes_as_values",
        summary="int8 keys with a scale for each token; their first features are the values",
        tensors=tensors,
        encode=encode,
        decode=decode,
        shared=True,
        keeps=("one_hot", "large_logits"),
        refuses=lambda case: "values are features of the keys" if case.Dv > case.D else None,
    )


class ByToken:
    """The prepared function: one sequence after the other, whose lengths are known before."""

    def __init__(self, setup, way):
        self.case, self.way, self.places, self.first_scale = setup.case, way, [], None

    def renew(self, ahead):
        """Read where the sequences of a batch begin, untimed."""
        if not self.case.batch:
            return
        q, k = (ahead[f"cu_seqlens_{of}"].tolist() for of in "qk")
        self.places = list(zip(q, q[1:], k, k[1:], strict=False))

    def __call__(self, q, codes, scale, *lengths):
        import torch

        if self.way == "scales of the first call":
            self.first_scale = scale.clone() if self.first_scale is None else self.first_scale
            scale = self.first_scale
        if not self.case.batch:
            found = [
                self.one(*(x.transpose(0, 1) for x in given)) for given in zip(q, codes, scale, strict=True)
            ]
            out, lse = (torch.stack(parts) for parts in zip(*found, strict=True))
            out, lse = out.transpose(1, 2), lse.transpose(1, 2)
        else:
            order = self.places[::-1] if self.way == "last sequence first" else self.places
            answers = {place: self.one(*self.of(place, q, codes, scale)) for place in order}
            out, lse = (torch.cat(parts) for parts in zip(*map(answers.get, self.places), strict=True))
        return (out.contiguous(), lse.contiguous()) if self.case.returns else out.contiguous()

    def of(self, place, q, codes, scale):
        first, end, key, end_key = place
        length = end_key - key
        own = codes[key:end_key], scale[key:end_key]
        if self.way == "scales from the first sequence on":
            own = own[0], scale[:length]
        if self.way == "first key of the next":
            own = codes[key : end_key + 1], scale[key : end_key + 1]
        return q[first:end], *own

    def one(self, q, codes, scale):
        """Return the output (Lq, H, Dv) and the log-sum-exp (Lq, H) of one sequence."""
        import torch

        case, way = self.case, self.way
        wide = torch.float64 if way == "in double precision" or case.dtype == "float64" else torch.float32
        q, codes, scale = q.to(wide), codes.to(wide), scale.to(wide)
        if way == "codes without sign":
            codes = codes % 256
        if way == "codes of seven bits":
            codes = (codes / 2).round() * 2
        if way == "scales ignored":
            scale = torch.ones_like(scale)
        if way == "scales squared":
            scale = scale**2
        if way == "scales in bfloat16":
            scale = scale.bfloat16().to(wide)
        if way == "scale of the next token":
            scale = scale.roll(-1, 0)
        if way == "scale of the next head":
            scale = scale.roll(-1, 1)
        of_values = scale
        if way == "values with the first scale":
            of_values = scale[:1].expand_as(scale)
        if way == "values without their scale":
            of_values = torch.ones_like(scale)
        first = {"values are the last features": slice(-case.Dv, None)}.get(way, slice(case.Dv))
        if way == "every second feature is a value":
            first = (torch.arange(case.Dv) * 2) % case.D
        values = codes[..., first] * of_values[..., None]

        heads = torch.arange(case.H) // case.group
        if way == "heads tiled":
            heads = torch.arange(case.H) % case.Hkv
        root = (case.Dv if way == "root of the features of values" else case.D) ** -0.5
        unscaled = torch.einsum("ihd,jhd->hij", q, codes[:, heads]) * root
        scaled = unscaled * scale[:, heads].T[:, None]
        if way == "in double precision":
            keys = codes * scale[..., None]
            scaled = torch.einsum("ihd,jhd->hij", q, keys[:, heads]) * root
        scores = unscaled if way == "keys without their scale" else scaled
        hidden = self.hidden(len(q), len(codes))
        scores = scores.masked_fill(hidden, -torch.inf)
        lse = scores.logsumexp(-1)
        empty = lse.isneginf()
        weights = scores.softmax(-1).masked_fill(empty[..., None], 0)
        if way == "lse of the codes":
            lse = unscaled.masked_fill(hidden, -torch.inf).logsumexp(-1)
        if way == "lse of empty rows is 0":
            lse = lse.masked_fill(empty, 0)
        out = torch.einsum("hij,jhe->ihe", weights, values[:, heads])
        return out.to(getattr(torch, case.dtype)), lse.T.float()

    def hidden(self, queries, keys):
        """Return True where a query (Lq) may not see a key (Lk)."""
        import torch

        hidden = torch.zeros(queries, keys).bool()
        if not self.case.mask.is_none:
            offset = 0 if self.way == "upper left" else keys - queries
            hidden = ~hidden.logical_not().tril(offset)
        if self.way == "last token of a decode" and queries == 1:
            hidden[:, -1:] = True
        return hidden


def supports(case, rule):
    fine = not case.constants and case.kv == "codes_as_values"
    return None if fine else "reads codes_as_values alone"


def name_of(way):
    """Return the name of a backend that computes in this way."""
    kind = "right_" if way in RIGHT else "wrong_"
    return kind + way.replace(" ", "_") if way else "by_token"


@hookimpl
def attnbench_backends():
    for way in ("", *RIGHT, *MISTAKES):
        yield Backend(
            name=name_of(way),
            summary=way or "attention by the codes of keys",
            prepare=lambda setup, way=way: ByToken(setup, way),
            supports=supports,
            rules=("scaled_dot",),
            storages=("dense", "packed"),
            encodings=("codes_as_values",),
            masks=("causal",),
            returns=("lse",),
        )
