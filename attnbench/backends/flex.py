"""flex: torch's flex_attention, compiled; mask, bias, cap and sink are functions inside its kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench.backends.compiling import compile_now, configure, no_compiler
from attnbench.backends.flex_mods import block_mask, score_mod
from attnbench.kit.attention import with_zero_row
from attnbench.kit.layer import for_operation
from attnbench.kit.scores import map_keys, map_queries
from attnbench.types.backend import Backend, Setup

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule

NARROWEST_CUDA_HEAD = 16


def attention(setup: Setup) -> Call:
    """flex_attention, compiled with the case's functions in it; the rule's maps are computed before."""
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    case, dot, sink = setup.case, setup.scoring.dot, setup.scoring.sink
    assert dot is not None
    scores, mask, scale, group = score_mod(setup), block_mask(setup), dot.scale, case.group > 1

    def flex(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = flex_attention(
            q, k, v, score_mod=scores, block_mask=mask, scale=scale, enable_gqa=group
        )
        return out

    compiled: Call = torch.compile(flex, fullgraph=True, dynamic=False)
    if dot.map_q is None and dot.map_k is None and sink is None:
        return compiled

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        # Outside of what is compiled: torch 2.13 can't lower a flex_attention of a matrix product.
        q, k = map_queries(dot, q), map_keys(dot, k)
        return compiled(q, k, v) if sink is None else compiled(q, with_zero_row(k), with_zero_row(v))

    return attend


def prepare(setup: Setup) -> Call:
    """For either operation, compiled for the case's shapes."""
    configure()
    return compile_now(for_operation(attention(setup), setup), setup)


def supports(case: Case, rule: Rule) -> str | None:
    """On CUDA the kernel's blocks of features are at least 16 wide."""
    narrowest = min(case.D, case.Dv)
    if case.device == "cuda" and narrowest < NARROWEST_CUDA_HEAD:
        return f"flex_attention needs heads of {NARROWEST_CUDA_HEAD} features on CUDA; here {narrowest}"
    return None


FLEX = Backend(
    name="flex",
    summary="torch's flex_attention, compiled",
    prepare=prepare,
    supports=supports,
    available=no_compiler,
    operations=("attention", "multihead"),
    needs_dot_form=True,
    dtypes=("float32", "bfloat16", "float16"),
    compiles=True,
    quadratic_copies=0,
)
