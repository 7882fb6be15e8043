"""Softmax and scores of the kit, apart from backends; tests/backends holds what is made of them."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
import torch
from small import randn, weights_of_row

from attnbench.kit.attention import masked_softmax
from attnbench.kit.scores import form_of, scores_of
from attnbench.rules import attnbench_rules
from attnbench.types.case import Case
from attnbench.types.rule import DotForm, Parameter, Rule, Scoring, of_head


def inputs(case: Case) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return (
        randn(case.B, case.H, case.Lq, case.D, seed=1),
        randn(case.B, case.Hkv, case.Lk, case.D, seed=2),
        randn(case.B, case.Hkv, case.Lk, case.Dv, seed=3),
    )


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


def test_a_form_is_bound_to_zeros_of_the_cases_shapes_and_dtype() -> None:
    case = Case("attention", "dot", 1, 6, 2, 3, 4, 5, 5, dtype="bfloat16")
    bound: list[dict[str, torch.Tensor]] = []

    def bind(case: Case, parameters: dict[str, torch.Tensor]) -> Scoring:
        bound.append(parameters)
        return Scoring(dot=DotForm(cap=7.0), sink=parameters["s"])

    parameters = (Parameter("s", (), lambda *_: None), Parameter("w", (4, 2), lambda *_: None))  # type: ignore[arg-type,return-value]
    own = Rule("mine", "?", "?", lambda q, k, p, at: q @ k.T, bind, parameters=lambda case: parameters)  # type: ignore[arg-type]
    form = form_of(case, own)
    assert form.dot == DotForm(cap=7.0)
    assert {name: (x.shape, x.dtype, bool(x.any())) for name, x in bound[0].items()} == {
        "s": ((6,), torch.bfloat16, False),
        "w": ((6, 4, 2), torch.bfloat16, False),
    }
