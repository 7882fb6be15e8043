"""Gradients of every backend that gives them, against the plain reference's in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from judging import upstream_of, wide
from solved import BACKENDS, QUICK, RULES, Solved, refusal, solved

from attnbench.check.gradients import (
    Backward,
    Both,
    NoGradient,
    leaf_inputs,
    leaves,
    passed,
    plain_gradients,
    with_gradients,
)
from attnbench.kit.scores import derived
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES, Case
from attnbench.types.rule import DotForm, Rule, Scoring

if TYPE_CHECKING:
    from attnbench.types.backend import Call

GIVE = [name for name in QUICK if "backward" in BACKENDS[name].passes]
FORWARD_ONLY = {"chunked", "numpy", "flex"}
SIZES = ("B2-H4-Hkv2-Lq17-Lk9-D8", "B2-H4-L12-D8", "B1-H3-Lq3-Lk11-D8-Dv5")
LAYERS = ("-E32-bias", "-E32-bias", "-E24-noout")
MASKS = ("none", "causal", "causal:lower_right+window:4", "padding", "padding:0", "bool", "float+causal")
TOLERANCE = {"float64": 1e-13, "float32": 1e-5}
"""Of the largest element of all gradients: some are 0 but for rounding, as of the bias of keys."""


def texts(operation: str, mask: str, dtype: str) -> list[str]:
    found = []
    for shape, layer in zip(SIZES, LAYERS, strict=True):
        sizes = shape + (layer if operation == "multihead" else "")
        lengths = mask if mask != "padding:0" or shape.startswith("B1") else "padding:0,9"
        found += [f"{operation}/{rule}/{sizes}/{lengths}/{dtype}/both" for rule in RULES]
    return found


def timed(case: Solved, backend: Backend, pass_: str = "both") -> tuple[Both | Backward, tuple]:  # type: ignore[type-arg]
    """A backend's pass and the inputs it is renewed with."""
    setup = with_gradients(case.setup)
    setup = replace(setup, case=replace(setup.case, pass_=pass_))
    inputs = leaf_inputs(case.inputs)
    call = passed(backend.prepare(setup), setup, upstream_of(case, inputs[0].dtype))
    call.renew(inputs)
    return call, inputs


def check(name: str, text: str) -> None:
    case = solved(text)
    exact = wide(case)
    upstream = upstream_of(case, case.inputs[0].dtype)
    expected = plain_gradients(exact.setup, exact.inputs, upstream.double())
    largest = max(float(x.abs().max()) for x in expected.values())
    call, inputs = timed(case, BACKENDS[name])
    found = dict(zip(call.names, call(*inputs), strict=True))
    assert list(found) == ["out", *expected]
    for part, gradient in expected.items():
        assert found[part].shape == gradient.shape
        assert found[part].dtype == case.inputs[0].dtype
        error = float((found[part].double() - gradient).abs().max())
        assert error <= TOLERANCE[case.case.dtype] * max(1.0, largest), f"{name}, {part}: off by {error:.3g}"


@pytest.mark.parametrize(
    ("mask", "dtype"), [(mask, "float64") for mask in MASKS] + [(mask, "float32") for mask in MASKS[::3]]
)
@pytest.mark.parametrize("operation", ["attention", "multihead"])
@pytest.mark.parametrize("name", GIVE)
def test_gradients_are_those_of_the_plain_reference(name: str, operation: str, mask: str, dtype: str) -> None:
    ran = 0
    for text in texts(operation, mask, dtype):
        if refusal(BACKENDS[name], solved(text).case) is None:
            check(name, text)
            ran += 1
    assert ran > 0 or operation not in BACKENDS[name].operations


@pytest.mark.parametrize("name", GIVE)
@pytest.mark.parametrize("sizes", ["H1-L1-D1", "B2-H3-Lq1-Lk65-D13", "H2-Lq64-Lk1-D8", "B3-H2-L2-D3-Dv7"])
def test_odd_sizes(name: str, sizes: str) -> None:
    for operation, layer in (("attention", ""), ("multihead", "-E6")):
        for rule in RULES:
            for mask in ("none", "causal:lower_right"):
                text = f"{operation}/{rule}/{sizes}{layer}/{mask}/float64/both"
                if refusal(BACKENDS[name], solved(text).case) is None:
                    check(name, text)


