"""Mistakes in finding the keys of a sequence in a batch, packed or in pages, and in its log-sum-exp.

A mistake of the first kind says which slots a kernel takes for the keys and values of a sequence. A right
kernel then attends to these, so a mistake needs no kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnbench.testing.mistakes.parts import Mistake, normalised, weighed
from attnbench.types.backend import Setup
from attnbench.types.batch import parse_batch

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.case import Case

    Array = NDArray[Any]

ZEROS, SEEN = -1, -1


@dataclass(frozen=True)
class Read:
    """What a kernel takes for the keys of one sequence.

    keys, values: their slots, :data:`ZEROS` for a key of zeros. columns: of the mask of ``length`` keys, that
    of each key; :data:`SEEN` for one that every query sees. of: the tensor that values are read from.
    """

    keys: Array
    values: Array
    columns: Array
    length: int
    of: str = "v"


@dataclass(frozen=True)
class Cache:
    """Where the keys of a batch lie. Slots count the keys of all sequences, or those of all pages.

    begins: of each sequence among packed keys. table: (N, width), the pages of each sequence; None where keys
    are packed. page: the keys in a page. slots: how many there are.
    """

    case: Case
    begins: Array
    table: Array | None
    page: int
    slots: int

    def length(self, number: int) -> int:
        """Return how many keys a sequence has."""
        return parse_batch(self.case.batch)[number % self.case.B][1]

    def counts(self) -> list[int]:
        """Return how many pages each sequence has."""
        return [-(-keys // self.page) for _, keys in parse_batch(self.case.batch)]

    def pages(self, number: int) -> Array:
        """Return the pages of a sequence."""
        pages: Array = self.rows()[number][: self.counts()[number]]
        return pages

    def rows(self) -> Array:
        """Return the table; raises ValueError where there is none."""
        if self.table is None:
            raise ValueError("keys are packed")
        return self.table

    def places(self, number: int, length: int) -> Array:
        """Return the slots of the first keys of a sequence."""
        at = np.arange(length)
        if self.table is None:
            return self._there(self.begins[number] + at)
        return self.in_pages(self.table[number].clip(min=0), length)

    def in_pages(self, pages: Array, length: int, page: int = 0) -> Array:
        """Return the slots of the first keys in these pages. page: 0 for the size of the cache."""
        page, at = page or self.page, np.arange(length)
        return self._there(pages[at // page] * page + at % page)

    def read(self, number: int, slots: Array, **other: Any) -> Read:
        """Return what is read where all keys are in these slots, with the mask of as many."""
        given = {"values": slots, "columns": np.arange(len(slots)), "length": len(slots)}
        return Read(slots, **{**given, **other})

    def _there(self, slots: Array) -> Array:
        if len(slots) and not 0 <= slots.min() <= slots.max() < self.slots:
            raise ValueError("there is no such slot")
        return slots


@dataclass(frozen=True)
class SequenceMistake:
    """A mistake of kernels that read a batch.

    name, summary, advice: as of a :class:`attnbench.testing.mistakes.parts.Mistake`. reads: what is taken for
    the keys of a sequence by its number; raises any exception where it can't be made.
    """

    name: str
    summary: str
    advice: str
    reads: Callable[[Cache, int], Read]


def cache_of(case: Case, arrays: Mapping[str, Array]) -> Cache | None:
    """Return where keys lie, by the tensors that say so; None in a storage that has neither of these."""
    shape = arrays["k"].shape
    if "block_table" in arrays:
        slots = shape[0] * shape[1]
        return Cache(case, np.zeros(case.B, int), arrays["block_table"].astype(int), shape[1], slots)
    if "cu_seqlens_k" in arrays:
        return Cache(case, arrays["cu_seqlens_k"].astype(int), None, 0, shape[0])
    return None


_LENGTHS = (
    "sequence b has the first seqused_k[b] keys of its pages; packed ones begin at cu_seqlens_k[b] and end "
    "before cu_seqlens_k[b + 1]"
)
_OWN = "take the row of block_table, or of cu_seqlens_k, that the sequence of the query has"
_TABLE = "key j of sequence b lies in page block_table[b, j // page], at its place j % page"
_SIZE = f"a page has k.shape[1] keys: {_TABLE}"
_PADDING = "keys that fill a block or a batch have no weight: give them -inf for a score"
_WHOLE = f"{_LENGTHS}: slots behind the last key hold anything"
_ANY_PAGE = f"pages lie in any order, and sequences may share them: {_TABLE}"


def _longer(by: int) -> Callable[[Cache, int], Read]:
    def reads(cache: Cache, number: int) -> Read:
        return cache.read(number, cache.places(number, max(0, cache.length(number) + by)))

    return reads


def _behind_the_last(cache: Cache, number: int) -> Read:
    length = cache.length(number)
    slots = cache.places(number, length + 1)
    return cache.read(number, slots, columns=np.append(np.arange(length), SEEN), length=length)


def _padded(block: int) -> Callable[[Cache, int], Read]:
    """Fill a block with keys of zeros. block: 0 for as many keys as the longest sequence has."""

    def reads(cache: Cache, number: int) -> Read:
        length = cache.length(number)
        more = -length % block if block else cache.case.Lk - length
        slots = np.append(cache.places(number, length), [ZEROS] * more).astype(int)
        columns = np.append(np.arange(length), [SEEN] * more).astype(int)
        return cache.read(number, slots, columns=columns, length=length)

    return reads


def _as_queries(cache: Cache, number: int) -> Read:
    queries, keys = parse_batch(cache.case.batch)[number]
    return cache.read(number, cache.places(number, min(max(1, queries), keys)))


def _of_another(which: Callable[[int, int], int]) -> Callable[[Cache, int], Read]:
    def reads(cache: Cache, number: int) -> Read:
        return cache.read(number, cache.places(which(number, cache.case.B), cache.length(number)))

    return reads


def _halves(cache: Cache, number: int) -> Read:
    """Read cumulative lengths of 8 bytes as twice as many of 4."""
    if cache.table is not None:
        raise ValueError("there are no cumulative lengths of keys")
    begin, end = cache.begins.astype("<i8").view("<i4")[number : number + 2]
    return cache.read(number, np.arange(begin, end))


def _pages(change: Callable[[Cache, int], Array]) -> Callable[[Cache, int], Read]:
    """Read other pages. change: gives them for those of a sequence."""

    def reads(cache: Cache, number: int) -> Read:
        return cache.read(number, cache.in_pages(change(cache, number), cache.length(number)))

    return reads


def _first_pages(cache: Cache, number: int) -> Array:
    before = sum(cache.counts()[:number])
    return before + np.arange(cache.counts()[number])


def _with_stride(by: int) -> Callable[[Cache, int], Array]:
    """Read the table with rows of another width."""

    def pages(cache: Cache, number: int) -> Array:
        rows = cache.rows()
        return rows.ravel()[number * (rows.shape[1] + by) :].clip(min=0)

    return pages


def _of_size(times: float) -> Callable[[Cache, int], Read]:
    """Read pages as if they had so many times the keys."""

    def reads(cache: Cache, number: int) -> Read:
        page = int(cache.page * times)
        pages = cache.rows()[number].clip(0, cache.slots // max(1, page) - 1)
        return cache.read(number, cache.in_pages(pages, cache.length(number), page))

    return reads


def _values(change: Callable[[Array, Cache], Array]) -> Callable[[Cache, int], Read]:
    """Read values in other slots than keys."""

    def reads(cache: Cache, number: int) -> Read:
        cache.rows()
        slots = cache.places(number, cache.length(number))
        return cache.read(number, slots, values=change(slots, cache))

    return reads


def _last_page_whole(cache: Cache, number: int) -> Read:
    return cache.read(number, cache.places(number, len(cache.pages(number)) * cache.page))


def _last_length_of_another(step: int) -> Callable[[Cache, int], Read]:
    def reads(cache: Cache, number: int) -> Read:
        cache.rows()
        own, other = cache.length(number), cache.length(number + step)
        length = max(0, (own - 1) // cache.page * cache.page + (other - 1) % cache.page + 1)
        return cache.read(number, cache.places(number, length))

    return reads


def _first_page_twice(cache: Cache, number: int) -> Array:
    pages = cache.pages(number).copy()
    pages[1:2] = pages[:1]
    return pages


def _of_the_last_owner(cache: Cache, number: int) -> Read:
    """Leave out the pages that a later sequence has too."""
    pages = cache.pages(number)
    later = [cache.pages(other) for other in range(number + 1, cache.case.B)]
    kept = ~np.isin(pages, np.concatenate([*later, [-1]]))
    length = cache.length(number)
    at = np.flatnonzero(np.repeat(kept, cache.page)[:length])
    return cache.read(number, cache.places(number, length)[at], columns=at, length=length)


def _wrapped(slots: int) -> Callable[[Cache, int], Read]:
    def reads(cache: Cache, number: int) -> Read:
        cache.rows()
        return cache.read(number, cache.places(number, cache.length(number)) % slots)

    return reads


def _turned_round(slots: Array, cache: Cache) -> Array:
    return np.asarray(slots // cache.page * cache.page + cache.page - 1 - slots % cache.page)


def _values_are_keys(cache: Cache, number: int) -> Read:
    return cache.read(number, cache.places(number, cache.length(number)), of="k")


EITHER: tuple[SequenceMistake, ...] = (
    SequenceMistake("keys_one_too_few", "each sequence has one key too few", _LENGTHS, _longer(-1)),
    SequenceMistake("keys_one_too_many", "each sequence has one key too many", _LENGTHS, _longer(1)),
    SequenceMistake(
        "key_behind_the_last", "every query also sees the key behind the last", _LENGTHS, _behind_the_last
    ),
    SequenceMistake(
        "keys_as_many_as_queries", "as many keys as queries", _LENGTHS,
        _as_queries,
    ),
    SequenceMistake(
        "keys_of_the_next_sequence", "the keys of the next sequence", _OWN,
        _of_another(lambda number, count: (number + 1) % count),
    ),
    SequenceMistake(
        "keys_of_the_previous_sequence", "the keys of the previous sequence", _OWN,
        _of_another(lambda number, count: (number - 1) % count),
    ),
    SequenceMistake(
        "keys_of_the_first_sequence", "the keys of the first sequence for all", _OWN,
        _of_another(lambda number, count: 0),
    ),
    SequenceMistake("values_are_keys", "keys are read for values", "values lie in v", _values_are_keys),
    *(
        SequenceMistake(
            f"padding_to_{block}_has_weight", f"keys of zeros, up to a multiple of {block}, have weight",
            _PADDING, _padded(block),
        )
        for block in (16, 32, 64, 128)
    ),
    SequenceMistake(
        "padding_to_the_longest_has_weight", "keys of zeros, up to the longest sequence, have weight",
        _PADDING, _padded(0),
    ),
    SequenceMistake(
        "lengths_read_as_half_words", "cumulative lengths of 8 bytes are read as twice as many of 4",
        "look at the dtype of cu_seqlens_k: a kernel for int32 reads int64 as pairs of a length and 0",
        _halves,
    ),
)  # fmt: skip

IN_PAGES: tuple[SequenceMistake, ...] = (
    SequenceMistake("last_page_whole", "every slot of the last page is a key", _WHOLE, _last_page_whole),
    SequenceMistake(
        "pages_sorted", "the pages of a sequence in the order of the cache", _ANY_PAGE,
        _pages(lambda cache, number: np.sort(cache.pages(number))),
    ),
    SequenceMistake(
        "table_ignored", "pages one after the other, without the table", _ANY_PAGE, _pages(_first_pages)
    ),
    SequenceMistake(
        "table_ignored_in_each_sequence", "the first pages of the cache for each sequence", _ANY_PAGE,
        _pages(lambda cache, number: np.arange(cache.counts()[number])),
    ),
    SequenceMistake(
        "pages_from_the_end", "pages counted from the end", _TABLE,
        _pages(lambda cache, number: cache.slots // cache.page - 1 - cache.pages(number)),
    ),
    SequenceMistake(
        "first_page_twice", "the first page in place of the second", _TABLE, _pages(_first_page_twice)
    ),
    SequenceMistake(
        "rows_of_the_table_one_shorter", "the table is read with rows one entry shorter",
        "read the row of a sequence by the stride of block_table", _pages(_with_stride(-1)),
    ),
    SequenceMistake(
        "rows_of_the_table_one_longer", "the table is read with rows one entry longer",
        "read the row of a sequence by the stride of block_table", _pages(_with_stride(1)),
    ),
    SequenceMistake("pages_twice_as_large", "pages of twice the size", _SIZE, _of_size(2)),
    SequenceMistake("pages_half_as_large", "pages of half the size", _SIZE, _of_size(0.5)),
    SequenceMistake(
        "values_of_the_next_page", "values of the next page of the cache", "v has the pages of k",
        _values(lambda slots, cache: (slots + cache.page) % cache.slots),
    ),
    SequenceMistake(
        "values_of_a_page_in_reverse", "the values of a page in reverse", "v has the slots of k",
        _values(_turned_round),
    ),
    SequenceMistake(
        "last_page_as_long_as_that_of_the_next_sequence",
        "the last page has as many keys as that of the next sequence", _LENGTHS, _last_length_of_another(1),
    ),
    SequenceMistake(
        "page_of_one_sequence", "pages that a later sequence has too are left out", _ANY_PAGE,
        _of_the_last_owner,
    ),
)  # fmt: skip


def sequence_mistakes(cache: Cache) -> Iterator[SequenceMistake]:
    """Yield the mistakes in finding keys. Some can't be made in each sequence, and then raise."""
    yield from EITHER
    if cache.table is None:
        return
    yield from IN_PAGES
    bits = (cache.slots - 1).bit_length()
    for slots in (1 << power for power in range(bits - 1, max(0, bits - 4), -1)):
        yield SequenceMistake(
            "offsets_overflow", "offsets of pages overflow and begin anew",
            "compute page · stride in int64, for int32 holds 2^31 elements of a cache alone",
            _wrapped(slots),
        )  # fmt: skip


