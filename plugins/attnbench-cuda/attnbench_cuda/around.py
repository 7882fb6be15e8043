"""Steps around the library calls of all backends: the rule's maps of q and k, the layer, the axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench.kit.layer import for_operation
from attnbench.kit.scores import derived, map_keys, map_queries

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call, Setup


def with_maps(call: Call, setup: Setup) -> Call:
    """``call`` of q', k' and v, all (B, L, heads, D), as the function of a case of either operation."""

    def made(setup: Setup) -> Call:
        dot = setup.scoring.dot
        assert dot is not None
        if dot.map_q is None and dot.map_k is None:
            return call

        def mapped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            # The maps see (B, heads, L, D).
            q = map_queries(dot, q.transpose(1, 2)).transpose(1, 2)
            k = map_keys(dot, k.transpose(1, 2)).transpose(1, 2)
            return call(q, k, v)

        return mapped

    attend = derived(setup, made)
    if setup.case.layer is None:
        return attend

    def heads_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2)

    return for_operation(heads_first, setup)
