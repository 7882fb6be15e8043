"""The worked examples, with the numbers as they are printed, through every backend that supports them.

Weights are read as the output for values that are the unit vectors.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from solved import BACKENDS, QUICK, Solved, refusal, solved_by

Array = NDArray[np.float64]


def outputs(case: Solved, fewest: int) -> Iterator[Array]:
    """The output of every backend that supports the case, (B, H, Lq, Dv) or (B, Lq, E)."""
    names = [name for name in QUICK if refusal(BACKENDS[name], case.case) is None]
    assert len(names) >= fewest
    for name in names:
        yield case.run(BACKENDS[name]).double().numpy()


def heads(x: object) -> Array:
    """(L, D) as (1, 1, L, D)."""
    return np.asarray(x, np.float64)[None, None]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_1_unscaled_self_attention(dtype: str) -> None:
    x = heads([[1, 3, 2], [1, 1, 3], [1, 2, 1]])
    expected = [[1, 2.957691, 2.011295], [1, 1.540148, 2.722573], [1, 2.864164, 2.000000]]
    for out in outputs(solved_by(f"attention/dot/H1-L3-D3/{dtype}", (x, x, x)), fewest=7):
        assert_allclose(out[0, 0], expected, atol=6e-7)
    weights = [[0.9756, 0.0179, 0.0066], [0.2676, 0.7275, 0.0049], [0.9094, 0.0453, 0.0453]]
    for out in outputs(solved_by(f"attention/dot/H1-L3-D3/{dtype}", (x, x, heads(np.eye(3)))), fewest=7):
        assert_allclose(out[0, 0], weights, atol=6e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_2_scaled_self_attention_of_five_tokens(dtype: str) -> None:
    x = heads([[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0.5, 0.5, 0]])
    assert_allclose((x @ x.swapaxes(2, 3))[0, 0, 0] / 2, [1, 0, 0.5, 0.5, 0.75])
    case = solved_by(f"attention/scaled_dot/H1-L5-D4-Dv5/{dtype}", (x, x, heads(np.eye(5))))
    for out in outputs(case, fewest=6):
        assert_allclose(out[0, 0, 0], [0.2976, 0.1095, 0.1805, 0.1805, 0.2318], atol=6e-5)
        assert_allclose(out[0, 0, 4], [0.2374, 0.1440, 0.2374, 0.1440, 0.2374], atol=6e-5)


X = np.array([[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]], np.float64)
W_K = np.array([[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]], np.float64)
W_Q = np.array([[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]], np.float64)
W_V = np.array([[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]], np.float64)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_3_unscaled_with_projections(dtype: str) -> None:
    x = X[None]
    projections = {"w_q": W_Q.T, "w_k": W_K.T, "w_v": W_V.T}
    case = solved_by(f"multihead/dot/H1-L3-D3-E4-noout/{dtype}", (x, x, x), projections=projections)
    expected = [
        [1.936621, 6.683105, 1.595068],
        [1.999994, 7.963992, 0.053976],
        [1.999705, 7.759892, 0.358389],
    ]
    for out in outputs(case, fewest=8):
        assert_allclose(out[0], expected, atol=1e-6)


def test_4_concatenate_and_project_with_a_combine_layer() -> None:
    rng = np.random.default_rng(4)
    shapes = (1, 1, 32), (1, 1, 32), (1, 32, 64)
    q, k, v = (torch.from_numpy(rng.standard_normal(shape)) for shape in shapes)
    attend = torch.nn.Linear(64, 32, dtype=torch.float64).requires_grad_(False)
    combine = torch.nn.Linear(32 + 64, 64, dtype=torch.float64).requires_grad_(False)
    weights = torch.softmax(attend(torch.cat((q[0], k[0]), 1)), dim=1)
    expected = combine(torch.cat((q[0], torch.bmm(weights.unsqueeze(0), v)[0]), 1)).unsqueeze(0)

    # In one layer of width 64: projections that pick 32 of 64 features, and all of v.
    pick = np.eye(32, 64)
    wide_q, wide_k = (np.pad(x.numpy(), ((0, 0), (0, 0), (0, 32))) for x in (q, k))
    parameters = {"w": attend.weight[None].numpy(), "bias": attend.bias[None].numpy()}
    projections = {"w_q": pick, "w_k": pick, "w_v": np.eye(64), "w_o": combine.weight.numpy()}
    projections |= {"b_q": np.zeros(32), "b_k": np.zeros(32), "b_v": np.zeros(64)}
    projections["b_o"] = combine.bias.numpy()
    case = solved_by(
        "multihead/concat_linear/H1-Lq1-Lk32-D32-Dv64-E64-bias-cross/float64",
        (wide_q, wide_k, v.numpy()),
        parameters,
        projections,
    )
    for out in outputs(case, fewest=6):
        assert out.shape == (1, 1, 64)
        assert_allclose(out, expected.numpy(), atol=1e-14)

    read = (q.numpy()[None], k.numpy()[None], heads(np.eye(32)))
    bare = solved_by("attention/concat_linear/H1-Lq1-Lk32-D32/float64", read, parameters)
    for out in outputs(bare, fewest=5):
        assert out[0, 0].shape == (1, 32)
        assert out.sum() == pytest.approx(1)
        assert_allclose(out[0, 0], weights.numpy(), atol=1e-15)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_6_causal_mask_of_four_tokens(dtype: str) -> None:
    x = heads([[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1]])
    case = solved_by(f"attention/scaled_dot/H1-L4-D4/causal/{dtype}", (x, x, heads(np.eye(4))))
    for out in outputs(case, fewest=6):
        weights = out[0, 0]
        assert_allclose(weights[0], [1, 0, 0, 0])
        assert (np.triu(weights, 1) == 0).all()
        assert (weights[np.tril_indices(4)] > 0).all()
        assert_allclose(weights.sum(1), 1, atol=0.01 if dtype == "bfloat16" else 2e-3)
