"""Lessons of models and their kernels: shared heads, rotary positions, the cache of a decode, flash."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from attnbench.explained.examples import numbered
from attnbench.explained.steps import Step
from attnbench.oracle.solve import softmax
from attnbench.types.rule import Rule

RuleOf = Callable[[str], Rule]


def gqa(_: RuleOf, seed: int) -> Iterator[Step]:
    """Yield grouped queries: four heads of queries, of which two share the keys of one head."""
    rng = np.random.default_rng([seed, 4])
    q, k = rng.integers(-2, 3, (4, 2, 3)) * 1.0, rng.integers(-2, 3, (2, 4, 3)) * 1.0
    heads, queries, keys = numbered("q head ", 4), numbered("q", 2), numbered("k", 4)
    yield Step("q", "four heads of queries", q, queries, blocks=heads)
    v = rng.integers(-2, 3, (2, 4, 3)) * 1.0
    text = "two heads of keys: q heads 1 and 2 read k head 1, q heads 3 and 4 read k head 2"
    yield Step("k", text, k, keys, blocks=numbered("k head ", 2))
    yield Step("v", "two heads of values, read in the same way", v, keys, blocks=numbered("v head ", 2))
    shared = k.repeat(2, axis=0)
    yield Step("k for each q head", "k.repeat_interleave(2, dim=0)", shared, keys, blocks=heads)
    scores = q @ shared.swapaxes(1, 2) / np.sqrt(3)
    yield Step(
        "scores",
        "q·k / √3; a kernel reads the shared keys once, and repeats nothing",
        scores,
        queries,
        keys,
        heads,
    )
    weights = softmax(scores)
    yield Step("weights", "softmax of each row", weights, queries, keys, heads, drawn="shades")
    text = "weights @ v of the head that is read: v.repeat_interleave(2, dim=0)"
    yield Step("output", text, weights @ v.repeat(2, axis=0), queries, blocks=heads)
    kinds = ("multihead", "grouped (gqa)", "multiquery (mqa)")
    kept = np.array([[count, 2.0 * count * 3] for count in (4, 2, 1)])
    text = "numbers of k and v that a decode keeps for each token, with 3 features"
    yield Step("cache", text, kept, kinds, ("heads", "numbers"))


def rope(_: RuleOf, seed: int) -> Iterator[Step]:
    """Yield rotary positions: pairs of features turn, and scores see how far apart tokens are."""
    L, D, base = 5, 4, 100.0
    places = tuple(f"position {place}" for place in range(L))
    speeds = base ** (-np.arange(0, D, 2) / D)
    text = (
        f"position · {base:g}^(−2i/{D}) for pair i = 0, 1 of features, in radians; models take a base of "
        "10000 or more. Here neighbours are a pair, features 1 and 2, then 3 and 4; many models pair "
        "feature d with d + D/2"
    )
    angles = np.arange(L)[:, None] * speeds
    yield Step("angles", text, angles, places, ("pair 0", "pair 1"))
    q, k = np.array([1.0, 0, 1, 0]), np.array([1.0, 0, 0, 1])
    yield Step("q and k", "the same query and the same key at every position", np.stack([q, k]), ("q", "k"))
    turned_q, turned_k = _turned(q, angles), _turned(k, angles)
    text = "each pair (a, b) becomes (a cos − b sin, a sin + b cos); lengths stay"
    yield Step("q turned", text, turned_q, places)
    yield Step("k turned", "likewise", turned_k, places)
    scores = turned_q @ turned_k.T
    text = (
        "turned q · turned k: equal along each diagonal, so a score depends on how far the key is before or "
        "after the query, and not on where both are"
    )
    queries, keys = ([tuple(f"{name} at {p + off}" for p in range(L)) for off in (0, 7)] for name in "qk")
    yield Step("scores", text, scores, queries[0], keys[0])
    moved = _turned(q, angles + 7 * speeds) @ _turned(k, angles + 7 * speeds).T
    yield Step("scores, all 7 positions later", "the same", moved, queries[1], keys[1])


def _turned(features: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Return a vector (D,) turned by the angles (L, D / 2) of each position, (L, D)."""
    a, b = features[0::2], features[1::2]
    pairs = np.stack(
        [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)], axis=-1
    )
    return pairs.reshape(len(angles), -1)


