from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from maths_tools import RULES, small_case

from attnbench.inputs.draw import draw_activations, draw_inputs, draw_parameters
from attnbench.operations.attention import head_means
from attnbench.types.case import Case, Layer
from attnbench.types.mask import Mask
from attnbench.types.operation import make_known, operation_named
from attnbench.types.rule import Parameter


def drawn(case: Case, entropy: int = 0, index: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return draw_activations(case, RULES[case.rule], entropy, index)


def all_bits(case: Case) -> bytes:
    parameters = draw_parameters(case, RULES[case.rule])
    arrays = [*drawn(case), *parameters.rule.values(), *parameters.projections.values()]
    return b"".join(array.tobytes() for array in arrays)


@pytest.mark.parametrize(
    ("case", "digest"),
    [
        (small_case(), "82b8b1294a7ed342"),
        (small_case("additive", dtype="bfloat16"), "09a1419579c481eb"),
        (small_case("concat_linear", dtype="float16", layer=Layer(8, bias=True)), "d740ccdd18d2f68f"),
        (small_case("general", dtype="float64", seed=7), "b793254a421a0df4"),
        (small_case("alibi", layer=Layer(8, cross=True)), "f0e7db9477948be9"),
    ],
)
def test_the_bits_do_not_change(case: Case, digest: str) -> None:
    assert hashlib.sha256(all_bits(case)).hexdigest()[:16] == digest


@pytest.mark.parametrize(
    "other",
    [
        {"device": "cuda"},
        {"threads": 2},
        {"pass_": "backward"},
        {"cache": "rotating"},
        {"mask": Mask(causal="upper_left")},
    ],
)
def test_what_does_not_matter_to_values_changes_none(other: dict[str, object]) -> None:
    case = small_case("general")
    assert all_bits(replace(case, **other)) == all_bits(case)


def test_draws_differ_by_entropy_index_and_each_input() -> None:
    case = small_case(Lk=5, D=3)
    arrays = [a for e in (0, 1) for i in (0, 1) for a in drawn(case, e, i)]
    for n, left in enumerate(arrays):
        for right in arrays[:n]:
            assert left.shape != right.shape or not np.any(left == right)


@pytest.mark.parametrize("rule", ["scaled_dot", "concat_linear"])
def test_self_attention_has_one_source_and_cross_attention_one_context(rule: str) -> None:
    x, y, z = drawn(small_case(rule, Lq=5, Lk=5, layer=Layer(8)))
    assert x is y is z
    x, y, z = drawn(small_case(rule, Lq=5, Lk=5, layer=Layer(8, cross=True)))
    assert y is z
    assert not np.any(x == y)
    x, y, z = drawn(small_case(rule, Lq=5, Lk=7, layer=Layer(8)))
    assert (y is z) == (rule == "scaled_dot")


def test_inputs_of_an_operation_that_draws_none_are_standard_normal() -> None:
    attention = operation_named("attention")
    case, rule = small_case(B=4, H=4, Hkv=4, Lq=64, Lk=64, D=16, Dv=16), RULES["scaled_dot"]
    q, k, v = attention.inputs(case, rule)
    make_known([replace(attention, name="own", draw=None)])
    for array in draw_inputs(replace(case, operation="own"), rule, 0, 0).values():
        assert abs(array.mean()) < 0.02
        assert array.std() == pytest.approx(1, abs=0.02)
    counts = (q, k, replace(v, kind="int32"))
    make_known([replace(attention, name="own", draw=None, inputs=lambda case, rule: counts)])
    with pytest.raises(ValueError, match="the input 'v' is of kind int32: the operation must draw it"):
        draw_inputs(replace(case, operation="own"), rule, 0, 0)


@pytest.mark.parametrize("rule", ["scaled_dot", "concat_linear"])
def test_inputs_have_the_moments_they_should(rule: str) -> None:
    case = small_case(rule, B=4, H=4, Hkv=4, Lq=256, Lk=256, D=16, Dv=16)
    q, k, v = drawn(case)
    for array in (q, k, v - head_means(4)[:, None, None]):
        assert abs(array.mean()) < 0.02
        assert array.std() == pytest.approx(1, abs=0.02)
    np.testing.assert_allclose(v.mean(axis=(0, 2, 3)), [-0.5, -1 / 6, 1 / 6, 0.5], atol=0.05)
    assert abs(float(np.corrcoef(q.ravel(), k.ravel())[0, 1])) < 0.02


def test_a_rule_that_draws_another_shape_than_it_declares_is_named() -> None:
    wrong = Parameter("w", (3,), lambda rng, H, shape: rng.standard_normal((H, 4)))
    rule = replace(RULES["dot"], parameters=lambda case: (wrong,))
    with pytest.raises(ValueError, match=r"rule 'dot' draws 'w' of shape \(4, 4\); it declares \(4, 3\)"):
        draw_parameters(small_case("dot"), rule)
