"""numpy: NumPy on the tensors' own memory, one head and a few query rows at a time."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attnbench.kit.dtypes import case_dtype
from attnbench.kit.masks import additive_mask
from attnbench.types.backend import Backend, Setup
from attnbench.types.operation import operation_of
from attnbench.types.rule import of_head

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from attnbench.types.backend import Call

    Array = NDArray[Any]
    HeadScores = Callable[[Array, Array, int, slice], Array]

ELEMENTS, FEWEST_ROWS = 1 << 18, 64
"""Elements of scores computed at once, a MiB of float32; and the rows below which BLAS is slow."""


def attention(setup: Setup) -> Callable[[Array, Array, Array, Array], None]:
    """Make ``attend(q, k, v, out)``, which writes the output of q (B, H, Lq, D) into out (B, H, Lq, Dv)."""
    import numpy as np

    case, rule = setup.case, setup.rule
    arrays = {name: p.numpy() for name, p in setup.rule_parameters.items()}
    own = [of_head(case, rule, arrays, h) for h in range(case.H)]
    sinks = [None if rule.sink is None else rule.sink(own[h]) for h in range(case.H)]
    scores_of_head, bias_is_apart = _scores(setup, own)
    mask = additive_mask(case, case_dtype(case), "cpu", setup.scoring if bias_is_apart else None)
    added = None if mask is None else np.broadcast_to(mask.numpy(), (case.B, case.H, case.Lq, case.Lk))
    lowest = np.finfo(case.dtype).min
    chunks = _row_chunks(setup)
    product = _dropping_product(case.dropout) if case.dropout else np.matmul

    def attend(q: Array, k: Array, v: Array, out: Array) -> None:
        for b, h in np.ndindex(case.B, case.H):
            keys, values = k[b, h // case.group], v[b, h // case.group]
            sink = sinks[h]
            for rows in chunks:
                scores = scores_of_head(q[b, h, rows], keys[rows] if rule.pairs_keys else keys, h, rows)
                if added is not None:
                    scores += added[b, h, rows]
                # The lowest finite number, so that a row without a kept key gives zeros instead of NaN.
                largest = scores.max(axis=-1, keepdims=True, initial=lowest)
                if sink is not None:
                    np.maximum(largest, sink, out=largest)
                scores -= largest
                np.exp(scores, out=scores)
                total = scores.sum(axis=-1, keepdims=True)
                if sink is not None:
                    total += np.exp(sink - largest)
                product(scores, values, out=out[b, h, rows])
                # The total is 1 or more in a row that keeps a key; elsewhere both it and the product are 0.
                out[b, h, rows] /= np.maximum(total, 0.5)

    return attend


def around(attend: Callable[[Array, Array, Array, Array], None], setup: Setup) -> Call:
    """Make the function of a ``multihead`` case around ``attend(q, k, v, out)``."""
    import numpy as np
    import torch

    case, heads = setup.case, operation_of(setup.case).heads
    assert heads is not None
    weights = {name: tensor.numpy() for name, tensor in setup.projections.items()}

    def layer(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        q, k, v = heads.project(case, weights, (queries.numpy(), keys.numpy(), values.numpy()))
        merged = np.empty((case.B, case.Lq, case.H, case.Dv), q.dtype)
        attend(q, k, v, merged.swapaxes(1, 2))
        return torch.from_numpy(heads.finish(case, setup.rule, weights, q, merged.swapaxes(1, 2)))

    return layer


def _scores(setup: Setup, own: list[dict[str, Array]]) -> tuple[HeadScores, bool]:
    """Make the function of a head's scores for some rows, and a flag: the bias must still be added.

    A plain product is written out here. Any other rule uses its own NumPy reference, which includes the bias.
    """
    import numpy as np

    case, reference, dot = setup.case, setup.rule.reference, setup.scoring.dot
    if dot is None or dot.map_q is not None or dot.map_k is not None:
        positions = np.arange(case.Lq, dtype=case.dtype) + np.dtype(case.dtype).type(case.query_offset)

        def by_reference(q: Array, k: Array, h: int, rows: slice) -> Array:
            return reference(q, k, own[h], positions[rows])

        return by_reference, False
    scale, cap = dot.scale, dot.cap

    def product(q: Array, k: Array, h: int, rows: slice) -> Array:
        scores: Array = (q * q.dtype.type(scale)) @ k.T
        if cap is not None:
            scores /= cap
            np.tanh(scores, out=scores)
            scores *= cap
        return scores

    return product, True


def _dropping_product(p: float) -> Callable[..., None]:
    """Make the product of weights and values that drops weights with probability p, in place."""
    import numpy as np

    rng = np.random.default_rng()

    def draw_others() -> None:
        nonlocal rng
        rng = np.random.default_rng()

    # Each process forked from this one must drop other weights.
    os.register_at_fork(after_in_child=draw_others)

    def product(weights: Array, values: Array, *, out: Array) -> None:
        weights *= rng.random(weights.shape, dtype=np.float32) >= p
        np.matmul(weights, values, out=out)
        out *= 1 / (1 - p)

    return product


def _row_chunks(setup: Setup) -> tuple[slice, ...]:
    case, width = setup.case, setup.rule.score_elements(setup.case)
    at_once = max(FEWEST_ROWS if width == 1 else 1, ELEMENTS // (case.Lk * width))
    return tuple(slice(top, min(top + at_once, case.Lq)) for top in range(0, case.Lq, at_once))


def prepare(setup: Setup) -> Call:
    """Make the function of the case, for either operation; arrays share the tensors' memory."""
    import torch

    case = setup.case
    attend = attention(setup)
    if case.layer is not None:
        return around(attend, setup)
    shape, dtype = (case.B, case.H, case.Lq, case.Dv), case_dtype(case)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = torch.empty(shape, dtype=dtype)
        attend(q.numpy(), k.numpy(), v.numpy(), out.numpy())
        return out

    return call


NUMPY = Backend(
    name="numpy",
    summary="NumPy on the tensors' memory, a few rows of a head at a time",
    prepare=prepare,
    operations=("attention", "multihead"),
    dtypes=("float64", "float32"),
    devices=("cpu",),
    quadratic_copies=0,
    masks=("any",),
    masks_by_head=True,
    dropout=True,
)
