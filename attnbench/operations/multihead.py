"""The attention layer: projections of x to heads, attention, and the output projection."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attnbench.operations.attention import pair_flops, plain
from attnbench.types.case import Case
from attnbench.types.operation import Heads, Operation, TensorSpec
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from numpy.random import Generator

    from attnbench.types.case import Layer
    from attnbench.types.operation import Arrays
    from attnbench.types.rule import Array

    Triple = tuple[Array, Array, Array]


def _layer(case: Case) -> Layer:
    assert case.layer is not None
    return case.layer


def _inputs(case: Case, rule: Rule) -> tuple[TensorSpec, ...]:
    """Return the sources of queries, keys and values. Keys and values share a context of equal shape."""
    E = _layer(case).E
    keys, letter = (case.Lq, "p") if rule.pairs_keys and not case.is_self_attention else (case.Lk, "j")
    context = "x" if case.is_self_attention else "context" if keys == case.Lk else ""
    return (
        TensorSpec("queries", (case.B, case.Lq, E), memory=context and "x", axes="bie"),
        TensorSpec("keys", (case.B, keys, E), memory=context, axes=f"b{letter}e"),
        TensorSpec("values", (case.B, case.Lk, E), memory=context, axes="bje"),
    )


def _outputs(case: Case) -> tuple[TensorSpec, ...]:
    width = _layer(case).E if _layer(case).out else case.H * case.Dv
    return (TensorSpec("out", (case.B, case.Lq, width), axes="bie"),)


def _parameters(case: Case, rule: Rule) -> tuple[TensorSpec, ...]:
    """Return the projections of :class:`attnbench.types.backend.Setup`, scaled by 1 / sqrt(input width)."""
    layer = _layer(case)
    shapes = {
        "w_q": (case.H * case.D, layer.E),
        "w_k": (case.Hkv * case.D, layer.E),
        "w_v": (case.Hkv * case.Dv, layer.E),
    }
    if layer.out:
        merged = case.H * case.Dv + (case.H * case.D if rule.concatenates else 0)
        shapes["w_o"] = (layer.E, merged)
    weights = [TensorSpec(name, shape, scale=shape[-1] ** -0.5) for name, shape in shapes.items()]
    biases = [TensorSpec(f"b_{name[-1]}", shape[:1], scale=0.5) for name, shape in shapes.items()]
    return (*weights, *(biases if layer.bias else ()))


def _draw(case: Case, rule: Rule, stream: Callable[[str], Generator]) -> dict[str, Any]:
    """Draw standard normal sources. A source that serves twice is one array, the same object."""
    drawn: dict[str, Any] = {}
    # Values come first: a context that serves both keys and values uses the stream of values.
    words = {"queries": "a", "values": "c", "keys": "b"}
    made: dict[str, Any] = {}
    specs = {spec.name: spec for spec in _inputs(case, rule)}
    for name, word in words.items():
        memory = specs[name].tensor
        if memory not in made:
            made[memory] = stream(word).standard_normal(specs[name].shape)
        drawn[name] = made[memory]
    return drawn


def _flops(case: Case, rule: Rule, pairs: int) -> float:
    return pair_flops(case, rule, pairs) + projection_flops(case, rule)


def projection_flops(case: Case, rule: Rule) -> int:
    """Count the operations of the projections, forward and without biases."""
    lengths = [spec.shape[1] for spec in _inputs(case, rule)]
    weights = [spec.shape for spec in _parameters(case, rule) if spec.name.startswith("w_")]
    # The output projection reads one row for each query.
    return sum(
        2 * case.B * length * shape[0] * shape[1]
        for length, shape in zip((*lengths, case.Lq), weights, strict=False)
    )


def _check(case: Case) -> str | None:
    return "multihead needs a model width E" if case.layer is None else None


def _project(case: Case, parameters: Arrays, sources: Triple) -> Triple:
    projected = []
    for letter, heads, source in zip("qkv", (case.H, case.Hkv, case.Hkv), sources, strict=True):
        flat = source @ parameters[f"w_{letter}"].T
        if _layer(case).bias:
            flat = flat + parameters[f"b_{letter}"]
        projected.append(flat.reshape(*flat.shape[:2], heads, -1).swapaxes(1, 2))
    q, k, v = projected
    return q, k, v


def _finish(case: Case, rule: Rule, parameters: Arrays, queries: Array, attended: Array) -> Array:
    """Merge and project the heads. A rule that concatenates projects [merged queries ; merged heads]."""
    import numpy as np

    merged = _merged(attended)
    if not _layer(case).out:
        return merged
    if rule.concatenates:
        merged = np.concatenate([_merged(queries), merged], axis=-1)
    last: Array = merged @ parameters["w_o"].T
    return last + parameters["b_o"] if _layer(case).bias else last


def _merged(heads: Array) -> Array:
    B, H, R, features = heads.shape
    return heads.swapaxes(1, 2).reshape(B, R, H * features)


MULTIHEAD = Operation(
    name="multihead",
    summary="the attention layer: projections of (B, L, E), attention, output projection",
    inputs=_inputs,
    outputs=_outputs,
    parameters=_parameters,
    flops=_flops,
    heads=Heads(_project, _finish, rows=1),
    draw=_draw,
    check=_check,
    reference=plain,
)
