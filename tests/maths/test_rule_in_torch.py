"""Each rule says the same in torch as in NumPy, whole and by blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from maths_tools import RULES, setup_of, small_case, small_cases, tensors, wide_activations, wide_parameters

from attnbench.kit.scores import form_of, scores_of
from attnbench.rules.alibi import slopes
from attnbench.rules.cosine import COSINE
from attnbench.rules.softcap import CAP
from attnbench.types.case import Case
from attnbench.types.mask import Mask
from attnbench.types.rule import of_head


def torch_scores(case: Case, q: torch.Tensor, k: torch.Tensor, rows: slice, cols: slice) -> torch.Tensor:
    """Scores and bias of a block."""
    scoring = setup_of(case).scoring
    keys = k[:, :, rows if RULES[case.rule].pairs_keys else cols]
    scores = scores_of(scoring)(q[:, :, rows], keys, cols)
    return scores if scoring.bias is None else scores + scoring.bias(rows, cols)


def numpy_scores(case: Case) -> np.ndarray:
    rule, parameters = RULES[case.rule], wide_parameters(case).rule
    q, k, _ = wide_activations(case)
    positions = (np.arange(case.Lq) + case.query_offset).astype(np.float64)
    return np.array(
        [
            [
                rule.reference(q[b, h], k[b, h // case.group], of_head(case, rule, parameters, h), positions)
                for h in range(case.H)
            ]
            for b in range(case.B)
        ]
    )


@pytest.mark.parametrize("rule", sorted(RULES))
@settings(max_examples=20)
@given(data=st.data())
def test_torch_and_numpy_agree_in_float64_block_by_block(rule: str, data: st.DataObject) -> None:
    case = replace(data.draw(small_cases(multihead=False)), rule=rule, dtype="float64")
    i, j = (sorted(data.draw(st.tuples(*[st.integers(0, n - 1)] * 2))) for n in (case.Lq, case.Lk))
    rows, cols = slice(i[0], i[1] + 1), slice(j[0], j[1] + 1)
    q, k, _ = tensors(case, case.seed)
    block = torch_scores(case, q, k, rows, cols)
    assert block.shape == (case.B, case.H, i[1] + 1 - i[0], j[1] + 1 - j[0])
    np.testing.assert_allclose(block.numpy(), numpy_scores(case)[:, :, rows, cols], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_scores_stay_in_the_case_s_dtype_and_near_the_reference(rule: str, dtype: str) -> None:
    case = small_case(rule, dtype=dtype, Lq=33, Lk=40, D=64, mask=Mask(causal="lower_right"))
    q, k, _ = tensors(case, case.seed)
    scores = torch_scores(case, q, k, slice(0, 33), slice(0, 40))
    assert scores.dtype == getattr(torch, dtype)
    exact = numpy_scores(case)
    tolerance = 8 * torch.finfo(scores.dtype).eps
    np.testing.assert_allclose(scores.double().numpy(), exact, rtol=tolerance, atol=tolerance * exact.std())


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_rule_says_itself_whether_it_has_a_dot_form(rule: str) -> None:
    case = small_case(rule)
    for scoring in (setup_of(case).scoring, form_of(case, RULES[rule])):
        assert RULES[rule].has_dot_form == (scoring.dot is not None)
        assert (scoring.dot is None) != (scoring.scores is None)
        assert (scoring.sink is None) == (RULES[rule].sink is None)
        assert (scoring.bias is None) == (rule not in ("alibi", "t5_bias"))


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("D", [1, 16, 64, 256])
def test_softmax_of_the_scores_is_neither_flat_nor_saturated(rule: str, D: int) -> None:
    case = small_case(rule, H=4, Hkv=4, Lq=64, Lk=64, D=D)
    spread = numpy_scores(case).std(axis=-1).mean()
    if rule == "dot":
        # Unscaled, that is the point of it: the deviation is √D.
        assert spread == pytest.approx(np.sqrt(D), rel=0.3)
    elif rule == "t5_bias":
        assert spread == pytest.approx(np.sqrt(D + 4), rel=0.3)
    elif rule == "alibi":
        assert 1 < spread < 10
    else:
        assert 0.3 < spread < 4


@pytest.mark.parametrize("rule", sorted(RULES))
def test_operations_are_counted_by_pair(rule: str) -> None:
    case, count = small_case(rule, D=10), RULES[rule].score_flops
    expected = {"additive": 40, "additive_sum": 30, "concat_linear": 40}
    assert (None if count is None else count(case)) == expected.get(rule)
    assert RULES[rule].score_elements(case) == (10 if rule.startswith("additive") else 1)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_alibi_s_bias_is_rounded_once_in_half_precision(dtype: str) -> None:
    case = small_case("alibi", H=3, Hkv=3, Lq=3000, Lk=3000, dtype=dtype)
    setup = setup_of(case)
    got = setup.scoring.bias(slice(2999, 3000), slice(0, 3000))[:, 0]
    distance = torch.arange(2999, -1, -1, dtype=torch.float64)
    exact = -setup.rule_parameters["slope"].double()[:, None] * distance
    assert torch.equal(got, exact.to(torch.float32).to(got.dtype))


def test_slopes_are_the_paper_s_for_powers_of_two_and_one_series_for_others() -> None:
    np.testing.assert_array_equal(slopes(8), [1 / 2**n for n in range(1, 9)])
    for H in (1, 3, 7, 12, 25):
        series = slopes(H)
        assert series[-1] == 2.0**-8
        np.testing.assert_allclose(series[1:] / series[:-1], 2 ** (-8 / H), rtol=1e-14)


def test_cosine_gives_a_zero_vector_no_score() -> None:
    unit = COSINE.bind(small_case("cosine"), {"beta": torch.ones(4)}).dot
    mapped = unit.map_k(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    np.testing.assert_allclose(mapped.numpy(), [[0, 0], [0.6, 0.8]], rtol=1e-6)
    q, beta = np.zeros((1, 2)), {"beta": np.float64(3)}
    np.testing.assert_array_equal(COSINE.reference(q, np.ones((4, 2)), beta, np.zeros(1)), 0)


def test_cosine_takes_its_norm_in_float32() -> None:
    unit = COSINE.bind(small_case("cosine", dtype="bfloat16"), {"beta": torch.ones(4).bfloat16()}).dot
    vectors = torch.from_numpy(np.random.default_rng(0).standard_normal((64, 256))).bfloat16()
    exact = vectors.double() / torch.linalg.vector_norm(vectors.double(), dim=-1, keepdim=True)
    rounded_once = unit.map_k(vectors) == exact.bfloat16()
    assert float(rounded_once.double().mean()) > 0.999


def test_a_scale_of_one_over_root_d_has_the_bits_of_none() -> None:
    for rule in ("scaled_dot", "softcap", "alibi", "sinks"):
        case = small_case(rule, D=13)
        chosen = replace(case, constants=(("scale", 13**-0.5),))
        np.testing.assert_array_equal(numpy_scores(chosen), numpy_scores(case))


def test_what_is_drawn_for_each_head_gives_way_to_a_constant() -> None:
    case = small_case("alibi", constants=(("slope", 0.25),))
    assert setup_of(case).rule_parameters["slope"].tolist() == [0.25] * case.H
    assert setup_of(replace(case, constants=(("scale", 2),))).constants == {"scale": 2}
    assert setup_of(small_case("softcap", D=4)).constants == {"c": CAP, "scale": 0.5}
