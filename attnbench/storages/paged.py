"""paged: keys and values in pages of one cache, found by a table, as serving engines hold them.

Queries and outputs are packed. The cache of k is (pages, page, Hkv, D), that of v (pages, page, Hkv, Dv), and
``block_table`` (N, most pages) names the pages of each sequence in the order of its keys. ``seqused_k`` (N,)
says how many keys it has. Pages lie in any order, and there are more than are used. An entry of the table
behind the last page of a sequence, and a slot that holds no key, may hold anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from attnbench.storages import packed
from attnbench.types.batch import parse_batch
from attnbench.types.encoding import is_encoded
from attnbench.types.operation import TensorSpec, operation_of
from attnbench.types.size import Size
from attnbench.types.storage import RUN, Shared, Storage, sizes_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attnbench.types.case import Case

    Specs = tuple[TensorSpec, ...]

TAILS = ("-1", "stale", "in the pool")
"""Entries behind a sequence's last page: none, a page of another sequence, any page."""
UNUSED = ("zeros", "copied tokens", "largest number", "NaN")
"""Contents of slots without a key, from the mildest to the hardest."""
_BITS = {
    2: {"largest number": 0x7F7F, "NaN": 0x7FC0},
    1: {"largest number": 0x7E, "NaN": 0x7F},
}
"""Of bfloat16, and of a byte, which may be a code. In float8_e4m3fn these are what the words say; two of the
second are NaN as the float16 scale of a block."""


@dataclass(frozen=True)
class PagesDrawn:
    """Where keys lie in one draw.

    table: (N, most pages) int32. slots: of each sequence, the places of its keys among all slots of the
    cache, in order. unused: a word of :data:`UNUSED`. shared: the keys that sequences have in common.
    """

    table: NDArray[np.int32]
    slots: tuple[NDArray[np.int64], ...]
    unused: str
    shared: tuple[Shared, ...]


