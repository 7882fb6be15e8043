"""jax_dot_product_attention: the function that JAX has, compiled by XLA."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attnbench.kit.scores import form_of
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES
from attnbench_jax.heads import attention

if TYPE_CHECKING:
    from attnbench.types.backend import Call
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule


def function(is_causal: bool, scale: float) -> Callable[..., Any]:
    """``jax.nn.dot_product_attention``; what is added to the scores is its bias."""
    from jax.nn import dot_product_attention

    def call(q: Any, k: Any, v: Any, added: Any = None) -> Any:
        return dot_product_attention(q, k, v, added, scale=scale, is_causal=is_causal)

    return call


def prepare(setup: Setup) -> Call:
    """Make the function of the case, for either operation."""
    return attention(setup, function)


def supports(case: Case, rule: Rule) -> str | None:
    """Refuse Dv other than D, steps other than a sum after the product, and what XLA can't compile."""
    if case.Dv != case.D:
        return f"jax.nn.dot_product_attention needs Dv = D; here D = {case.D} and Dv = {case.Dv}"
    dot = form_of(case, rule).dot
    if dot is not None and dot.cap is not None:
        return "jax.nn.dot_product_attention has no soft cap: nothing can come between product and softmax"
    return _why_not_compiled(case, rule)


def _why_not_compiled(case: Case, rule: Rule) -> str | None:
    """Why XLA fails on the product of queries and keys, for which JAX names an algorithm in bfloat16.

    Seen of jaxlib 0.10.2: of one feature, it ends the process from 4,096 pairs on where no heads share keys,
    and refuses one query or one key where B = Hkv = 1. Of more features it refuses a single pair.
    """
    if case.dtype != "bfloat16":
        return None
    if case.D == 1:
        return "XLA compiles no bfloat16 products of one feature for a CPU, or ends the process; here D = 1"
    keys = case.Lk + (form_of(case, rule).sink is not None)
    if case.B == case.H == case.Lq == keys == 1:
        return "XLA compiles no bfloat16 product of one query and one key for a CPU"
    return None


JAX_DOT_PRODUCT_ATTENTION = Backend(
    name="jax_dot_product_attention",
    summary="jax.nn.dot_product_attention, compiled by XLA",
    prepare=prepare,
    supports=supports,
    operations=("attention", "multihead"),
    needs_dot_form=True,
    # Its softmax is computed in float32 whatever the inputs are, so float64 would be no such; and it asks
    # XLA for float16 products that there are none of on a CPU.
    dtypes=("float32", "bfloat16"),
    devices=("cpu",),
    passes=PASSES,
    layout="BLHD",
    requires=("jax", "jaxlib"),
    forkable=False,
    quadratic_copies=3,
)