def kv_cache(_: RuleOf, seed: int) -> Iterator[Step]:
    """Yield a decode: the new token's row alone, from the keys and values of all tokens so far."""
    rng = np.random.default_rng([seed, 2])
    words = ("the", "cat", "sat", "down")
    q, k, v = (rng.integers(-2, 3, (4, 3)) * 1.0 for _ in range(3))
    kept, new = words[:3], words[3]
    yield Step("k in the cache", "of the three tokens so far; no key changes any more", k[:3], kept)
    yield Step("v in the cache", "likewise", v[:3], kept)
    yield Step(
        f'q, k, v of "{new}", the new token',
        "three rows; k and v join the cache",
        np.stack([q[3], k[3], v[3]]),
        ("q", "k", "v"),
    )
    yield Step("k in the cache now", f'with the row of "{new}"', k, words)
    yield Step("v in the cache now", "likewise", v, words)
    yield Step(
        "q·k",
        f'one row: q of "{new}" with each key of the cache; no mask is needed',
        q[3:] @ k.T,
        (new,),
        words,
    )
    row = q[3:] @ k.T / np.sqrt(3)
    yield Step("scores", "q·k / √D, D = 3", row, (new,), words)
    weights = softmax(row)
    yield Step("weights", "softmax of the scores", weights, (new,), words, drawn="shades")
    yield Step("output", "weights @ v of the cache now", weights @ v, (new,))
    whole = np.where(np.tri(4, dtype=bool), q @ k.T / np.sqrt(3), -np.inf)
    text = f'without a cache: all rows anew, with a causal mask; the row of "{new}" is the same'
    yield Step("q of all tokens", "which a program with a cache had when they came", q, words)
    yield Step("output of all tokens", text, softmax(whole) @ v, words)
    lengths = (16, 128, 1024)
    cost = np.array([[n, n * (n + 1) / 2] for n in lengths], dtype=float)
    text = "scores that one new token takes: with the cache, and with all rows (those that the mask keeps)"
    yield Step("cost", text, cost, tuple(f"{n} tokens" for n in lengths), ("cache", "all rows"))


def flash(_: RuleOf, seed: int) -> Iterator[Step]:
    """Yield the softmax that needs no whole row: keys come in blocks, and what was summed is corrected."""
    rng = np.random.default_rng([seed, 1])
    scores, v = np.array([1.0, 3, 2, 5, 4, 0]), rng.integers(-2, 4, (6, 2)) * 1.0
    keys, size = numbered("k", 6), 2
    yield Step("scores", "of one query; a kernel has only two of them at a time", scores[None], ("q",), keys)
    yield Step("v", "the values", v, keys)
    largest, total, summed = -np.inf, 0.0, np.zeros(2)
    rows: list[list[float]] = []
    sums: list[np.ndarray] = []
    for start in range(0, 6, size):
        block = scores[start : start + size]
        new = max(largest, block.max())
        factor = np.exp(largest - new)
        powers = np.exp(block - new)
        total = total * factor + powers.sum()
        summed = summed * factor + powers @ v[start : start + size]
        before, largest = largest, new
        rows.append([*powers, before, largest, factor, total])
        sums.append(summed)
    blocks = ("k1, k2", "k3, k4", "k5, k6")
    text = (
        "after each block. power 1, 2: e^(score − largest so far) of its two keys. before: the largest of "
        "blocks before, -inf where there is none. factor: e^(before − largest), by which what was summed is "
        "multiplied. sum: of all powers so far"
    )
    columns = ("power 1", "power 2", "before", "largest", "factor", "sum")
    yield Step("block by block", text, np.array(rows), blocks, columns)
    yield Step(
        "powers @ v",
        "summed in the same way: the sum before · factor + powers @ v of the block",
        np.array(sums),
        blocks,
    )
    yield Step("output", "the last powers @ v / the last sum", (summed / total)[None], ("q",))
    weights = softmax(scores[None])
    yield Step(
        "weights", "softmax of the whole row, which flash never holds", weights, ("q",), keys, drawn="shades"
    )
    yield Step("weights @ v", "the same output", weights @ v, ("q",))
