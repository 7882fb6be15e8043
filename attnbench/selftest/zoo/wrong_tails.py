"""Ends and parts that are left out: keys, queries, features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnbench.kit.layer import for_operation
from attnbench.selftest.zoo.animal import Animal, Applies
from attnbench.selftest.zoo.form import RIGHT, Form, heads_of, mistaken, right_mix, right_scores
from attnbench.selftest.zoo.mask_dials import Added, Make, added, positions
from attnbench.selftest.zoo.where import choosing, keeps_a_key, kept, kept_counts, other_mask, scores_matter
from attnbench.types.backend import Setup
from attnbench.types.case import Case
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call

BLOCK, LARGE_BLOCK, FAR = 16, 64, 128


def _whole(length: int, block: int) -> int:
    """Of a length what fills whole blocks; all of it where none is filled."""
    return length // block * block or length


def _without(case: Case, dropped: NDArray[np.bool_]) -> Added:
    return np.where(dropped, -np.inf, added(case))


def _keys(case: Case) -> NDArray[np.intp]:
    return np.arange(case.Lk)


def _first_twice(case: Case) -> Added:
    made = added(case)
    made[..., 0] += np.log(2)
    return made


DROPPED: dict[str, tuple[str, Make]] = {
    "tail_of_keys_dropped": (
        "keys after the last whole block of 16",
        lambda case: _without(case, _keys(case) >= _whole(case.Lk, BLOCK)),
    ),
    "last_block_of_keys_dropped": (
        "keys after the last whole block of 64",
        lambda case: _without(case, _keys(case) >= _whole(case.Lk, LARGE_BLOCK)),
    ),
    "far_keys_dropped": (
        "keys more than 128 places away",
        lambda case: _without(case, np.abs(positions(case) - _keys(case)) > FAR),
    ),
    "last_quarter_of_keys_dropped": (
        "reads three quarters of the keys",
        lambda case: _without(case, _keys(case) >= -(-3 * case.Lk // 4)),
    ),
    "first_key_dropped": ("starts at the second key", lambda case: _without(case, _keys(case) == 0)),
    "last_key_dropped": (
        "stops before the last key",
        lambda case: _without(case, _keys(case) == case.Lk - 1),
    ),
    "every_fifth_key_dropped": (
        "leaves out every fifth key",
        lambda case: _without(case, _keys(case) % 5 == 4),
    ),
}
"""Keys left out, by the mask that leaves them out."""


def _first_among_others(case: Case, rule: Rule) -> bool:
    fewest = 1 if rule.sink is not None else 2
    return bool((np.isfinite(added(case)[:, 0, :, 0]) & (kept_counts(case) >= fewest)).any())


def _rows_kept(case: Case, first: int) -> bool:
    return bool((kept_counts(case)[:, first:] > 0).any())


def _last_two_differ(case: Case, rule: Rule) -> bool:
    """The last two queries keep other keys, or one of them has a choice."""
    if case.Lq < 2:
        return False
    ends = kept(case)[:, -2:]
    return bool((ends[:, 0] != ends[:, 1]).any() or choosing(case, rule)[:, -2:].any())


def _last_query_zero(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    return _zero_from(right_mix(setup, weights, v), setup.case.Lq - 1)


def _query_tail_zero(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    return _zero_from(right_mix(setup, weights, v), _whole(setup.case.Lq, BLOCK))


def _zero_from(out: Tensor, first: int) -> Tensor:
    import torch

    rows = torch.arange(out.shape[2], device=out.device)[:, None]
    return out.masked_fill(rows >= first, 0)


def _value_tail_zero(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    import torch

    features = torch.arange(setup.case.Dv, device=v.device)
    return right_mix(setup, weights, v.masked_fill(features >= _whole(setup.case.Dv, 8), 0))


def _feature_tail_zero(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    import torch

    features = torch.arange(setup.case.D, device=q.device)
    return right_scores(setup, q.masked_fill(features >= _whole(setup.case.D, 8), 0), k)


def _last_feature_zero(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    import torch

    return right_scores(
        setup, q.masked_fill(torch.arange(setup.case.D, device=q.device) == setup.case.D - 1, 0), k
    )


def _one_query_behind(setup: Setup) -> Call:
    """The last row is a copy of the one before."""
    attend = heads_of(RIGHT, setup)

    def behind(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        import torch

        out = attend(q, k, v)
        return torch.cat((out[:, :, :-1], out[:, :, -2:-1]), 2)

    return for_operation(behind, setup)


PARTS: dict[str, tuple[str, Form, Applies]] = {
    "first_key_counted_twice": (
        "the first key has double weight",
        Form(mask=_first_twice),
        _first_among_others,
    ),
    "last_query_never_written": (
        "zeros in the last row",
        Form(mix=_last_query_zero),
        lambda case, rule: _rows_kept(case, case.Lq - 1),
    ),
    "tail_of_queries_never_written": (
        "zeros in rows after the last whole block of 16",
        Form(mix=_query_tail_zero),
        lambda case, rule: _rows_kept(case, _whole(case.Lq, BLOCK)),
    ),
    "tail_of_values_dropped": (
        "features of v after the last eight are read as 0",
        Form(mix=_value_tail_zero),
        lambda case, rule: case.Dv > 8 and case.Dv % 8 > 0 and keeps_a_key(case, rule),
    ),
    "tail_of_features_dropped": (
        "features of q after the last eight are read as 0",
        Form(scores=_feature_tail_zero),
        lambda case, rule: case.D > 8 and case.D % 8 > 0 and scores_matter(case, rule),
    ),
    "last_feature_dropped": (
        "the last feature of q is read as 0",
        Form(scores=_last_feature_zero),
        scores_matter,
    ),
}

ANIMALS: tuple[Animal, ...] = (
    *(mistaken(name, words, Form(mask=make), other_mask(make)) for name, (words, make) in DROPPED.items()),
    *(mistaken(name, words, form, applies) for name, (words, form, applies) in PARTS.items()),
    Animal(
        name="last_query_is_the_one_before",
        summary="the last row is a copy of the one before",
        prepare=_one_query_behind,
        right=False,
        trait="value",
        applies=lambda case, rule: (
            case.Lq > 1 and _rows_kept(case, case.Lq - 1) and scores_matter(case, rule)
        ),
    ),
)
