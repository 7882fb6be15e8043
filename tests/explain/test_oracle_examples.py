"""The textbook's layers with projections through the oracle, exact to the printed digits."""

from __future__ import annotations

import numpy as np
import pytest

from attnbench.explain.examples import EXAMPLES
from attnbench.inputs.draw import Parameters
from attnbench.oracle.solve import heads_of, solve, solve_weights
from attnbench.rules import attnbench_rules
from attnbench.types.case import Case, Layer

RULES = {rule.name: rule for rule in attnbench_rules()}


def test_unscaled_dot_with_projections() -> None:
    case = Case("multihead", "dot", 1, 1, 1, 3, 3, 3, 3, layer=Layer(4, out=False), dtype="float64")
    example = EXAMPLES["projections"]
    x = example.sources[0][1][None]
    # The textbook multiplies x by its matrices; a layer by their transposes.
    parameters = Parameters({}, {name.lower(): matrix.T for name, matrix in example.matrices.items()})
    heads = heads_of(case, parameters.projections, (x, x, x))
    scores = RULES["dot"].reference(heads.q[0, 0], heads.k[0, 0], {}, np.arange(3.0))
    np.testing.assert_array_equal(scores, [[2, 4, 4], [4, 16, 12], [4, 12, 10]])
    weights = solve_weights(case, RULES["dot"], parameters, (x, x, x))[0, 0]
    np.testing.assert_array_equal([float(f"{w:.4e}") for w in weights[0]], [6.3379e-2, 4.6831e-1, 4.6831e-1])
    out = solve(case, RULES["dot"], parameters, (x, x, x))[0]
    want = [[1.936621, 6.683105, 1.595068], [1.999994, 7.963992, 0.053976], [1.999705, 7.759892, 0.358389]]
    np.testing.assert_array_equal(np.round(out.astype(np.float64), 6), want)


def test_concatenate_and_project_with_a_combine_layer() -> None:
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
