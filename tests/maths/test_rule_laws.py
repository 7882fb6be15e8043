"""Changes of the input that change the exact output in a known way: design, section 6, against the oracle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from maths_tools import RULES, small_case, small_cases, wide_activations, wide_parameters

from attnbench.inputs.draw import Parameters
from attnbench.oracle import solve as oracle_weights
from attnbench.oracle.solve import solve
from attnbench.types.case import Case
from attnbench.types.mask import Mask

EVERY = sorted(RULES)
WITHOUT_PARAMETERS = ["dot", "scaled_dot", "softcap"]
PLAIN_PRODUCT = ["dot", "scaled_dot", "softcap", "alibi", "sinks"]
BY_POSITION = ["alibi", "concat_linear"]
KEEPS_ALL_WEIGHT = [name for name in EVERY if name != "sinks"]
CLOSE = {"rtol": 0, "atol": 1e-12}

Inputs = tuple[np.ndarray, np.ndarray, np.ndarray]


def cases_of(rule: str, **fields: object) -> st.SearchStrategy[Case]:
    return small_cases(multihead=False).map(lambda case: replace(case, rule=rule, **fields))


def output(case: Case, inputs: Inputs, parameters: Parameters | None = None) -> np.ndarray:
    return solve(case, RULES[case.rule], parameters or wide_parameters(case), inputs)


def permutation(data: st.DataObject, n: int) -> np.ndarray:
    return np.array(data.draw(st.permutations(range(n))))


@pytest.mark.parametrize("rule", EVERY)
@settings(max_examples=15)
@given(data=st.data())
def test_powers_of_two_on_features_of_v_come_out_exactly(rule: str, data: st.DataObject) -> None:
    case = data.draw(cases_of(rule))
    exponents = data.draw(st.tuples(*[st.integers(-20, 20)] * case.Dv))
    signs = data.draw(st.tuples(*[st.sampled_from([-1.0, 1.0])] * case.Dv))
    factors = np.array(signs) * 2.0 ** np.array(exponents)
    q, k, v = wide_activations(case)
    # BLAS adds in an order that depends on shapes and addresses alone, not on values.
    np.testing.assert_array_equal(output(case, (q, k, v * factors)), output(case, (q, k, v)) * factors)


@pytest.mark.parametrize("rule", EVERY)
@settings(max_examples=15)
@given(data=st.data())
def test_permuting_batches_permutes_the_output(rule: str, data: st.DataObject) -> None:
    case = data.draw(cases_of(rule, mask=Mask(causal="lower_right", window=3)))
    order = permutation(data, case.B)
    q, k, v = wide_activations(case)
    np.testing.assert_allclose(
        output(case, (q[order], k[order], v[order])), output(case, (q, k, v))[order], **CLOSE
    )


@pytest.mark.parametrize("rule", WITHOUT_PARAMETERS)
@settings(max_examples=15)
@given(data=st.data())
def test_permuting_heads_permutes_the_output(rule: str, data: st.DataObject) -> None:
    case = data.draw(cases_of(rule))
    order = permutation(data, case.Hkv)
    heads = (order[:, None] * case.group + np.arange(case.group)).ravel()
    q, k, v = wide_activations(case)
    np.testing.assert_allclose(
        output(case, (q[:, heads], k[:, order], v[:, order])), output(case, (q, k, v))[:, heads], **CLOSE
    )


@pytest.mark.parametrize("rule", [name for name in EVERY if name not in BY_POSITION])
@settings(max_examples=15)
@given(data=st.data())
def test_permuting_queries_permutes_rows(rule: str, data: st.DataObject) -> None:
    case = data.draw(cases_of(rule, mask=Mask(padding="seeded")))
    order = permutation(data, case.Lq)
    q, k, v = wide_activations(case)
    np.testing.assert_allclose(
        output(case, (q[:, :, order], k, v)), output(case, (q, k, v))[:, :, order], **CLOSE
    )


def test_permuting_paired_queries_and_keys_permutes_rows() -> None:
    case = small_case("concat_linear", Lq=6)
    order = np.array([3, 0, 5, 1, 4, 2])
    q, k, v = wide_activations(case)
    np.testing.assert_allclose(
        output(case, (q[:, :, order], k[:, :, order], v)), output(case, (q, k, v))[:, :, order], **CLOSE
    )


@pytest.mark.parametrize("rule", [name for name in EVERY if name not in BY_POSITION])
@pytest.mark.parametrize("explicit", [None, "bool", "float"])
def test_permuting_keys_values_and_columns_of_the_mask_changes_nothing(
    rule: str, explicit: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = small_case(rule, mask=Mask(causal="lower_right", padding="seeded", explicit=explicit))
    order = np.random.default_rng(0).permutation(case.Lk)
    q, k, v = wide_activations(case)
    before = output(case, (q, k, v))
    for name in ("keep_rows", "added_rows"):
        make = getattr(oracle_weights, name)

        def permuted(case: Case, rows: np.ndarray, make=make) -> np.ndarray | None:
            mask = make(case, rows)
            return None if mask is None else mask[..., order]

        monkeypatch.setattr(oracle_weights, name, permuted)
    np.testing.assert_allclose(output(case, (q, k[:, :, order], v[:, :, order])), before, **CLOSE)


@pytest.mark.parametrize("rule", [*PLAIN_PRODUCT, "cosine"])
@settings(max_examples=15)
@given(data=st.data())
def test_flipping_the_sign_of_a_feature_of_q_and_k_changes_nothing(rule: str, data: st.DataObject) -> None:
    case = data.draw(cases_of(rule))
    signs = np.array(data.draw(st.tuples(*[st.sampled_from([-1.0, 1.0])] * case.D)))
    q, k, v = wide_activations(case)
    np.testing.assert_array_equal(output(case, (q * signs, k * signs, v)), output(case, (q, k, v)))


@pytest.mark.parametrize("rule", PLAIN_PRODUCT)
@settings(max_examples=15)
@given(data=st.data())
def test_a_feature_may_move_a_power_of_two_from_k_to_q(rule: str, data: st.DataObject) -> None:
    case = data.draw(cases_of(rule))
    factors = 2.0 ** np.array(data.draw(st.tuples(*[st.integers(-20, 20)] * case.D)))
    q, k, v = wide_activations(case)
    np.testing.assert_array_equal(output(case, (q * factors, k / factors, v)), output(case, (q, k, v)))


@pytest.mark.parametrize("rule", [*PLAIN_PRODUCT, "cosine"])
@settings(max_examples=15)
@given(data=st.data())
def test_permuting_features_of_q_and_k_together_changes_nothing(rule: str, data: st.DataObject) -> None:
    case = data.draw(cases_of(rule))
    order = permutation(data, case.D)
    q, k, v = wide_activations(case)
    permuted = (q[..., order], k[..., order], v)
    np.testing.assert_allclose(output(case, permuted), output(case, (q, k, v)), **CLOSE)


@pytest.mark.parametrize("rule", ["general", "additive", "concat_linear", "cosine"])
def test_what_is_no_law_of_a_rule_does_not_hold(rule: str) -> None:
    case = small_case(rule, Lq=4, Lk=5, D=4)
    q, k, v = wide_activations(case)
    factors = np.array([2.0, 0.5, 4.0, 1.0])
    assert not np.allclose(output(case, (q * factors, k / factors, v)), output(case, (q, k, v)), rtol=1e-3)


@pytest.mark.parametrize("rule", KEEPS_ALL_WEIGHT)
@settings(max_examples=15)
@given(data=st.data(), b=st.floats(-10, 10))
def test_adding_to_v_adds_to_every_row_that_has_a_key(rule: str, data: st.DataObject, b: float) -> None:
    case = data.draw(cases_of(rule))
    q, k, v = wide_activations(case)
    before, after = output(case, (q, k, v)), output(case, (q, k, v + b))
    empty = np.all(output(case, (q, k, np.ones_like(v))) == 0, axis=-1, keepdims=True)
    np.testing.assert_allclose(after, np.where(empty, 0, before + b), **CLOSE)


@pytest.mark.parametrize("rule", KEEPS_ALL_WEIGHT)
@settings(max_examples=15)
@given(data=st.data())
def test_equal_values_and_a_single_key_give_that_value(rule: str, data: st.DataObject) -> None:
    case = data.draw(cases_of(rule, mask=Mask()))
    q, k, v = wide_activations(case)
    every = np.repeat(v[:, :, :1], case.group, axis=1)
    np.testing.assert_allclose(
        output(case, (q, k, np.repeat(v[:, :, :1], case.Lk, axis=2))),
        np.broadcast_to(every, (case.B, case.H, case.Lq, case.Dv)),
        **CLOSE,
    )
    alone = replace(case, mask=Mask(padding=(1,) * case.B))
    np.testing.assert_array_equal(
        output(alone, (q, k, v)), np.broadcast_to(every, (case.B, case.H, case.Lq, case.Dv))
    )


@pytest.mark.parametrize("rule", ["dot", "scaled_dot", "softcap", "general", "cosine"])
@settings(max_examples=15)
@given(data=st.data())
def test_scale_zero_gives_the_mean_over_kept_keys(rule: str, data: st.DataObject) -> None:
    case = data.draw(cases_of(rule))
    length = data.draw(st.integers(1, case.Lk))
    case = replace(case, mask=Mask(padding=(length,) * case.B))
    q, k, v = wide_activations(case)
    mean = np.repeat(v[:, :, :length].mean(axis=2, keepdims=True), case.group, axis=1)
    out = output(case, (q * 0, k, v))
    np.testing.assert_allclose(out, np.broadcast_to(mean, out.shape), **CLOSE)


@settings(max_examples=15)
@given(data=st.data())
def test_a_sink_as_heavy_as_one_key_is_one_key_of_zeros(data: st.DataObject) -> None:
    case = data.draw(cases_of("sinks", mask=Mask()))
    q, k, v = wide_activations(case)
    logits = Parameters({"sink": np.zeros(case.H)}, {})
    longer = replace(case, rule="scaled_dot", Lk=case.Lk + 1)
    padded = [np.concatenate([x, np.zeros_like(x[:, :, :1])], axis=2) for x in (k, v)]
    np.testing.assert_allclose(
        output(case, (q, k, v), logits), output(longer, (q, *padded), Parameters({}, {})), **CLOSE
    )
