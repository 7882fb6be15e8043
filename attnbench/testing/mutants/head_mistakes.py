"""Heads and batch elements mixed up, and keys, queries or features left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnbench.kit.layer import for_operation
from attnbench.testing.mutants.masks import Added, Make, added, positions
from attnbench.testing.mutants.mutant import (
    RIGHT,
    Applies,
    Form,
    Mutant,
    heads_of,
    mistaken,
    right_mix,
    right_scores,
    right_spread,
)
from attnbench.testing.mutants.where import (
    both,
    choosing,
    keeps_a_key,
    kept_counts,
    later_batches,
    many_key_heads,
    other_mask,
    scores_matter,
    several_heads,
    shared_in_groups,
)
from attnbench.types.backend import Setup
from attnbench.types.case import Case
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call


def _modulo(setup: Setup, x: Tensor) -> Tensor:
    return x.repeat(1, setup.case.group, 1, 1)


def _groups_reversed(setup: Setup, x: Tensor) -> Tensor:
    return right_spread(setup, x.flip(1))


def _first_for_all(setup: Setup, x: Tensor) -> Tensor:
    return x[:, :1].expand(-1, setup.case.H, -1, -1)


def _values_of_the_next(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    return right_mix(setup, weights, v.roll(-setup.case.group, 1))


def _swapped(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    import torch

    out = right_mix(setup, weights, v)
    return torch.cat((out[:, 1:2], out[:, :1], out[:, 2:]), 1)


def _last_forgotten(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    import torch

    out = right_mix(setup, weights, v)
    return torch.cat((out[:, :-1], torch.zeros_like(out[:, -1:])), 1)


def _viewed(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    out = right_mix(setup, weights, v)
    return out.transpose(1, 2).reshape(out.shape)


def _keys_of_the_first_batch(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    return right_scores(setup, q, k[:1].expand(k.shape))


def _values_of_the_first_batch(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    return right_mix(setup, weights, v[:1].expand(v.shape))


def _many_of_both(case: Case, rule: Rule) -> bool:
    return case.H > 1 and case.Lq > 1 and keeps_a_key(case, rule)


def _first_two_differ(case: Case, rule: Rule) -> bool:
    """Heads 0 and 1 have values of their own, or weights."""
    return case.H > 1 and (scores_matter if case.group > 1 else keeps_a_key)(case, rule)


def _batches_matter(case: Case, rule: Rule) -> bool:
    return bool(choosing(case, rule)[1:].any())


HEADS: dict[str, tuple[str, Form, Applies]] = {
    "heads_modulo": (
        "query head h reads key head h % Hkv",
        Form(spread=_modulo),
        both(shared_in_groups, keeps_a_key),
    ),
    "groups_reversed": ("key heads in reversed order", Form(spread=_groups_reversed), many_key_heads),
    "first_key_head_for_all": (
        "all heads read the first key head",
        Form(spread=_first_for_all),
        many_key_heads,
    ),
    "values_of_the_next_head": (
        "keys of one head, values of the next",
        Form(mix=_values_of_the_next),
        many_key_heads,
    ),
    "two_heads_swapped": ("outputs of heads 0 and 1 exchanged", Form(mix=_swapped), _first_two_differ),
    "last_head_forgotten": (
        "zeros in the last head",
        Form(mix=_last_forgotten),
        both(several_heads, keeps_a_key),
    ),
    "heads_viewed_not_transposed": (
        "a view where heads and queries must be exchanged",
        Form(mix=_viewed),
        _many_of_both,
    ),
    "keys_of_the_first_batch_element": (
        "the first one's keys for all",
        Form(scores=_keys_of_the_first_batch),
        _batches_matter,
    ),
    "values_of_the_first_batch_element": (
        "the first one's values for all",
        Form(mix=_values_of_the_first_batch),
        later_batches,
    ),
}

WHOLE_BLOCK, LARGE_BLOCK, FAR = 16, 64, 128


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
        lambda case: _without(case, _keys(case) >= _whole(case.Lk, WHOLE_BLOCK)),
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


def _last_query_zero(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    return _zero_from(right_mix(setup, weights, v), setup.case.Lq - 1)


def _query_tail_zero(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    return _zero_from(right_mix(setup, weights, v), _whole(setup.case.Lq, WHOLE_BLOCK))


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
        lambda case, rule: _rows_kept(case, _whole(case.Lq, WHOLE_BLOCK)),
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

MUTANTS: tuple[Mutant, ...] = (
    *(mistaken(name, words, form, applies) for name, (words, form, applies) in HEADS.items()),
    *(mistaken(name, words, Form(mask=make), other_mask(make)) for name, (words, make) in DROPPED.items()),
    *(mistaken(name, words, form, applies) for name, (words, form, applies) in PARTS.items()),
    Mutant(
        name="last_query_is_the_one_before",
        summary="the last row is a copy of the one before",
        prepare=_one_query_behind,
        applies=lambda case, rule: (
            case.Lq > 1 and _rows_kept(case, case.Lq - 1) and scores_matter(case, rule)
        ),
    ),
)