_MERGE = "halves of the keys weigh exp(s - log Σ exp(s)), with the natural lse s of each"


def _merged(by: float) -> Callable[[Setup, Tensor], Tensor]:
    """Weigh two halves of the keys by exp(by · their lse); by 0 both count the same."""

    def weights(setup: Setup, scores: Tensor) -> Tensor:
        import torch

        half = scores.shape[-1] // 2
        parts = scores[..., :half], scores[..., half:]
        sums = torch.stack([part.logsumexp(-1, keepdim=True) for part in parts])
        shares = (by * (sums - sums.logsumexp(0).nan_to_num(neginf=0))).exp() if by else 0 * sums.exp() + 0.5
        return torch.cat([normalised(setup, x) * w for x, w in zip(parts, shares, strict=True)], -1)

    return weights


def _one_half(which: int) -> Callable[[Setup, Tensor], Tensor]:
    """Use the weights of one half of the keys alone."""

    def weights(setup: Setup, scores: Tensor) -> Tensor:
        import torch

        half = scores.shape[-1] // 2
        lost = (torch.arange(scores.shape[-1], device=scores.device) < half) != (which == 0)
        return normalised(setup, scores.masked_fill(lost, -torch.inf))

    return weights


HALVES: tuple[Mistake, ...] = (
    Mistake("halves_averaged", "two halves of the keys count the same", _MERGE, weighed(_merged(0))),
    Mistake(
        "halves_merged_in_base_2", "two halves of the keys are merged by 2^lse", _MERGE,
        weighed(_merged(float(np.log(2)))),
    ),
    Mistake("second_half_lost", "the first half of the keys alone", _MERGE, weighed(_one_half(0))),
    Mistake("first_half_lost", "the second half of the keys alone", _MERGE, weighed(_one_half(1))),
)  # fmt: skip
"""Mistakes in merging parts of the keys, as split keys and cascades do."""


