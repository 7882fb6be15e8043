"""The two loops that are compiled: scores of additive attention, and one step of the online softmax.

Each is compiled for a dtype when it is first asked for, in a backend's preparation; Numba's cache keeps it.
Nothing may be reordered: sums run in lanes of their own that are written out, so that LLVM needs no
licence to reassociate, and NaN and infinity mean what they mean.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from attnbench_numba.exponential import make_exponential

LANES = 32
"""Partial sums and maxima: two vectors of AVX-512, or four of AVX2, in float32."""
FEATURES_AT_ONCE = 4
"""That share one division in the additive scores; the features are padded to a multiple of it."""
FEATURES_IN_A_SUM = 64
"""Are added up by themselves before they are added to the score: one long sum would lose more digits."""
KEYS_AT_ONCE = 256
"""Keys at a time in additive scores: their exponentials, 64 KiB for 64 features, stay in a near cache."""


@cache
def softmax_step(dtype: str) -> Callable[..., None]:
    """``step(scores, first, low, high, largest, total, shrink, lanes)``, all but ``first`` arrays.

    scores (R, C) of the keys from ``first`` on become e^(score - largest so far), 0 outside of a row's keys
    ``low`` to ``high``. ``largest`` and ``total`` (R,) are brought up to date, and ``shrink`` (R,) is what
    earlier sums are to be multiplied by: Milakov & Gimelshein 2018, Online normalizer calculation for
    softmax, algorithm 3. lanes (LANES,): memory to work in.
    """
    import numba

    exponential = make_exponential(dtype)
    lanes_of = LANES
    zero = np.dtype(dtype).type(0)

    def step(
        scores: Any, first: Any, low: Any, high: Any, largest: Any, total: Any, shrink: Any, lanes: Any
    ) -> None:
        rows, cols = scores.shape
        for i in range(rows):
            start = min(max(low[i] - first, 0), cols)
            stop = max(min(high[i] - first, cols), start)
            scores[i, :start] = zero
            scores[i, stop:] = zero
            # A slice is counted from 0, and LLVM then need not think of indices below.
            row = scores[i, start:stop]
            before, whole = largest[i], len(row) // lanes_of
            for lane in range(lanes_of):
                lanes[lane] = before
            for at in range(whole):
                some = row[at * lanes_of : (at + 1) * lanes_of]
                for lane in range(lanes_of):
                    lanes[lane] = lanes[lane] if lanes[lane] > some[lane] else some[lane]
            top = before
            for lane in range(lanes_of):
                top = top if top > lanes[lane] else lanes[lane]
            for x in row[whole * lanes_of :]:
                top = top if top > x else x
            for j in range(len(row)):
                row[j] = exponential(row[j] - top)
            for lane in range(lanes_of):
                lanes[lane] = zero
            for at in range(whole):
                some = row[at * lanes_of : (at + 1) * lanes_of]
                for lane in range(lanes_of):
                    lanes[lane] += some[lane]
            rest = row[whole * lanes_of :]
            for lane in range(len(rest)):
                lanes[lane] += rest[lane]
            # By halves: a plain sum loses a digit where all weights are about the same.
            half = lanes_of // 2
            while half:
                for lane in range(half):
                    lanes[lane] += lanes[lane + half]
                half //= 2
            shrink[i] = exponential(before - top)
            total[i] = total[i] * shrink[i] + lanes[0]
            largest[i] = top

    real = numba.from_dtype(np.dtype(dtype))
    vector, index = real[::1], numba.int64[::1]
    signature = numba.void(real[:, ::1], numba.int64, index, index, vector, vector, vector, vector)
    return _compiled(signature, step)


@cache
def additive_scores(dtype: str) -> Callable[..., None]:
    """``score(of_queries, of_keys, weights, first, scores)``: the scores (R, C) of keys from ``first`` on.

    of_queries (R, D): e^(2a), of_keys (D, Lk): e^(2b), weights (D,): v; D is a multiple of FEATURES_AT_ONCE.
    The score is Σ v tanh(a + b), and tanh(s) = (e - 1) / (e + 1) with e = e^(2s) = e^(2a) e^(2b): near 0 the
    difference is exact. Four quotients become one, n₁/x₁ + n₂/x₂ = (n₁x₂ + n₂x₁) / (x₁x₂) twice. So that four
    denominators multiplied stay finite, no e is let grow beyond 2^31 (2^60 in float64), where tanh is 1.
    """
    import numba

    real = np.dtype(dtype).type
    one, zero, limit = real(1), real(0), real(2.0**31 if dtype == "float32" else 2.0**60)
    features_at_once, features_in_a_sum = FEATURES_AT_ONCE, FEATURES_IN_A_SUM
    keys_at_once = KEYS_AT_ONCE

    def score(of_queries: Any, of_keys: Any, weights: Any, first: Any, scores: Any) -> None:
        (rows, cols), features = scores.shape, of_queries.shape[1]
        memory = np.empty(keys_at_once, scores.dtype)
        for left in range(0, cols, keys_at_once):
            keys = min(keys_at_once, cols - left)
            start = first + left
            for i in range(rows):
                out = scores[i, left : left + keys]
                out[:] = zero
                part = memory[:keys]
                part[:] = zero
                for d in range(0, features, features_at_once):
                    a0, a1 = of_queries[i, d], of_queries[i, d + 1]
                    a2, a3 = of_queries[i, d + 2], of_queries[i, d + 3]
                    v0, v1, v2, v3 = weights[d], weights[d + 1], weights[d + 2], weights[d + 3]
                    b0 = of_keys[d, start : start + keys]
                    b1 = of_keys[d + 1, start : start + keys]
                    b2 = of_keys[d + 2, start : start + keys]
                    b3 = of_keys[d + 3, start : start + keys]
                    for j in range(keys):
                        e0, e1, e2, e3 = a0 * b0[j], a1 * b1[j], a2 * b2[j], a3 * b3[j]
                        e0 = limit if e0 > limit else e0
                        e1 = limit if e1 > limit else e1
                        e2 = limit if e2 > limit else e2
                        e3 = limit if e3 > limit else e3
                        x0, x1, x2, x3 = e0 + one, e1 + one, e2 + one, e3 + one
                        n01 = v0 * (e0 - one) * x1 + v1 * (e1 - one) * x0
                        n23 = v2 * (e2 - one) * x3 + v3 * (e3 - one) * x2
                        x01, x23 = x0 * x1, x2 * x3
                        part[j] += (n01 * x23 + n23 * x01) / (x01 * x23)
                    done = d + features_at_once
                    if done % features_in_a_sum == 0 or done == features:
                        for j in range(keys):
                            out[j] += part[j]
                            part[j] = zero

    array = numba.from_dtype(np.dtype(dtype))
    matrix, vector = array[:, ::1], array[::1]
    return _compiled(numba.void(matrix, matrix, vector, numba.int64, matrix), score)


def _compiled(signature: Any, function: Callable[..., None]) -> Callable[..., None]:
    """Compile for these types now, or read what was compiled before from Numba's cache.

    The cache is asked for the code, the values that it holds and the processor. Where no folder can be
    written, every process compiles. Python's rule for division by zero would prevent vector loops.
    """
    import numba

    jit = partial(numba.njit, signature, fastmath={"contract"}, error_model="numpy")
    try:
        compiled: Callable[..., None] = jit(cache=True)(function)
    except RuntimeError:
        compiled = jit()(function)
    return compiled
