"""What each stress input promises, and that right kernels pass on it."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from judged import Judge
from maths_tools import RULES, small_case, small_cases, wide_parameters
from right_kernels import (
    in_float32,
    kernels,
    one_query_at_a_time,
    online,
    repeated,
    unfused,
    with_mask_and_sink,
)
from torch import Tensor
from wrong_kernels import WRONG, scale_off, without_maximum

from attnbench.cases.ids import parse_case
from attnbench.inputs.draw import draw_activations, store, widen
from attnbench.inputs.kinds import (
    DELIVERIES,
    LARGEST_GRADED,
    SEARCHED,
    STRESS_INPUTS,
    applies,
    draw_stress_input,
    stress_draws,
    stress_inputs_of,
)
from attnbench.inputs.one_feature import LARGEST_PRODUCT, LOG2_E, kindly_rounded, seen_counts
from attnbench.oracle.solve import solve, solve_weights
from attnbench.types.backend import Setup
from attnbench.types.case import DTYPES, Case, Layer
from attnbench.types.mask import Mask

PRODUCTS = ["dot", "scaled_dot", "general", "alibi", "sinks"]
"""Rules that are linear in the product of q and k."""
NAMES = [stress.name for stress in STRESS_INPUTS]


def drawn(case: Case, stress: str, index: int = 0) -> tuple[np.ndarray, ...]:
    """Inputs of a draw, widened."""
    return tuple(widen(x, case.dtype) for x in draw_stress_input(case, RULES[case.rule], stress, 7, index))


def products(case: Case, stress: str, index: int = 0) -> np.ndarray:
    """q·k of all pairs, (B, H, Lq, Lk)."""
    q, k, _ = drawn(case, stress, index)
    return q @ np.repeat(k, case.group, axis=1).swapaxes(2, 3)


@given(case=small_cases(), dtype=st.sampled_from(DTYPES))
@settings(max_examples=60, deadline=None)
def test_every_stress_input_gives_the_shapes_and_dtypes_of_the_case_and_the_same_bits_again(
    case: Case, dtype: str
) -> None:
    case = replace(case, dtype=dtype)
    rule = RULES[case.rule]
    normal = draw_activations(case, rule, 5, 0)
    for one, other in zip(draw_stress_input(case, rule, "normal", 5, 0), normal, strict=True):
        np.testing.assert_array_equal(one, other)
    for name in stress_inputs_of(case, rule):
        inputs = draw_stress_input(case, rule, name, 5, 0)
        for one, other, again in zip(inputs, normal, draw_stress_input(case, rule, name, 5, 0), strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            np.testing.assert_array_equal(one, again)
        same = [[a is b for a in inputs] for b in inputs]
        assert same == [[a is b for a in normal] for b in normal]
        wide = tuple(widen(x, dtype) for x in inputs)
        assert np.isfinite(solve(case, rule, wide_parameters(case), (wide[0], wide[1], wide[2]))).all()
        assert 1 <= stress_draws(case, name) <= 16


@pytest.mark.parametrize("stress", [name for name in NAMES if name != "normal"])
def test_another_entropy_or_number_gives_other_inputs(stress: str) -> None:
    case, rule = small_case(Lq=8, Lk=16), RULES["scaled_dot"]
    first = draw_stress_input(case, rule, stress, 1, 0)
    for other in (draw_stress_input(case, rule, stress, 2, 0), draw_stress_input(case, rule, stress, 1, 1)):
        assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def names(rule: str = "scaled_dot", **fields: object) -> tuple[str, ...]:
    return stress_inputs_of(small_case(rule, **fields), RULES[rule])


def test_which_stress_inputs_make_sense() -> None:
    def kinds(rule: str = "scaled_dot", **fields: object) -> tuple[str, ...]:
        found = names(rule, **fields)
        assert {"strided", "graded"} <= set(found)
        return tuple(name for name in found if name not in DELIVERIES)

    everything = ("normal", "near_duplicate", "one_hot", "large_logits", "unlikely_values")
    assert tuple(NAMES) == (*everything, "even", "light_keys", "small_values", *DELIVERIES)
    assert kinds(Lk=20, dtype="float16") == (*everything, "even")
    assert kinds(Lk=14, dtype="float16") == everything
    assert kinds(Lk=2048, dtype="bfloat16") == (*everything, "light_keys")
    assert kinds("alibi", Lk=2048, dtype="bfloat16") == (
        "normal",
        "near_duplicate",
        "one_hot",
        "unlikely_values",
    )
    assert kinds() == kinds("dot") == kinds("general") == kinds("sinks") == everything
    assert kinds("alibi") == ("normal", "near_duplicate", "one_hot", "unlikely_values")
    assert kinds("softcap") == ("normal", "near_duplicate", "one_hot", "large_logits")
    for rule in ("additive", "additive_sum", "concat_linear", "cosine"):
        assert kinds(rule) == ("normal", "near_duplicate", "one_hot")
    assert kinds(layer=Layer(6)) == ("normal", "near_duplicate")
    assert kinds(mask=Mask(explicit="float")) == ("normal", "near_duplicate", "one_hot")
    assert kinds(Lk=1) == kinds(Lq=1, mask=Mask(causal="upper_left")) == ("normal",)
    assert kinds(mask=Mask(padding=(0, 0))) == kinds(Lk=3, mask=Mask(window=1)) == ("normal",)
    # Two keys are neither the first nor the last.
    assert "near_duplicate" in kinds(Lk=4)
    assert "near_duplicate" not in kinds(Lk=3)


def test_small_values_have_small_scales_beside_ordinary_queries_and_keys() -> None:
    q, k, v = drawn(small_case(), "small_values")
    assert 2.0**-16 < np.abs(v).max() < 8 * 2.0**-14
    assert 0.5 < q.std() < 2
    assert 0.5 < k.std() < 2


def test_deliveries_are_further_ordinary_draws() -> None:
    case, rule = small_case(), RULES["scaled_dot"]
    seen = [draw_activations(case, rule, 7, index)[0] for index in range(16)]
    for stress in DELIVERIES:
        for index in range(2):
            q = drawn(case, stress, index)[0]
            assert 0.5 < q.std() < 2
            assert all(not np.array_equal(q, other) for other in seen)
            seen.append(q)
        assert stress_draws(case, stress) <= 2
        assert stress_draws(replace(case, Lq=64, Dv=8), stress) == 1


@pytest.mark.parametrize("rule", ["scaled_dot", "dot", "general"])
@pytest.mark.parametrize("mask", [Mask(), Mask(causal="lower_right")])
def test_even_weights_are_a_fifteenth_each(rule: str, mask: Mask) -> None:
    """1/15 is 0.0667969 in bfloat16 (0.34 % more) and 0.0666504 in float16 (0.02 % less)."""
    case = small_case(rule, B=2, H=4, Hkv=2, Lq=6, Lk=40, mask=mask, dtype="float16")
    q, k, v = drawn(case, "even")
    weights = solve_weights(case, RULES[rule], wide_parameters(case), (q, k, v))[:, :, -1]
    for row in weights.reshape(-1, 40):
        np.testing.assert_allclose(np.sort(row)[-15:], 1 / 15, rtol=1e-12)
        assert np.sort(row)[:-15].max() < 2**-25, "0 in float16"
    assert (np.sign(v) == np.sign(v[:, :, :1])).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_light_keys_tell_running_sums_in_half_precision_from_those_in_float32(dtype: str) -> None:
    case = parse_case(f"attention/scaled_dot/B1-H2-Lq4-Lk8192-D16/none/{dtype}")
    judge = Judge(case, stress="light_keys")
    for block in (16, 64, 128):
        for of_powers, of_values in (
            (case.dtype, case.dtype),
            (case.dtype, "float32"),
            ("float32", case.dtype),
        ):
            assert judge.share(partial(in_blocks, block, of_powers, of_values)) > 1.5
        assert judge.share(partial(in_blocks, block, "float32", "float32")) < 0.2


def test_values_of_light_keys_have_the_other_sign_than_those_of_the_heavy_one() -> None:
    case = small_case(Lq=4, Lk=2048, D=8, dtype="bfloat16")
    _, k, v = drawn(case, "light_keys")
    heavy = ~k.any(-1)
    assert (heavy.sum(-1) == 1).all()
    assert {int(at) for at in np.nonzero(heavy)[2]} == {0, 2047}
    assert (np.sign(v[heavy][:, None]) == -np.sign(v[~heavy].reshape(len(v[heavy]), 2047, -1))).all()
    for own, least in ((v[heavy], 1), (v[~heavy], 0.5)):
        assert least <= np.abs(own).min()
        assert np.abs(own).max() <= 2 * least


def in_blocks(
    block: int, of_powers: str, of_values: str, setup: Setup, q: Tensor, k: Tensor, v: Tensor
) -> Tensor:
    """An online softmax whose sums of powers, and of powers times values, are kept in these dtypes."""
    top = torch.full((*q.shape[:3], 1), -torch.inf)
    total = torch.zeros(top.shape, dtype=getattr(torch, of_powers))
    out = torch.zeros((*q.shape[:3], v.shape[-1]), dtype=getattr(torch, of_values))
    for keys, values in zip(k.split(block, 2), v.split(block, 2), strict=True):
        scores = q.float() @ keys.float().mT * setup.scoring.dot.scale
        before, top = top, torch.maximum(top, scores.amax(-1, keepdim=True))
        powers, shrink = (scores - top).exp(), (before - top).exp()
        total = (total * shrink + powers.sum(-1, keepdim=True)).to(total.dtype)
        out = (out * shrink + powers.to(v.dtype).float() @ values.float()).to(out.dtype)
    return (out.float() / total.float()).to(q.dtype)


def test_dropped_keys_are_a_kind_where_no_query_sees_a_key() -> None:
    short = {"Lk": 5, "mask": Mask(padding=(3, 2))}
    assert "dropped" in names(**short)
    assert "dropped" in names(Lq=2, Lk=5, mask=Mask(causal="upper_left"))
    for fields in ({}, {"Lq": 2, "Lk": 5, "mask": Mask(causal="lower_right")}):
        assert "dropped" not in names(**fields)
    for field in ({"pass_": "both"}, {"layer": Layer(6)}):
        assert "dropped" not in names(**short, **field)


def test_gradients_are_asked_of_inputs_where_that_is_another_thing_and_there_is_room() -> None:
    assert "graded" not in names(pass_="both")
    assert "strided" in names(pass_="both")
    one, side = {"B": 1, "H": 1, "Hkv": 1}, int(LARGEST_GRADED**0.5)
    assert "graded" in names(**one, Lq=side, Lk=side)
    assert "graded" not in names(**one, Lq=side, Lk=side + 1)
    assert "graded" not in names("additive", **one, Lq=side, Lk=side // 2, D=4)


def test_features_lie_outside_where_there_are_several_features_and_keys() -> None:
    assert {"transposed", "sliced"} <= set(names(Lk=2, D=2))
    assert "sliced" not in names(layer=Layer(6)), "a layer takes no heads"
    for fields in ({"Lk": 1}, {"D": 1}, {"pass_": "both"}, {"layer": Layer(6)}):
        assert "transposed" not in names(**fields)


def test_which_stress_inputs_a_search_asks_besides() -> None:
    def searched(rule: str = "scaled_dot", **fields: object) -> tuple[str, ...]:
        case = small_case(rule, **fields)
        return tuple(one.name for one in SEARCHED if applies(case, RULES[rule], one.name))

    assert searched() == ("far_below", "equal", "subnormal")
    assert searched("additive") == searched(mask=Mask(explicit="float")) == ("equal", "subnormal")
    assert searched("concat_linear") == ("subnormal",)
    assert searched(D=1) == searched(Dv=1) == ("far_below", "equal")
    assert searched(layer=Layer(6)) == searched(Lk=1) == ()
    half = {"Lk": 16, "dtype": "float16"}
    assert searched(**half) == ("far_below", "equal", "subnormal", "large_values")
    assert "large_values" not in searched(**half, pass_="both") + searched(Lk=15, dtype="float16")


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_that_a_search_draws_are_what_their_names_say(dtype: str) -> None:
    case = small_case(Lq=16, Lk=24, D=8, Dv=6, dtype=dtype)
    plain_q, plain_k, plain_v = drawn(case, "normal")
    rows = products(case, "far_below") * case.D**-0.5
    assert (rows == rows[..., :1]).all()
    assert rows.max() < -40
    assert rows.min() > -24_000
    assert len(np.unique(np.round(np.log2(-rows)))) >= 2
    q, k, v = drawn(case, "equal")
    assert np.array_equal(q, plain_q)
    assert np.array_equal(v, plain_v)
    assert np.array_equal(k, np.broadcast_to(plain_k[:, :, :1], k.shape))
    least = {"float64": 2.0**-1022, "float16": 2.0**-14}.get(dtype, 2.0**-126)
    for number, (array, plain) in enumerate(
        zip(drawn(case, "subnormal"), (plain_q, plain_k, plain_v), strict=True)
    ):
        tiny = np.abs(array) < least
        assert (array != 0).all()
        assert np.array_equal(array[~tiny], plain[~tiny])
        assert not tiny[..., 0].any()
        assert tiny[..., -1].all() == (number > 0)
        assert 0.1 < tiny[..., 1:-1].mean() < 0.4
    if dtype == "float16":
        q, k, v = drawn(case, "large_values")
        assert np.array_equal(q, plain_q)
        assert np.array_equal(k, plain_k)
        assert (np.sign(v) == np.sign(v[:, :, :1])).all()
        assert 4096 <= np.abs(v).min() < 5000 < 7000 < np.abs(v).max() <= 8192


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rule", PRODUCTS)
def test_one_key_has_all_the_weight_in_every_row_that_sees_it(rule: str, dtype: str) -> None:
    case = small_case(rule, Lq=33, Lk=40, D=8, dtype=dtype, mask=Mask(causal="lower_right"))
    places = set()
    for index in range(3):
        q, k, v = drawn(case, "one_hot", index)
        weights = solve_weights(case, RULES[rule], wide_parameters(case), (q, k, v))
        for b, h in np.ndindex(case.B, case.H):
            heavy = weights[b, h, -1].argmax()
            seeing = np.arange(case.Lq) + case.query_offset >= heavy
            assert (weights[b, h, seeing, heavy] > 1 - 1e-12).all()
            places.add("first" if heavy == 0 else "last" if heavy == case.Lk - 1 else "far")
    assert places == {"first", "last", "far"}


@pytest.mark.parametrize("rule", ["additive", "concat_linear", "cosine", "softcap"])
def test_where_scores_are_no_products_one_key_has_all_the_value(rule: str) -> None:
    case = small_case(rule, mask=Mask(padding=(3, 7)))
    _, _, v = drawn(case, "one_hot")
    seen = seen_counts(case) > 0
    for b, h in np.ndindex(case.B, case.Hkv):
        there = np.flatnonzero(v[b, h].any(-1))
        assert len(there) == 1
        assert seen[b, there[0]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rule", "D"), [("scaled_dot", 13), ("scaled_dot", 4096), ("dot", 8), ("general", 16)]
)
def test_loud_scores_are_far_out_and_tied_or_far_apart(rule: str, D: int, dtype: str) -> None:
    case = small_case(rule, Lq=64, Lk=65, D=D, dtype=dtype)
    q, k, _ = drawn(case, "large_logits")
    parameters = wide_parameters(case).rule
    for b, h in np.ndindex(case.B, case.H):
        own = {name: array[h] for name, array in parameters.items()}
        scores = RULES[rule].reference(q[b, h], k[b, h // case.group], own, np.arange(64.0))
        assert np.abs(scores).max() > (710 if dtype == "float64" else 89)
        levels = np.sort(scores, axis=1)
        gaps = np.diff(levels, axis=1)
        assert ((gaps == 0) | (gaps >= 40)).all()
    assert set(np.unique(np.frexp(np.abs(q[q != 0]))[0])) <= {0.5}, "powers of two"
    if dtype == "float16":
        assert np.abs(products(case, "large_logits")).max() <= LARGEST_PRODUCT
        assert np.abs(products(case, "one_hot")).max() <= LARGEST_PRODUCT


@pytest.mark.parametrize("stress", ["one_hot", "large_logits"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rule", ["scaled_dot", "general"])
def test_a_softmax_without_its_maximum_is_refused(rule: str, dtype: str, stress: str) -> None:
    judge = Judge(small_case(rule, Lq=17, Lk=33, D=16, dtype=dtype), stress=stress)
    assert judge.of(without_maximum)[1]
    assert judge.of(in_float32)[1] == ""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("index", [0, 1], ids=["values", "keys"])
def test_a_deep_change_keeps_sums_and_ends_and_is_seen(rule: str, dtype: str, index: int) -> None:
    case = small_case(rule, Lq=40, Lk=48, D=16, Dv=8, dtype=dtype)
    judge, before = Judge(case, stress="near_duplicate", draws=2), Judge(case, draws=2)
    (q, k, v), (old_q, old_k, old_v) = judge.inputs[index], before.inputs[index]
    changes, was = (v, old_v) if index == 0 else (k, old_k)
    stays, stayed = (k, old_k) if index == 0 else (v, old_v)
    assert torch.equal(q, old_q)
    assert torch.equal(stays, stayed)
    at = (changes != was).nonzero()
    assert len(at) == 2
    assert 0 not in at[:, 2]
    assert changes.shape[2] - 1 not in at[:, 2]
    moved = changes.double() - was.double()
    assert moved.max() > 3.9
    assert moved.sum() == 0
    if index == 0:
        assert torch.equal(changes.flatten().sort().values, was.flatten().sort().values), "all sums"
    right = online if rule != "concat_linear" else unfused
    answers = [right(judge.setup, *inputs) for inputs in judge.inputs]
    assert judge.verdict(answers)[1] == ""
    answers[index] = right(judge.setup, old_q, old_k, old_v)
    assert judge.verdict(answers)[1], "the draw before"


def test_a_deep_change_is_of_keys_that_most_queries_see() -> None:
    case = small_case(B=1, H=1, Hkv=1, Lq=9, Lk=9, D=16, mask=Mask(causal="upper_left"))
    changed = set()
    for index in range(1, 20):
        (_, k, _), (_, k_now, _) = drawn(case, "normal", index), drawn(case, "near_duplicate", index)
        changed |= set(np.nonzero(k != k_now)[2])
    # Key 1 is seen by eight queries, key 5 by four of them.
    assert changed == {1, 2, 3, 4, 5}


def test_a_deep_change_needs_two_keys_between_the_ends() -> None:
    case = small_case(Lq=4, Lk=4, D=16, dtype="bfloat16")
    (_, k, _), (_, k_now, _) = drawn(case, "normal", 1), drawn(case, "near_duplicate", 1)
    assert set(np.nonzero(k != k_now)[2]) == {1, 2}
    # Where each query has a key of its own, any of them between the ends changes.
    case, rule = small_case("concat_linear", Lq=4, Lk=4, D=16), RULES["concat_linear"]
    seen = set()
    for entropy in range(8):
        _, k, _ = draw_stress_input(case, rule, "normal", entropy, 1)
        _, k_now, _ = draw_stress_input(case, rule, "near_duplicate", entropy, 1)
        seen |= set(np.nonzero(k != k_now)[2])
    assert seen == {1, 2}


@pytest.mark.parametrize("layer", [Layer(64), Layer(64, cross=True)], ids=["self", "cross"])
def test_a_layer_has_its_one_source_changed(layer: Layer) -> None:
    case = small_case(Lq=9, Lk=9, layer=layer)
    now, was = drawn(case, "near_duplicate"), drawn(case, "normal")
    assert (now[2] != was[2]).sum() == 2
    assert (now[0] != was[0]).sum() == (0 if layer.cross else 2)


def test_a_source_of_which_few_tokens_are_seen_is_changed_between_its_ends() -> None:
    case = small_case(Lq=2, Lk=4, layer=Layer(8, cross=True), mask=Mask(padding=(2, 2)))
    changed = set()
    for index in range(1, 8):
        now, was = drawn(case, "near_duplicate", index), drawn(case, "normal", index)
        changed |= set(np.nonzero(now[2] != was[2])[1])
    assert changed == {1, 2}


@pytest.mark.parametrize("D", [1, 8, 13, 40, 64, 80, 96, 128, 160, 192, 256])
def test_a_kindly_rounded_score_is_the_same_whatever_is_scaled_first(D: int) -> None:
    def rounded(x: float) -> float:
        return float(widen(store(np.array([x]), "bfloat16"), "bfloat16")[0])

    scale = D**-0.5
    a, b = kindly_rounded(scale, 8.0, "bfloat16")
    assert (rounded(a), rounded(b)) == (a, b)
    assert 1 / 4 <= a / b <= 2, "neither is far larger, which half precision would not hold"
    exact = a * b * scale
    assert 6.8 <= exact <= 9.2
    queries_first = rounded(rounded(a * scale) * b)
    both = rounded(rounded(a * scale**0.5) * rounded(b * scale**0.5))
    twos = rounded(rounded(a * scale * LOG2_E) * b) / LOG2_E
    unrounded = rounded(a * b) * scale, rounded(a * scale) * b
    for way in (queries_first, both, twos, rounded(rounded(a * b) * scale), *unrounded):
        assert way == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("mask", ["none", "causal", "causal:lower_right", "padding", "window:9", "bool"])
@pytest.mark.parametrize("lengths", [(8, 8), (1, 64), (40, 129), (130, 33)])
def test_every_query_of_quiet_sees_a_likely_key(lengths: tuple[int, int], mask: str) -> None:
    case = parse_case(
        f"attention/scaled_dot/B2-H4-Hkv2-Lq{lengths[0]}-Lk{lengths[1]}-D16/{mask}/bfloat16/seed3"
    )
    if "unlikely_values" not in stress_inputs_of(case, RULES["scaled_dot"]):
        assert (lengths, mask) == ((1, 64), "causal"), "its one query sees one key"
        return
    q, k, v = drawn(case, "unlikely_values")
    out = solve(case, RULES["scaled_dot"], wide_parameters(case), (q, k, v))
    assert 0 < np.abs(out).max() < 0.1, "values of unlikely keys alone"


def test_every_query_of_quiet_sees_a_likely_key_where_it_sees_few() -> None:
    case = parse_case("attention/scaled_dot/B2-H4-Hkv2-L8-D16/causal+window:2/bfloat16/seed3")
    for index in range(8):
        out = solve(case, RULES["scaled_dot"], wide_parameters(case), drawn(case, "unlikely_values", index))
        assert 0 < np.abs(out).max() < 0.1


@pytest.mark.parametrize(("dtype", "off"), [("bfloat16", 0.01), ("float16", 0.01), ("float32", 0.001)])
@pytest.mark.parametrize(
    ("rule", "shape"),
    [
        *(("scaled_dot", shape) for shape in (
            "Lq8-Lk8-D64/none", "Lq8-Lk8-D80/causal", "Lq1-Lk64-D128/none",
            "Lq17-Lk40-D13/causal:lower_right", "Lq64-Lk64-D40/causal+padding",
            "Lq128-Lk100-D96/none", "Lq64-Lk1024-D64/none",
        )),
        *((rule, "Lq17-Lk40-D80/causal:lower_right") for rule in ("dot", "general", "alibi", "sinks")),
    ],
)  # fmt: skip
def test_quiet_shows_a_wrong_scale(shape: str, rule: str, dtype: str, off: float) -> None:
    sizes, mask = shape.split("/")
    judge = Judge(parse_case(f"attention/{rule}/H2-{sizes}/{mask}/{dtype}/seed1"), stress="unlikely_values")
    for kernel in (scale_off(off), scale_off(-off)):
        assert "is above" in judge.of(kernel)[1]
    for right in (unfused, in_float32):
        assert judge.of(right)[1] == ""


@pytest.mark.parametrize("seed", range(12))
def test_right_kernels_are_not_refused_on_any_stress_input(seed: int) -> None:
    rng = random.Random(seed)
    case = small_case(
        rng.choice(sorted(RULES)),
        Lq=rng.choice([1, 2, 5, 16, 17, 33]),
        Lk=rng.choice([2, 3, 8, 17, 33]),
        D=rng.choice([1, 4, 13, 64]),
        Dv=rng.choice([1, 2, 8]),
        mask=Mask(
            causal=rng.choice([None, "upper_left", "lower_right"]),
            window=rng.choice([None, None, 3]),
            padding=rng.choice([None, "seeded"]),
            explicit=rng.choice([None, None, "bool", "float"]),
        ),
        dtype=rng.choice(DTYPES),
        seed=seed,
    )
    for stress in stress_inputs_of(case, RULES[case.rule]):
        judge = Judge(case, stress=stress)
        for kernel in kernels():
            assert judge.of(kernel)[1] == "", (stress, kernel.__name__)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", [name for name in WRONG if "0.1 %" not in name])
def test_some_stress_input_shows_each_mistake(name: str, dtype: str) -> None:
    case = parse_case(f"attention/scaled_dot/B1-H4-Hkv2-Lq33-Lk65-D64/causal:lower_right/{dtype}")
    judges = (Judge(case, stress=stress) for stress in NAMES)
    assert any(judge.of(WRONG[name])[1] for judge in judges)


def test_one_wrong_element_in_a_million_is_refused() -> None:
    judge = Judge(parse_case("attention/scaled_dot/H4-Lq4096-Lk8-D8-Dv64/none/bfloat16"), draws=1)
    assert judge.expected[0].size > 10**6
    accuracy, problem = judge.of(WRONG["one element wrong"])
    assert "largest error" in problem
    assert "RMS" not in problem
    assert accuracy.rms_error < accuracy.rms_limit


def feature_by_feature(setup: Setup, q: Tensor, k: Tensor, v: Tensor, *, step: int) -> Tensor:
    """A right kernel whose scores are added one feature after the other, in float32."""
    k = repeated(setup, k)
    scores = torch.zeros(*q.shape[:-1], k.shape[2])
    for d in range(setup.case.D)[::step]:
        scores += q[..., :, None, d] * k[..., None, :, d]
    weights = with_mask_and_sink(setup, scores * setup.scoring.dot.scale).softmax(-1)[..., :-1]
    return weights @ repeated(setup, v)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    "text",
    [
        "attention/sinks/B2-H2-Lq2-Lk168-D64/causal:lower_right+window:16",
        "attention/scaled_dot/B1-H2-Lq1-Lk300-D128",
    ],
)
def test_no_right_kernel_is_refused_where_one_product_leads_in_a_few_rows(text: str, seed: int) -> None:
    judge = Judge(replace(parse_case(text), seed=seed), stress="near_duplicate")
    both_ways = (partial(feature_by_feature, step=step) for step in (1, -1))
    for right in (unfused, online, one_query_at_a_time, *both_ways):
        assert judge.of(right)[1] == "", right