@dataclass(frozen=True)
class LogSumMistake:
    """A mistake in the log-sum-exp of a sequence.

    name, summary, advice: as of a :class:`attnbench.testing.mistakes.parts.Mistake`. of: makes it of the
    setup of a sequence, the scores (1, H, Lq, Lk) and the right one, (1, H, Lq); raises where it can't.
    """

    name: str
    summary: str
    advice: str
    of: Callable[[Setup, Tensor, Tensor], Tensor]


_PARTS = "merge the parts of the keys: s = log Σ exp(s of each part)"


def _of_keys(part: Callable[[int], slice]) -> Callable[[Setup, Tensor, Tensor], Tensor]:
    return lambda setup, scores, lse: scores[..., part(scores.shape[-1])].logsumexp(-1)


def _unscaled(setup: Setup, scores: Tensor, lse: Tensor) -> Tensor:
    dot = setup.scoring.dot
    if dot is None or setup.scoring.bias is not None or dot.cap is not None:
        raise ValueError("scores are no product times the scale alone")
    return (scores / dot.scale).logsumexp(-1)


def _with_sink(setup: Setup, scores: Tensor, lse: Tensor) -> Tensor:
    sink = setup.scoring.sink
    if sink is None:
        raise ValueError("there is no sink")
    return lse.logaddexp(sink.to(lse)[:, None])


