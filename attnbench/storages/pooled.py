"""pooled: packed sequences whose states lie in a pool, as serving engines hold them between steps.

The pool is (slots, H, D, Dv), and ``state_indices`` (N,) names the slot of each sequence. There are more
slots than sequences; the others belong to sequences that rest, and a call leaves them as they are. It
returns a pool of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from attnbench.storages import packed
from attnbench.types.operation import TensorSpec, operation_of
from attnbench.types.storage import Storage, of_all

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attnbench.types.case import Case

    Specs = tuple[TensorSpec, ...]

RESTING = ("states", "NaN")
"""Contents of slots of no sequence in a call, from the mildest to the hardest."""


@dataclass(frozen=True)
class SlotsDrawn:
    """Where states lie in one draw.

    used: the slots of the sequences, in their order. others: the other slots. resting: a word of
    :data:`RESTING`, for all others.
    """

    used: NDArray[np.int32]
    others: NDArray[np.int32]
    resting: str


def slots_of(case: Case) -> int:
    """Return the slots of the pool: half more than there are sequences, and one."""
    return case.B + case.B // 2 + 1


@lru_cache(maxsize=2)
def drawn(case: Case) -> SlotsDrawn:
    """Draw the slots of sequences, in any order, and what rests in the others, from the case's seed."""
    import numpy as np

    rng = np.random.default_rng(case.seed)
    resting = RESTING[rng.integers(len(RESTING))]
    slots = rng.permutation(slots_of(case)).astype(np.int32)
    return SlotsDrawn(slots[: case.B], slots[case.B :], resting)


def severity(case: Case) -> int:
    """Return the place in :data:`RESTING` of what a draw has in the slots of no sequence."""
    import numpy as np

    return int(np.random.default_rng(case.seed).integers(len(RESTING)))


def _resting(case: Case, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return what lies in the slots of no sequence, (others, H, D, Dv)."""
    import numpy as np

    where = drawn(case)
    if where.resting == "NaN":
        return np.full((len(where.others), *shape), np.nan, dtype)
    rng = np.random.default_rng([case.seed, 1])
    return rng.standard_normal((len(where.others), *shape)).astype(dtype)


def tensors(case: Case, specs: Specs) -> Specs:
    """Return the pool of states; other tensors are packed."""
    whole = packed.tensors(case, specs)
    if not _is_state(specs):
        return whole
    return (replace(whole[0], shape=(slots_of(case), *whole[0].shape[1:]), axes=""),)


def put(case: Case, specs: Specs, arrays: Sequence[Any]) -> Sequence[Any]:
    """Put states into their slots, and others into the rest."""
    import numpy as np

    whole = packed.put(case, specs, arrays)
    if not _is_state(specs):
        return whole
    states, where = whole[0], drawn(case)
    pool = np.empty((slots_of(case), *states.shape[1:]), states.dtype)
    pool[where.used] = states
    pool[where.others] = _resting(case, states.shape[1:], states.dtype)
    return (pool,)


def take(case: Case, specs: Specs, stored: Sequence[Any]) -> Sequence[Any]:
    """Take the states of the sequences out of the pool."""
    if not _is_state(specs):
        return packed.take(case, specs, stored)
    return packed.take(case, specs, (stored[0][drawn(case).used],))


def changed(case: Case, specs: Specs, stored: Sequence[Any]) -> str:
    """Return which slot of no sequence is not as it was, in words; "" for none."""
    import numpy as np

    if not _is_state(specs):
        return ""
    pool, others = stored[0], drawn(case).others
    for slot, state in zip(others.tolist(), _resting(case, pool.shape[1:], pool.dtype), strict=True):
        if not np.array_equal(pool[slot], state, equal_nan=True):
            used = ", ".join(map(str, drawn(case).used.tolist()))
            return (
                f"slot {slot} of the pool changed, which belongs to no sequence of the call; "
                f"state_indices are {used}"
            )
    return ""


def plan(case: Case) -> Mapping[str, Any]:
    """Return where sequences begin, and their slots."""
    return {**packed.plan(case), "state_indices": drawn(case).used}


def refuses(case: Case) -> str | None:
    """Return why a case can't have a pool of states, or None."""
    if not operation_of(case).updates:
        return f"{case.operation} keeps no states that a pool could hold: take the storage packed"
    return None if case.pass_ == "forward" else "a pool of states has no gradients: take the storage packed"


def _is_state(specs: Specs) -> bool:
    return not of_all(specs[0]) and packed.token_axis(specs[0]) is None


POOLED = Storage(
    name="pooled",
    summary="sequences one after the other; their states in a pool, found by their slots",
    tensors=tensors,
    put=put,
    take=take,
    changed=changed,
    severity=severity,
    planned=lambda case: (*packed.PACKED.planned(case), TensorSpec("state_indices", (case.B,), "int32")),
    plan=plan,
    refuses=refuses,
)
