"""The verifier's case, in this process: draws, verdicts by stress input and part, answers of timed calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from asked import BUILT_IN_RULES, RULES, Stored

from attnbench.cases.ids import case_id, parse_case
from attnbench.inputs.draw import store, widen
from attnbench.inputs.kinds import DELIVERIES, LIGHT_KEYS, NORMAL, STRESS_INPUTS, TWO_GRAPHS
from attnbench.inputs.symmetries import draw_change
from attnbench.ipc import messages as m
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.names import HELD, PLAIN, parameter_names
from attnbench.plugins.registry import load_wanted
from attnbench.types.operation import operation_of
from attnbench.verifier.case import CaseVerifier, passing_trivial_answer
from attnbench.verifier.dropout import DropoutVerifier
from attnbench.worker.answers import stored_answer
from attnbench.worker.calls import exact_gradients
from attnbench.worker.prepared import PreparedBackend, prepare

CASE = "attention/scaled_dot/B1-H2-L16-D8/none/float32"
PADDED = "attention/scaled_dot/B1-H2-L16-D8/padding:12/float16"
ALL = [stress.name for stress in STRESS_INPUTS]
MANY_KEYS = "attention/scaled_dot/B1-H2-Lq4-Lk2048-D8/none/float16"
ELSEWHERE = ("even", "dropped")
"""Kinds of inputs that CASE does not have: of float16, and of masks that drop keys for every query."""
FORWARD = [name for name in ALL if name not in (TWO_GRAPHS, LIGHT_KEYS, "small_values")]
"""Without those that need many keys, and codes (``tests/operations/test_encoded.py``)."""

ATTENTION = "attention/{}/B2-H4-Hkv2-Lq5-Lk6-D4-Dv3/{}/float64/cpu/both"
SQUARE = "attention/{}/B2-H4-Hkv2-L6-D4-Dv3/{}/float64/cpu/both"
LAYERS = (
    "multihead/scaled_dot/B3-H2-L5-D4-E6/none/float64/cpu/both",
    "multihead/scaled_dot/B3-H2-L5-D4-E6-bias/none/float64/cpu/both",
    "multihead/scaled_dot/B3-H2-L5-D4-E6/causal/float64/cpu/both",
    "multihead/general/B3-H2-Lq4-Lk5-D4-E6/none/float64/cpu/both",
)


def open_here(case: str, flops: float = 1e9, entropy: int = 5) -> CaseVerifier:
    return CaseVerifier(rm.OpenCase(case, BUILT_IN_RULES, entropy, 0, flops), RULES[parse_case(case).rule])


@dataclass(frozen=True)
class PlainHere:
    """The plain reference, prepared for a case that is open."""

    opened: CaseVerifier
    held: PreparedBackend

    def answer(self, index: int, change: int = 0) -> dict[str, Stored]:
        """Its answer to a draw, by parts, in the dtype of the case."""
        with torch.inference_mode(False), torch.enable_grad():
            ready = self.held.with_inputs(self.opened.arrays(index, change), fresh=True)
            parts = stored_answer(ready, ready.call(*ready.inputs))
        return {name: np.array(part) for name, part in parts.items()}

    def exact(self, arrays: Mapping[str, Stored]) -> dict[str, Stored]:
        """Gradients in float64, and the units of their errors."""
        with torch.inference_mode(False), torch.enable_grad():
            return exact_gradients(self.held.with_inputs(arrays, fresh=True))

    def score(self, who: str = PLAIN, timed: int = 0) -> None:
        """Have all draws of the check scored as it answers them, and some of those that are timed."""
        for index in range(len(self.opened.stress_inputs) + timed):
            if who == PLAIN and self.opened.case.pass_ != "forward":
                self.opened.expect(index, self.exact(self.opened.arrays(index, 0)))
            assert self.opened.score(who, index, self.answer(index)) == ""


def plain_of(case: str, flops: float = 1e9) -> PlainHere:
    """It, with the parameters of the case."""
    opened = open_here(case, flops)
    request = m.Prepare(case_id(opened.case), "", None, BUILT_IN_RULES, (), None)
    parameters = parameter_names(opened.parameters.rule, opened.parameters.projections)
    with torch.inference_mode(False), torch.enable_grad():
        held, _ = prepare(request, parameters)
    return PlainHere(opened, held)


def scored(case: str, flops: float = 1e9) -> PlainHere:
    made = plain_of(case, flops)
    made.score()
    return made


@pytest.fixture(scope="module")
def plain() -> PlainHere:
    """A verifier of a case with draws of every stress input, its check scored."""
    return scored(CASE)


@pytest.mark.parametrize("name", ["q", "upstream"])
def test_draws_of_the_check_are_fixed_and_those_of_timed_calls_secret(name: str) -> None:
    def draws(entropy: int, seed: str = "") -> list[bytes]:
        opened = open_here(f"{CASE}/cpu/both{seed}", entropy=entropy)
        count = len(opened.stress_inputs)
        # The order of asking makes no difference.
        found = {at: opened.arrays(at, 0)[name].tobytes() for at in reversed(range(count - 1, count + 2))}
        return [opened.arrays(0, 0)[name].tobytes(), *(found[at] for at in sorted(found))]

    one, two, other = draws(1), draws(2), draws(1, "/seed1")
    assert one == draws(1)
    assert [a == b for a, b in zip(one, two, strict=True)] == [True, True, False, False]
    assert [a == b for a, b in zip(one, other, strict=True)] == [False, False, True, True]
    assert len({*one[2:], *two[2:]}) == 4


def test_a_near_duplicate_follows_its_original() -> None:
    opened = open_here(CASE)
    stress_inputs = opened.stress_inputs
    assert set(stress_inputs) == set(FORWARD) - set(ELSEWHERE)
    assert set(open_here(PADDED).stress_inputs) == set(FORWARD)
    assert set(open_here(f"{PADDED}/cpu/both").stress_inputs) >= {TWO_GRAPHS}
    places = [at for at, stress in enumerate(stress_inputs) if stress == "near_duplicate"]
    assert len(places) >= 2
    seen = set()
    for at in places:
        assert stress_inputs[at - 1] == NORMAL
        (q, k, v), (q_now, k_now, v_now) = (opened.draw(i).inputs.values() for i in (at - 1, at))
        assert q.tobytes() == q_now.tobytes()
        seen.add(q.tobytes())
        values, keys = np.count_nonzero(v != v_now), np.count_nonzero((k != k_now).any(axis=-1))
        # Only one of both on some draws: a backend may look at the other alone.
        assert values <= 2
        assert keys <= 2
        assert values + keys > 0
    assert len(seen) == len(places), "each of another draw"


@pytest.mark.parametrize("stress", [*FORWARD, LIGHT_KEYS])
def test_one_wrong_element_fails_its_stress_input(plain: PlainHere, stress: str) -> None:
    if stress in (*ELSEWHERE, LIGHT_KEYS):
        plain = scored(MANY_KEYS if stress == LIGHT_KEYS else PADDED)
    plain.score("mine")
    assert plain.opened.judge("mine").problem == ""
    assert plain.opened.judge("mine").failed == ()
    at = plain.opened.stress_inputs.index(stress)
    answer = plain.answer(at)
    answer["out"][0, 1, 3, 5] += 3 * np.abs(answer["out"]).max()
    assert plain.opened.score("mine", at, answer) == ""
    judged = plain.opened.judge("mine")
    assert judged.failed == (stress,)
    words = "" if stress == NORMAL else f"on the stress input {stress}: "
    assert judged.problem.startswith(words + "RMS error")
    assert "(b=0, h=1, i=3, e=5)" in judged.problem
    # The numbers are those of ordinary inputs, whichever stress input was failed.
    normal = plain.opened.stress_inputs.count(NORMAL)
    assert judged.accuracy.draws == normal
    assert (judged.accuracy.max_error > judged.accuracy.max_limit) == (stress == NORMAL)
    assert judged.parts == {}


@pytest.mark.parametrize(
    ("case", "answer"),
    [
        ("attention/scaled_dot/B2-H2-Lq6-Lk1-D4/none/float32", "first_value"),
        ("attention/scaled_dot/B2-H2-L6-D4/window:1/float32", "own_value"),
        ("multihead/scaled_dot/B2-H2-L1-D4-E6/none/bfloat16", "first_value"),
        ("attention/scaled_dot/B2-H2-L6-D4/none/float32", ""),
        ("attention/scaled_dot/B2-H2-Lq1-Lk6-D4/none/bfloat16", ""),
        ("attention/scaled_dot/B2-H2-L6-D4/window:1/float32/cpu/backward", ""),
        ("attention/softcap@c=50/B1-H2-L24-D16/causal/bfloat16", ""),
        ("attention/scaled_dot@scale=0.0833/B1-H2-L24-D128/causal/bfloat16", ""),
        ("attention/scaled_dot@scale=0.0884/B1-H2-L24-D128/none/bfloat16", ""),
        ("attention/sinks@sink=2/B1-H2-L24-D16/none/float16", ""),
        # Large scores are what tells a cap of 50 from none, and float masks and layers have no such inputs.
        ("attention/softcap@c=50/B1-H2-L24-D16/float/bfloat16", "softcap@c=10000"),
        ("multihead/softcap@c=50/B1-H2-L24-D16-E32/none/bfloat16", "softcap@c=10000"),
        ("attention/sinks@sink=-20/B1-H2-L24-D16/none/float32", "sinks@sink=-100"),
    ],
)
def test_a_trivial_answer_that_passes_is_found(case: str, answer: str) -> None:
    assert passing_trivial_answer(scored(case).opened) == answer


LSE = "attention/{}/B2-H4-Hkv2-Lq7-Lk5-D8/causal:lower_right/{}/cpu/{}/lse"
WRONG_LSE = {
    "in base 2": lambda lse: lse * np.float32(np.log2(np.e)),
    "+inf in empty rows": lambda lse: np.where(np.isneginf(lse), np.inf, lse),
    "0 in empty rows": lambda lse: np.where(np.isneginf(lse), 0, lse),
    "NaN in empty rows": lambda lse: np.where(np.isneginf(lse), np.nan, lse),
    "rounded to bfloat16": lambda lse: (lse.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32),
    "of the row before": lambda lse: np.roll(lse, 1, 2),
}
NAMED_LSE = {
    "in base 2": "; these are logarithms to base 2: multiply them by ln 2 = 0.693147",
    "+inf in empty rows": "; rows without keys have +inf: give -inf",
    "0 in empty rows": "; rows without keys have 0: give -inf",
}


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize("pass_", ["forward", "both"])
@pytest.mark.parametrize("rule", ["scaled_dot", "sinks"])
def test_lse_is_the_logarithm_of_a_sum_without_the_sink(rule: str, dtype: str, pass_: str) -> None:
    made = scored(LSE.format(rule, dtype, pass_))
    case, drawn = made.opened.case, made.opened.draw(0)
    q, k = (torch.from_numpy(widen(drawn.inputs[name], case.dtype)) for name in "qk")
    scores = q @ k.repeat_interleave(2, 1).mT / 8**0.5
    scores.masked_fill_(torch.ones(7, 5).triu(5 - 7 + 1).bool(), -torch.inf)
    expected = np.asarray(drawn.expected["lse"], np.float64)
    np.testing.assert_allclose(expected, scores.logsumexp(-1).numpy(), rtol=1e-13, atol=1e-14)
    assert np.isneginf(expected[:, :, :2]).all()
    answer = made.answer(0)
    assert answer["lse"].dtype == (np.float64 if dtype == "float64" else np.float32)
    made.score("mine")
    judged = made.opened.judge("mine")
    assert judged.problem == ""
    assert {"out", "lse"} <= set(judged.parts)


@pytest.mark.parametrize("wrong", WRONG_LSE)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_wrong_lse_is_refused_by_its_name(wrong: str, dtype: str) -> None:
    made = scored(LSE.format("scaled_dot", dtype, "forward"))
    for index in range(len(made.opened.stress_inputs)):
        answer = made.answer(index)
        answer["lse"] = WRONG_LSE[wrong](answer["lse"]).astype(np.float32)
        found = made.opened.score("mine", index, answer)
        if found:
            break
    else:
        found = made.opened.judge("mine").problem
    assert "the output 'lse': " in found
    assert [known for known in NAMED_LSE.values() if known in found] == [
        NAMED_LSE[known] for known in NAMED_LSE if known == wrong
    ]


@pytest.mark.parametrize("stress", DELIVERIES)
def test_a_verdict_needs_all_draws_but_deliveries_left_out(plain: PlainHere, stress: str) -> None:
    if stress in (*ELSEWHERE, TWO_GRAPHS):
        plain = scored(f"{PADDED}/cpu/both" if stress == TWO_GRAPHS else PADDED)
    draws = [at for at, each in enumerate(plain.opened.stress_inputs) if each != stress]
    for at in draws:
        plain.opened.score(f"not {stress}", at, plain.answer(at))
    with pytest.raises(ValueError, match="no outputs of draws"):
        plain.opened.judge(f"not {stress}")
    assert plain.opened.judge(f"not {stress}", (stress,)).problem == ""
    for at in [at for at in draws if plain.opened.stress_inputs[at] != "large_logits"]:
        plain.opened.score(f"not {stress}, not large_logits", at, plain.answer(at))
    with pytest.raises(ValueError, match="no outputs of draws"):
        plain.opened.judge(f"not {stress}, not large_logits", (stress, "large_logits"))


def test_arithmetic_is_assumed_where_only_some_rows_are_compared() -> None:
    """Products rounded to bfloat16, undeclared, in a case of which the oracle solves 16 of 256 rows."""
    made = scored("attention/scaled_dot/B1-H2-Lq256-Lk32-D16/none/float32", flops=1)
    opened = made.opened

    def coarse(arrays: Mapping[str, Stored]) -> dict[str, Stored]:
        q, k, v = (torch.from_numpy(arrays[name]).bfloat16().float() for name in ("q", "k", "v"))
        weights = (q @ k.mT * 16**-0.5).softmax(-1)
        return {"out": (weights.bfloat16().float() @ v).numpy()}

    for index, stress in enumerate(opened.stress_inputs):
        opened.score("coarse", index, coarse(opened.arrays(index, 0)))
        if stress == NORMAL:
            for nudged in (False, True):
                arrays = opened.arrays(index, 0, nudged=nudged)
                opened.score_nudged("coarse", index, coarse(arrays), nudged=nudged)
    judged = opened.judge("coarse")
    assert judged.arithmetic == "bfloat16"
    assert (judged.accuracy.rows, judged.accuracy.rows_of) == (16, 256)


def test_where_the_oracle_costs_too_much_rows_are_compared() -> None:
    """The edges of blocks are always compared; of all others ten, so that 240 may be wrong unseen."""
    made = scored("attention/dot/B1-H2-Lq256-Lk32-D16/none/float32", flops=1)
    made.score("mine")
    assert (made.opened.judge("mine").accuracy.rows, made.opened.judge("mine").accuracy.rows_of) == (16, 256)
    seen = []
    for row in range(256):
        answer = made.answer(1)
        answer["out"][0, 1, row, 5] = np.nan
        if made.opened.score("mine", 1, answer):
            seen.append(row)
    assert len(seen) == 16
    assert {0, 63, 64, 127, 128, 255} <= set(seen)


SAMPLED = "attention/scaled_dot/B1-H2-Lq256-Lk32-D16/{}/float32/cpu/{}"


@pytest.mark.parametrize("mask", ["none", "causal:lower_right", "padding"])
@pytest.mark.parametrize("pass_", ["forward", "both", "backward"])
def test_every_comparison_takes_some_rows_of_the_answer(mask: str, pass_: str) -> None:
    """Of 256 rows the oracle solves 16: of draws, changed, nudged and rounded ones, weights, trivial
    answers."""
    made = plain_of(SAMPLED.format(mask, pass_), flops=1)
    opened = made.opened
    made.score(timed=1)
    made.score("mine", timed=1)
    assert opened.rows is not None
    assert len(opened.rows) == 16
    assert opened.judge("mine").problem == ""
    assert opened.judge("mine", arithmetic="tf32").problem == ""
    for change in range(4):
        assert (
            opened.score_timed(
                len(opened.stress_inputs), change, made.answer(len(opened.stress_inputs), change)
            )
            == ""
        )
    assert passing_trivial_answer(opened) == ""
    if pass_ == "forward":
        for nudged in (False, True):
            opened.score_nudged("mine", 0, made.answer(0), nudged=nudged)
        weights = np.zeros((1, 2, 256, 32), np.float32)
        assert opened.score_weights(PLAIN, 0, weights) == ""
        assert opened.score_weights("mine", 0, weights) == ""


def test_an_operation_without_a_plain_reference_is_judged_by_what_its_dtypes_explain() -> None:
    registry = load_wanted([str(Path(__file__).parents[1] / "operations" / "gathered.py")])
    case = case_id(parse_case("paged_with_lse/scaled_dot/B1-H2-L8-D8/causal/bfloat16"))
    opened = CaseVerifier(rm.OpenCase(case, BUILT_IN_RULES, 5, 0, 1e9), registry.rules["scaled_dot"].record)
    for index in range(len(opened.stress_inputs)):
        exact = opened.draw(index).expected
        right = {"out": store(exact["out"], "bfloat16"), "lse": exact["lse"].astype(np.float32)}
        assert opened.score("mine", index, right) == ""
        opened.score("wrong", index, right | {"lse": right["lse"] + np.float32(0.1)})
    assert opened.judge("mine").problem == ""
    assert "the output 'lse': RMS error" in opened.judge("wrong").problem


def test_dropout_is_tallied_where_only_some_rows_are_compared() -> None:
    case = SAMPLED.format("none", "forward") + "/dropout0.5"
    opened = DropoutVerifier(rm.OpenCase(case, BUILT_IN_RULES, 5, 0, 1), RULES["scaled_dot"])
    assert opened.rows is not None
    drawn, rng = opened.draw(0), np.random.default_rng(1)
    q, k, v = drawn.inputs.values()
    scores = q @ np.swapaxes(k, -1, -2) / 4
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    opened.score(PLAIN, 0, {"out": weights @ v})
    for who, share in (("right", 0.5), ("drops less", 0.7)):
        for _ in range(opened.calls):
            kept = rng.random(weights.shape) < share
            opened.tally(who, 0, {"out": (weights * kept / share @ v).astype(np.float32)})
    assert opened.judge("right").problem == ""
    assert opened.judge("drops less").check == "dropout"
    broken = (weights @ v).astype(np.float32)
    broken[0, 1, opened.rows[2], 3] = np.nan
    for _ in range(opened.calls):
        opened.tally("broken", 0, {"out": broken})
    assert f"(b=0, h=1, i={opened.rows[2]}, e=3)" in opened.judge("broken").problem
    wrong = {"out": (weights @ v).astype(np.float32) + 1}
    assert "plain reference" not in opened.score("wrong", 0, wrong)
    opened.score(PLAIN, 0, wrong)
    assert ". The plain reference, without dropout, is wrong too: RMS" in opened.score("wrong", 0, wrong)


def test_rows_without_keys_say_nothing_of_dropout() -> None:
    case = "attention/dot/B2-H1-Lq8-Lk1-D4/padding:1,0/float32/cpu/forward/dropout0.5"
    opened = DropoutVerifier(rm.OpenCase(case, BUILT_IN_RULES, 5, 0, 1e9), RULES["dot"])
    # One key has all the weight, and the second batch element has none.
    weights = np.array([1.0, 0.0]).reshape(2, 1, 1, 1) * np.ones((2, 1, 8, 1))
    values, rng = opened.draw(0).inputs["v"], np.random.default_rng(1)
    opened.score(PLAIN, 0, {"out": (weights @ values).astype(np.float32)})
    for _ in range(opened.calls):
        kept = 2.0 * (rng.random(weights.shape) < 0.5)
        opened.tally("right", 0, {"out": (weights * kept @ values).astype(np.float32)})
    assert opened.judge("right").problem == ""


@pytest.fixture(scope="module")
def both() -> PlainHere:
    return scored("attention/scaled_dot/B1-H2-L8-D4/causal/float32/cpu/both")


@pytest.mark.parametrize(
    ("part", "place"),
    [
        ("out", "(b=0, h=1, i=5, e=2)"),
        ("q", "(b=0, h=1, i=5, d=2)"),
        ("k", "(b=0, g=1, j=5, d=2)"),
        ("v", "(b=0, g=1, j=5, e=2)"),
    ],
)
def test_a_part_that_is_wrong_or_not_finite_is_named(both: PlainHere, part: str, place: str) -> None:
    both.score("mine")
    words = "" if part == "out" else f"the gradient of {part}: "
    answer = both.answer(0)
    answer[part][0, 1, 5, 2] = np.nan
    assert both.opened.score("mine", 0, answer).startswith(f"{words}element {place} is not")
    answer = both.answer(0)
    answer[part][0, 1, 5, 2] += 0.01
    assert both.opened.score("mine", 0, answer) == ""
    judged = both.opened.judge("mine")
    assert judged.problem.startswith(words + "RMS error")
    assert place in judged.problem
    assert judged.failed == (NORMAL,)
    wrong = {name for name, a in judged.parts.items() if a.max_error > a.max_limit}
    assert wrong == {part}


def cases() -> list[str]:
    found = list(LAYERS)
    for name, rule in sorted(RULES.items()):
        for mask in ("none", "causal"):
            texts = [text.format(name, mask) for text in (ATTENTION, SQUARE)]
            found += [text for text in texts if rule.supports(parse_case(text)) is None][:1]
    return found


@pytest.mark.parametrize("case", cases())
def test_each_symmetry_maps_gradients_exactly(case: str) -> None:
    """Against autograd of the plain reference, both in float64."""
    plain = plain_of(case)
    opened = plain.opened
    before = gradients(plain, opened.arrays(0, 0))
    specs = operation_of(opened.case).inputs(opened.case, opened.rule)
    axes = {spec.name: spec.axes for spec in specs} | {spec.tensor: spec.axes for spec in reversed(specs)}
    for seed in (1, 2, 3):
        drawn = draw_change(opened.case, opened.rule, np.random.default_rng(seed))
        change = drawn.settled(opened.draw(0).inputs, opened.case.dtype, axes)
        after = gradients(plain, opened.arrays(0, seed))
        assert after.keys() == before.keys()
        for name, gradient in after.items():
            limit = 1e-12 * max(np.abs(before[name]).max(), 0.01)
            back = change.undo(name, axes.get(name, ""), gradient, "float64", power=-1)
            np.testing.assert_allclose(back, before[name], rtol=0, atol=limit)


def test_a_source_that_serves_twice_stays_one_tensor() -> None:
    opened = open_here("multihead/scaled_dot/B3-H2-L5-D4-E6/none/float32")
    for change in (0, 1):
        queries, keys, values = opened.arrays(0, change).values()
        assert queries is keys
        assert keys is values


def gradients(plain: PlainHere, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array for name, array in plain.exact(arrays).items() if not name.startswith(HELD)}


@pytest.mark.parametrize(
    "case",
    [
        "attention/scaled_dot/B2-H4-Hkv2-Lq9-Lk7-D8/none/float32",
        "attention/scaled_dot/B2-H4-Hkv2-Lq9-Lk7-D8/none/float32/cpu/both",
        "attention/alibi/B2-H4-L8-D8/causal/float32/cpu/backward",
        "multihead/scaled_dot/B3-H2-L8-D4-E6/none/float32",
        "multihead/scaled_dot/B3-H2-L8-D4-E6/none/float32/cpu/both",
        "multihead/general/B3-H2-Lq8-Lk6-D4-E6-bias/none/bfloat16/cpu/both",
    ],
)
def test_stale_answers_after_a_transform_fail_and_right_ones_pass(case: str) -> None:
    plain = plain_of(case)
    opened = plain.opened
    plain.score(timed=1)
    timed = len(opened.stress_inputs)
    unchanged = plain.answer(timed)
    assert opened.score_timed(timed, 0, unchanged) == ""
    for change in range(1, 13):
        right = plain.answer(timed, change)
        assert opened.score_timed(timed, change, right) == ""
        assert "is above" in opened.score_timed(timed, change, unchanged)
