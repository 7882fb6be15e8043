"""What becomes of the output when the inputs change in a known way: laws of attention, without the oracle."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from solved import BACKENDS, QUICK, RULES, Solved, refusal, solved

MASKS = ("none", "causal", "padding", "bool")
NAMES = [name for name in QUICK if "attention" in BACKENDS[name].operations]
by_name = pytest.mark.parametrize("name", NAMES)
SIZES = "B3-H4-Hkv2-L20-D8"


def cases(name: str, mask: str = "none", dtype: str = "float32", sizes: str = SIZES) -> list[Solved]:
    """One case for each rule that the backend computes."""
    found = [solved(f"attention/{rule}/{sizes}/{mask}/{dtype}") for rule in RULES]
    return [case for case in found if refusal(BACKENDS[name], case.case) is None]


def call_of(name: str, case: Solved) -> Callable[..., torch.Tensor]:
    call = BACKENDS[name].prepare(case.setup)

    def quietly(*inputs: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return call(*inputs)

    return quietly


@by_name
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_powers_of_two_on_features_of_v_come_out_exactly(name: str, mask: str, dtype: str) -> None:
    factors = torch.tensor([1, -1, 2, -2, 0.5, 4, -0.25, 8])
    for case in cases(name, mask, dtype):
        call, (q, k, v) = call_of(name, case), case.inputs
        by = factors.to(v.dtype)
        assert torch.equal(call(q, k, v * by), call(q, k, v) * by), case.case


@by_name
def test_batches_permute_with_their_output(name: str) -> None:
    order = [2, 0, 1]
    for case in cases(name):
        call = call_of(name, case)
        torch.testing.assert_close(call(*(x[order] for x in case.inputs)), call(*case.inputs)[order])


@by_name
def test_queries_permute_with_their_rows(name: str) -> None:
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    for case in cases(name):
        if case.setup.scoring.bias is None:
            call, (q, k, v) = call_of(name, case), case.inputs
            k_too = k[:, :, order] if case.setup.rule.pairs_keys else k
            torch.testing.assert_close(call(q[:, :, order], k_too, v), call(q, k, v)[:, :, order])


@by_name
def test_keys_permute_with_their_values(name: str) -> None:
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    for case in cases(name, dtype="float64"):
        if case.setup.scoring.bias is None and not case.setup.rule.pairs_keys:
            call, (q, k, v) = call_of(name, case), case.inputs
            torch.testing.assert_close(call(q, k[:, :, order], v[:, :, order]), call(q, k, v))


@by_name
@pytest.mark.parametrize("mask", ["none", "causal", "bool"])
def test_equal_values_come_out_where_a_key_is_kept(name: str, mask: str) -> None:
    for case in cases(name, mask):
        if case.setup.scoring.sink is not None:
            continue
        q, k, v = case.inputs
        out = call_of(name, case)(q, k, torch.full_like(v, 3.0))
        # 3 in every row with a key, 0 in a row without one: an explicit mask has such rows.
        empty = (out == 0).all(-1)
        assert bool(empty.any()) == (mask == "bool")
        torch.testing.assert_close(out[~empty], torch.full_like(out[~empty], 3.0))


@by_name
def test_a_single_key_gives_its_value(name: str) -> None:
    for case in cases(name, sizes="B2-H4-Hkv2-Lq5-Lk1-D8"):
        if case.setup.scoring.sink is None:
            out = call_of(name, case)(*case.inputs)
            expected = case.inputs[2].repeat_interleave(2, 1).expand(2, 4, 5, 8)
            torch.testing.assert_close(out, expected, rtol=1e-6, atol=1e-6)


@by_name
def test_queries_of_zero_give_the_mean_of_the_values_seen(name: str) -> None:
    for rule in ("dot", "scaled_dot", "general", "cosine", "softcap"):
        case = solved(f"attention/{rule}/{SIZES}/causal/float32")
        if refusal(BACKENDS[name], case.case) is None:
            q, k, v = case.inputs
            out = call_of(name, case)(torch.zeros_like(q), k, v)
            seen = v.cumsum(2) / torch.arange(1, 21).view(-1, 1)
            torch.testing.assert_close(out, seen.repeat_interleave(2, 1))


@by_name
def test_a_heavier_sink_takes_from_every_key_alike(name: str) -> None:
    case = solved(f"attention/sinks/{SIZES}/none/float32")
    if refusal(BACKENDS[name], case.case) is not None:
        return
    ones = torch.ones_like(case.inputs[2])
    q, k, _ = case.inputs
    shares = []
    for heavier in (0.0, 2.0, 1000.0):
        own = {"sink": case.setup.rule_parameters["sink"] + heavier}
        setup = type(case.setup)(case.case, case.setup.rule, case.setup.rule.bind(case.case, own), own, {})
        shares.append(BACKENDS[name].prepare(setup)(q, k, ones))
    before, after, nothing = shares
    # Share s of the keys becomes s / (s + (1 - s)·e²).
    torch.testing.assert_close(after, before / (before + (1 - before) * torch.tensor(2.0).exp()))
    assert not nothing.any()
