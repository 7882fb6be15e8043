"""The verdict on gradients: right backends pass part by part, also where they cancel; wrong ones don't."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch
from judging import upstream_of, wide
from solved import BACKENDS, Solved, solved, stored_of

from attnbench.check.errors import compare, pool, verdict
from attnbench.check.gradients import (
    gradient_scale,
    leaf_inputs,
    passed,
    plain_errors,
    plain_gradients,
    with_gradients,
)
from attnbench.inputs.kinds import family_draws
from attnbench.types.backend import Backend

Gradients = Mapping[str, torch.Tensor]
ATTENTION = "attention/{}/B2-H4-Hkv2-Lq17-Lk9-D8/{}/{}/both"


def gradients(backend: Backend, case: Solved) -> Gradients:
    setup, inputs = with_gradients(case.setup), leaf_inputs(case.inputs)
    call = passed(backend.prepare(setup), setup, upstream_of(case, inputs[0].dtype))
    return dict(zip(call.names[1:], call(*inputs)[1:], strict=True))


def refused(text: str, answer: Callable[[Solved], Gradients]) -> set[str]:
    """The parts whose errors are above their limits, over as many draws as a check takes."""
    case = solved(text).case
    cases = [solved(text, draw) for draw in range(family_draws(case, "normal"))]
    answers = [answer(each) for each in cases]
    exact, held, plain = [], [], []
    for each in cases:
        upstream, double = upstream_of(each, each.inputs[0].dtype), wide(each)
        exact.append(plain_gradients(double.setup, double.inputs, upstream.double()))
        held.append(plain_gradients(double.setup, double.inputs, upstream.double(), held=True))
        plain.append(plain_errors(each.setup, each.inputs, upstream))
    found = set()
    for part in exact[0]:
        truth = [gradient[part].numpy() for gradient in exact]
        errors = pool(
            [compare(stored_of(x[part]), y, case.dtype) for x, y in zip(answers, truth, strict=True)]
        )
        reference = pool([compare(x[part].numpy(), np.zeros(x[part].shape), "float64") for x in plain])
        scale = gradient_scale(truth, [gradient[part].numpy() for gradient in held], case.dtype)
        # The words name axes of an output, which a parameter hasn't.
        accuracy, _ = verdict(
            replace(errors, worst=(0, 0, 0, 0)),
            reference,
            output=scale,
            values=scale,
            dtype=case.dtype,
            rows=1,
            rows_of=1,
            draws=1,
        )
        fine = errors.rms <= accuracy.rms_limit and errors.max_abs <= accuracy.max_limit
        if errors.not_finite or not fine:
            found.add(part)
    return found


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", ["eager", "sdpa_flash", "bmm", "per_head_loop", "fused_multihead"])
def test_no_part_of_a_right_backend_is_refused(name: str, dtype: str) -> None:
    """Nothing of dq and dk is left where there is one key, and of the bias of keys never."""
    texts = (
        "multihead/scaled_dot/B2-H4-L16-D8-E24-bias/causal",
        "multihead/dot/H2-Lq5-Lk1-D8-E16-bias/none",
        "multihead/cosine/H2-Lq5-Lk12-D8-E16-bias/float",
        "multihead/scaled_dot/H1-L96-D64-E32-bias/bool",
    )
    for text in texts:
        assert refused(f"{text}/{dtype}/both", lambda case: gradients(BACKENDS[name], case)) == set()


WRONG = {
    "dk 0.1 % off": ("k", lambda x: x * 1.001),
    "dq of another head": ("q", lambda x: x.roll(1, dims=1)),
    "dv without its last key": ("v", lambda x: torch.cat([x[:, :, :-1], 0 * x[:, :, -1:]], dim=2)),
    "dk as if nothing were subtracted": ("k", None),
    "dv not a number": ("v", lambda x: x / 0),
}


@pytest.mark.parametrize("wrong", sorted(WRONG))
@pytest.mark.parametrize("rule", ["scaled_dot", "softcap"])
def test_one_wrong_part_is_refused_and_no_other(rule: str, wrong: str) -> None:
    part, change = WRONG[wrong]

    def answer(case: Solved) -> Gradients:
        right = gradients(BACKENDS["eager"], case)
        if change is None:
            upstream = upstream_of(case, case.inputs[0].dtype)
            return {**right, part: plain_gradients(case.setup, case.inputs, upstream, held=True)[part]}
        return {**right, part: change(right[part])}

    assert refused(ATTENTION.format(rule, "causal:lower_right", "float32"), answer) == {part}


@pytest.mark.parametrize("share", [0.95, 1.05])
def test_in_half_precision_five_percent_are_seen(share: float) -> None:
    def answer(case: Solved) -> Gradients:
        right = gradients(BACKENDS["eager"], case)
        return {name: gradient * share for name, gradient in right.items()}

    assert refused(ATTENTION.format("scaled_dot", "none", "bfloat16"), answer) == {"q", "k", "v"}
