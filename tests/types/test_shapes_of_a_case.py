"""Shapes: by hand for one case each, and as the ones with which the layer's arithmetic comes out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.rules import attnbench_rules
from attnbench.types.case import (
    Case,
    Layer,
    activation_shapes,
    output_shape,
    projection_shapes,
    rule_parameter_shapes,
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


@pytest.mark.parametrize(
    ("rule", "shapes"),
    [
        ("dot", {}),
        ("general", {"w": (6, 8, 8)}),
        ("additive", {"w_query": (6, 8, 8), "w_key": (6, 8, 8), "bias": (6, 8), "v": (6, 8)}),
        ("concat_linear", {"w": (6, 5, 16), "bias": (6, 5)}),
        ("sinks", {"sink": (6,)}),
    ],
)
def test_a_rules_parameters_lead_with_the_head(rule: str, shapes: dict[str, tuple[int, ...]]) -> None:
    assert rule_parameter_shapes(replace(CASE, rule=rule), RULES[rule]) == shapes


@given(
    st.sampled_from(sorted(RULES)),
    st.tuples(*[st.integers(1, 4)] * 8),
    st.booleans(),
    st.booleans(),
)
def test_the_shapes_of_a_layer_fit_together(rule: str, sizes: tuple[int, ...], bias: bool, out: bool) -> None:
    B, Hkv, group, Lq, Lk, D, Dv, E = sizes
    case = Case("multihead", rule, B, Hkv * group, Hkv, Lq, Lk, D, Dv, layer=Layer(E, bias, out))
    of = RULES[rule]
    arrays = {name: np.zeros(shape) for name, shape in projection_shapes(case, of).items()}
    sources = [np.zeros(shape) for shape in activation_shapes(case, of)]
    q, k, v = (
        (x @ arrays[f"w_{name}"].T + arrays.get(f"b_{name}", 0)).reshape(B, x.shape[1], heads, -1)
        for x, name, heads in zip(sources, "qkv", (case.H, Hkv, Hkv), strict=True)
    )
    heads = (q.swapaxes(1, 2), k.swapaxes(1, 2), v.swapaxes(1, 2))
    plain = replace(case, operation="attention", layer=None)
    assert tuple(x.shape for x in heads) == activation_shapes(plain, of)
    merged = np.zeros(output_shape(plain)).swapaxes(1, 2).reshape(B, Lq, -1)
    if out:
        joined = np.concatenate([q.reshape(B, Lq, -1), merged], -1) if of.concatenates else merged
        merged = joined @ arrays["w_o"].T + arrays.get("b_o", 0)
    assert merged.shape == output_shape(case)
