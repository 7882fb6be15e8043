"""numba_additive: additive scores without their L·L·D tanh, in one fused loop.

tanh(a + b) = 1 - 2 / (1 + e^(2a) e^(2b)), so an exponential is needed of each feature of each query and key,
and of a pair only products, sums and a quarter of a division. Where |a| or |b| is too large for that, the
head's queries go the exact way instead, by NumPy's tanh of every sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnbench.types.backend import Backend, Setup
from attnbench_numba.kernels import FEATURES_AT_ONCE, additive_scores
from attnbench_numba.walk import Block, attend

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnbench.types.backend import Call
    from attnbench_numba.walk import Scores

    Array = NDArray[Any]

BLOCK = Block(rows=64, cols=2048)
LARGEST = {"float32": 43.0, "float64": 350.0}
"""Of |a| and |b|: e^(2a) is then a normal number. Their product may leave the range on either side: where it
becomes infinite it is cut to where tanh is 1, and 0 gives -1, as it should be."""
TANH_AT_ONCE = 1 << 18


def prepare(setup: Setup) -> Call:
    """Make the function of the case, for either operation and both additive rules."""
    from attnbench.kit.layer import for_operation

    case, dtype = setup.case, np.dtype(setup.case.dtype)
    given = {name: tensor.numpy() for name, tensor in setup.rule_parameters.items()}
    w_query, w_key, bias = given["w_query"], given["w_key"], given["bias"]
    v = given.get("v", np.ones((case.H, case.D), dtype))
    score, largest = additive_scores(case.dtype), LARGEST[case.dtype]
    padded = -(-case.D // FEATURES_AT_ONCE) * FEATURES_AT_ONCE
    weights = np.zeros((case.H, padded), dtype)
    weights[:, : case.D] = v

    def scores_of_head(q: Array, k: Array, h: int) -> Scores:
        from_q = q @ w_query[h].T
        from_k = w_key[h] @ k.T + bias[h][:, None]
        if max(np.abs(from_q).max(), np.abs(from_k).max()) > largest:
            return by_tanh(from_q, np.ascontiguousarray(from_k.T), v[h])
        # Features that only fill up have weight 0.
        of_queries, of_keys = np.zeros((case.Lq, padded), dtype), np.zeros((padded, case.Lk), dtype)
        np.exp(2 * from_q, out=of_queries[:, : case.D])
        np.exp(2 * from_k, out=of_keys[: case.D])

        def scores(rows: slice, cols: slice, out: Array) -> None:
            score(of_queries[rows], of_keys, weights[h], cols.start, out)

        return scores

    return for_operation(attend(setup, BLOCK, scores_of_head), setup)


def by_tanh(from_q: Array, from_k: Array, v: Array) -> Scores:
    """The scores of a head by the tanh of every sum: right for any numbers, an order of magnitude slower."""

    def scores(rows: slice, cols: slice, out: Array) -> None:
        at_once = max(1, TANH_AT_ONCE // from_k[cols].size)
        for top in range(rows.start, rows.stop, at_once):
            some = slice(top, min(top + at_once, rows.stop))
            hidden = from_q[some, None] + from_k[cols]
            np.tanh(hidden, out=hidden)
            np.matmul(hidden, v, out=out[top - rows.start : some.stop - rows.start])

    return scores


NUMBA_ADDITIVE = Backend(
    name="numba_additive",
    summary="additive scores in one fused loop of Numba, by exponentials of queries and keys: O(L) memory",
    prepare=prepare,
    operations=("attention", "multihead"),
    rules=("additive", "additive_sum"),
    dtypes=("float64", "float32"),
    devices=("cpu",),
    requires=("numba",),
    masks=("any",),
    quadratic_copies=0,
)
