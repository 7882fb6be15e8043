"""Shapes: by hand for one case each, and as the ones with which the layer's arithmetic comes out."""

from __future__ import annotations

from dataclasses import replace

from attnbench.rules import attnbench_rules
from attnbench.types.case import (
    Case,
    Layer,
    activation_shapes,
    output_shape,
    projection_shapes,
)

RULES = {rule.name: rule for rule in attnbench_rules()}
CASE = Case("attention", "dot", B=2, H=6, Hkv=3, Lq=4, Lk=5, D=8, Dv=7)


def layer(**fields: object) -> Case:
    return replace(CASE, operation="multihead", layer=Layer(E=10, **fields))  # type: ignore[arg-type]


def test_attention_by_hand() -> None:
    assert activation_shapes(CASE, RULES["dot"]) == ((2, 6, 4, 8), (2, 3, 5, 8), (2, 3, 5, 7))
    assert activation_shapes(CASE, RULES["concat_linear"]) == ((2, 6, 4, 8), (2, 3, 4, 8), (2, 3, 5, 7))
    assert output_shape(CASE) == (2, 6, 4, 7)
    assert projection_shapes(CASE, RULES["dot"]) == {}


def test_a_layer_by_hand() -> None:
    assert activation_shapes(layer(), RULES["dot"]) == ((2, 4, 10), (2, 5, 10), (2, 5, 10))
    assert activation_shapes(layer(), RULES["concat_linear"]) == ((2, 4, 10), (2, 4, 10), (2, 5, 10))
    assert output_shape(layer()) == (2, 4, 10)
    assert output_shape(layer(out=False)) == (2, 4, 42)
    plain = {"w_q": (48, 10), "w_k": (24, 10), "w_v": (21, 10)}
    assert projection_shapes(layer(out=False), RULES["dot"]) == plain
    assert projection_shapes(layer(), RULES["dot"]) == plain | {"w_o": (10, 42)}
    assert projection_shapes(layer(), RULES["concat_linear"]) == plain | {"w_o": (10, 48 + 42)}
    biases = {"b_q": (48,), "b_k": (24,), "b_v": (21,)}
    assert projection_shapes(layer(out=False, bias=True), RULES["dot"]) == plain | biases
    everything = plain | biases | {"w_o": (10, 42), "b_o": (10,)}
    assert projection_shapes(layer(bias=True, cross=True), RULES["sinks"]) == everything