def pages_of(case: Case) -> list[int]:
    """Return how many pages each sequence has."""
    page = sizes_of(case)["page"]
    return [-(-keys // page) for _, keys in parse_batch(case.batch)]


def pages_in_pool(case: Case) -> int:
    """Return the pages of the cache: a quarter more than are used, and one."""
    used = sum(pages_of(case))
    return used + used // 4 + 1


def table_width(case: Case) -> int:
    """Return the entries that each sequence has in the table: one more than the longest one needs."""
    return max(pages_of(case)) + 1


@lru_cache(maxsize=2)
def drawn(case: Case) -> PagesDrawn:
    """Draw the order of pages, the tails of the table and what lies in unused slots from the case's seed."""
    import numpy as np

    rng = np.random.default_rng(case.seed)
    unused, tail = UNUSED[rng.integers(len(UNUSED))], TAILS[rng.integers(len(TAILS))]
    page, pool, counts = sizes_of(case)["page"], pages_in_pool(case), pages_of(case)
    own = np.split(rng.permutation(pool), np.cumsum(counts))[: len(counts)]
    used = np.concatenate(own)
    shape, lengths = (len(counts), table_width(case)), [keys for _, keys in parse_batch(case.batch)]
    if tail == "-1":
        table = np.full(shape, -1)
    else:
        table = rng.choice(used, shape) if tail == "stale" else rng.integers(pool, size=shape)
    # Sequences have scales of their own, so equal keys may have unequal codes.
    shared = () if is_encoded(case) else _drawn_prefixes(lengths, page, rng)
    for one in shared:
        own[one.number][: one.keys // page] = own[one.first][: one.keys // page]
    for row, pages in zip(table, own, strict=True):
        row[: len(pages)] = pages
    slots = tuple(
        (pages[:, None] * page + np.arange(page)).ravel()[:length]
        for pages, length in zip(own, lengths, strict=True)
    )
    return PagesDrawn(table.astype(np.int32), slots, unused, shared)


def severity(case: Case) -> int:
    """Return the place in :data:`UNUSED` of what a draw has in slots without a key, its first number."""
    import numpy as np

    return int(np.random.default_rng(case.seed).integers(len(UNUSED)))


def _drawn_prefixes(lengths: list[int], page: int, rng: np.random.Generator) -> tuple[Shared, ...]:
    """Draw which sequences begin with pages of another one, in every second draw.

    Whole pages are shared, as engines do: into the last page of a sequence its next key is written.
    """
    whole = [number for number, keys in enumerate(lengths) if keys >= page]
    if len(whole) < 2 or rng.integers(2):
        return ()
    first, *others = rng.permutation(whole).tolist()
    chosen = others[: rng.integers(1, len(others) + 1)]
    most = [min(lengths[first], lengths[number]) // page for number in chosen]
    return tuple(
        Shared(number, first, page * int(rng.integers(1, pages + 1)))
        for number, pages in zip(chosen, most, strict=True)
    )


def tensors(case: Case, specs: Specs) -> Specs:
    """Return the cache of keys or values, or of their scales by token or page; else what is packed."""
    whole = packed.tensors(case, specs)
    if not _is_cached(specs):
        return whole
    slots = () if RUN in specs[0].axes else (sizes_of(case)["page"],)
    return (replace(whole[0], shape=(pages_in_pool(case), *slots, *whole[0].shape[1:]), axes=""),)


def put(case: Case, specs: Specs, arrays: Sequence[Any]) -> Sequence[Any]:
    """Put keys or values into their slots, and something into all others."""
    import numpy as np

    tokens = packed.put(case, specs, arrays)[0]
    if not _is_cached(specs):
        return (tokens,)
    where = drawn(case)
    shape = tensors(case, specs)[0].shape
    cache = np.empty(shape, tokens.dtype).reshape(-1, *tokens.shape[1:])
    if where.unused == "copied tokens":
        cache[:] = np.resize(tokens, cache.shape)
    elif where.unused == "zeros":
        cache[:] = 0
    elif tokens.dtype.kind in "iu":
        cache[:] = _BITS[tokens.dtype.itemsize][where.unused]
    else:
        cache[:] = np.finfo(tokens.dtype).max if where.unused == "largest number" else np.nan
    cache[_places(case, specs)] = tokens
    return (cache.reshape(shape),)


def take(case: Case, specs: Specs, stored: Sequence[Any]) -> Sequence[Any]:
    """Take the sequences out of the slots."""
    if not _is_cached(specs):
        return packed.take(case, specs, stored)
    cache = stored[0].reshape(-1, *packed.tensors(case, specs)[0].shape[1:])
    return packed.take(case, specs, (cache[_places(case, specs)],))


def planned(case: Case) -> Specs:
    """Return cumulative lengths of queries, lengths of keys and the table."""
    return (
        TensorSpec("cu_seqlens_q", (case.B + 1,), "int32"),
        TensorSpec("seqused_k", (case.B,), "int32"),
        TensorSpec("block_table", (case.B, table_width(case)), "int32"),
    )


def plan(case: Case) -> Mapping[str, Any]:
    """Return their arrays."""
    import numpy as np

    return {
        "cu_seqlens_q": packed.plan(case)["cu_seqlens_q"],
        "seqused_k": np.array([keys for _, keys in parse_batch(case.batch)], np.int32),
        "block_table": drawn(case).table,
    }


def refuses(case: Case) -> str | None:
    """Return why a case can't have a paged cache, or None."""
    if len(operation_of(case).lengths) == 1:
        return f"{case.operation} keeps no keys that pages could hold: take the storage packed"
    return None if case.pass_ == "forward" else "a paged cache has no gradients: take the storage packed"


def _is_cached(specs: Specs) -> bool:
    return "j" in specs[0].axes or RUN in specs[0].axes


def _places(case: Case, specs: Specs) -> NDArray[np.int64]:
    """Return the places of all sequences in a cache, in order: of their keys, or of their pages."""
    import numpy as np

    slots, page = drawn(case).slots, sizes_of(case)["page"]
    return np.concatenate([own[::page] // page for own in slots] if RUN in specs[0].axes else slots)


PAGED = Storage(
    name="paged",
    summary="keys and values in pages of a cache, found by a table; queries packed",
    tensors=tensors,
    put=put,
    take=take,
    planned=planned,
    plan=plan,
    sizes=(Size("page", "keys in a page", 16, most=1 << 20),),
    severity=severity,
    shares=lambda case: drawn(case).shared,
    used=lambda case: sum(pages_of(case)) / pages_in_pool(case),
    kept=("k", "v"),
    refuses=refuses,
    baseline="gather",
)
