"""Heads and batch elements mixed up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench.selftest.zoo.animal import Animal, Applies
from attnbench.selftest.zoo.form import Form, mistaken, right_mix, right_scores, right_spread
from attnbench.selftest.zoo.where import (
    choosing,
    keeps_a_key,
    later_batches,
    many_heads,
    many_key_heads,
    scores_matter,
)
from attnbench.types.backend import Setup
from attnbench.types.case import Case
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor


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


def _shared_in_groups(case: Case, rule: Rule) -> bool:
    return 1 < case.Hkv < case.H and keeps_a_key(case, rule)


def _many_of_both(case: Case, rule: Rule) -> bool:
    return case.H > 1 and case.Lq > 1 and keeps_a_key(case, rule)


def _first_two_differ(case: Case, rule: Rule) -> bool:
    """Heads 0 and 1 have values of their own, or weights."""
    return case.H > 1 and (scores_matter if case.group > 1 else keeps_a_key)(case, rule)


def _batches_matter(case: Case, rule: Rule) -> bool:
    return bool(choosing(case, rule)[1:].any())


KINDS: dict[str, tuple[str, Form, Applies]] = {
    "heads_modulo": ("query head h reads key head h % Hkv", Form(spread=_modulo), _shared_in_groups),
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
    "last_head_forgotten": ("zeros in the last head", Form(mix=_last_forgotten), many_heads),
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

ANIMALS: tuple[Animal, ...] = tuple(
    mistaken(name, words, form, applies) for name, (words, form, applies) in KINDS.items()
)