LOG_SUMS: tuple[LogSumMistake, ...] = (
    LogSumMistake(
        "lse_in_base_2", "the logarithm to base 2", "multiply it by ln 2 = 0.693147",
        lambda setup, scores, lse: lse / float(np.log(2)),
    ),
    LogSumMistake(
        "lse_is_the_largest_score", "the largest score of each row",
        "lse is the largest score plus the logarithm of the sum", lambda setup, scores, lse: scores.amax(-1),
    ),
    LogSumMistake(
        "lse_without_the_largest_score", "the largest score is not added",
        "lse is the largest score plus the logarithm of the sum",
        lambda setup, scores, lse: lse - scores.amax(-1),
    ),
    LogSumMistake(
        "lse_is_the_sum", "the sum, not its logarithm", "take the natural logarithm",
        lambda setup, scores, lse: lse.exp(),
    ),
    LogSumMistake(
        "lse_without_the_scale", "of scores that are not scaled", "sum the powers that the softmax has",
        _unscaled,
    ),
    LogSumMistake(
        "lse_with_the_sink", "the sink is counted",
        "leave the sink out of lse: it belongs to the denominator of the output alone", _with_sink,
    ),
    LogSumMistake(
        "lse_of_the_first_half", "of the first half of the keys alone", _PARTS,
        _of_keys(lambda keys: slice(0, keys // 2)),
    ),
    LogSumMistake(
        "lse_of_the_second_half", "of the second half of the keys alone", _PARTS,
        _of_keys(lambda keys: slice(keys // 2, keys)),
    ),
)  # fmt: skip
