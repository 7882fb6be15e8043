"""The ordinary draw with two elements deep inside k or v changed: what fingerprints overlook.

Draws of even numbers have other values alone, those of odd numbers other keys alone, so that what is kept by
the content of any two inputs is wrong as well. In v the largest element and the smallest change places, which
keeps every sum of powers and of magnitudes; in k one is raised and one is lowered by as much, which keeps the
sum. First and last elements stay. A backend that looks at address, shape, sum or ends takes it for the draw
before.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnbench.inputs.draw import Stored, Wide, draw_activations, store, stream, widen
from attnbench.inputs.one_feature import one_feature, seen_counts
from attnbench.types.case import Case
from attnbench.types.rule import Rule

FEWEST_KEYS = 4
SHIFT = 4.0
"""How much the changed keys' scores move, times a standard normal number for each query. Of some queries one
of them then has most of the weight, and its value shows however many keys there are."""
MOST_CANDIDATES = 4096


def applies(case: Case, rule: Rule) -> bool:
    """Where two keys that are neither first nor last are seen."""
    if case.layer is not None:
        return min(case.Lq, case.Lk) >= FEWEST_KEYS
    if min(case.Lk, case.Lq if rule.pairs_keys else case.Lk) < FEWEST_KEYS:
        return False
    return any(len(keys) > 1 for keys in _inner_keys(case))


def draw_deep_change(case: Case, rule: Rule, entropy: int, index: int) -> tuple[Stored, Stored, Stored]:
    """Draw number ``index`` of ``normal`` with so little changed: to follow that one in the same storage."""
    drawn = draw_activations(case, rule, entropy, index)
    rng = stream(case, "deep_change", entropy, index)
    if case.layer is not None:
        return _sources_changed(case, drawn, rng)
    q, k, v = drawn
    inner = _inner_keys(case)
    b = int(rng.choice([b for b in range(case.B) if len(inner[b]) > 1]))
    h = int(rng.integers(case.Hkv))
    if index % 2 == 0:
        v = v.copy()
        v[b, h] = _exchanged(v[b, h], inner[b], case)
        return q, k, v
    if rule.pairs_keys:
        rows = np.arange(1, case.Lq - 1)
        up, down = int(rng.choice(rows)), int(rng.choice(rows))
    else:
        up, down = (int(key) for key in rng.choice(inner[b], 2, replace=False))
    k = k.copy()
    k[b, h] = _changed(k[b, h], up, down, _key_step(case, rule), case, rng)
    return q, k, v


def _inner_keys(case: Case) -> list[NDArray[np.intp]]:
    """By batch element, the keys that most queries see, of those that are neither first nor last."""
    seen = seen_counts(case)[:, 1:-1]
    return [1 + np.flatnonzero((row > 0) & (2 * row >= row.max())) for row in seen]


def _key_step(case: Case, rule: Rule) -> float:
    """How far an element of k is moved."""
    found = one_feature(case, rule, 0)
    if found is not None and found.alone:
        return float(SHIFT / np.abs(found.slopes).min())
    # A learned map mixes the features: each element counts for less.
    return float((4.0 if rule.pairs_keys else 8.0) * np.sqrt(case.D))


def _sources_changed(
    case: Case, drawn: tuple[Stored, Stored, Stored], rng: np.random.Generator
) -> tuple[Stored, Stored, Stored]:
    """Two tokens of the source of values changed, in those of keys and queries too where they are it."""
    assert case.layer is not None
    queries, keys, values = drawn
    b = int(rng.integers(case.B))
    inner = _inner_keys(case)[b]
    inner = inner if len(inner) > 1 else np.arange(1, case.Lk - 1)
    up, down = (int(key) for key in rng.choice(inner, 2, replace=False))
    changed = values.copy()
    changed[b] = _changed(values[b], up, down, 4.0 * float(np.sqrt(case.layer.E)), case, rng)
    return (
        changed if queries is values else queries,
        changed if keys is values else keys,
        changed,
    )


def _exchanged(rows: Stored, keys: NDArray[np.intp], case: Case) -> Stored:
    """(L, features) with the largest element in some rows and the smallest in each other's place."""
    wide = widen(rows, case.dtype)[keys]
    high, low = (np.unravel_index(int(at), wide.shape) for at in (np.argmax(wide), np.argmin(wide)))
    one, other = (keys[high[0]], high[1]), (keys[low[0]], low[1])
    made = rows.copy()
    made[one], made[other] = rows[other], rows[one]
    return made


def _changed(
    rows: Stored,
    up: int,
    down: int,
    step: float,
    case: Case,
    rng: np.random.Generator,
) -> Stored:
    """(L, features) with an element of the row ``up`` raised and one of ``down`` lowered by as much.

    Of the features those are taken that make the sum come out best: the elements are rounded again.
    """
    wide = widen(rows, case.dtype)
    count = min(rows.shape[1], int(np.sqrt(MOST_CANDIDATES)))
    first, second = (rng.permutation(rows.shape[1])[:count] for _ in "ab")
    old_up, old_down = wide[up, first][:, None], wide[down, second][None, :]
    new_up = _stored(old_up + step, case)
    new_down = _stored(old_up + old_down - new_up, case)
    off = np.abs((old_up + old_down) - (new_up + new_down))
    if up == down:
        off[first[:, None] == second[None, :]] = np.inf
    i, j = np.unravel_index(int(np.argmin(off)), off.shape)
    wide[up, first[i]] = new_up[i, 0]
    wide[down, second[j]] = new_down[i, j]
    return store(wide, case.dtype)


def _stored(values: Wide, case: Case) -> Wide:
    return widen(store(values, case.dtype), case.dtype)
