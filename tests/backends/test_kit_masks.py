"""Masks as plugin authors get them, against a pair-by-pair reading of what a mask says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from solved import RULES, solved

from attnbench.cases.identity import parse_case
from attnbench.kit import masks
from attnbench.kit.masks import additive_mask, empty_rows, keep_mask, mask_rows, plus_bias
from attnbench.masks import added_rows, key_lengths
from attnbench.types.case import Case
from attnbench.types.rule import Scoring

MASKS = "none", "causal", "causal:lower_right", "window:2", "causal+window:2", "padding:0,2", "padding"
TEXTS = [
    f"attention/dot/B2-H2-Lq{Lq}-Lk{Lk}-D4/{mask}" for Lq, Lk in ((2, 5), (5, 2), (6, 6)) for mask in MASKS
]


def keeps(case: Case, b: int, i: int, j: int) -> bool:
    """The definition, for one pair."""
    mask, position = case.mask, i + (0 if case.mask.causal == "upper_left" else case.Lk - case.Lq)
    lengths = key_lengths(case)
    return (
        (mask.causal is None or j <= position)
        and (mask.window is None or abs(position - j) < mask.window)
        and (lengths is None or j < lengths[b])
    )


@pytest.mark.parametrize("text", TEXTS)
def test_pairs_are_kept_as_defined(text: str) -> None:
    case = parse_case(text)
    pairs = np.array(
        [[[keeps(case, b, i, j) for j in range(case.Lk)] for i in range(case.Lq)] for b in range(case.B)]
    )
    keep, added = keep_mask(case, "cpu"), additive_mask(case, torch.float32, "cpu")
    empty = empty_rows(case, "cpu")
    if pairs.all():
        assert (keep, added, empty) == (None, None, None)
        return
    assert keep is not None
    assert added is not None
    assert np.array_equal(np.broadcast_to(keep[:, 0].numpy(), pairs.shape), pairs)
    assert torch.equal(added, torch.where(keep, 0.0, -torch.inf))
    if pairs.any(-1).all():
        assert empty is None
    else:
        assert empty is not None
        assert np.array_equal(np.broadcast_to(empty[:, 0, :, 0].numpy(), pairs.shape[:2]), ~pairs.any(-1))


@pytest.mark.parametrize("text", ["bool", "float", "float+causal", "bool+padding:1,3", "window:1"])
def test_chunks_of_rows_make_the_same_mask(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = parse_case(f"attention/dot/B2-H2-L7-D4/{text}")
    whole = keep_mask(case, "cpu"), additive_mask(case, torch.float64, "cpu"), empty_rows(case, "cpu")
    monkeypatch.setattr(masks, "_PAIRS_AT_ONCE", 30)
    parts = keep_mask(case, "cpu"), additive_mask(case, torch.float64, "cpu"), empty_rows(case, "cpu")
    for one, other in zip(whole, parts, strict=True):
        assert (one is None) == (other is None)
        assert one is None or other is None or torch.equal(one, other)


def test_a_float_mask_adds_its_numbers() -> None:
    case = parse_case("attention/dot/B2-H2-L7-D4/float+causal")
    added = added_rows(case, np.arange(7))
    mask, rows = additive_mask(case, torch.bfloat16, "cpu"), mask_rows(case, np.arange(2, 4))
    assert added is not None
    assert mask is not None
    assert rows is not None
    # Exact even in bfloat16: that is how they are drawn.
    assert np.array_equal(mask.double().numpy(), added)
    assert np.array_equal(rows.numpy(), added[:, :, 2:4])


def test_bias_is_added_by_head_and_keeps_what_is_dropped() -> None:
    case = solved("attention/alibi/B2-H2-L4-D4/causal/float32")
    scoring = case.setup.scoring
    mask = additive_mask(case.case, torch.float32, "cpu", scoring)
    assert scoring.bias is not None
    assert mask is not None
    assert mask.shape == (1, 2, 4, 4)
    for h, i, j in np.ndindex(2, 4, 4):
        slope = float(case.setup.rule_parameters["slope"][h])
        assert float(mask[0, h, i, j]) == (-slope * (i - j) if j <= i else -torch.inf)
    part = plus_bias(None, scoring, slice(1, 3), slice(0, 2), torch.float32)
    assert part is not None
    assert torch.equal(part[0], mask[0, :, 1:3, 0:2])
    assert plus_bias(mask, Scoring(), slice(0, 4), slice(0, 4), torch.float32) is mask


def test_a_bias_alone_is_a_mask() -> None:
    case = solved("attention/alibi/H2-Lq3-Lk4-D4/none/float32")
    mask = additive_mask(case.case, torch.float64, "cpu", case.setup.scoring)
    assert mask is not None
    assert (mask.shape, mask.dtype) == ((1, 2, 3, 4), torch.float64)
    assert RULES["dot"].bind(case.case, {}).bias is None
