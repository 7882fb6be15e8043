"""Steps and behaviour of rules, layers and lessons beside other code; their digits are in transcripts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from attnbench.explained.attention import MASKED, OUTPUT, SCORES, WEIGHTS, case_of, explain, heads_of
from attnbench.explained.behaviour import behaviour_steps, behaviours
from attnbench.explained.examples import EXAMPLES, example_for, example_of, stream, with_layer
from attnbench.explained.lessons import LESSONS
from attnbench.explained.steps import steps_text
from attnbench.inputs.draw import Parameters
from attnbench.oracle.solve import solve
from attnbench.rules import attnbench_rules
from attnbench.types.case import Case, Layer
from attnbench.types.errors import BadInput, PluginFailed
from attnbench.types.mask import Mask, parse_mask

RULES = {rule.name: rule for rule in attnbench_rules() if rule.kind == "scores"}


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("context", [None, [[1.0, 0, 2, 1], [0, 1, 1, -1], [2, 1, 0, 0]]])
def test_the_layer_is_that_of_the_oracle(rule: str, context: list[list[float]] | None) -> None:
    tokens = np.random.default_rng(2).standard_normal((3, 4))
    rows = {"X": tokens} if context is None else {"X": tokens, "Y": context}
    example = with_layer(example_of(rows, heads=2, mask=Mask(causal="upper_left"), seed=3), RULES[rule])
    steps = {step.name: step.values for step in explain(RULES[rule], example)}
    case = Case(
        "multihead", rule, 1, 2, 2, 3, 3, 2, 2, layer=Layer(4, bias=True, cross=context is not None),
        mask=example.mask, dtype="float64", seed=3,
    )  # fmt: skip
    names = [parameter.name for parameter in RULES[rule].parameters(case)]
    drawn = {name: np.asarray(steps.get(f"{name} of {rule}", steps.get(name))) for name in names}
    projections = {name.lower(): matrix.T for name, matrix in example.matrices.items() if name[0] == "W"}
    projections |= {name.lower(): bias[0] for name, bias in example.matrices.items() if name[0] == "b"}
    sources = tuple(rows[None] for _, rows in example.sources)
    want = solve(case, RULES[rule], Parameters(drawn, projections), sources)  # type: ignore[arg-type]
    np.testing.assert_allclose(steps[OUTPUT], np.asarray(want[0], float), atol=1e-12)


def test_every_rule_has_an_example_and_can_be_worked_on_it() -> None:
    for name, rule in RULES.items():
        question = EXAMPLES[example_for(name)]
        steps = {step.name: step.values for step in explain(rule, question)}
        case = case_of(rule, question)
        names = [parameter.name for parameter in rule.parameters(case)]
        drawn = {n: np.asarray(steps.get(f"{n} of {name}", steps.get(n)))[None] for n in names}
        qkv = heads_of(question)
        if rule.pairs_keys:
            qkv = qkv[0], qkv[1][:, : case.Lq], qkv[2]
        want = solve(case, rule, Parameters(drawn, {}), tuple(one[None] for one in qkv))
        got = steps.get("Z", steps[OUTPUT])
        np.testing.assert_allclose(got, np.asarray(want[0, 0], float), atol=1e-12, err_msg=name)


def test_the_seed_draws_parameters_and_nothing_else() -> None:
    question = replace(EXAMPLES["five-tokens"], dropout=0.25)
    one, again, two = (
        {step.name: step.values for step in explain(RULES["general"], replace(question, seed=seed))}
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one["X"], two["X"])
    for drawn in ("w", "kept"):
        np.testing.assert_array_equal(one[drawn], again[drawn])
        assert not np.array_equal(one[drawn], two[drawn])
    np.testing.assert_allclose(one["weights after dropout"], one[WEIGHTS] * one["kept"] / 0.75)


def test_what_is_drawn_with_one_seed_is_independent() -> None:
    # One stream for all would give the same numbers again, times a factor.
    tokens = stream(0, "tokens").standard_normal((3, 4))
    matrices = with_layer(example_of({"X": tokens}, heads=2), RULES["dot"]).matrices
    drawn = [tokens, *(matrix for name, matrix in matrices.items() if name[0] == "W")]
    for at, first in enumerate(drawn):
        for second in drawn[at + 1 :]:
            ratios = first[:3] / second[:3]
            assert np.ptp(ratios) > 1
    example = replace(EXAMPLES["concatenate"], dropout=0.5)
    steps = {step.name: step.values for step in explain(RULES["concat_linear"], example)}
    assert not np.array_equal(steps["kept"], steps["q"] > 0.5)


def test_parts_of_scores_have_labels_of_queries_and_keys() -> None:
    inputs = example_of({"X": np.eye(3, 2), "Y": np.eye(2)}, labels=("a", "b", "c"))
    steps = explain(RULES["additive"], inputs)
    (hidden,) = (step for step in steps if step.name == "tanh(w_query q + w_key k + bias)")
    assert (hidden.blocks, hidden.rows) == (("a", "b", "c"), ("y1", "y2"))


def test_rounded_weights_are_those_of_the_tutorials_own_rule() -> None:
    steps = explain(RULES["scaled_dot"], EXAMPLES["projections"])
    assert "rounded weights" not in {step.name for step in steps}


def test_every_rule_shows_its_inner_steps_on_one_key_and_on_heads() -> None:
    for name, rule in RULES.items():
        for rows in ({"X": np.eye(3, 4), "Y": np.ones((1, 4))}, {"X": np.ones((1, 4))}, {"X": np.eye(3, 4)}):
            if rule.pairs_keys and "Y" in rows:
                continue
            steps = explain(rule, example_of(rows, heads=2))
            assert steps_text(steps), name


def test_padding_that_drops_nothing_says_so() -> None:
    # The length that is drawn for three tokens is three.
    example = replace(example_of({"X": np.eye(3, 4)}), mask=Mask(padding="seeded"))
    (masked,) = (step for step in explain(RULES["dot"], example) if step.name == MASKED)
    assert "none is dropped here; padding:3 keeps 3 keys" in masked.text
    example = replace(EXAMPLES["five-tokens"], mask=Mask(padding=(3,)))
    (masked,) = (step for step in explain(RULES["dot"], example) if step.name == MASKED)
    assert "none is dropped" not in masked.text


def test_a_layer_takes_queries_and_keys_of_other_widths() -> None:
    example = example_of({"X": [[1, 2], [3, 4]], "Y": [[1, 0, 1]]})
    layer = explain(RULES["dot"], with_layer(replace(example, heads=2), RULES["dot"]))
    assert layer[-1].values.shape == (2, 2, 1)


@pytest.mark.parametrize(
    ("rule", "keys", "sentence"),
    [
        ("concat_linear", 2, "concat_linear needs 3 keys, one for each query: there are 2"),
        ("dot", 3, "dot needs 4 keys, one for each value: there are 3"),
    ],
)
def test_keys_of_another_number_are_refused(rule: str, keys: int, sentence: str) -> None:
    q, k, v = (np.ones((length, 2)) for length in (3, keys, 4))
    sources = (("q", q), ("k", k), ("v", v))
    with pytest.raises(BadInput, match=f"^{sentence}$"):
        explain(RULES[rule], replace(EXAMPLES["self-attention"], sources=sources))


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_scores_that_are_no_numbers_are_refused(wrong: float) -> None:
    odd = replace(RULES["dot"], name="odd", reference=lambda q, k, *_: np.full((len(q), len(k)), wrong))
    with pytest.raises(PluginFailed, match="the rule odd returned scores that are NaN or infinite"):
        explain(odd, EXAMPLES["five-tokens"])


def test_a_row_that_keeps_no_key_is_explained() -> None:
    example = replace(EXAMPLES["five-tokens"], mask=Mask(padding=(0,)))
    (weights,) = (step for step in explain(RULES["dot"], example) if step.name == WEIGHTS)
    assert "; 0 where a row keeps no key;" in weights.text
    assert not weights.values.any()


def test_an_explicit_float_mask_is_added() -> None:
    example = replace(EXAMPLES["five-tokens"], mask=Mask(explicit="float"))
    steps = {step.name: step for step in explain(RULES["dot"], example)}
    assert not np.array_equal(steps[MASKED].values, steps[SCORES].values)
    assert steps[MASKED].text == "mask float: its numbers are added, -inf drops a key"


def test_softmax_in_bfloat16_and_in_float32_cast_back_are_those_of_torch() -> None:
    steps = {step.name: step.values for step in LESSONS["precision"][1](RULES.__getitem__, 0)}
    scores = torch.tensor(steps[SCORES]).bfloat16()
    assert torch.equal(scores.double(), torch.tensor(steps[SCORES]))
    cast = torch.softmax(scores.float(), -1).bfloat16().double()
    np.testing.assert_array_equal(steps["weights cast back"], cast)
    powers = (scores - scores.max(-1, keepdim=True).values).exp()
    total = powers[:, 0]
    for column in range(1, 4):
        total = total + powers[:, column]
    narrow = (powers / total[:, None]).double()
    np.testing.assert_array_equal(steps["weights in bfloat16"], narrow)
    assert np.count_nonzero(steps["difference"]) > 3


def test_the_tables_show_no_more_digits_than_other_seeds_support() -> None:
    tables = [
        {
            step.name: step.values
            for step in behaviour_steps(list(behaviours([RULES["dot"]], (64,), seed=seed)))
        }
        for seed in range(4)
    ]
    for name, spread in (("gradient against D", 0.08), ("entropy against D", 0.02)):
        assert np.ptp([table[name] for table in tables]) <= spread
        assert all(np.array_equal(np.round(table[name], 2), table[name]) for table in tables)


def test_what_is_shown_of_plain_scores_by_loops() -> None:
    rows, deviations = [], []
    for draw in range(128):
        rng = np.random.default_rng([5, draw, 6, 9])
        q, k = rng.standard_normal((8, 6)) * 2, rng.standard_normal((9, 6))
        scores = [[sum(a * b for a, b in zip(x, y, strict=True)) / 6**0.5 for y in k] for x in q]
        deviations.append(np.mean([np.std(row) for row in scores]))
        rows += [np.exp(row) / sum(np.exp(row)) for row in scores]
    (shown,) = behaviours([RULES["scaled_dot"]], (6,), (2.0,), keys=9, seed=5)
    steep = [np.linalg.norm(np.diag(row) - np.outer(row, row)) for row in rows]
    want = (np.mean(deviations), np.mean([-(row * np.log(row)).sum() / np.log(9) for row in rows]),
            np.mean([row.max() for row in rows]), np.median(steep))  # fmt: skip
    np.testing.assert_allclose((shown.deviation, shown.entropy, shown.largest, shown.gradient), want)


def test_the_largest_gain_gives_finite_numbers() -> None:
    (row,) = behaviours([RULES["dot"]], (4,), (1e100,))
    assert np.isfinite(row.deviation)


def test_a_width_that_a_rule_does_not_support_is_left_empty() -> None:
    odd = replace(RULES["dot"], name="odd", supports=lambda case: "even D" if case.D % 2 == 0 else None)
    rows = list(behaviours([RULES["dot"], odd], (4, 5)))
    first = next(behaviour_steps(rows))
    assert (first.rows, first.columns) == (("dot", "odd"), ("4", "5"))
    np.testing.assert_array_equal(np.isnan(first.values), [[False, False], [True, False]])


def lesson(name: str) -> dict[str, np.ndarray]:
    return {step.name: step.values for step in LESSONS[name][1](RULES.__getitem__, 0)}


def test_flash_gives_the_output_of_the_whole_softmax() -> None:
    steps = lesson("flash")
    assert steps["output"] == pytest.approx(steps["weights @ v"], rel=1e-12)


def test_a_decode_gives_the_last_row_of_the_whole_computation() -> None:
    steps = lesson("kv_cache")
    assert steps["output"][0] == pytest.approx(steps["output of all tokens"][-1], rel=1e-12)
    assert np.array_equal(steps["k in the cache now"][:3], steps["k in the cache"])
    assert steps["scores"] == pytest.approx(steps["q·k"] / np.sqrt(3))


def test_a_state_gives_the_output_of_weights_without_a_softmax() -> None:
    steps = lesson("linear")
    assert steps["qᵀS / √3"] == pytest.approx(steps["weights @ v"])
    assert steps["state"][-1] == pytest.approx(steps["k"].T @ steps["v"])


def test_the_delta_rule_keeps_the_newer_of_two_values() -> None:
    steps = lesson("delta")
    assert steps["k"][2] == pytest.approx(steps["k"][0])
    assert steps["state, linear"][-1].T @ steps["k"][2] == pytest.approx(steps["v"][0] + steps["v"][2])
    assert steps["state, delta"][-1].T @ steps["k"][2] == pytest.approx(steps["v"][2])
    assert steps["beta"] == pytest.approx(np.array([[4, 2], [1, 4], [-2, 6]]))


def test_turned_scores_depend_on_the_distance_alone() -> None:
    steps = lesson("rope")
    for offset in range(-4, 5):
        diagonal = np.diagonal(steps["scores"], offset)
        assert diagonal == pytest.approx(diagonal[0] * np.ones_like(diagonal))
    assert steps["scores, all 7 positions later"] == pytest.approx(steps["scores"])


def test_grouped_queries_read_the_keys_of_their_group() -> None:
    steps = lesson("gqa")
    expected = np.einsum("hqd,hkd->hqk", steps["q"], steps["k"][[0, 0, 1, 1]]) / np.sqrt(3)
    assert steps["scores"] == pytest.approx(expected)
    assert steps["weights"].sum(axis=-1) == pytest.approx(np.ones((4, 2)))


@pytest.mark.parametrize("name", ["scaled_dot", "softcap", "sinks", "alibi"])
def test_products_stand_before_they_are_scaled(name: str) -> None:
    steps = {step.name: step.values for step in explain(RULES[name], EXAMPLES["five-tokens"])}
    x = EXAMPLES["five-tokens"].sources[0][1]
    assert steps["q·k"] == pytest.approx(x @ x.T)
    assert list(steps).index("q·k") < list(steps).index("scores")


def test_what_a_float_mask_adds_is_shown_and_a_scale_says_what_it_stands_for() -> None:
    steps = explain(RULES["scaled_dot"], replace(EXAMPLES["five-tokens"], mask=parse_mask("float")))
    scores, added, masked = (
        next(s.values for s in steps if s.name == name) for name in (SCORES, "mask", MASKED)
    )
    assert np.array_equal(scores + added, masked)
    steps = explain(RULES["scaled_dot"], replace(EXAMPLES["five-tokens"], constants=(("scale", 1.0),)))
    (told,) = (step.text for step in steps if step.name == "scores")
    assert told.startswith("q·k / √D, but here 1 in place of 1/√D")


def test_one_token_has_parts_of_scores_that_are_its_own() -> None:
    steps = explain(RULES["cosine"], example_of({"X": [[1, 2]]}, labels=("one",)))
    parts = [step for step in steps if "|" in step.name]
    assert [(step.text, step.rows) for step in parts] == [("of the only token", ("one",))] * 2
