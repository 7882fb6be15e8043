"""Classes of sizes: those of one class are alike to a kernel, as one key past a block of 64 or of 128 is.

A search lets classes of all properties meet; the variants of a case are drawn from other classes than each
other.
"""

from __future__ import annotations

from random import Random

KEYS = {
    "one key": (1,),
    "few keys": (2, 3, 5, 7),
    "keys of whole blocks": (16, 32, 64, 128),
    "one key past a block": (17, 33, 65, 129),
    "one key before a block": (15, 31, 63, 127),
    "hundreds of keys": (192, 255, 256, 257, 300, 511, 512, 513),
    "a thousand keys or more": (1000, 1023, 1024, 1025, 2051),
}
AS_MANY, ONE, FEWER, MORE = "as many queries as keys", "one query", "fewer queries", "more queries"
QUERIES = (AS_MANY, ONE, FEWER, MORE)

_LENGTHS = sorted(size for sizes in KEYS.values() for size in sizes)


def draw_queries(word: str, Lk: int, random: Random) -> int | None:
    """Return a number of queries of one of :data:`QUERIES` beside so many keys; None where there is none."""
    match word:
        case "as many queries as keys":
            return Lk
        case "one query":
            return 1
        case "fewer queries":
            fewer = [size for size in _LENGTHS if 1 < size < Lk]
        case _:
            fewer = [size for size in _LENGTHS if Lk < size <= 8 * Lk]
    return random.choice(fewer) if fewer else None
