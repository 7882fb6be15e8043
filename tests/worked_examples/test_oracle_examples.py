"""The worked examples through the oracle, exact to the digits given."""

from __future__ import annotations

import numpy as np
import pytest
from worked_numbers import (
    PROJECTED,
    PROJECTED_OUT,
    PROJECTED_SCORES,
    PROJECTED_WEIGHTS_1,
    ROUNDED_OUT,
    ROUNDED_WEIGHTS,
    SELF,
    SELF_OUT,
    SELF_WEIGHTS,
    TOKENS,
    TOKENS_SCORES_1,
    TOKENS_WEIGHTS_1,
    TOKENS_WEIGHTS_5,
    W_K,
    W_Q,
    W_V,
)

from attnbench.inputs.draw import Parameters
from attnbench.masks import keep_rows
from attnbench.oracle.solve import heads_of, solve, solve_weights
from attnbench.rules import attnbench_rules
from attnbench.types.case import Case, Layer
from attnbench.types.mask import Mask

RULES = {rule.name: rule for rule in attnbench_rules()}
NOTHING = Parameters({}, {})


def digits(got: np.ndarray, printed: np.ndarray, places: int) -> None:
    """The numbers as printed: equal after rounding to that many places."""
    np.testing.assert_array_equal(np.round(got.astype(np.float64), places), printed)


def square(rule: str, L: int, D: int, **fields: object) -> Case:
    return Case("attention", rule, B=1, H=1, Hkv=1, Lq=L, Lk=L, D=D, Dv=D, dtype="float64", **fields)


def test_1_unscaled_dot_self_attention() -> None:
    x = SELF[None, None]
    case = square("dot", 3, 3)
    digits(solve(case, RULES["dot"], NOTHING, (x, x, x))[0, 0], SELF_OUT, 6)
    digits(solve_weights(case, RULES["dot"], NOTHING, (x, x, x))[0, 0], SELF_WEIGHTS, 4)


def test_2_scaled_dot_over_five_tokens() -> None:
    x = TOKENS[None, None]
    scores = RULES["scaled_dot"].reference(TOKENS, TOKENS, {}, np.arange(5.0))
    np.testing.assert_array_equal(scores[0], TOKENS_SCORES_1)
    weights = solve_weights(square("scaled_dot", 5, 4), RULES["scaled_dot"], NOTHING, (x, x, x))[0, 0]
    digits(weights[0], TOKENS_WEIGHTS_1, 4)
    digits(weights[4], TOKENS_WEIGHTS_5, 4)


def test_3_unscaled_dot_with_projections() -> None:
    case = Case("multihead", "dot", 1, 1, 1, 3, 3, 3, 3, layer=Layer(4, out=False), dtype="float64")
    x = PROJECTED[None]
    # The textbook multiplies x by its matrices; a layer by their transposes.
    parameters = Parameters({}, {"w_q": W_Q.T, "w_k": W_K.T, "w_v": W_V.T})
    heads = heads_of(case, parameters.projections, (x, x, x))
    scores = RULES["dot"].reference(heads.q[0, 0], heads.k[0, 0], {}, np.arange(3.0))
    np.testing.assert_array_equal(scores, PROJECTED_SCORES)
    weights = solve_weights(case, RULES["dot"], parameters, (x, x, x))[0, 0]
    np.testing.assert_array_equal([float(f"{w:.4e}") for w in weights[0]], PROJECTED_WEIGHTS_1)
    digits(solve(case, RULES["dot"], parameters, (x, x, x))[0], PROJECTED_OUT, 6)
    np.testing.assert_allclose(ROUNDED_WEIGHTS @ heads.v[0, 0], ROUNDED_OUT, rtol=0, atol=1e-12)


def test_4_concatenate_and_project_with_a_combine_layer() -> None:
    rng = np.random.default_rng(0)
    q, k, values = rng.random((1, 1, 32)), rng.random((1, 1, 32)), rng.random((1, 32, 64))
    w, bias = rng.standard_normal((32, 64)) / 8, rng.standard_normal(32) / 8
    w_o, b_o = rng.standard_normal((64, 96)) / 10, rng.standard_normal(64) / 10
    # Projections that hand on what they are given; queries and keys are the first 32 of 64 features.
    first, every = np.eye(32, 64), np.eye(64)
    none, nothing = np.zeros(32), np.zeros(64)
    projections = {
        **{"w_q": first, "w_k": first, "w_v": every, "w_o": w_o},
        **{"b_q": none, "b_k": none, "b_v": nothing, "b_o": b_o},
    }
    parameters = Parameters({"w": w[None], "bias": bias[None]}, projections)
    layer = Layer(64, bias=True, cross=True)
    case = Case("multihead", "concat_linear", 1, 1, 1, 1, 32, 32, 64, layer=layer, dtype="float64")
    sources = (np.pad(q, ((0, 0), (0, 0), (0, 32))), np.pad(k, ((0, 0), (0, 0), (0, 32))), values)

    logits = np.concatenate([q[0], k[0]], axis=-1) @ w.T + bias
    weights = np.exp(logits) / np.exp(logits).sum()
    combined = np.concatenate([q[0], weights @ values[0]], axis=-1) @ w_o.T + b_o

    got = solve(case, RULES["concat_linear"], parameters, sources)
    assert got.shape == (1, 1, 64)
    np.testing.assert_allclose(got[0], combined, rtol=0, atol=1e-14)
    got_weights = solve_weights(case, RULES["concat_linear"], parameters, sources)[0, 0]
    assert got_weights.shape == (1, 32)
    np.testing.assert_allclose(got_weights, weights, rtol=0, atol=1e-15)
    assert float(got_weights.sum()) == pytest.approx(1, abs=1e-15)


