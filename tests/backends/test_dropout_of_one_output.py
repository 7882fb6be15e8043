"""One output of a case with dropout, looked at alone: what can be told of it, and what can't."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from solved import BACKENDS, Solved, solved, stored_of
from torch import Tensor

from attnbench.check.dropout import judge_one, telling_rows
from attnbench.check.dropout_tally import Tally
from attnbench.check.plain import PLAIN
from attnbench.inputs.draw import Parameters
from attnbench.oracle.moments import solve_moments

CASE = "attention/scaled_dot/B2-H2-Lq64-Lk64-D8/none/float32/cpu/forward/dropout0.1"
LIMITS = {"rms_limit": 1e-6, "max_limit": 1e-5}


def tally_of(each: Solved, *outputs: Tensor) -> Tally:
    a, b, c = (x.double().numpy() for x in each.inputs)
    rng = np.random.default_rng(1)
    tally = Tally(
        each.case,
        solve_moments(each.case, each.setup.rule, Parameters({}, {}), (a, b, c), each.expected, rng),
    )
    for output in outputs:
        tally.add(stored_of(output).copy())
    return tally


def dropped(each: Solved) -> Tensor:
    with torch.inference_mode():
        return BACKENDS["eager"].prepare(each.setup)(*each.inputs)


def test_a_right_one_passes() -> None:
    each = solved(CASE)
    torch.manual_seed(3)
    assert judge_one(tally_of(each, dropped(each)), **LIMITS) == ""


@pytest.mark.parametrize("wrong", ["of other inputs", "nothing dropped", "not rescaled", "NaN"])
def test_a_wrong_one_is_refused(wrong: str) -> None:
    each = solved(CASE)
    outputs = {
        "of other inputs": dropped(solved(CASE, draw=1)),
        "nothing dropped": each.run(PLAIN),
        "not rescaled": dropped(each) * 0.9,
        "NaN": dropped(each) * torch.nan,
    }
    assert judge_one(tally_of(each, outputs[wrong]), **LIMITS)


def test_it_is_for_one_output_alone() -> None:
    each = solved(CASE)
    with pytest.raises(ValueError, match="2 outputs"):
        judge_one(tally_of(each, dropped(each), dropped(each)), **LIMITS)


def test_rows_tell_something_where_rounding_is_less_than_what_is_dropped() -> None:
    tally = tally_of(solved(CASE))
    assert telling_rows(tally, rms_limit=1e-6) == 2 * 2 * 64
    assert telling_rows(tally, rms_limit=1e6) == 0
