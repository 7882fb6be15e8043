"""Backends for the storage padded: a right one, and mistakes that programs with padding make."""

from __future__ import annotations

from attnbench import Backend, Mask, hookimpl

MISTAKES = ("padding is seen", "lower right of the padding", "left padding")


class Padded:
    """Float attention of each sequence by itself, cut out of the padded tensors."""

    def __init__(self, mistake):
        self.mistake = mistake

    def renew(self, ahead):
        self.lengths = list(zip(ahead["seqused_q"].tolist(), ahead["seqused_k"].tolist(), strict=True))

    def __call__(self, q, k, v, *lengths):
        import torch

        out = q.new_full((*q.shape[:3], v.shape[-1]), torch.nan)
        for number, (queries, keys) in enumerate(self.lengths):
            first = 0
            if self.mistake == "padding is seen":
                keys = k.shape[2]
            if self.mistake == "left padding":
                first = k.shape[2] - keys
            own = (x[number, :, first : first + keys] for x in (k, v))
            one_k, one_v = (x.repeat_interleave(q.shape[1] // k.shape[1], 0) for x in own)
            scores = q[number, :, :queries] @ one_k.mT * q.shape[-1] ** -0.5
            offset = keys - queries
            if self.mistake == "lower right of the padding":
                offset = k.shape[2] - q.shape[2]
            later = torch.ones(queries, keys).triu(offset + 1).bool()
            weights = scores.masked_fill(later, -torch.inf).softmax(-1).nan_to_num(0)
            out[number, :, :queries] = weights @ one_v
        return out


def supports(case, rule):
    return None if case.mask == Mask(causal="lower_right") else "needs causal:lower_right"


def name_of(mistake):
    """Return the name of the backend that makes a mistake, or none."""
    return "wrong_" + mistake.replace(" ", "_") if mistake else "cut_out"


@hookimpl
def attnbench_backends():
    for mistake in ("", *MISTAKES):
        yield Backend(
            name=name_of(mistake),
            summary=mistake or "each sequence cut out of the padding",
            prepare=lambda setup, mistake=mistake: Padded(mistake),
            supports=supports,
            rules=("scaled_dot",),
            storages=("padded",),
        )
