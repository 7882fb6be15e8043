"""The verdict on attention weights: right ones pass, each kind of wrong one is named."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from maths_tools import RULES, setup_of, small_case, small_cases, stored_bits, tensor, wide_parameters

from attnbench.inputs.draw import draw_activations, store, widen
from attnbench.kit.attention import weights as kit_weights
from attnbench.kit.reference import weights as plain_weights
from attnbench.oracle.solve import solve_weights
from attnbench.types.case import DTYPES, Case
from attnbench.types.mask import Mask
from attnbench.verifier.weights import weight_errors, weights_problem

Change = Callable[[np.ndarray], np.ndarray]


class Weighed:
    """A case's weights by the oracle and by the plain reference, on one draw."""

    def __init__(self, case: Case) -> None:
        self.case = case
        stored = draw_activations(case, RULES[case.rule], 3, 0)
        wide = tuple(widen(x, case.dtype) for x in stored)
        self.rows = np.arange(case.Lq)
        self.exact = solve_weights(case, RULES[case.rule], wide_parameters(case), (wide[0], wide[1], wide[2]))
        self.q, self.k, _ = (tensor(x, case.dtype) for x in stored)
        plain = plain_weights(setup_of(case))(self.q, self.k)
        self.plain = widen(stored_bits(plain), case.dtype)
        self.reference = weight_errors(self.plain, self.exact)

    def problem(self, got: np.ndarray) -> str:
        return weights_problem(self.case, got, self.exact, self.reference, self.rows)

    def of(self, change: Change) -> str:
        """Of the plain reference's weights after a change, in the case's dtype."""
        changed = store(change(self.plain.astype(np.float64)), self.case.dtype)
        return self.problem(widen(changed, self.case.dtype))


@given(case=small_cases().filter(lambda case: case.layer is None), dtype=st.sampled_from(DTYPES))
@settings(max_examples=60)
def test_right_weights_pass_whatever_the_rule_mask_and_dtype(case: Case, dtype: str) -> None:
    case = replace(case, dtype=dtype)
    weighed = Weighed(case)
    mine = kit_weights(setup_of(case))(weighed.q, weighed.k)
    assert weighed.problem(widen(stored_bits(mine), case.dtype)) == ""
    assert weighed.of(lambda weights: weights) == ""


CAUSAL = small_case("scaled_dot", Lq=16, Lk=16, D=8, mask=Mask(causal="upper_left"))
SINKS = small_case("sinks", Lq=9, Lk=16, D=8)
EMPTY = replace(CAUSAL, Lk=12, mask=Mask(causal="lower_right"))
OPEN = replace(CAUSAL, mask=Mask())


def put(value: float, *at: int) -> Change:
    """One weight, or one row of them, is something else."""

    def change(weights: np.ndarray) -> np.ndarray:
        weights[at] = value
        return weights

    return change


def one_row(weights: np.ndarray) -> np.ndarray:
    weights[0, 1, 4] *= 1 + 2e-5
    return weights


def softened(weights: np.ndarray) -> np.ndarray:
    powers = weights**0.9
    return powers / powers.sum(-1, keepdims=True)


WRONG: list[tuple[Case, Change, str]] = [
    *((case, one_row, r"^row \(b=0, h=1, i=4\) sums to ") for case in (CAUSAL, OPEN, SINKS)),
    (SINKS, lambda weights: weights / weights.sum(-1, keepdims=True), "sums to "),
    (
        replace(CAUSAL, B=2), put(1e-6, 1, 0, 2, 3),
        r"^\(b=1, h=0, i=2, j=3\) is 1e-06 where the mask drops the pair: 0 is needed$",
    ),
    (
        EMPTY, put(1 / 12, 0, 0, 0),
        r"^\(b=0, h=0, i=0, j=0\) is 0.0833 where the mask drops the pair, as 11 more: 0 is needed$",
    ),
    (CAUSAL, put(np.nan, 0, 1, 5, 2), r"^element \(b=0, h=1, i=5, j=2\) is not finite"),
    *(
        (replace(OPEN, dtype=dtype), change, words)
        for dtype in ("float32", "bfloat16")
        for change, words in (
            (softened, r"worst at \(b="),
            (lambda weights: np.roll(weights, 1, axis=-1), r"worst at \(b="),
            (lambda weights: weights[:, ::-1], r"worst at \(b="),
            (lambda weights: np.roll(weights, 1, axis=2), r"worst at \(b="),
            (lambda weights: weights.swapaxes(2, 3), "sums to|worst at"),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("case", "change", "words"), WRONG)
def test_wrong_weights_are_refused_in_words(case: Case, change: Change, words: str) -> None:
    """A sink has its share, a leak through the mask is refused however small, and an empty row is zero."""
    assert re.search(words, Weighed(case).of(change))