def test_5_weights_times_values_by_batch() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((10, 1, n, d)) for n, d in ((3, 6), (4, 6), (4, 5)))
    case = Case("attention", "scaled_dot", 10, 1, 1, 3, 4, 6, 5, dtype="float64")
    weights = solve_weights(case, RULES["scaled_dot"], NOTHING, (q, k, v))[:, 0]
    out = solve(case, RULES["scaled_dot"], NOTHING, (q, k, v))[:, 0]
    assert (weights.shape, v[:, 0].shape, out.shape) == ((10, 3, 4), (10, 4, 5), (10, 3, 5))
    for b in range(10):
        np.testing.assert_allclose(out[b], weights[b] @ v[b, 0], rtol=0, atol=1e-15)


def test_6_the_causal_mask_of_a_sentence_of_four_tokens() -> None:
    case = square("scaled_dot", 4, 4, mask=Mask(causal="upper_left"))
    keep = keep_rows(case, np.arange(4))
    assert keep is not None
    np.testing.assert_array_equal(keep[0, 0], np.tri(4, dtype=bool))
    x = np.random.default_rng(0).standard_normal((1, 1, 4, 4))
    weights = solve_weights(case, RULES["scaled_dot"], NOTHING, (x, x, x))[0, 0]
    assert np.all(weights[~np.tri(4, dtype=bool)] == 0)
    # The textbook's way: -inf added above the diagonal, then a float32 softmax.
    scores = (x[0, 0] @ x[0, 0].T / 2 + np.triu(np.full((4, 4), -np.inf), 1)).astype(np.float32)
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    by_hand = powers / powers.sum(axis=1, keepdims=True)
    assert by_hand.dtype == np.float32
    np.testing.assert_array_equal(by_hand[np.triu_indices(4, 1)], 0)
    np.testing.assert_allclose(weights.astype(np.float64), by_hand, rtol=0, atol=1e-6)


def spread_of(rule: str, D: int) -> tuple[float, float, float, float]:
    """Variance of the scores; and of weights over 32 keys: entropy, largest, norm of softmax's gradient."""
    rng = np.random.default_rng(D)
    scores = RULES[rule].reference(
        rng.standard_normal((400, D)), rng.standard_normal((800, D)), {}, np.arange(400.0)
    )
    powers = np.exp(scores[:, :32] - scores[:, :32].max(axis=1, keepdims=True))
    weights = powers / powers.sum(axis=1, keepdims=True)
    entropy = -(weights * np.log(np.maximum(weights, 1e-300))).sum(axis=1)
    # d weights_i / d scores_j = weights_i (δ_ij - weights_j); on the diagonal w (1 - w).
    squares = np.square(weights)
    beside = squares * (squares.sum(axis=1, keepdims=True) - squares)
    gradient = np.sqrt((squares * np.square(1 - weights) + beside).sum(axis=1))
    largest = weights.max(axis=1)
    return float(scores.var()), float(entropy.mean()), float(largest.mean()), float(np.median(gradient))


def test_7_why_the_scale() -> None:
    widths = [4, 16, 64, 256, 1024]
    unscaled = np.array([spread_of("dot", D) for D in widths])
    scaled = np.array([spread_of("scaled_dot", D) for D in widths])
    np.testing.assert_allclose(unscaled[:, 0], widths, rtol=0.1)
    np.testing.assert_allclose(scaled[:, 0], 1, rtol=0.1)
    # Unscaled, softmax saturates as D grows: the entropy and the gradient go to 0, the largest weight to 1.
    assert np.all(np.diff(unscaled[:, 1]) < 0)
    assert np.all(np.diff(unscaled[:, 2]) > 0)
    assert unscaled[-1, 1] < 0.05 * np.log(32)
    assert unscaled[-1, 2] > 0.9
    assert unscaled[-1, 3] < 0.05 * unscaled[1, 3]
    # Scaled, nothing changes with D.
    for column in (1, 2, 3):
        np.testing.assert_allclose(scaled[1:, column], scaled[1:, column].mean(), rtol=0.2)
