"""The check of dropout on a function of tensors, for cases of tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from solved import Solved, stored_of

from attnbench.check.dropout import dropout_calls, judge_dropout
from attnbench.check.errors import compare
from attnbench.check.plain import PLAIN
from attnbench.check.verdict import scale_of, verdict
from attnbench.inputs.draw import Parameters
from attnbench.oracle.moments import solve_moments
from attnbench.types.accuracy import DropoutNumbers

if TYPE_CHECKING:
    from attnbench.types.backend import Call


def judge(each: Solved, call: Call, seed: int = 0) -> tuple[DropoutNumbers | None, str]:
    case = each.case
    plain = compare(stored_of(each.run(PLAIN)), each.expected, case.dtype)
    accuracy, _ = verdict(
        plain, plain, output=scale_of([each.expected]), values=scale_of([each.inputs[2].double().numpy()]),
        dtype=case.dtype, rows=case.Lq, rows_of=case.Lq, draws=1,
    )  # fmt: skip
    own = {name: x.double().numpy() for name, x in each.setup.rule_parameters.items()}
    projections = {name: x.double().numpy() for name, x in each.setup.projections.items()}
    a, b, c = (x.double().numpy() for x in each.inputs)
    rng = np.random.default_rng(seed)
    moments = solve_moments(
        case, each.setup.rule, Parameters(own, projections), (a, b, c), each.expected, rng
    )
    with torch.inference_mode():
        outputs = [stored_of(call(*each.inputs)).copy() for _ in range(dropout_calls(case))]
    limits = {"rms_limit": accuracy.rms_limit, "max_limit": accuracy.max_limit}
    return judge_dropout(outputs, moments, case, **limits)
