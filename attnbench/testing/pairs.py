"""The pairs of queries and keys that a backend keeps, read off its answers, and told in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnbench.inputs.draw import store
from attnbench.ipc.names import ACTIVATIONS
from attnbench.masks import keep_rows
from attnbench.programs.classify import mask_words
from attnbench.types.case import Case
from attnbench.types.mask import mask_text, parse_mask

Pairs = NDArray[np.bool_]
"""True where a pair is kept, (B, H, Lq, Lk)."""
Answer = Callable[[dict[str, Any]], NDArray[Any]]
"""Gives the output, (B, H, Lq, Dv), for stored q, k and v by name."""

MOST_CALLS = 32
_SHORT = 80
"""The longest words of a mask that stand in a sentence."""


def can_be_read(case: Case) -> bool:
    """Return whether few calls tell the pairs of a case."""
    plain = case.operation == "attention" and case.pass_ != "backward" and not case.mask.adds
    return plain and not case.mask.is_none and case.Lk <= MOST_CALLS * case.Dv


def kept_by(answer: Answer, case: Case) -> Pairs:
    """Return the pairs that weigh in an answer of a rule without a bias.

    All queries and keys are alike, so all keys that a query keeps weigh the same. In each call as many keys
    as there are features have a value of 1, each in a feature of its own.
    """
    ones = (np.ones((case.B, H, L, case.D)) for H, L in ((case.H, case.Lq), (case.Hkv, case.Lk)))
    q, k = (store(x, case.dtype) for x in ones)
    weights = np.zeros((case.B, case.H, case.Lq, case.Lk))
    for first in range(0, case.Lk, case.Dv):
        at = np.arange(first, min(first + case.Dv, case.Lk))
        v = np.zeros((case.B, case.Hkv, case.Lk, case.Dv))
        v[..., at, at - first] = 1
        out = answer(dict(zip(ACTIVATIONS, (q, k, store(v, case.dtype)), strict=True)))
        weights[..., at] = out[..., : len(at)]
    return np.asarray((weights > 0) & (weights > weights.max(-1, keepdims=True) / 2))


def differing(kept: Pairs, case: Case) -> str:
    """Return in words how kept pairs differ from those of a case's mask; "" where they do not."""
    import torch

    right = keep_rows(case, np.arange(case.Lq))
    wrong = kept != (True if right is None else right)
    if not wrong.any():
        return ""
    b, h, i, j = (int(at) for at in np.argwhere(wrong)[0])
    mask = mask_text(case.mask)
    sees = ("sees", "drops") if kept[b, h, i, j] else ("does not see", "keeps")
    where = "" if bool(wrong.all((0, 1))[i, j]) else f" of batch element {b} and head {h}"
    said = f"Of {case.Lq} queries and {case.Lk} keys, query {i}{where} {sees[0]} key {j}, which {mask}"
    number = f"{sees[1]}; {int(wrong.sum()):,} of {wrong.size:,} pairs are wrong"
    found = mask_words(torch.from_numpy(kept), *kept.shape)
    # A tree says many masks, of which nobody thinks so.
    told = found.kept is None and len(found.mask) <= _SHORT and ("tree" in mask or "tree" not in found.mask)
    if told:  # What is drawn from the seed is told by its kind, and may be drawn otherwise.
        drawn = keep_rows(replace(case, mask=parse_mask(found.mask)), np.arange(case.Lq))
        told = bool((kept == (True if drawn is None else drawn)).all())
    its = f" The pairs that it keeps are those of {found.mask}." if told and found.mask != mask else ""
    return f"{said} {number}.{its} attnbench.masks.keep_rows gives the pairs that a mask keeps."
