"""How many bytes a case needs, told before anything is allocated."""

from __future__ import annotations

import math
from collections.abc import Iterable

from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.rule import Rule
from attnbench.types.shapes import (
    Shape,
    activation_shapes,
    output_shape,
    projection_shapes,
    rule_parameter_shapes,
)


def parameter_elements(case: Case, rule: Rule) -> int:
    """Elements of all parameters: of the rule and of the projections."""
    shapes = (*rule_parameter_shapes(case, rule).values(), *projection_shapes(case, rule).values())
    return _elements(shapes)


def activation_elements(case: Case, rule: Rule) -> int:
    """Elements of the inputs, each tensor once: self-attention reads one x, cross-attention one context."""
    queries, keys, values = activation_shapes(case, rule)
    if case.is_self_attention:
        return _elements([queries])
    if case.layer is not None and keys == values:
        return _elements([queries, values])
    return _elements([queries, keys, values])


def held_bytes(case: Case, rule: Rule) -> int:
    """Bytes of inputs, parameters, output and an explicit mask: what every backend's process holds."""
    elements = (
        activation_elements(case, rule) + parameter_elements(case, rule) + _elements([output_shape(case)])
    )
    if case.layer is not None:
        elements += case.B * (case.Lq * case.H + case.Lk * case.Hkv) * (case.D + case.Dv)
    return elements * case.item_bytes + _mask_bytes(case)


def quadratic_bytes(case: Case, rule: Rule, backend: Backend) -> int:
    """Bytes of the arrays by (query, key) pair that a backend holds at once."""
    pairs = case.B * case.H * case.Lq * case.Lk
    return backend.quadratic_copies * pairs * rule.score_elements(case) * case.item_bytes


def too_large(case: Case, rule: Rule, backend: Backend, free_bytes: int) -> str | None:
    """Why a case won't fit into ``free_bytes`` with this backend, in words; None where it will."""
    quadratic = quadratic_bytes(case, rule, backend)
    needed = held_bytes(case, rule) + quadratic
    if needed <= free_bytes:
        return None
    reason = f"needs about {human_bytes(needed)} and {human_bytes(free_bytes)} is free"
    if 2 * quadratic < needed:
        return reason
    width = rule.score_elements(case)
    shape = (case.B, case.H, case.Lq, case.Lk) + ((width,) if width > 1 else ())
    arrays = "1 array" if backend.quadratic_copies == 1 else f"{backend.quadratic_copies} arrays"
    return f"{reason}: it holds {arrays} of {shape} in {case.dtype}, {human_bytes(quadratic)}"


def human_bytes(count: float) -> str:
    """A number of bytes in three digits and a unit that fits: 512 B, 4.1 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.0f} PiB" if count >= 999.5 else f"{count:.3g} PiB"


def _mask_bytes(case: Case) -> int:
    each = {None: 0, "bool": 1, "float": case.item_bytes}[case.mask.explicit]
    return each * case.B * case.Lq * case.Lk


def _elements(shapes: Iterable[Shape]) -> int:
    return sum(math.prod(shape) for shape in shapes)
