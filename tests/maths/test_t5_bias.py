"""The buckets of T5's bias, the gradient of its table, and the constants that make no sense."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from maths_tools import setup_of

from attnbench.cases.ids import parse_case
from attnbench.kit.scores import form_of
from attnbench.rules.t5_bias import T5_BIAS
from attnbench.types.rule import constants_of

CASES = {
    f"attention/t5_bias{constants}/H1-Lq300-Lk400-D2/{mask}/float64"
    for mask in ("none", "causal", "causal:lower_right")
    for constants in ("", "@sides=1", "@sides=2", "@buckets=6,distance=17", "@buckets=64,distance=300")
}


def buckets(text: str) -> torch.Tensor:
    """The bucket of each pair of a case, (Lq, Lk), as torch and NumPy find it: numbers count the buckets."""
    case = parse_case(text)
    constants = constants_of(case, T5_BIAS)
    table = np.arange(constants["buckets"])
    bias = T5_BIAS.bind(case, {"bias": torch.from_numpy(table)[None]}).bias
    found = bias(slice(0, case.Lq), slice(0, case.Lk))[0]
    positions = np.arange(case.Lq, dtype=np.float64) + case.query_offset
    zeros = np.zeros((case.Lq, case.D)), np.zeros((case.Lk, case.D))
    scores = T5_BIAS.reference(*zeros, {**constants, "bias": table}, positions)
    np.testing.assert_array_equal(scores, found.numpy())
    return found.long()


def test_buckets_by_hand() -> None:
    # Of each side 8 distances alone, then powers of 16^(1/8) = √2: 8, 11.3, 16, 22.6, 32, 45.3, 64, 90.5.
    first = [0, 17, 18, 19, 20, 21, 22, 23, *[24] * 4, *[25] * 4, *[26] * 7, *[27] * 9, *[28] * 14, 29]
    found = buckets("attention/t5_bias/H1-L200-D2/none/float64")
    assert found[0, :47].tolist() == first
    assert found[0, [63, 64, 90, 91, 199]].tolist() == [29, 30, 30, 31, 31]
    assert found[:, 0].tolist() == [max(bucket - 16, 0) for bucket in found[0].tolist()]
    # A decoder has 16 distances alone, and nothing for later keys.
    last = buckets("attention/t5_bias/H1-L200-D2/causal/float64")[:, 0]
    assert last[[0, 1, 15, 16, 18, 19, 112, 113, 199]].tolist() == [0, 1, 15, 16, 16, 17, 30, 31, 31]
    # One query that sees all keys, as a decode: its mask doesn't say the side, so the constant does.
    assert buckets("attention/t5_bias@sides=1/H1-Lq1-Lk200-D2/none/float64")[0].flip(0).equal(last)


@pytest.mark.parametrize("text", sorted(CASES))
def test_buckets_are_those_of_transformers(text: str) -> None:
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    case = parse_case(text)
    constants = constants_of(case, T5_BIAS)
    after = torch.arange(case.Lk) - torch.arange(case.Lq)[:, None] - case.query_offset
    theirs = t5.T5Attention._relative_position_bucket(
        after, constants["sides"] == 2, int(constants["buckets"]), int(constants["distance"])
    )
    assert buckets(text).equal(theirs)


def test_the_gradient_of_a_bucket_is_a_sum_that_is_rounded_once() -> None:
    # 512 · 512 pairs share buckets; sums in bfloat16 would stop at 256.
    case = parse_case("attention/t5_bias/H2-L512-D2/none/bfloat16/both")
    table = torch.zeros(2, 32, dtype=torch.bfloat16, requires_grad=True)
    T5_BIAS.bind(case, {"bias": table}).bias(slice(0, 512), slice(0, 512)).sum().backward()
    pairs = torch.bincount(buckets("attention/t5_bias/H1-L512-D2/none/float64").flatten(), minlength=32)
    assert table.grad is not None
    assert table.grad.equal(pairs.float().bfloat16().expand(2, -1))


def test_constants_that_make_no_sense_are_refused() -> None:
    refused = {
        "buckets=7": "buckets = 7: give an even number",
        "distance=20.5": "distance = 20.5: give a whole number",
        "distance=8": "distance = 8: give more than 8; shorter ones have buckets of their own",
    }
    for constants, reason in refused.items():
        assert T5_BIAS.refuses(parse_case(f"attention/t5_bias@{constants}/H1-L9-D2/none")) == reason
    assert T5_BIAS.refuses(parse_case("attention/t5_bias@distance=9/H1-L9-D2/none")) is None
    case = parse_case("attention/t5_bias@buckets=8/H3-L9-D2/none")
    assert setup_of(case).rule_parameters["bias"].shape == (3, 8)
    assert form_of(case, T5_BIAS).dot.scale == 1
