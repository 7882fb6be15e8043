"""padded: sequences padded at the right to the longest one, as programs hold them that know no other way.

q is (N, H, most queries, D), k is (N, Hkv, most keys, D). A place without a token holds an ordinary number:
0, or that of a token somewhere in the batch. NaN never lies there: a mask gives padding the weight 0, and 0
times NaN is NaN in every softmax with a mask. Gradients from above are 0 there. What a call returns there is
not judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnbench.storages import packed
from attnbench.storages.packed import token_axis
from attnbench.types.batch import parse_batch
from attnbench.types.encoding import is_encoded
from attnbench.types.operation import TensorSpec, operation_of
from attnbench.types.problem import is_upstream
from attnbench.types.storage import Storage

if TYPE_CHECKING:
    from attnbench.types.case import Case

    Specs = tuple[TensorSpec, ...]


def tensors(case: Case, specs: Specs) -> Specs:
    """Return the one stored tensor, with an axis of sequences first, each as long as the longest."""
    if token_axis(specs[0]) is None:
        return packed.tensors(case, specs)
    longest = tuple(max(sizes) for sizes in zip(*(spec.shape for spec in specs), strict=True))
    return (replace(specs[0], shape=(len(specs), *longest[1:])),)


def put(case: Case, specs: Specs, arrays: Sequence[Any]) -> Sequence[Any]:
    """Put sequences side by side, and something into the places behind their tokens."""
    import numpy as np

    at = token_axis(specs[0])
    if at is None:
        return packed.put(case, specs, arrays)
    rng = np.random.default_rng(case.seed)
    whole = np.zeros(tensors(case, specs)[0].shape, arrays[0].dtype)
    # A view whose first two axes are sequences and places.
    places = np.moveaxis(whole, at, 1)
    tokens = [np.moveaxis(array[0], at - 1, 0) for array in arrays]
    if rng.integers(2) and not is_upstream(specs[0].name):
        every = np.concatenate(tokens)
        places[:] = every[rng.integers(len(every), size=places.shape[:2])]
    for own, sequence in zip(places, tokens, strict=True):
        own[: len(sequence)] = sequence
    return (whole,)


def severity(case: Case) -> int:
    """Return whether a draw has tokens in the padding, and not zeros."""
    import numpy as np

    return int(np.random.default_rng(case.seed).integers(2))


def take(case: Case, specs: Specs, stored: Sequence[Any]) -> Sequence[Any]:
    """Leave the padding out."""
    at = token_axis(specs[0])
    if at is None:
        return packed.take(case, specs, stored)
    return [
        stored[0][number : number + 1].take(range(spec.shape[at]), at) for number, spec in enumerate(specs)
    ]


def plan(case: Case) -> Mapping[str, Any]:
    """Return how many queries and how many keys each sequence has."""
    import numpy as np

    lengths = np.array(parse_batch(case.batch), np.int32)
    return {name: lengths[:, place].copy() for place, name in enumerate(_names(case))}


def _names(case: Case) -> list[str]:
    """Return the names of lengths: of queries and of keys, or of both where they are as many."""
    lengths = operation_of(case).lengths
    return [f"seqused_{of}" for of in lengths] if len(lengths) > 1 else ["seqused"]


PADDED = Storage(
    name="padded",
    summary="sequences padded to the longest, (N, H, L, D), with their lengths",
    tensors=tensors,
    put=put,
    take=take,
    severity=severity,
    used=lambda case: sum(keys for _, keys in parse_batch(case.batch)) / (case.B * case.Lk),
    planned=lambda case: tuple(TensorSpec(name, (case.B,), "int32") for name in _names(case)),
    plan=plan,
    refuses=lambda case: "no encoded keys lie padded: take packed or paged" if is_encoded(case) else None,
    baseline="padded_sdpa",
)
