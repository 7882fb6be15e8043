"""The kit's masks, pair by pair, on masks of every combination and lengths of every kind."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small import cases

from attnbench.kit import masks
from attnbench.kit.masks import additive_mask, empty_rows, is_plain_causal, keep_mask, mask_rows
from attnbench.masks import added_rows, keep_rows
from attnbench.types.case import Case
from attnbench.types.mask import Mask
from attnbench.types.rule import Scoring


def whole(mask: torch.Tensor | None, case: Case, otherwise: float) -> torch.Tensor:
    """The mask of every batch element; ``otherwise`` everywhere where there is none."""
    if mask is None:
        return torch.full((case.B, case.Lq, case.Lk), otherwise, dtype=torch.float64)
    return mask.double()[:, 0].expand(case.B, case.Lq, case.Lk)


@given(cases())
def test_what_is_kept_is_what_the_rows_say(case: Case) -> None:
    """Whose words tests/maths/test_mask_rows holds against Mask's, pair by pair."""
    keep, rows = keep_mask(case, "cpu"), keep_rows(case, np.arange(case.Lq))
    assert (keep is None) == (rows is None)
    assert keep is None or np.array_equal(keep, rows)


@given(cases(), st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16]))
def test_added_numbers_and_empty_rows_agree_with_what_is_kept(case: Case, dtype: torch.dtype) -> None:
    kept = whole(keep_mask(case, "cpu"), case, 1).bool()
    empty = empty_rows(case, "cpu")
    assert empty is None or empty.any()
    without_keys = torch.zeros(case.B, case.Lq, 1, dtype=torch.bool) if empty is None else empty[:, 0]
    assert torch.equal(without_keys.expand(case.B, case.Lq, 1), ~kept.any(-1, keepdim=True))
    mask = additive_mask(case, dtype, "cpu")
    assert mask is None or mask.dtype == dtype
    added = whole(mask, case, 0)
    assert torch.equal(added.isneginf(), ~kept)
    assert added[kept].isfinite().all()
    if case.mask.explicit != "float":
        assert not added[kept].any()
    else:
        # Exact even in bfloat16: that is how they are drawn.
        drawn = added_rows(case, np.arange(case.Lq))
        assert np.array_equal(added, np.broadcast_to(drawn[:, 0], added.shape))


@given(cases(), st.data())
def test_some_rows_are_those_of_the_whole(case: Case, data: st.DataObject) -> None:
    rows = np.array(data.draw(st.lists(st.integers(0, case.Lq - 1), min_size=1, unique=True).map(sorted)))
    part, mask = mask_rows(case, rows), additive_mask(case, torch.float64, "cpu")
    chosen = whole(mask, case, 0)[:, rows]
    shown = torch.zeros_like(chosen) if part is None else part[:, 0].expand_as(chosen)
    assert torch.equal(shown, chosen)


@given(cases(), st.integers(1, 40))
def test_a_mask_made_in_pieces_is_the_same(case: Case, pairs_at_once: int) -> None:
    def made() -> list[torch.Tensor | None]:
        return [keep_mask(case, "cpu"), additive_mask(case, torch.float32, "cpu"), empty_rows(case, "cpu")]

    once = made()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masks, "_PAIRS_AT_ONCE", pairs_at_once)
        pieces = made()
    for one, other in zip(once, pieces, strict=True):
        assert (one is None) == (other is None)
        assert one is None or (one.shape == other.shape and torch.equal(one, other))


@pytest.mark.parametrize(
    ("Lq", "mask", "plain"),
    [
        (4, Mask(causal="upper_left"), True),
        (4, Mask(causal="lower_right"), True),
        (3, Mask(causal="upper_left"), True),
        (3, Mask(causal="lower_right"), False),
        (4, Mask(causal="upper_left", window=2), False),
        (4, Mask(causal="upper_left", explicit="bool"), False),
        (4, Mask(), False),
    ],
)
def test_which_masks_are_plain_causal(Lq: int, mask: Mask, plain: bool) -> None:
    case = Case("attention", "dot", 1, 1, 1, Lq, 4, 3, 3, mask=mask)
    assert is_plain_causal(case, Scoring()) == plain
    assert not is_plain_causal(case, bias_of(case))
    assert not is_plain_causal(case, Scoring(sink=torch.zeros(case.H)))


def bias_of(case: Case) -> Scoring:
    """100·h + 10·i + j: head, row and column can be read from it."""

    def bias(rows: slice, cols: slice) -> torch.Tensor:
        h = torch.arange(case.H).view(-1, 1, 1)
        i = torch.arange(case.Lq)[rows].view(1, -1, 1)
        j = torch.arange(case.Lk)[cols].view(1, 1, -1)
        return (100 * h + 10 * i + j).double()

    return Scoring(bias=bias)


@given(cases())
def test_a_bias_is_added_by_head_and_never_fills_what_is_dropped(case: Case) -> None:
    scoring = bias_of(case)
    plain = whole(additive_mask(case, torch.float64, "cpu"), case, 0)
    mask = additive_mask(case, torch.float64, "cpu", scoring)
    assert mask.shape[1:] == (case.H, case.Lq, case.Lk)
    for b, h, i, j in np.ndindex(case.B, case.H, case.Lq, case.Lk):
        of_batch = b if len(mask) > 1 else 0
        assert float(mask[of_batch, h, i, j]) == float(plain[b, i, j]) + 100 * h + 10 * i + j
