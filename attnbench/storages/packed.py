"""packed: sequences one after the other, as functions for unlike lengths take them (``varlen``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnbench.types.batch import parse_batch
from attnbench.types.operation import TensorSpec, operation_of
from attnbench.types.storage import RUN, Storage, of_all

if TYPE_CHECKING:
    from attnbench.types.case import Case

    Specs = tuple[TensorSpec, ...]


def tensors(case: Case, specs: Specs) -> Specs:
    """Return the one stored tensor: its first axis counts the queries, or the keys, of all sequences.

    Of a tensor without such an axis, as a state or the scales of a head, it counts sequences. What is one for
    all of them stays so.
    """
    if of_all(specs[0]):
        return specs[:1]
    first, at = specs[0], token_axis(specs[0])
    if at is None:
        return (replace(first, shape=(len(specs), *first.shape[1:])),)
    shape = (sum(spec.shape[at] for spec in specs), *first.shape[1:at], *first.shape[at + 1 :])
    axes = first.axes[at] + first.axes[1:at] + first.axes[at + 1 :]
    return (replace(first, shape=shape, axes=axes),)


def put(case: Case, specs: Specs, arrays: Sequence[Any]) -> Sequence[Any]:
    """Join the sequences: (1, H, L, D) each to (T, H, D)."""
    import numpy as np

    if of_all(specs[0]):
        return (arrays[0],)
    at = token_axis(specs[0])
    if at is None:
        return (np.concatenate(arrays),)
    return (np.concatenate([np.moveaxis(array[0], at - 1, 0) for array in arrays]),)


def take(case: Case, specs: Specs, stored: Sequence[Any]) -> Sequence[Any]:
    """Cut the sequences apart."""
    import numpy as np

    if of_all(specs[0]):
        return [stored[0]] * len(specs)
    at = token_axis(specs[0])
    if at is None:
        return np.split(stored[0], len(specs))
    ends = np.cumsum([spec.shape[at] for spec in specs])
    return [np.moveaxis(part, 0, at - 1)[None] for part in np.split(stored[0], ends[:-1])]


def plan(case: Case) -> Mapping[str, Any]:
    """Return where sequences begin among the queries and among the keys, and at last where they end."""
    import numpy as np

    sums = np.cumsum([(0, 0), *parse_batch(case.batch)], axis=0, dtype=np.int32)
    return {name: sums[:, place].copy() for place, name in enumerate(_names(case))}


def _names(case: Case) -> list[str]:
    """Return the names of cumulative lengths: of queries and of keys, or of both where they are as many."""
    lengths = operation_of(case).lengths
    return [f"cu_seqlens_{of}" for of in lengths] if len(lengths) > 1 else ["cu_seqlens"]


def token_axis(spec: TensorSpec) -> int | None:
    """Return the place of the axis of queries, keys or runs of keys, behind that of batch elements; None
    without one."""
    return next((place for place, letter in enumerate(spec.axes) if letter in f"ipj{RUN}"), None)


PACKED = Storage(
    name="packed",
    summary="sequences one after the other, (T, H, D), with cumulative lengths",
    tensors=tensors,
    put=put,
    take=take,
    planned=lambda case: tuple(TensorSpec(name, (case.B + 1,), "int32") for name in _names(case)),
    plan=plan,
    baseline="per_sequence",
)
