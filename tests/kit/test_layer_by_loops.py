"""The layer around the heads, a feature at a time: biases, cross attention, no output, concatenation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from small import cases, layer_setup, randn, rule

from attnbench.kit.layer import for_operation, merge_heads, output_projection, split_heads
from attnbench.kit.scores import form_of
from attnbench.types.backend import Setup
from attnbench.types.case import Case, Layer
from attnbench.types.rule import DotForm, Parameter, Rule, Scoring

LAYERS = st.builds(Layer, st.integers(1, 5), st.booleans(), st.booleans(), st.booleans())


def means(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Stands for attention: the mean of a head's values, the query's first feature, and the mean of keys."""
    group = q.shape[1] // v.shape[1]
    values, keys = (x.repeat_interleave(group, dim=1).mean(2, keepdim=True) for x in (v, k))
    return values + q[..., :1] + keys[..., :1]


def by_loops(setup: Setup, sources: list[np.ndarray]) -> np.ndarray:
    case, p = setup.case, {name: x.numpy() for name, x in setup.projections.items()}

    def feature(letter: str, at: int, row: np.ndarray) -> float:
        bias = f"b_{letter}"
        return float(p[f"w_{letter}"][at] @ row) + (float(p[bias][at]) if bias in p else 0.0)

    rows = []
    for b in range(case.B):
        for i in range(case.Lq):
            x = sources[0][b, i]
            queries = [feature("q", at, x) for at in range(case.H * case.D)]
            merged = []
            for h in range(case.H):
                shared = h // case.group
                keys = [feature("k", shared * case.D, sources[1][b, j]) for j in range(len(sources[1][b]))]
                for d in range(case.Dv):
                    values = [feature("v", shared * case.Dv + d, sources[2][b, j]) for j in range(case.Lk)]
                    merged.append(np.mean(values) + queries[h * case.D] + np.mean(keys))
            if "w_o" in p:
                joined = np.array([*queries, *merged] if setup.rule.concatenates else merged)
                merged = [feature("o", e, joined) for e in range(p["w_o"].shape[0])]
            rows.append(merged)
    return np.array(rows).reshape(case.B, case.Lq, -1)


@given(cases(), LAYERS, st.booleans())
def test_a_layer_is_what_its_features_are(case: Case, layer: Layer, concatenates: bool) -> None:
    case = replace(case, operation="multihead", layer=layer)
    setup = layer_setup(case, concatenates)
    # A rule that pairs keys with queries has a source of keys of its own.
    sources = [randn(case.B, L, layer.E, seed=L) for L in (case.Lq, case.Lk + 1, case.Lk)]
    output = for_operation(means, setup)(*sources)
    assert output.shape == (case.B, case.Lq, layer.E if layer.out else case.H * case.Dv)
    expected = by_loops(setup, [x.numpy() for x in sources])
    np.testing.assert_allclose(output.numpy(), expected, rtol=1e-10, atol=1e-10)


@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 4), st.integers(1, 4))
def test_heads_split_and_merge_without_a_number_moving(B: int, L: int, heads: int, D: int) -> None:
    x = torch.arange(float(B * L * heads * D)).view(B, L, heads * D)
    split = split_heads(x, heads)
    assert split.shape == (B, heads, L, D)
    assert split.data_ptr() == x.data_ptr()
    for b, h, i, d in np.ndindex(*split.shape):
        assert split[b, h, i, d] == x[b, i, h * D + d]
    assert torch.equal(merge_heads(split), x)


def test_without_an_output_projection_nothing_is_concatenated() -> None:
    case = Case("multihead", "dot", 1, 2, 1, 3, 3, 4, 5, layer=Layer(E=6, out=False), dtype="float64")
    merged = output_projection(layer_setup(case, concatenates=True))(
        randn(1, 3, 8), heads := randn(1, 2, 3, 5)
    )
    assert merged.tolist() == [[[*heads[0, 0, i].tolist(), *heads[0, 1, i].tolist()] for i in range(3)]]


def test_a_form_is_bound_to_zeros_of_the_cases_shapes_and_dtype() -> None:
    case = Case("attention", "dot", 1, 6, 2, 3, 4, 5, 5, dtype="bfloat16")
    bound: list[dict[str, torch.Tensor]] = []

    def bind(case: Case, parameters: dict[str, torch.Tensor]) -> Scoring:
        bound.append(parameters)
        return Scoring(dot=DotForm(cap=7.0), sink=parameters["s"])

    parameters = (Parameter("s", (), lambda *_: None), Parameter("w", (4, 2), lambda *_: None))  # type: ignore[arg-type,return-value]
    own = Rule("mine", "?", "?", rule().reference, bind, parameters=lambda case: parameters)  # type: ignore[arg-type]
    form = form_of(case, own)
    assert form.dot == DotForm(cap=7.0)
    assert {name: (x.shape, x.dtype, bool(x.any())) for name, x in bound[0].items()} == {
        "s": ((6,), torch.bfloat16, False),
        "w": ((6, 4, 2), torch.bfloat16, False),
    }
