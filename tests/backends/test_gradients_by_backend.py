"""Gradients of every backend that has them, against the plain reference in float64; and their verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from judging import upstream_of, wide
from solved import BACKENDS, QUICK, WITHOUT_GROUPS, Solved, refusal, solved, supported, supported_in_turn

from attnbench.cases.ids import parse_case
from attnbench.inputs.kinds import stress_draws
from attnbench.types.backend import Backend
from attnbench.types.case import PASSES, Case
from attnbench.types.rule import DotForm, Scoring
from attnbench.verifier.errors import compare, pool, verdict
from attnbench.verifier.gradients import gradient_scale
from attnbench.worker.gradients import (
    GradientPass,
    NoGradient,
    leaf_inputs,
    leaves,
    passed,
    plain_errors,
    plain_gradients,
    with_gradients,
)
from attnbench.worker.outputs import as_stored

if TYPE_CHECKING:
    from attnbench.types.backend import Call

GIVE = [name for name in QUICK if "backward" in BACKENDS[name].passes]
SIZES = ("B2-H4-Hkv2-Lq9-Lk17-D8", "B1-H3-Lq3-Lk11-D8-Dv5")
LAYERS = ("B2-H4-Hkv2-Lq9-Lk17-D8-E32-bias", "B2-H4-L12-D8-E32-bias", "B1-H3-Lq3-Lk11-D8-Dv5-E24-noout")
MASKS = (
    "none",
    "causal:lower_right+window:4",
    "padding",
    "padding:0",
    "bool",
    "float+causal",
    "float:per_head",
)
ODD = ("H1-L1-D1", "B2-H3-Lq1-Lk33-D13", "H2-Lq32-Lk1-D8", "B3-H2-L2-D3-Dv7")
TOLERANCE = {"float64": 1e-13, "float32": 1e-5}
"""Relative to the largest element of all gradients: some are 0 up to rounding, such as of the keys' bias."""


Gradients = Mapping[str, torch.Tensor]


def timed(case: Solved, backend: Backend, pass_: str = "both") -> tuple[GradientPass, tuple]:  # type: ignore[type-arg]
    """A backend's pass and the inputs it is renewed with."""
    setup = with_gradients(case.setup)
    setup = replace(setup, case=replace(setup.case, pass_=pass_))
    inputs = leaf_inputs(case.inputs)
    call = passed(backend.prepare(setup), setup, upstream_of(case, inputs[0].dtype))
    call.renew(inputs)
    return call, inputs


@cache
def expected_of(case: Solved, *, held: bool = False) -> dict[str, torch.Tensor]:
    """The gradients of the plain reference in float64, computed once for all backends."""
    exact, upstream = wide(case), upstream_of(case, case.inputs[0].dtype)
    return plain_gradients(exact.setup, exact.inputs, upstream.double(), held=held)


@cache
def plain_errors_of(case: Solved) -> dict[str, torch.Tensor]:
    """The errors of the plain reference in the dtype of the case."""
    return plain_errors(case.setup, case.inputs, upstream_of(case, case.inputs[0].dtype))


def check(name: str, cases: Sequence[Solved]) -> None:
    """Compare the gradients of cases that a backend supports."""
    for case in cases:
        expected = expected_of(case)
        most = TOLERANCE[case.case.dtype] * max(1.0, *(float(x.abs().max()) for x in expected.values()))
        call, inputs = timed(case, BACKENDS[name])
        found = dict(zip(call.names, call(*inputs), strict=True))
        assert list(found) == ["out", *expected]
        for part, gradient in expected.items():
            assert found[part].shape == gradient.shape
            assert found[part].dtype == case.inputs[0].dtype
            error = float((found[part].double() - gradient).abs().max())
            assert error <= most, f"{name}, {part}: off by {error:.3g}"


ASKED = [(mask, "float64") for mask in MASKS] + [(mask, "float32") for mask in MASKS[::3]]


@pytest.mark.parametrize("turn", range(len(ASKED)), ids=map("-".join, ASKED))
@pytest.mark.parametrize("name", GIVE)
def test_gradients_are_those_of_the_plain_reference(name: str, turn: int) -> None:
    """Every mask with every rule, each with every size."""
    mask, dtype = ASKED[turn]
    for operation in BACKENDS[name].operations:
        forms = []
        for sizes in LAYERS if operation == "multihead" else SIZES:
            lengths = mask if mask != "padding:0" or sizes.startswith("B1") else "padding:0,9"
            forms.append(f"{operation}/{{}}/{sizes}/{lengths}/{dtype}/both")
        cases = supported_in_turn(name, forms, turn)
        assert cases or name in WITHOUT_GROUPS
        check(name, cases)


