from __future__ import annotations

import pytest
from jax_cases import RULES, assert_right, drawn

pytest.importorskip("jax", reason="JAX is not installed")

from attnbench_jax import JAX_DOT_PRODUCT_ATTENTION, JAX_TILED

BOTH = pytest.mark.parametrize(
    "backend", [JAX_DOT_PRODUCT_ATTENTION, JAX_TILED], ids=lambda backend: backend.name
)
CASES = (
    "attention/scaled_dot/B2-H4-Hkv2-Lq3-Lk65-D13/causal:lower_right",
    "attention/scaled_dot/H2-L270-D8/causal",
    "attention/scaled_dot/H2-Lq40-Lk17-D8/causal:lower_right",
    "attention/dot/B2-H2-L70-D16/causal+float/bfloat16",
)
GRADIENTS = (
    "attention/scaled_dot/H2-L270-D8/causal/both",
    "attention/alibi/H2-Lq40-Lk17-D8/causal:lower_right/both",
    "attention/sinks/B2-H4-Hkv2-L40-D16/padding/both",
    "multihead/general/H2-Lq20-Lk30-D8-E16-bias-cross/both",
)


@BOTH
@pytest.mark.parametrize("text", CASES)
def test_as_near_to_float64_as_a_plain_computation(backend, text: str) -> None:
    out = assert_right(backend, drawn(text))["out"]
    if "Lq40-Lk17" in text:
        assert float(out[:, :, :23].abs().max()) == 0


@BOTH
@pytest.mark.parametrize("text", GRADIENTS)
def test_gradients_of_inputs_and_parameters(backend, text: str) -> None:
    parts = assert_right(backend, drawn(text))
    assert {"out", "q", "k", "v"} <= set(parts)


@pytest.mark.parametrize(
    "text",
    [
        "attention/softcap/H2-L40-D16/both",
        "attention/dot/H2-Lq20-Lk300-D16-Dv8/float64/both",
    ],
)
def test_what_the_tiled_one_can_besides(text: str) -> None:
    assert_right(JAX_TILED, drawn(text))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("attention/scaled_dot/H2-L8-D16-Dv8", "needs Dv = D; here D = 16 and Dv = 8"),
        ("attention/softcap/H2-L8-D16", "no soft cap"),
    ],
)
def test_what_the_function_of_jax_refuses(text: str, reason: str) -> None:
    case = drawn(text).case
    assert reason in (JAX_DOT_PRODUCT_ATTENTION.supports(case, RULES[case.rule]) or "")
