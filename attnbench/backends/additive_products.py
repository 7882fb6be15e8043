"""Products of matrices for additive scores: by oneDNN where it is the faster."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

ENOUGH = 1 << 20
"""Multiplications from which oneDNN is the faster."""


def product(left: Tensor, right: Tensor) -> Tensor:
    """left (heads, n, K) @ right (heads, m, K).mT, newly made: (heads, n, m).

    torch hands float32 to MKL, which uses half of the vector width of an AMD processor with AVX-512; oneDNN
    uses all of it. A call of it costs more than one of torch.bmm, and takes one head.
    """
    import torch

    linear = _linear()
    few = left.shape[1] * right.shape[1] * right.shape[2] < ENOUGH
    if linear is None or few or len(left) > 1 or left.dtype != torch.float32:
        return torch.bmm(left, right.mT)
    x, weight = left[0], right[0]
    if not weight.mT.is_contiguous():
        # Rows with gaps between them go to oneDNN's reference code, a thousand times slower.
        weight = weight.contiguous()
    made: Tensor = linear(x, weight, None, "none", [], "")
    return made[None]


@cache
def _linear() -> Any:
    """What torch's own compiler calls for float32; None in a torch that was built without it."""
    import torch

    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]  # torch's own
        return None
    found = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    return None if found is None else found.default