@pytest.mark.parametrize("sizes", ODD)
@pytest.mark.parametrize("name", GIVE)
def test_odd_sizes(name: str, sizes: str) -> None:
    for operation, layer in (("attention", ""), ("multihead", "-E6")):
        check(name, supported(name, [f"{operation}/{{}}/{sizes}{layer}/causal:lower_right/float64/both"]))


def equal(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


FORMS = ("attention/{}/B2-H4-L12-D8/bool/float32/both", "multihead/{}/B2-H4-L12-D8-E32/causal/float32/both")


@pytest.mark.parametrize("name", GIVE)
def test_passes_repeat_agree_and_accumulate_nothing(name: str) -> None:
    for case in supported(name, FORMS):
        found = {}
        for pass_ in ("both", "backward"):
            call, inputs = timed(case, BACKENDS[name], pass_)
            first, second = call(*inputs), call(*inputs)
            parts = leaves(call.setup, inputs)
            assert call.names == (("out", *parts) if pass_ == "both" else tuple(parts))
            assert equal(first, second)
            assert not {x.data_ptr() for x in first} & {x.data_ptr() for x in second}
            assert not any(x.requires_grad for x in first)
            assert all(leaf.grad is None for leaf in parts.values())
            assert equal(inputs, case.inputs)
            found[pass_] = first
        assert equal(found["both"][1:], found["backward"])


@pytest.mark.parametrize("name", GIVE)
def test_new_upstream_gradients_and_new_inputs_are_used(name: str) -> None:
    """A changed upstream gradient counts at once, new inputs after a forward pass."""
    for case in supported(name, FORMS):
        call, inputs = timed(case, BACKENDS[name], "backward")
        before = call(*inputs)
        call.upstream.neg_()
        assert equal(before, [-x for x in call(*inputs)])
        call.upstream.neg_()
        with torch.no_grad():
            for x in {id(x): x for x in inputs}.values():
                x.mul_(0.5)
        call.renew(inputs)
        after = call(*inputs)
        halved, others = timed(replace(case, inputs=leaf_inputs(inputs)), BACKENDS[name], "backward")
        assert equal(after, halved(*others))
        assert not equal(after, before)


def test_several_inputs_are_renewed_together() -> None:
    case = solved("attention/scaled_dot/B2-H4-L12-D8/none/float32/backward")
    call, inputs = timed(case, BACKENDS["eager"], "backward")
    other = leaf_inputs(solved("attention/scaled_dot/B2-H4-L12-D8/none/float32/backward", 1).inputs)
    with pytest.raises(KeyError):
        call(*other)
    call.renew(inputs, other)
    assert not torch.equal(call(*inputs)[0], call(*other)[0])
    assert torch.equal(call(*inputs)[0], call(*inputs)[0])
    with torch.no_grad():
        inputs[2].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        call(*inputs)


@pytest.mark.parametrize(
    ("rule", "pass_", "part"),
    [
        ("sinks", "both", "sink of sinks"),
        ("alibi", "backward", "bias of alibi"),
        ("sinks", "forward", ""),
        ("scaled_dot", "both", ""),
    ],
)
def test_flash_on_a_cpu_refuses_gradients_of_its_mask(rule: str, pass_: str, part: str) -> None:
    words = f"torch's kernel computes no gradient of its mask, which carries the {part}"
    case = parse_case(f"attention/{rule}/H2-L8-D8/none/float32/{pass_}")
    assert refusal(BACKENDS["sdpa_flash"], case) == (words if part else None)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda q, k, v: (q @ k.detach().mT) @ v, r"^no gradient reaches k, rule\.w$"),
        (lambda q, k, v: (q @ k.mT @ v).detach(), "no graph"),
    ],
)
def test_inputs_that_no_gradient_reaches_are_named(call: Call, words: str) -> None:
    case = solved("attention/general/H2-L3-D4/none/float64/both")
    detached, inputs = timed(case, Backend("mine", "a test", prepare=lambda setup: call, passes=PASSES))
    with pytest.raises(NoGradient, match=words):
        detached(*inputs)


def _bind(case: Case, parameters: Mapping[str, torch.Tensor]) -> Scoring:
    # The exponential saves its result for the backward pass, which the first one frees.
    scale = parameters["slope"].exp()[:, None, None]
    return Scoring(dot=DotForm(map_q=lambda q: q * scale))


