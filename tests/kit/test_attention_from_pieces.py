"""Scores, mask, softmax, values: put together as a backend would, against loops over single numbers."""

from __future__ import annotations

from math import fsum, inf, tanh

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small import cases, randn, weights_of_row

from attnbench.kit.attention import masked_softmax, with_sink_column, with_zero_row
from attnbench.kit.layer import matmul_shared, repeat_heads
from attnbench.kit.masks import additive_mask, empty_rows
from attnbench.kit.scores import form_of, scores_of
from attnbench.rules import attnbench_rules
from attnbench.types.case import Case
from attnbench.types.rule import DotForm, Rule, Scoring, of_head

DOTS = st.builds(
    DotForm,
    scale=st.sampled_from([1.0, 0.5, -2.0]),
    map_q=st.sampled_from([None, torch.Tensor.exp]),
    map_k=st.sampled_from([None, torch.Tensor.sin]),
    cap=st.sampled_from([None, 0.5, 3.0]),
)


def inputs(case: Case) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return (
        randn(case.B, case.H, case.Lq, case.D, seed=1),
        randn(case.B, case.Hkv, case.Lk, case.D, seed=2),
        randn(case.B, case.Hkv, case.Lk, case.Dv, seed=3),
    )


def by_loops(
    case: Case, dot: DotForm, sink: torch.Tensor | None, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> np.ndarray:
    """The definition, a number at a time."""
    q = q if dot.map_q is None else q.exp()
    k = k if dot.map_k is None else k.sin()
    mask = additive_mask(case, torch.float64, "cpu")
    out = np.empty((case.B, case.H, case.Lq, case.Dv))
    for b, h, i in np.ndindex(case.B, case.H, case.Lq):
        shared = h // (case.H // case.Hkv)
        scores = []
        for j in range(case.Lk):
            score = dot.scale * fsum((q[b, h, i] * k[b, shared, j]).tolist())
            score = score if dot.cap is None else dot.cap * tanh(score / dot.cap)
            scores.append(score + (0 if mask is None else float(mask[b % len(mask), 0, i, j])))
        weights = weights_of_row(scores, None if sink is None else float(sink[h]))
        for d in range(case.Dv):
            out[b, h, i, d] = fsum(w * float(v[b, shared, j, d]) for j, w in enumerate(weights))
    return out


@given(cases(), DOTS, st.booleans(), st.booleans())
def test_the_pieces_make_attention(case: Case, dot: DotForm, with_sink: bool, scale_queries: bool) -> None:
    q, k, v = inputs(case)
    sink = randn(case.H, seed=4) if with_sink else None
    scores = scores_of(Scoring(dot=dot), scale_queries)(q, k, slice(0, case.Lk))
    added, empty = additive_mask(case, torch.float64, "cpu"), empty_rows(case, "cpu")
    weights = masked_softmax(scores, added, empty, sink)
    output = matmul_shared(weights, v)
    np.testing.assert_allclose(output.numpy(), by_loops(case, dot, sink, q, k, v), rtol=1e-11, atol=1e-12)


@given(cases())
def test_a_zero_key_with_the_sinks_logit_is_the_sink(case: Case) -> None:
    """For a kernel that knows a mask and no sink; also where a query keeps no key."""
    q, k, v = inputs(case)
    sink = randn(case.H, seed=5)
    added = with_sink_column(additive_mask(case, torch.float64, "cpu"), sink, case)
    assert added.shape[1:] == (case.H, case.Lq, case.Lk + 1)
    scores = matmul_shared(q, with_zero_row(k).mT) + added
    output = matmul_shared(scores.softmax(-1), with_zero_row(v))
    np.testing.assert_allclose(output.numpy(), by_loops(case, DotForm(), sink, q, k, v), atol=1e-12)


@given(cases(square=True), st.data())
def test_a_free_form_gets_every_head_its_keys(case: Case, data: st.DataObject) -> None:
    """Its keys are repeated, and it is told which columns they are."""
    q, k, _ = inputs(case)
    start = data.draw(st.integers(0, case.Lk - 1))
    stop = data.draw(st.integers(start + 1, case.Lk))
    seen: list[slice] = []

    def free(q: torch.Tensor, k: torch.Tensor, cols: slice) -> torch.Tensor:
        seen.append(cols)
        assert k.shape == (case.B, case.H, stop - start, case.D)
        return -(q[:, :, :, None] - k[:, :, None]).abs().sum(-1)

    part = slice(start, stop)
    scores = scores_of(Scoring(scores=free))(q, k[:, :, part], part)
    assert seen == [part]
    for b, h, i, j in np.ndindex(*scores.shape):
        expected = -(q[b, h, i] - k[b, h // case.group, start + j]).abs().sum()
        torch.testing.assert_close(scores[b, h, i, j], expected)


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(1, 4))
def test_heads_are_shared_by_neighbours(B: int, Hkv: int, group: int, L: int) -> None:
    x = randn(B, Hkv, L, 2)
    repeated = repeat_heads(x, Hkv * group)
    for h in range(Hkv * group):
        assert torch.equal(repeated[:, h], x[:, h // group])
    a = randn(B, Hkv * group, 3, L, seed=1)
    torch.testing.assert_close(matmul_shared(a, x), a @ repeated)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_weights_come_back_in_the_dtype_of_the_scores_rounded_once(dtype: torch.dtype) -> None:
    scores = (randn(2, 3, 4, 5) * 3).to(dtype)
    for sink in (None, torch.tensor([-1.0, 0.0, 2.0], dtype=dtype)):
        weights = masked_softmax(scores, None, None, sink)
        assert weights.dtype == dtype
        logits = [None] * 3 if sink is None else sink.tolist()
        exact = [
            [[weights_of_row(row, logits[h]) for row in scores[b, h].tolist()] for h in range(3)]
            for b in range(2)
        ]
        unit = max(torch.finfo(dtype).eps, 2.0**-22 if dtype != torch.float64 else 0)
        torch.testing.assert_close(
            weights.double(), torch.tensor(exact, dtype=torch.float64), rtol=4 * unit, atol=unit
        )


def test_what_is_added_to_half_precision_is_not_rounded_to_it() -> None:
    scores = torch.full((1, 1, 1, 2), 100.0, dtype=torch.bfloat16)
    added = torch.tensor([[[[0.0, 0.3]]]], dtype=torch.bfloat16)
    # 100.3 would be 100.5 in bfloat16, and the weight 0.62.
    assert float(masked_softmax(scores, added)[..., 1]) == pytest.approx(0.574, abs=0.004)


@pytest.mark.parametrize("size", [110.0, 1e4])
def test_huge_scores_neither_overflow_nor_leak(size: float) -> None:
    scores = torch.tensor([[[[size, -size, 0.0]]]])
    assert masked_softmax(scores).tolist() == [[[[1, 0, 0]]]]
    assert masked_softmax(-scores).tolist() == [[[[0, 1, 0]]]]
    assert masked_softmax(scores, None, None, torch.tensor([10 * size])).tolist() == [[[[0, 0, 0]]]]
    dropped = torch.tensor([[[[-inf, 0.0, 0.0]]]])
    assert masked_softmax(scores, dropped).tolist() == [[[[0, 0, 1]]]]


def test_a_row_that_keeps_nothing_is_nan_unless_it_is_named_and_0_where_it_is() -> None:
    scores, dropped = torch.zeros(1, 1, 2, 2), torch.tensor([[[[-inf, -inf], [0.0, -inf]]]])
    assert masked_softmax(scores, dropped)[0, 0, 0].isnan().all()
    empty = torch.tensor([[[[True], [False]]]])
    assert masked_softmax(scores, dropped, empty).tolist() == [[[[0, 0], [1, 0]]]]
    assert masked_softmax(scores, dropped, empty, torch.zeros(1)).tolist() == [[[[0, 0], [0.5, 0]]]]


@pytest.mark.parametrize("rule", attnbench_rules(), ids=lambda rule: rule.name)
def test_scores_of_every_rule_are_those_of_its_reference(rule: Rule) -> None:
    """Also of some columns alone; and ``form_of`` tells the parts that the rule has."""
    case = Case("attention", rule.name, 2, 4, 2, 6, 6, 3, 3, dtype="float64")
    rng = np.random.default_rng(1)
    own = {p.name: torch.from_numpy(p.draw(rng, case.H, p.shape)) for p in rule.parameters(case)}
    scoring, form = rule.bind(case, own), form_of(case, rule)
    assert (form.dot is not None) == (scoring.dot is not None) == rule.has_dot_form
    assert [part is None for part in (form.bias, form.sink)] == [
        part is None for part in (scoring.bias, scoring.sink)
    ]
    q, k, _ = inputs(case)
    scores, bias = scores_of(scoring), scoring.bias
    whole = scores(q, k, slice(0, 6))
    some = scores(q, k if rule.pairs_keys else k[:, :, 2:5], slice(2, 5))
    torch.testing.assert_close(some, whole[..., 2:5])
    whole = whole if bias is None else whole + bias(slice(0, 6), slice(0, 6))
    for b, h in np.ndindex(2, 4):
        given = of_head(case, rule, {name: x.numpy() for name, x in own.items()}, h)
        expected = rule.reference(q[b, h].numpy(), k[b, h // 2].numpy(), given, np.arange(6.0))
        np.testing.assert_allclose(whole[b, h].numpy(), expected, atol=1e-13)
