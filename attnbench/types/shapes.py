"""Shapes that follow from a case and its rule."""

from __future__ import annotations

from attnbench.types.case import Case
from attnbench.types.rule import Rule

Shape = tuple[int, ...]


def activation_shapes(case: Case, rule: Rule) -> tuple[Shape, Shape, Shape]:
    """Shapes of the three activations: q, k, v, or the sources of queries, keys and values.

    A rule that pairs keys with queries gives the second the length Lq.
    """
    keys = case.Lq if rule.pairs_keys else case.Lk
    if case.layer is not None:
        E = case.layer.E
        return (case.B, case.Lq, E), (case.B, keys, E), (case.B, case.Lk, E)
    return (
        (case.B, case.H, case.Lq, case.D),
        (case.B, case.Hkv, keys, case.D),
        (case.B, case.Hkv, case.Lk, case.Dv),
    )


def output_shape(case: Case) -> Shape:
    """Shape of the output: (B, H, Lq, Dv), (B, Lq, E), or (B, Lq, H·Dv) without output projection."""
    if case.layer is None:
        return (case.B, case.H, case.Lq, case.Dv)
    return (case.B, case.Lq, case.layer.E if case.layer.out else case.H * case.Dv)


def projection_shapes(case: Case, rule: Rule) -> dict[str, Shape]:
    """Shapes of the projections of ``multihead`` by name, as :class:`attnbench.types.backend.Setup` says."""
    if case.layer is None:
        return {}
    E = case.layer.E
    shapes: dict[str, Shape] = {
        "w_q": (case.H * case.D, E),
        "w_k": (case.Hkv * case.D, E),
        "w_v": (case.Hkv * case.Dv, E),
    }
    if case.layer.out:
        merged = case.H * case.Dv + (case.H * case.D if rule.concatenates else 0)
        shapes["w_o"] = (E, merged)
    if case.layer.bias:
        shapes |= {f"b_{name[-1]}": shape[:1] for name, shape in shapes.items()}
    return shapes


def rule_parameter_shapes(case: Case, rule: Rule) -> dict[str, Shape]:
    """Shapes of the rule's parameters by name, each with its leading head axis."""
    return {p.name: (case.H, *p.shape) for p in rule.parameters(case)}
