"""How inputs arrive other than contiguous and without gradients: as people pass them, their values ordinary.

``strided``: q, k and v are views. Of those that a backend has as (B, H, L, D) the memory is in the order of
(B, L, H, D), each row half of a wider one, as of a projection that makes keys and values together. Of those
that it has as (B, L, H, D) it is in the order of (B, H, L, D), with room for as many positions again, as of a
cache of keys. The sources of a layer are (B, L, E) out of (B, L, 2·E). What lies between is NaN where inputs
are between bands of NaN, else 0.

``graded``: they require gradients and grad mode is on, in a forward pass. The output may have a graph.

Key/value heads are not expanded: a case with fewer of them than query heads has them as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench.worker.outputs import reach_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def strides_apart(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a ``strided`` input of this shape, in elements.

    (B, H, L, D) to those of half of (B, L, 2·H, D), and the same with the names exchanged; (B, L, E) to those
    of half of (B, L, 2·E).
    """
    if len(shape) == 3:
        _, length, width = shape
        return 2 * width * length, 2 * width, 1
    _, inner, outer, width = shape
    row = 2 * inner * width
    return outer * row, width, row, 1


def apart(tensor: Tensor) -> Tensor:
    """A copy with :func:`strides_apart`, and 0 between its elements."""
    strides = strides_apart(tensor.shape)
    memory = tensor.new_zeros(reach_of(tensor.shape, strides))
    return memory.as_strided(tensor.shape, strides).copy_(tensor)
