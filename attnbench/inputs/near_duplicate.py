"""Stress inputs ``near_duplicate``: an ordinary draw with two elements inside k or v changed.

They detect kept answers that are found by a fingerprint of the inputs. Draws of even number change values
only, draws of odd number keys only, so that an answer kept by the content of any two inputs is wrong too. In
v the largest and the smallest element change places, which keeps every sum of powers and of magnitudes. In k
one element is raised and another lowered by as much, which keeps the sum. First and last elements stay. A
backend that compares addresses, shapes, sums or ends takes these inputs for the draw before.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnbench.inputs.draw import Stored, draw_activations, rounded, store, stream, widen
from attnbench.inputs.one_feature import one_feature, seen_counts
from attnbench.types.case import Case
from attnbench.types.rule import Rule

FEWEST_KEYS = 4
SHIFT = 4.0
"""How far the scores of the changed keys move, times a standard normal number for each query. For some
queries one of these keys then has most of the weight, so that its value shows however many keys there are."""
MOST_CANDIDATES = 4096


def applies(case: Case, rule: Rule) -> bool:
    """Return whether queries see two keys that are neither first nor last."""
    if case.layer is not None:
        return min(case.Lq, case.Lk) >= FEWEST_KEYS
    if min(case.Lk, case.Lq if rule.pairs_keys else case.Lk) < FEWEST_KEYS:
        return False
    return any(len(keys) > 1 for keys in _inner_keys(case))


def draw(case: Case, rule: Rule, entropy: int, index: int) -> tuple[Stored, Stored, Stored]:
    """Draw ``normal`` number ``index`` with two elements changed, to follow that draw in the same storage."""
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
    """Return by batch element the keys that most queries see, without the first and the last key."""
    seen = seen_counts(case)[:, 1:-1]
    return [1 + np.flatnonzero((row > 0) & (2 * row >= row.max())) for row in seen]


def _key_step(case: Case, rule: Rule) -> float:
    """Return how far an element of k is moved."""
    found = one_feature(case, rule, 0)
    if found is not None and found.alone:
        return float(SHIFT / np.abs(found.slopes).min())
    # A learned map mixes the features: each element counts for less.
    return float((4.0 if rule.pairs_keys else 8.0) * np.sqrt(case.D))


def _sources_changed(
    case: Case, drawn: tuple[Stored, Stored, Stored], rng: np.random.Generator
) -> tuple[Stored, Stored, Stored]:
    """Change two tokens in the source of values, also where this source serves as keys or queries."""
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
    """Return rows (L, features) in which the largest and the smallest element have changed places."""
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
    """Return rows (L, features) with one element of row ``up`` raised and one of ``down`` lowered by as much.

    Elements are rounded again, so the features are chosen for which the sum changes least.
    """
    wide = widen(rows, case.dtype)
    count = min(rows.shape[1], int(np.sqrt(MOST_CANDIDATES)))
    first, second = (rng.permutation(rows.shape[1])[:count] for _ in "ab")
    old_up, old_down = wide[up, first][:, None], wide[down, second][None, :]
    new_up = rounded(old_up + step, case.dtype)
    new_down = rounded(old_up + old_down - new_up, case.dtype)
    off = np.abs((old_up + old_down) - (new_up + new_down))
    if up == down:
        off[first[:, None] == second[None, :]] = np.inf
    i, j = np.unravel_index(int(np.argmin(off)), off.shape)
    wide[up, first[i]] = new_up[i, 0]
    wide[down, second[j]] = new_down[i, j]
    return store(wide, case.dtype)
