"""Steps of both backends around their function of arrays: maps, masks, sinks, axes, the layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attnbench.kit.attention import with_sink_column, with_zero_row
from attnbench.kit.dtypes import case_dtype, softmax_dtype
from attnbench.kit.layer import for_operation
from attnbench.kit.masks import is_plain_causal, plus_bias, softmax_mask
from attnbench.kit.scores import derived, map_keys, map_queries
from attnbench_jax.bridge import compiled
from attnbench_jax.process import configure

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call, Setup

    Function = Callable[..., Any]


def attention(setup: Setup, function: Callable[[bool, float], Function]) -> Call:
    """The function of a case of either operation.

    function: ``function(is_causal, scale)`` gives one of arrays q (B, Lq, H, D), k and v (B, Lk, Hkv, D) and,
    where something is added to the scores, that as (B or 1, H or 1, Lq, Lk). Rows that keep no key may be
    anything but NaN.
    """
    configure()
    case, scoring = setup.case, setup.scoring
    dot = scoring.dot
    assert dot is not None
    is_causal = is_plain_causal(case, scoring)
    dtype = softmax_dtype(case_dtype(case))
    mask, empty = (None, None) if is_causal else softmax_mask(setup, dtype)
    at = None if empty is None else empty.transpose(1, 2)
    through = compiled(function(is_causal, dot.scale), _examples(setup, mask), case)

    def made(setup: Setup) -> Call:
        scoring = setup.scoring
        dot, sink = scoring.dot, scoring.sink
        assert dot is not None
        added = plus_bias(mask, scoring, slice(0, case.Lq), slice(0, case.Lk), dtype)
        if sink is not None:
            added = with_sink_column(added, sink.to(dtype), case)
        more = () if added is None else (added,)

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            if dot.map_q is not None or dot.map_k is not None:
                # The maps see (B, heads, L, D).
                q = map_queries(dot, q.transpose(1, 2)).transpose(1, 2)
                k = map_keys(dot, k.transpose(1, 2)).transpose(1, 2)
            if sink is not None:
                k, v = (with_zero_row(x.transpose(1, 2)).transpose(1, 2) for x in (k, v))
            out = through(q, k, v, *more)
            return out if at is None else out.masked_fill(at, 0)

        return attend

    attend = derived(setup, made)
    if case.layer is None:
        return attend

    def heads_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2)

    return for_operation(heads_first, setup)


def _examples(setup: Setup, mask: Tensor | None) -> list[Tensor]:
    """Tensors of the shapes and dtypes that the function of arrays will see, and what needs gradients."""
    import torch

    case, scoring = setup.case, setup.scoring
    dtype, graph = case_dtype(case), case.pass_ != "forward"
    keys = case.Lk + (scoring.sink is not None)
    shapes = (
        (case.B, case.Lq, case.H, case.D),
        (case.B, keys, case.Hkv, case.D),
        (case.B, keys, case.Hkv, case.Dv),
    )
    examples = [torch.empty(shape, dtype=dtype, device="meta", requires_grad=graph) for shape in shapes]
    learned = scoring.bias is not None or scoring.sink is not None
    if mask is not None or learned:
        batch, heads = 1 if mask is None else mask.shape[0], case.H if learned else 1
        shape = (batch, heads, case.Lq, keys)
        wide = softmax_dtype(dtype)
        examples.append(torch.empty(shape, dtype=wide, device="meta", requires_grad=graph and learned))
    return examples