@pytest.mark.parametrize("name", [name for name in GIVE if BACKENDS[name].rules is None])
def test_a_rule_may_compute_from_parameters_when_it_is_bound(name: str) -> None:
    operation = BACKENDS[name].operations[0]
    layer = "-E8" if operation == "multihead" else ""
    case = solved(f"{operation}/alibi/B2-H2-L5-D4{layer}/none/float64/both")
    setup = replace(case.setup, rule=replace(case.setup.rule, bind=_bind))
    setup = replace(setup, scoring=_bind(setup.case, setup.rule_parameters))
    case = replace(case, setup=setup)
    expected = plain_gradients(setup, case.inputs, upstream_of(case, torch.float64))
    call, inputs = timed(case, BACKENDS[name])
    for _ in range(2):
        found = dict(zip(call.names, call(*inputs), strict=True))
        for part, gradient in expected.items():
            torch.testing.assert_close(found[part], gradient, rtol=1e-10, atol=1e-12)


def gradients_of(backend: Backend, case: Solved) -> Gradients:
    call, inputs = timed(case, backend)
    return dict(zip(call.names[1:], call(*inputs)[1:], strict=True))


def refused(text: str, answer: Callable[[Solved], Gradients], draws: int | None = None) -> set[str]:
    """The parts whose errors are above their limits, over draws, or as many as a check takes."""
    case = solved(text).case
    cases = [solved(text, draw) for draw in range(draws or stress_draws(case, "normal"))]
    answers, found = [answer(each) for each in cases], set()
    for part in answers[0]:
        truth = [expected_of(each)[part].numpy() for each in cases]
        got = [as_stored(each[part], case) for each in answers]
        errors = pool([compare(one, exact, case.dtype) for one, exact in zip(got, truth, strict=True)])
        plain = [plain_errors_of(each)[part].numpy() for each in cases]
        reference = pool([compare(off, np.zeros(off.shape), "float64") for off in plain])
        held = [expected_of(each, held=True)[part].numpy() for each in cases]
        scale = gradient_scale(truth, held, case.dtype)
        # The reason names axes of an output, which a parameter does not have.
        _, words = verdict(
            replace(errors, worst=(0, 0, 0, 0)), reference, output=scale, values=scale, dtype=case.dtype,
            rows=1, rows_of=1, draws=1,
        )  # fmt: skip
        if words:
            found.add(part)
    return found


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", ["eager", "sdpa_flash", "fused_multihead"])
def test_no_part_of_a_right_backend_is_refused(name: str, dtype: str) -> None:
    """With one key dq and dk cancel to rounding, and the gradient of the keys' bias always does."""
    for text in (
        "multihead/scaled_dot/B2-H4-L16-D8-E24-bias/causal",
        "multihead/dot/H2-Lq5-Lk1-D8-E16-bias/none",
        "multihead/cosine/H2-Lq5-Lk12-D8-E16-bias/float",
    ):
        assert refused(f"{text}/{dtype}/both", lambda case: gradients_of(BACKENDS[name], case)) == set()


WRONG: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor] | None]] = {
    "dk 0.1 % off": ("k", lambda x: x * 1.001),
    "dq of another head": ("q", lambda x: x.roll(1, dims=1)),
    "dv without its last key": ("v", lambda x: torch.cat([x[:, :, :-1], 0 * x[:, :, -1:]], dim=2)),
    "dk as if nothing were subtracted": ("k", None),
    "dv not a number": ("v", lambda x: x / 0),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_one_wrong_part_is_refused_and_no_other(wrong: str) -> None:
    part, change = WRONG[wrong]

    def answer(case: Solved) -> Gradients:
        right = gradients_of(BACKENDS["eager"], case)
        if change is None:
            upstream = upstream_of(case, case.inputs[0].dtype)
            return {**right, part: plain_gradients(case.setup, case.inputs, upstream, held=True)[part]}
        return {**right, part: change(right[part])}

    text = "attention/softcap/B2-H4-Hkv2-Lq17-Lk9-D8/causal:lower_right/float32/both"
    assert refused(text, answer) == {part}


def test_in_half_precision_five_percent_are_seen() -> None:
    def answer(case: Solved) -> Gradients:
        return {name: gradient * 0.95 for name, gradient in gradients_of(BACKENDS["eager"], case).items()}

    text = "attention/scaled_dot/B2-H4-Hkv2-Lq17-Lk9-D8/none/bfloat16/both"
    assert refused(text, answer) == {"q", "k", "v"}
