"""Batches of sequences of unlike lengths, in the words that vLLM's benchmarks use.

``2q2k_32q1s1k`` is two sequences of 2,048 queries and as many keys, then 32 of one query and 1,024 keys.
Segments are joined by ``_``, each ``[count]q<queries>[s<keys>]``; ``k`` behind a length is times 1,024. The
count defaults to 1 and the keys to the number of queries; keys are all that a sequence has, old and new.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import groupby

from attnbench.types.errors import BadCase

Lengths = tuple[tuple[int, int], ...]
"""The numbers of queries and keys of each sequence."""

MOST_SEQUENCES = 1024
"""The verifier keeps a judge for each sequence."""

_THOUSAND = 1024
_SEGMENT = re.compile(r"([0-9]{1,9})?q([0-9]{1,9})(k)?(?:s([0-9]{1,9})(k)?)?")
_BEGINS = re.compile(r"[0-9]*q")


def begins_batch(text: str) -> bool:
    """Return whether a word can only be meant as a batch."""
    return _BEGINS.match(text) is not None


@lru_cache(maxsize=256)
def parse_batch(text: str) -> Lengths:
    """Return the lengths of the sequences that a word lists.

    Raises:
        BadCase: it is no such word; the sentence points at the place.
    """
    found: list[tuple[int, int]] = []
    place = 1
    for segment in text.split("_"):
        match = _SEGMENT.fullmatch(segment)
        if match is None:
            raise BadCase(
                f"batch {text!r}: {segment!r} at character {place} is not a segment; "
                "write [count]q<queries>[s<keys>], as in 2q2k_32q1s1k"
            )
        count = 1 if match[1] is None else int(match[1])
        if count == 0:
            raise BadCase(f"batch {text!r}: {segment!r} at character {place} counts none; leave it out")
        queries = _length(match[2], match[3])
        keys = queries if match[4] is None else _length(match[4], match[5])
        if len(found) + count > MOST_SEQUENCES:
            raise BadCase(f"batch {text!r}: {MOST_SEQUENCES} sequences are the most; it has more")
        found += [(queries, keys)] * count
        place += len(segment) + 1
    if not any(queries and keys for queries, keys in found):
        raise BadCase(f"batch {text!r}: no sequence has both queries and keys")
    return tuple(found)


def batch_text(lengths: Lengths) -> str:
    """Return the canonical word of a batch, the inverse of :func:`parse_batch`."""
    return "_".join(_segment(len(list(same)), *pair) for pair, same in groupby(lengths))


def _segment(count: int, queries: int, keys: int) -> str:
    counted = "" if count == 1 else str(count)
    own_keys = "" if keys == queries else f"s{_number(keys)}"
    return f"{counted}q{_number(queries)}{own_keys}"


def _length(digits: str, thousands: str | None) -> int:
    return int(digits) * (_THOUSAND if thousands else 1)


def _number(length: int) -> str:
    return f"{length // _THOUSAND}k" if length and length % _THOUSAND == 0 else str(length)