def supported(name: str, dtype: str = "float32") -> list[Solved]:
    forms = ("attention/{}/B2-H4-L12-D8/bool/{}/both", "multihead/{}/B2-H4-L12-D8-E32/causal/{}/both")
    cases = [solved(form.format(rule, dtype)) for form in forms for rule in RULES]
    return [case for case in cases if refusal(BACKENDS[name], case.case) is None]


@pytest.mark.parametrize("name", GIVE)
def test_nothing_accumulates_and_a_retained_backward_repeats(name: str) -> None:
    for case in supported(name):
        for pass_ in ("both", "backward"):
            call, inputs = timed(case, BACKENDS[name], pass_)
            first, second = call(*inputs), call(*inputs)
            assert len(first) == len(call.names)
            assert call.names[0] == ("out" if pass_ == "both" else next(iter(leaves(call.setup, inputs))))
            for one, other in zip(first, second, strict=True):
                assert torch.equal(one, other)
                assert one.data_ptr() != other.data_ptr()
                assert not one.requires_grad
            assert all(leaf.grad is None for leaf in leaves(call.setup, inputs).values())
            for given, before in zip(inputs, case.inputs, strict=True):
                assert torch.equal(given, before)


@pytest.mark.parametrize("name", GIVE)
def test_backward_alone_gives_what_both_give(name: str) -> None:
    for case in supported(name):
        both, inputs = timed(case, BACKENDS[name], "both")
        backward, others = timed(case, BACKENDS[name], "backward")
        for one, other in zip(both(*inputs)[1:], backward(*others), strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("name", GIVE)
@pytest.mark.parametrize("pass_", ["both", "backward"])
def test_an_upstream_gradient_written_anew_is_used_at_once(name: str, pass_: str) -> None:
    """Without a forward in between: one that keeps gradients gives old ones. A sign goes through exactly."""
    for case in supported(name):
        call, inputs = timed(case, BACKENDS[name], pass_)
        before = call(*inputs)[-len(leaves(call.setup, inputs)) :]
        call.upstream.neg_()
        for one, other in zip(before, call(*inputs)[-len(before) :], strict=True):
            assert torch.equal(one, -other)


@pytest.mark.parametrize("name", GIVE)
def test_inputs_written_anew_need_a_forward_and_then_count(name: str) -> None:
    for case in supported(name):
        call, inputs = timed(case, BACKENDS[name], "backward")
        before = call(*inputs)
        with torch.no_grad():
            for x in {id(x): x for x in inputs}.values():
                x.mul_(0.5)
        call.renew(inputs)
        after = call(*inputs)
        halved, others = timed(replace(case, inputs=leaf_inputs(inputs)), BACKENDS[name], "backward")
        for one, other in zip(after, halved(*others), strict=True):
            assert torch.equal(one, other)
        assert not all(torch.equal(one, old) for one, old in zip(after, before, strict=True))


def test_without_a_forward_on_new_inputs_torch_refuses_what_was_kept() -> None:
    case = solved("attention/scaled_dot/B2-H4-L12-D8/none/float32/backward")
    call, inputs = timed(case, BACKENDS["eager"], "backward")
    with torch.no_grad():
        inputs[2].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        call(*inputs)


def test_several_inputs_are_renewed_together() -> None:
    case = solved("attention/scaled_dot/B2-H4-L12-D8/none/float32/backward")
    call, inputs = timed(case, BACKENDS["eager"], "backward")
    other = leaf_inputs(solved("attention/scaled_dot/B2-H4-L12-D8/none/float32/backward", 1).inputs)
    with pytest.raises(KeyError):
        call(*other)
    call.renew(inputs, other)
    assert not torch.equal(call(*inputs)[0], call(*other)[0])
    assert torch.equal(call(*inputs)[0], call(*inputs)[0])


def test_backends_without_gradients_say_so() -> None:
    assert {name for name in BACKENDS if BACKENDS[name].passes == ("forward",)} == FORWARD_ONLY
    others = [backend for name, backend in BACKENDS.items() if name not in FORWARD_ONLY]
    assert all(backend.passes == PASSES for backend in others)


def test_flash_on_a_cpu_refuses_what_needs_a_gradient_of_its_mask() -> None:
    def said(rule: str, pass_: str) -> str | None:
        return refusal(BACKENDS["sdpa_flash"], solved(f"attention/{rule}/H2-L8-D8/none/float32/{pass_}").case)

    words = "torch's kernel computes no gradient of its mask, which carries the {}"
    assert said("sinks", "both") == words.format("sink of sinks")
    assert said("alibi", "backward") == words.format("bias of alibi")
    assert said("sinks", "forward") is None
    assert said("scaled_dot", "both") is None


def backend_of(call: Call) -> Backend:
    return Backend("mine", "a test", prepare=lambda setup: call, passes=PASSES)


def test_what_no_gradient_reaches_is_told_by_name() -> None:
    case = solved("attention/general/H2-L3-D4/none/float64/both")
    call, inputs = timed(case, backend_of(lambda q, k, v: (q @ k.detach().mT) @ v))
    with pytest.raises(NoGradient, match=r"^no gradient reaches k, rule\.w$"):
        call(*inputs)
    call, inputs = timed(case, backend_of(lambda q, k, v: (q @ k.mT @ v).detach()))
    with pytest.raises(NoGradient, match="no graph"):
        call(*inputs)


def _bind(case: Case, parameters: dict[str, torch.Tensor]) -> Scoring:
    # The exponential keeps its result for the way back, which the first backward uses up.
    scale = parameters["slope"].exp()[:, None, None]
    return Scoring(dot=DotForm(map_q=lambda q: q * scale))


EXPONENTIAL = Rule(
    name="alibi",
    formula="exp(slope) q·k",
    source="a test",
    reference=RULES["alibi"].reference,
    bind=_bind,  # type: ignore[arg-type]
    parameters=RULES["alibi"].parameters,
)


@pytest.mark.parametrize("name", [name for name in GIVE if BACKENDS[name].rules is None])
def test_a_rule_may_compute_from_parameters_when_it_is_bound(name: str) -> None:
    operation = BACKENDS[name].operations[0]
    layer = "-E8" if operation == "multihead" else ""
    case = solved(f"{operation}/alibi/B2-H2-L5-D4{layer}/none/float64/both")
    setup = replace(case.setup, rule=EXPONENTIAL)
    setup = replace(setup, scoring=_bind(setup.case, dict(setup.rule_parameters)))
    case = replace(case, setup=setup)
    expected = plain_gradients(setup, case.inputs, upstream_of(case, torch.float64))
    call, inputs = timed(case, BACKENDS[name])
    for _ in range(2):
        found = dict(zip(call.names, call(*inputs), strict=True))
        for part, gradient in expected.items():
            torch.testing.assert_close(found[part], gradient, rtol=1e-10, atol=1e-12)


def test_a_forward_pass_derives_once_and_calls_nothing_between() -> None:
    case = solved("attention/scaled_dot/H2-L3-D4/none/float32")
    made: list[Setup] = []

    def make(setup: Setup) -> Call:
        made.append(setup)
        return lambda q, k, v: v

    call = derived(case.setup, make)
    assert call.__qualname__.endswith("make.<locals>.<lambda>")
    call(*case.inputs)
    assert made == [case.setup]
    setup = replace(case.setup, case=replace(case.case, pass_="both"))
    call = derived(setup, make)
    assert len(made) == 1
    for count in (2, 3):
        call(*case.inputs)
        assert len(made) == count
    assert made[1].scoring is not made[2].scoring is not setup.scoring
