"""How large a case is in bytes and how much work it is, told before anything is allocated."""

from __future__ import annotations

import math
from collections.abc import Iterable

from attnbench.types.backend import Backend
from attnbench.types.case import (
    Case,
    Pass,
    projection_shapes,
    rule_parameter_shapes,
)
from attnbench.types.operation import Shape, operation_of
from attnbench.types.rule import Rule

POOL_CACHES = 4
"""A pool of inputs is larger than so many last-level caches, whatever way they replace their lines."""

PADDED_TO_BYTES = 64
_TENSOR_BYTES = 256
"""What a call touches of a tensor besides its values, about."""


def parameter_elements(case: Case, rule: Rule) -> int:
    """Elements of all parameters: of the rule and of the projections."""
    shapes = (*rule_parameter_shapes(case, rule).values(), *projection_shapes(case, rule).values())
    return _elements(shapes)


def activation_elements(case: Case, rule: Rule) -> int:
    """Elements of the inputs, each tensor once: self-attention reads one x, cross-attention one context."""
    return _elements(shape for shape, _ in _inputs(case, rule))


def output_elements(case: Case) -> int:
    """Elements of all outputs of a call."""
    return _elements(spec.shape for spec in operation_of(case).outputs(case))


def pool_copies(tensor_bytes: Iterable[int], cache_bytes: int) -> int:
    """How many copies of some tensors exceed four caches together, and leave one to be used: 2 or more."""
    each = sum(_padded(size) + _TENSOR_BYTES for size in tensor_bytes)
    return max(2, POOL_CACHES * cache_bytes // each + 1)


def pool_bytes(case: Case, rule: Rule, cache_bytes: int) -> int:
    """Bytes of the pool that the inputs rotate in, of a case that does so on the CPU; 0 for all others.

    A CUDA device has its cache overwritten instead.
    """
    if case.cache != "rotating" or case.device != "cpu":
        return 0
    sizes = [math.prod(shape) * item_bytes for shape, item_bytes in _inputs(case, rule)]
    return pool_copies(sizes, cache_bytes) * sum(_padded(size) + _TENSOR_BYTES for size in sizes)


def held_bytes(case: Case, rule: Rule) -> int:
    """Bytes of inputs, parameters, output and an explicit mask: what every backend's process holds.

    With gradients, these of inputs and parameters as well, and that of the output.
    """
    elements = activation_elements(case, rule) + parameter_elements(case, rule) + output_elements(case)
    if case.pass_ != "forward":
        elements *= 2
    if case.layer is not None:
        elements += case.B * (case.Lq * case.H + case.Lk * case.Hkv) * (case.D + case.Dv)
    return elements * case.item_bytes + _mask_bytes(case)


def quadratic_bytes(case: Case, rule: Rule, backend: Backend) -> int:
    """Bytes of the arrays by (query, key) pair that a backend holds at once."""
    pairs = case.B * case.H * case.Lq * case.Lk
    return _quadratic_copies(case, backend) * pairs * rule.score_elements(case) * case.item_bytes


def _quadratic_copies(case: Case, backend: Backend) -> int:
    """A backward pass has the weights, their gradient and that of the scores: 3 or more."""
    copies = backend.quadratic_copies
    return copies if case.pass_ == "forward" or copies == 0 else max(3, copies + 1)


def too_large(case: Case, rule: Rule, backend: Backend, free_bytes: int, pools_bytes: int = 0) -> str | None:
    """Why a case won't fit into ``free_bytes`` with this backend, in words; None where it will.

    pools_bytes: of the pools of inputs of all contenders, which they hold at the same time.
    """
    quadratic = quadratic_bytes(case, rule, backend)
    needed = held_bytes(case, rule) + quadratic + pools_bytes
    if needed <= free_bytes:
        return None
    reason = f"needs about {human_bytes(needed)} and {human_bytes(free_bytes)} is free"
    if 2 * pools_bytes > needed:
        return f"{reason}: inputs rotate, and the pools of all contenders take {human_bytes(pools_bytes)}"
    if 2 * quadratic < needed:
        return reason
    width = rule.score_elements(case)
    shape = (case.B, case.H, case.Lq, case.Lk) + ((width,) if width > 1 else ())
    copies = _quadratic_copies(case, backend)
    arrays = "1 array" if copies == 1 else f"{copies} arrays"
    return f"{reason}: it holds {arrays} of {shape} in {case.dtype}, {human_bytes(quadratic)}"


def human_bytes(count: float) -> str:
    """A number of bytes in three digits and a unit that fits: 512 B, 4.1 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.0f} PiB" if count >= 999.5 else f"{count:.3g} PiB"


def _inputs(case: Case, rule: Rule) -> list[tuple[Shape, int]]:
    """Shape and bytes of an element of each input, each tensor once."""
    specs = {spec.memory or spec.name: spec for spec in operation_of(case).inputs(case, rule)}
    return [(spec.shape, spec.item_bytes(case)) for spec in specs.values()]


def _padded(size: int) -> int:
    return -(-size // PADDED_TO_BYTES) * PADDED_TO_BYTES


def _mask_bytes(case: Case) -> int:
    each = {None: 0, "bool": 1, "float": case.item_bytes}[case.mask.explicit]
    return each * case.B * case.Lq * case.Lk


def _elements(shapes: Iterable[Shape]) -> int:
    return sum(math.prod(shape) for shape in shapes)


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
    return operation_of(case).flops(case, rule, pairs) * PASS_FACTOR[case.pass_]


def bytes_moved(case: Case, rule: Rule, kept: tuple[int, int] | None = None) -> int:
    """The least traffic that a call needs: inputs and parameters read once, the output written once.

    kept: queries that keep a key and keys that a query keeps, over all batch elements; of ``attention`` the
    others need not be read, though a layer reads all of its inputs. None for all of both. Masks aren't
    counted. Backward reads inputs, parameters and the output's gradient, and writes the gradients
    of inputs and parameters.
    """
    every = activation_elements(case, rule) + parameter_elements(case, rule)
    read = every - (0 if kept is None else operation_of(case).unread(case, rule, *kept))
    written = output_elements(case)
    forward, backward = read + written, read + written + every
    by_pass = {"forward": forward, "backward": backward, "both": forward + backward}
    return by_pass[case.pass_] * case.item_bytes
