"""Scores, heads, softmax and sinks of the kit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from solved import RULES, solved

from attnbench.cases.identity import parse_case
from attnbench.kit.attention import masked_softmax, with_sink_column, with_zero_row
from attnbench.kit.dtypes import case_dtype, softmax_dtype
from attnbench.kit.layer import matmul_shared, repeat_heads
from attnbench.kit.scores import form_of, scores_of, soft_cap
from attnbench.types.rule import DotForm


@pytest.mark.parametrize("rule", RULES)
def test_scores_are_those_of_the_reference_in_every_form(rule: str) -> None:
    case = solved(f"attention/{rule}/B2-H4-Hkv2-L6-D3/none/float64")
    q, k, _ = case.inputs
    bias = case.setup.scoring.bias
    scores = scores_of(case.setup.scoring)
    whole = scores(q, k, slice(0, 6))
    some = scores(q, k if RULES[rule].pairs_keys else k[:, :, 2:5], slice(2, 5))
    torch.testing.assert_close(some, whole[..., 2:5])
    if bias is not None:
        whole = whole + bias(slice(0, 6), slice(0, 6))
    for b, h in np.ndindex(2, 4):
        own = {name: x[h].numpy() for name, x in case.setup.rule_parameters.items()}
        expected = RULES[rule].reference(q[b, h].numpy(), k[b, h // 2].numpy(), own, np.arange(6.0))
        np.testing.assert_allclose(whole[b, h].numpy(), expected, atol=1e-13)


def test_repeated_heads_are_neighbours_and_copied_only_where_they_must_be() -> None:
    x = torch.arange(2 * 2 * 3 * 2.0).view(2, 2, 3, 2)
    assert repeat_heads(x, 2) is x
    repeated = repeat_heads(x, 6)
    for h in range(6):
        assert torch.equal(repeated[:, h], x[:, h // 3])
    one = repeat_heads(x[:, :1], 6)
    assert one.shape == (2, 6, 3, 2)
    assert one.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


@pytest.mark.parametrize("Hkv", [1, 2, 6])
def test_a_shared_product_is_the_repeated_one(Hkv: int) -> None:
    a, b = torch.randn(2, 6, 5, 3), torch.randn(2, Hkv, 3, 4)
    torch.testing.assert_close(matmul_shared(a, b), a @ repeat_heads(b, 6))
    strided = torch.randn(2, 5, 6, 3).transpose(1, 2)
    torch.testing.assert_close(matmul_shared(strided, b), strided @ repeat_heads(b, 6))


def test_soft_cap() -> None:
    x = torch.tensor([-1000.0, -1.0, 0.0, 1.0, 1000.0])
    torch.testing.assert_close(soft_cap(DotForm(cap=2.0), x), 2 * torch.tanh(x / 2))
    assert soft_cap(DotForm(), x) is x


def test_the_softmax_of_half_precision_runs_in_float32() -> None:
    assert softmax_dtype(torch.bfloat16) == softmax_dtype(torch.float16) == torch.float32
    assert softmax_dtype(torch.float64) == torch.float64
    assert case_dtype(parse_case("attention/dot/H1-L1-D1/bfloat16")) == torch.bfloat16
    # 60000 + 60000 is no float16 number; the sum is made in float32.
    scores = torch.tensor([60000.0, 60000.0], dtype=torch.float16).view(1, 1, 1, 2)
    added = torch.tensor([60000.0, 59998.0]).view(1, 1, 1, 2)
    weights = masked_softmax(scores, added)
    assert weights.dtype == torch.float16
    assert weights[0, 0, 0].tolist() == pytest.approx([0.8808, 0.1192], abs=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("with_sink", [False, True])
def test_weights_sum_to_one_less_the_sinks_and_are_0_where_nothing_is_kept(
    dtype: torch.dtype, with_sink: bool
) -> None:
    scores = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(1)).to(dtype)
    added = torch.zeros(1, 1, 4, 5).masked_fill(torch.arange(5) == 2, -torch.inf)
    added[:, :, 1] = -torch.inf
    empty = torch.tensor([False, True, False, False]).view(1, 1, 4, 1)
    sink = torch.tensor([-3.0, 0.0, 3.0], dtype=dtype) if with_sink else None
    before = scores.clone()
    weights = masked_softmax(scores, added, empty, sink).double()
    assert torch.equal(scores, before)
    assert (weights[..., 2] == 0).all()
    assert (weights[:, :, 1] == 0).all()
    kept = scores.double()[:, :, [0, 2, 3]][..., [0, 1, 3, 4]].exp()
    total = kept.sum(-1) + (0 if sink is None else sink.double().exp()[:, None])
    expected = kept.sum(-1) / total
    torch.testing.assert_close(weights[:, :, [0, 2, 3]].sum(-1), expected, atol=0.02, rtol=0.02)


def test_a_zero_row_and_its_column_are_a_sink() -> None:
    case = solved("attention/sinks/B2-H4-Hkv2-Lq3-Lk5-D4/bool/float64")
    q, k, v = case.inputs
    sink = case.setup.scoring.sink
    assert sink is not None
    mask = torch.zeros(2, 1, 3, 5, dtype=torch.float64)
    mask[1, 0, 2] = -torch.inf
    wide = with_sink_column(mask, sink, case.case)
    assert wide.shape == (2, 4, 3, 6)
    assert torch.equal(wide[0, :, 0, 5], sink)
    k6, v6 = with_zero_row(k), with_zero_row(v)
    assert not k6[:, :, 5].any()
    assert torch.equal(k6[:, :, :5], k)
    by_key = torch.softmax(matmul_shared(q * 0.5, k6.mT) + wide, -1)
    by_sink = masked_softmax(matmul_shared(q * 0.5, k.mT), mask, None, sink)
    torch.testing.assert_close(by_key[..., :5], by_sink)
    torch.testing.assert_close(matmul_shared(by_key, v6), matmul_shared(by_sink, v))
    assert with_sink_column(None, sink, case.case).dtype == torch.float64


def test_a_form_is_known_without_parameters() -> None:
    forms = {name: form_of(parse_case(f"attention/{name}/H2-L4-D4"), rule) for name, rule in RULES.items()}
    assert {name for name, form in forms.items() if form.dot is None} == {
        name for name, rule in RULES.items() if not rule.has_dot_form
    }
    assert [name for name, form in forms.items() if form.dot and form.dot.cap] == ["softcap"]
    assert [name for name, form in forms.items() if form.bias] == ["alibi"]
    assert [name for name, form in forms.items() if form.sink is not None] == ["sinks"]
