"""numba_tiled: NumPy's matrix products, and between them an online softmax that Numba compiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnbench.kit.scores import map_keys, map_queries
from attnbench.types.backend import Backend, Setup
from attnbench_numba.walk import Block, attend

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from attnbench.types.backend import Call
    from attnbench_numba.walk import Scores

    Array = NDArray[Any]

BLOCK = Block(rows=128, cols=512)


def prepare(setup: Setup) -> Call:
    """Make the function of the case, for either operation.

    A call computes the rule's maps of q and k once, before the blocks.
    """
    from attnbench.kit.layer import for_operation

    dot = setup.scoring.dot
    assert dot is not None
    scale, cap = dot.scale, dot.cap

    def scores_of_head(q: Array, k: Array, h: int) -> Scores:
        scaled, keys = q * q.dtype.type(scale), k.T

        def scores(rows: slice, cols: slice, out: Array) -> None:
            np.matmul(scaled[rows], keys[:, cols], out=out)
            if cap is not None:
                out /= cap
                np.tanh(out, out=out)
                out *= cap

        return scores

    call = attend(setup, BLOCK, scores_of_head)
    if dot.map_q is None and dot.map_k is None:
        return for_operation(call, setup)

    def mapped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return call(map_queries(dot, q), map_keys(dot, k), v)

    return for_operation(mapped, setup)


NUMBA_TILED = Backend(
    name="numba_tiled",
    summary="NumPy's matrix products, Numba's online softmax between them: O(L) memory",
    prepare=prepare,
    operations=("attention", "multihead"),
    needs_dot_form=True,
    dtypes=("float64", "float32"),
    devices=("cpu",),
    requires=("numba",),
    masks=("any",),
    quadratic_copies=0,
)
