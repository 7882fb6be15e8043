"""How much work a case is: floating-point operations and bytes, by one convention for all backends."""

from __future__ import annotations

from math import prod

from attnbench.cases.sizes import activation_elements, parameter_elements
from attnbench.types.case import Case, Pass
from attnbench.types.rule import Rule
from attnbench.types.shapes import activation_shapes, output_shape, projection_shapes

FLOP_CONVENTION = (
    "FLOPs: forward 2·P·(D + Dv), P the exact number of kept (query, key) pairs over batches and heads; "
    "rules without a dot-product form count their own operations per pair; multihead adds its projections; "
    "softmax isn't counted; backward counts 2.5 times forward"
)

PASS_FACTOR: dict[Pass, float] = {"forward": 1.0, "backward": 2.5, "both": 3.5}
"""Backward makes five products for forward's two: Dao, FlashAttention-2 (2023), section 4.1."""


def flops(case: Case, rule: Rule, pairs: int) -> float:
    """Operations of one call, by :data:`FLOP_CONVENTION`.

    pairs: kept (query, key) pairs, summed over batches and heads.
    """
    by_pair = (2 * case.D if rule.score_flops is None else rule.score_flops(case)) + 2 * case.Dv
    return (pairs * by_pair + projection_flops(case, rule)) * PASS_FACTOR[case.pass_]


def projection_flops(case: Case, rule: Rule) -> int:
    """Operations of the projections around the heads, forward; 0 for ``attention``. Biases aren't counted."""
    sources = dict(zip(("w_q", "w_k", "w_v"), activation_shapes(case, rule), strict=True))
    total = 0
    for name, shape in projection_shapes(case, rule).items():
        if name.startswith("w_"):
            B, length, _ = sources.get(name, output_shape(case))
            total += 2 * B * length * shape[0] * shape[1]
    return total


def bytes_moved(case: Case, rule: Rule, kept: tuple[int, int] | None = None) -> int:
    """The least traffic that a call needs: inputs and parameters read once, the output written once.

    kept: queries that keep a key and keys that a query keeps, over all batch elements; of ``attention`` the
    others need not be read, though a layer reads all of its inputs. None for all of both. Masks aren't
    counted. Backward reads inputs, parameters and the output's gradient, and writes the gradients
    of inputs and parameters.
    """
    every = activation_elements(case, rule) + parameter_elements(case, rule)
    read = every - _unread_elements(case, rule, kept)
    written = prod(output_shape(case))
    forward, backward = read + written, read + written + every
    by_pass = {"forward": forward, "backward": backward, "both": forward + backward}
    return by_pass[case.pass_] * case.item_bytes


def _unread_elements(case: Case, rule: Rule, kept: tuple[int, int] | None) -> int:
    """Elements of queries, keys and values that the mask leaves out."""
    if kept is None or case.layer is not None:
        return 0
    queries, keys = case.B * case.Lq - kept[0], case.B * case.Lk - kept[1]
    # A rule that pairs each query with a key reads that key with the query, and of Lk keys only values.
    by_key = queries if rule.pairs_keys else keys
    return queries * case.H * case.D + (by_key * case.D + keys * case.Dv) * case.Hkv
