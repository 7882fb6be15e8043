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

LARGEST = 256
"""Rows of queries, or of keys, in a block."""


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
        (blocks, rows), (key_blocks, width) = _equal_blocks(Lq), _equal_blocks(Lk)
        # The query heads of a group stand beside each other: (B, Hkv, group, Lq, D).
        heads = jnp.moveaxis(q * jnp.asarray(scale, q.dtype), 1, 2).reshape(B, Hkv, H // Hkv, Lq, D)
        heads = _padded(heads, 3, blocks * rows)
        keys, values = (_padded(jnp.moveaxis(x, 1, 2), 2, key_blocks * width) for x in (k, v))
        if added is not None:
            grouped = Hkv if added.shape[1] > 1 else 1
            added = added.reshape(added.shape[0], grouped, -1, *added.shape[2:])
            added = _padded(_padded(added, 3, blocks * rows), 4, key_blocks * width)

        def block(top: Any, left: Any, carry: Any) -> Any:
            largest, total, out = carry
            some_heads = lax.dynamic_slice_in_dim(heads, top, rows, 3)
            some_keys, some_values = (lax.dynamic_slice_in_dim(x, left, width, 2) for x in (keys, values))
            scores = jnp.einsum("bhgid,bhjd->bhgij", some_heads, some_keys, preferred_element_type=wide)
            if cap is not None:
                scores = cap * jnp.tanh(scores / cap)
            if added is not None:
                some_added = lax.dynamic_slice_in_dim(added, top, rows, 3)
                scores = scores + lax.dynamic_slice_in_dim(some_added, left, width, 4)
            i, j = top + jnp.arange(rows)[:, None], left + jnp.arange(width)
            scores = jnp.where((j < Lk) & ((i >= j) | (not is_causal)), scores, -jnp.inf)
            now = jnp.maximum(largest, scores.max(axis=-1, keepdims=True))
            weights, shrink = jnp.exp(scores - now), jnp.exp(largest - now)
            part = jnp.einsum(
                "bhgij,bhjd->bhgid", weights.astype(v.dtype), some_values, preferred_element_type=wide
            )
            return now, total * shrink + weights.sum(axis=-1, keepdims=True), out * shrink + part

        def some_rows(_: None, top: Any) -> tuple[None, Any]:
            @jax.checkpoint
            def add_block(carry: Any, left: Any) -> tuple[Any, None]:
                return block(top, left, carry), None

            shape = (B, Hkv, H // Hkv, rows)
            # The lowest finite number, so that a block without a kept key gives zeros and not NaN.
            carry = (
                jnp.full((*shape, 1), jnp.finfo(wide).min, wide),
                jnp.zeros((*shape, 1), wide),
                jnp.zeros((*shape, Dv), wide),
            )
            (_, total, out), _ = lax.scan(add_block, carry, width * jnp.arange(key_blocks))
            return None, out / jnp.maximum(total, jnp.asarray(0.5, wide))

        # Loops without branches, because XLA computes what is independent on several threads. So blocks
        # that a causal mask drops are computed too.
        _, parts = lax.scan(some_rows, None, rows * jnp.arange(blocks))
        out = jnp.moveaxis(parts, 0, 3).reshape(B, H, blocks * rows, Dv)[:, :, :Lq]
        return jnp.moveaxis(out, 1, 2).astype(v.dtype)

    return call


def _equal_blocks(length: int) -> tuple[int, int]:
    """Return how many blocks there are and the length of each, so that together they are hardly longer."""
    blocks = -(-length // LARGEST)
    return blocks, -(-length // blocks)


def _padded(x: Any, axis: int, length: int) -> Any:
    """Append zeros along an axis until it has a length."""
    import jax.numpy as jnp

    return jnp.pad(x, [(0, length - x.shape[axis] if at == axis else 0) for at in range(x.ndim)])


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
