"""Wrong masks: other edges, parts ignored, other numbers than -inf, weights masked instead of scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnbench.testing.mutants.masks import Added, Dials, Make, added, dialled, explicit
from attnbench.testing.mutants.mutant import Applies, Form, Mutant, mistaken, normalised
from attnbench.testing.mutants.where import (
    both,
    drops,
    either,
    empty_rows,
    far_out_of_mask,
    other_mask,
    scaled,
    several_heads,
)
from attnbench.types.backend import Setup
from attnbench.types.case import Case
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor


EDGES = {
    "causal_from_the_other_corner": ("upper left for lower right, and back", Dials(other_corner=True)),
    "causal_one_key_more": ("causal shows the next key too", Dials(ahead=1)),
    "causal_one_key_less": ("causal hides a query's own key", Dials(ahead=-1)),
    "causal_ignored": ("no causal mask", Dials(left_out=("causal",))),
    "window_one_wider": ("a window of one key too many", Dials(wider=1)),
    "window_one_narrower": ("a window of one key too few", Dials(wider=-1)),
    "window_one_sided": ("a window that looks back only", Dials(past_only=True)),
    "window_ignored": ("no window", Dials(left_out=("window",))),
    "padding_one_longer": ("padding keeps one key too many", Dials(longer=1)),
    "padding_one_shorter": ("padding keeps one key too few", Dials(longer=-1)),
    "padding_ignored": ("no padding", Dials(left_out=("padding",))),
    "explicit_mask_ignored": ("no explicit mask", Dials(left_out=("explicit",))),
    "mask_ignored": ("no mask at all", Dials(left_out=("causal", "window", "padding", "explicit"))),
    "mask_of_the_first_batch_element": ("the first one's mask for all", Dials(one_for_all=True)),
}
"""Masks by the dials that are turned."""


def _inverted_row(case: Case) -> Added:
    """The last query's kept and dropped keys exchanged, of an explicit bool mask."""
    made = added(case)
    if case.mask.explicit == "bool":
        made[:, :, -1] = np.where(np.isfinite(made[:, :, -1]), -np.inf, 0)
    return made


def _twice(case: Case) -> Added:
    return added(case) + np.where(np.isfinite(explicit(case)), explicit(case), 0)[:, None]


def _nothing_dropped_by_float(case: Case) -> Added:
    """-inf of a float mask read as 0."""
    if case.mask.explicit != "float":
        return added(case)
    numbers, rest = explicit(case), added(case, Dials(left_out=("explicit",)))
    return rest + np.where(np.isfinite(numbers), numbers, 0)[:, None]


def _transposed(case: Case) -> Added:
    """A square explicit mask read with queries and keys exchanged."""
    if case.Lq != case.Lk:
        return added(case)
    rest = added(case, Dials(left_out=("explicit",)))
    return rest + explicit(case).transpose(0, 2, 1)[:, None]


MADE: dict[str, tuple[str, Make]] = {
    "one_row_of_the_mask_inverted": ("keeps what it should drop in the last row", _inverted_row),
    "float_mask_added_twice": ("the numbers of a float mask count double", _twice),
    "float_mask_drops_nothing": ("-inf of a float mask read as 0", _nothing_dropped_by_float),
    "explicit_mask_transposed": ("a square mask with queries and keys exchanged", _transposed),
}
"""Masks by how they are made."""


def _clamped(least: float) -> Form:
    """Dropped keys get a large negative number instead of -inf."""

    def weights(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
        wide = scores.to(added.dtype) + added.clamp_min(least)
        return normalised(setup, wide).to(scores.dtype)

    return Form(weights=weights)


def _after_softmax(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    dropped = added.isneginf()
    wide = scores.to(added.dtype) + added.masked_fill(dropped, 0)
    return normalised(setup, wide).masked_fill(dropped, 0).to(scores.dtype)


def _multiplied(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    wide = (scores.to(added.dtype) + added).masked_fill(added.isneginf(), 0)
    return normalised(setup, wide).to(scores.dtype)


def _before_scale(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    return normalised(setup, scores.to(added.dtype) + added * setup.case.D**-0.5).to(scores.dtype)


def _nan_rows(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    return (scores.to(added.dtype) + added).softmax(-1).to(scores.dtype)


def _mean_rows(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    empty = added.isneginf().all(-1, keepdim=True)
    return normalised(setup, (scores.to(added.dtype) + added).masked_fill(empty, 0)).to(scores.dtype)


def _first_head_only(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    import torch

    heads = torch.arange(setup.case.H, device=scores.device)[:, None, None]
    return normalised(setup, scores.to(added.dtype) + torch.where(heads == 0, added, 0)).to(scores.dtype)


def _float_mask(case: Case, rule: Rule) -> bool:
    return case.mask.explicit == "float"


WEIGHED: dict[str, tuple[str, Form, Applies]] = {
    "mask_is_minus_10000": ("-1e4 for -inf: rows that keep nothing", _clamped(-1e4), empty_rows),
    "mask_is_minus_30": (
        "-30 for -inf: large logits come through",
        _clamped(-30),
        either(empty_rows, far_out_of_mask),
    ),
    "mask_is_minus_5": (
        "-5 for -inf: dropped keys keep some weight",
        _clamped(-5),
        either(empty_rows, drops),
    ),
    "mask_after_softmax": ("weights masked and not normalised again", Form(weights=_after_softmax), drops),
    "masked_scores_are_0": ("scores of dropped keys 0, not -inf", Form(weights=_multiplied), drops),
    "float_mask_before_scale": (
        "a float mask is divided by √D too",
        Form(weights=_before_scale),
        both(_float_mask, scaled),
    ),
    "nan_in_empty_rows": ("NaN for a query that keeps no key", Form(weights=_nan_rows), empty_rows),
    "mean_in_empty_rows": (
        "the mean of v for a query that keeps no key",
        Form(weights=_mean_rows),
        empty_rows,
    ),
    "mask_in_the_first_head_only": (
        "other heads are not masked",
        Form(weights=_first_head_only),
        both(several_heads, other_mask(dialled(EDGES["mask_ignored"][1]))),
    ),
}
"""Weights made wrongly of scores and mask."""

MUTANTS: tuple[Mutant, ...] = (
    *(
        mistaken(name, words, Form(mask=dialled(dials)), other_mask(dialled(dials)))
        for name, (words, dials) in EDGES.items()
    ),
    *(mistaken(name, words, Form(mask=make), other_mask(make)) for name, (words, make) in MADE.items()),
    *(mistaken(name, words, form, applies) for name, (words, form, applies) in WEIGHED.items()),
)
