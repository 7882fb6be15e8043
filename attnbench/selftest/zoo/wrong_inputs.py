"""Inputs that are written to, and memory beside them that is read. The answer itself is right, or nearly."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

from attnbench.selftest.zoo.animal import Animal, Applies
from attnbench.selftest.zoo.form import RIGHT, around_call, heads_of
from attnbench.selftest.zoo.where import anywhere, keeps_a_key
from attnbench.types.backend import Setup
from attnbench.types.case import Case
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call


def _doubles(setup: Setup, call: Call) -> Call:
    def changed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = call(q, k, v)
        q.mul_(2)
        return out

    return changed


def _one_element(setup: Setup, call: Call) -> Call:
    def changed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = call(q, k, v)
        v[tuple(n - 1 for n in v.shape)].neg_()
        return out

    return changed


def _borrows(setup: Setup, call: Call) -> Call:
    """Doubled and halved again: the same bits, and other ones meanwhile."""

    def borrowed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        v.mul_(2)
        out = call(q, k, v)
        v.div_(2)
        return out / 2 if setup.case.layer is None else call(q, k, v)

    return borrowed


def _keeps_the_sum(setup: Setup, call: Call) -> Call:
    """Two rows of the last input change places: its sum stays."""

    def swapped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = call(q, k, v)
        v.copy_(v.roll(1, -2))
        return out

    return swapped


def _reorders(setup: Setup, call: Call) -> Call:
    """Keys and values in another order, together: right for as long as nothing is masked."""

    def reordered(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = call(q, k, v)
        k.copy_(k.flip(2))
        v.copy_(v.flip(2))
        return out

    return reordered


def _reads(past: bool) -> Callable[[Setup], Call]:
    """Reads as many bytes as one row of values has, behind the last of them or before the first.

    By address, as kernels do. What is read gets the weight 0, which hides all numbers but NaN and infinities.
    """

    def prepare(setup: Setup) -> Call:
        attend = heads_of(RIGHT, setup)

        def beyond(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            last = sum((n - 1) * s for n, s in zip(v.shape, v.stride(), strict=True))
            row_bytes = v.shape[-1] * v.element_size()
            end = v.data_ptr() + (last + 1) * v.element_size()
            row = _memory(end if past else v.data_ptr() - row_bytes, row_bytes, v)
            return attend(q, k, v) + (row * 0).to(q)

        return beyond

    return prepare


def _memory(address: int, count: int, like: Tensor) -> Tensor:
    import torch

    return torch.frombuffer(bytearray(ctypes.string_at(address, count)), dtype=like.dtype)


def _as_contiguous(setup: Setup) -> Call:
    """Reads memory on from the first element, whatever the strides say: right for contiguous inputs alone."""
    attend = heads_of(RIGHT, setup)

    def plain(x: Tensor) -> Tensor:
        strides = x.new_empty(x.shape, device="meta").stride()
        room = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
        return x.as_strided(x.shape, strides) if x.numel() <= room else x

    return lambda q, k, v: attend(plain(q), plain(k), plain(v))


def _no_mask_many_keys(case: Case, rule: Rule) -> bool:
    return case.mask.is_none and case.Lk > 1 and not rule.pairs_keys


def _plain_memory(case: Case, rule: Rule) -> bool:
    return case.layer is None


def _other_rows(case: Case, rule: Rule) -> bool:
    return case.Lk > 1


KINDS: dict[str, tuple[str, Callable[[Setup, Call], Call], Applies]] = {
    "doubles_queries_in_place": ("its first input is twice as large afterwards", _doubles, anywhere),
    "changes_one_value_in_place": ("one element of its last input changes its sign", _one_element, anywhere),
    "borrows_values": ("its last input is changed and restored", _borrows, keeps_a_key),
    "changes_inputs_but_not_sums": ("rows of its last input change places", _keeps_the_sum, _other_rows),
}

ANIMALS: tuple[Animal, ...] = (
    *(around_call(name, words, around, "state", applies) for name, (words, around, applies) in KINDS.items()),
    around_call(
        "reorders_keys_in_place",
        "keys and values in another order afterwards",
        _reorders,
        "state",
        _no_mask_many_keys,
        operations=("attention",),
    ),
    *(
        Animal(
            name=name,
            summary=words,
            prepare=prepare,
            right=False,
            trait="state",
            applies=_plain_memory,
            operations=("attention",),
        )
        for name, words, prepare in (
            ("reads_past_the_end", "reads one row of values too many", _reads(True)),
            ("reads_before_the_start", "reads the row before the first value", _reads(False)),
            ("reads_as_contiguous", "reads on from the first element, whatever the strides", _as_contiguous),
        )
    ),
)
