"""The kit's masks, pair by pair, and its softmax; tests/backends holds what is made of them."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from maths_tools import small_case, small_cases

from attnbench.kit import masks
from attnbench.kit.attention import masked_softmax
from attnbench.kit.masks import additive_mask, empty_rows, is_plain_causal, keep_mask
from attnbench.kit.scores import form_of
from attnbench.masks import added_rows, keep_rows
from attnbench.types.case import Case
from attnbench.types.mask import Mask
from attnbench.types.rule import DotForm, Parameter, Rule, Scoring


def by_head(mask: torch.Tensor | None, case: Case, otherwise: float) -> np.ndarray:
    """The mask of every batch element, head and pair; ``otherwise`` where there is none."""
    made = torch.full((1, 1, 1, 1), otherwise) if mask is None else mask
    return made.double().expand(case.B, case.H, case.Lq, case.Lk).numpy()


@given(
    small_cases(multihead=False),
    st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16]),
    st.integers(1, 40),
)
def test_masks_made_in_pieces_are_what_the_rows_say(
    case: Case, dtype: torch.dtype, pairs_at_once: int
) -> None:
    """Whose words test_mask_rows holds against Mask's, pair by pair."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masks, "_PAIRS_AT_ONCE", pairs_at_once)
        keep, mask, empty = keep_mask(case, "cpu"), additive_mask(case, dtype, "cpu"), empty_rows(case, "cpu")
    rows = keep_rows(case, np.arange(case.Lq))
    assert (keep is None) == (rows is None)
    assert keep is None or np.array_equal(keep, rows)
    kept = by_head(keep, case, 1) == 1
    assert empty is None or empty.any()
    np.testing.assert_array_equal(by_head(empty, case, 0)[..., 0] == 1, ~kept.any(-1))
    assert mask is None or mask.dtype == dtype
    added = by_head(mask, case, 0)
    np.testing.assert_array_equal(np.isneginf(added), ~kept)
    # Exact in the dtype of the case, and rounded in others.
    drawn = added_rows(case, np.arange(case.Lq)) if case.mask.explicit == "float" else np.zeros(1)
    expected = torch.from_numpy(np.broadcast_to(drawn, added.shape)[kept]).to(dtype).double().numpy()
    np.testing.assert_array_equal(added[kept], expected)


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
    case = small_case(Lq=Lq, Lk=4, mask=mask)
    assert is_plain_causal(case, Scoring()) == plain
    assert not is_plain_causal(case, Scoring(bias=lambda rows, cols: torch.zeros(1)))
    assert not is_plain_causal(case, Scoring(sink=torch.zeros(case.H)))


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
