"""The layer around the heads in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from attnbench.types.backend import Call, Setup

    Array = NDArray[Any]


def around(attend: Callable[[Array, Array, Array, Array], None], setup: Setup) -> Call:
    """The function of a ``multihead`` case around ``attend(q, k, v, out)``."""
    import numpy as np
    import torch

    case = setup.case
    weights = {name: tensor.numpy() for name, tensor in setup.projections.items()}
    w_o, concatenates = weights.get("w_o"), setup.rule.concatenates

    def project(x: Array, letter: str, heads: int) -> Array:
        projected: Array = x @ weights[f"w_{letter}"].T
        if f"b_{letter}" in weights:
            projected += weights[f"b_{letter}"]
        return projected.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)

    def layer(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        q = project(queries.numpy(), "q", case.H)
        k = project(keys.numpy(), "k", case.Hkv)
        v = project(values.numpy(), "v", case.Hkv)
        merged = np.empty((case.B, case.Lq, case.H, case.Dv), q.dtype)
        attend(q, k, v, merged.swapaxes(1, 2))
        out = merged.reshape(case.B, case.Lq, -1)
        if w_o is not None:
            if concatenates:
                out = np.concatenate((q.swapaxes(1, 2).reshape(case.B, case.Lq, -1), out), axis=-1)
            out = out @ w_o.T
            if "b_o" in weights:
                out += weights["b_o"]
        return torch.from_numpy(out)

    return layer
