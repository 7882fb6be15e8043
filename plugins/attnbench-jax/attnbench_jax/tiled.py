"""jax_tiled: an online softmax over blocks of keys, for some queries at a time, as XLA compiles it.

Milakov & Gimelshein 2018, Online normalizer calculation for softmax; Rabe & Staats 2021, Self-attention Does
Not Need O(n²) Memory, whose way of computing a block once more in the backward pass this takes too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES
from attnbench_jax.heads import attention

if TYPE_CHECKING:
    from attnbench.types.backend import Call

QUERIES, KEYS = 256, 256
"""The size of a block."""


def prepare(setup: Setup) -> Call:
    """Make the function of the case, for either operation."""
    dot = setup.scoring.dot
    assert dot is not None
    cap = dot.cap
    return attention(setup, lambda is_causal, scale: function(is_causal, scale, cap))


def function(is_causal: bool, scale: float, cap: float | None) -> Callable[..., Any]:
    """Return (B, Lq, H, Dv) for q (B, Lq, H, D), k (B, Lk, Hkv, D), v (B, Lk, Hkv, Dv) and a bias."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    def call(q: Any, k: Any, v: Any, added: Any = None) -> Any:
        (B, Lq, H, D), (_, Lk, Hkv, Dv) = q.shape, v.shape
        wide = jnp.promote_types(q.dtype, jnp.float32)
        # The query heads of a group stand beside each other: (B, Hkv, group, Lq, D).
        heads = jnp.moveaxis(q * jnp.asarray(scale, q.dtype), 1, 2).reshape(B, Hkv, H // Hkv, Lq, D)
        keys, values = jnp.moveaxis(k, 1, 2), jnp.moveaxis(v, 1, 2)
        if added is not None:
            grouped = Hkv if added.shape[1] > 1 else 1
            added = added.reshape(added.shape[0], grouped, -1, *added.shape[2:])

        def block(carry: Any, rows: slice, left: Any, width: int) -> Any:
            largest, total, out = carry
            some_keys, some_values = (lax.dynamic_slice_in_dim(x, left, width, 2) for x in (keys, values))
            scores = jnp.einsum(
                "bhgid,bhjd->bhgij", heads[..., rows, :], some_keys, preferred_element_type=wide
            )
            if cap is not None:
                scores = cap * jnp.tanh(scores / cap)
            if added is not None:
                scores = scores + lax.dynamic_slice_in_dim(added[..., rows, :], left, width, 4)
            if is_causal:
                i, j = jnp.arange(rows.start, rows.stop), left + jnp.arange(width)
                scores = jnp.where(i[:, None] >= j, scores, -jnp.inf)
            now = jnp.maximum(largest, scores.max(axis=-1, keepdims=True))
            weights, shrink = jnp.exp(scores - now), jnp.exp(largest - now)
            part = jnp.einsum(
                "bhgij,bhjd->bhgid", weights.astype(v.dtype), some_values, preferred_element_type=wide
            )
            return now, total * shrink + weights.sum(axis=-1, keepdims=True), out * shrink + part

        def some_rows(rows: slice) -> Any:
            shape = (B, Hkv, H // Hkv, rows.stop - rows.start)
            # The lowest finite number, so that a block without a kept key gives zeros and not NaN.
            carry = (
                jnp.full((*shape, 1), jnp.finfo(wide).min, wide),
                jnp.zeros((*shape, 1), wide),
                jnp.zeros((*shape, Dv), wide),
            )
            seen = min(Lk, rows.stop) if is_causal else Lk
            whole = seen // KEYS

            @jax.checkpoint
            def whole_block(carry: Any, at: Any) -> Any:
                return block(carry, rows, at * KEYS, KEYS), None

            if whole:
                carry, _ = lax.scan(whole_block, carry, jnp.arange(whole))
            if seen % KEYS:
                carry = block(carry, rows, whole * KEYS, seen % KEYS)
            return carry[2] / jnp.maximum(carry[1], jnp.asarray(0.5, wide))

        parts = [some_rows(slice(top, min(top + QUERIES, Lq))) for top in range(0, Lq, QUERIES)]
        out = jnp.concatenate(parts, axis=3).reshape(B, H, Lq, Dv)
        return jnp.moveaxis(out, 1, 2).astype(v.dtype)

    return call


JAX_TILED = Backend(
    name="jax_tiled",
    summary="online softmax over blocks of keys in JAX, compiled by XLA: O(L) memory",
    prepare=prepare,
    operations=("attention", "multihead"),
    needs_dot_form=True,
    devices=("cpu",),
    passes=PASSES,
    layout="BLHD",
    requires=("jax", "jaxlib"),
    forkable=False,
    quadratic_copies=0,
)
