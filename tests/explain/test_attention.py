"""Steps of rules and layers, computed again in another way; their digits are those of docs/learning.md."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attnbench.explain.attention import MASKED, OUTPUT, SCORES, WEIGHTS, case_of, explain, heads_of
from attnbench.explain.examples import EXAMPLES, example_for, example_of, stream, with_layer
from attnbench.explain.steps import steps_text
from attnbench.inputs.draw import Parameters
from attnbench.oracle.solve import solve
from attnbench.rules import attnbench_rules
from attnbench.types.case import Case, Layer
from attnbench.types.errors import BadInput, PluginFailed
from attnbench.types.mask import Mask

RULES = {rule.name: rule for rule in attnbench_rules()}


def test_weighted_values_sum_to_the_output() -> None:
    steps = explain(RULES["dot"], EXAMPLES["projections"])
    outputs = {step.name: step.values for step in steps}
    exact, rounded = outputs["weighted values"], outputs["rounded weighted values"]
    assert len(outputs) == len(steps)
    np.testing.assert_allclose(exact.sum(axis=1), outputs[OUTPUT], atol=1e-15)
    np.testing.assert_array_equal(rounded[0], [[0, 0, 0], [1, 4, 0], [1, 3, 1.5]])
    # The rounded weights are those of the tutorial's own rule.
    others = explain(RULES["scaled_dot"], EXAMPLES["projections"])
    assert "rounded weights" not in {step.name for step in others}


def test_cross_attention_and_labels_of_keys() -> None:
    X, Y = np.array([[1.0, 0], [0, 2], [1, 1]]), np.array([[1.0, 1], [2, 0]])
    steps = explain(RULES["dot"], example_of({"X": X, "Y": Y}, labels=("a", "b", "c"), key_labels=("d", "e")))
    weights = next(step for step in steps if step.name == WEIGHTS)
    powers = np.exp(X @ Y.T)
    np.testing.assert_allclose(weights.values, powers / powers.sum(axis=1, keepdims=True))
    assert (weights.rows, weights.columns) == (("a", "b", "c"), ("d", "e"))
    np.testing.assert_allclose(steps[-1].values, weights.values @ Y)
    assert [step.name for step in steps] == ["X", "Y", SCORES, WEIGHTS, OUTPUT]


def test_dropout_is_shown_with_its_rescaling_and_repeats() -> None:
    example = EXAMPLES["dropout"]
    steps, again = ({s.name: s.values for s in explain(RULES["scaled_dot"], example)} for _ in range(2))
    kept, dropped = steps["kept"], steps["weights after dropout"]
    np.testing.assert_array_equal(np.unique(kept), [0, 1])
    np.testing.assert_allclose(dropped, steps[WEIGHTS] * kept / 0.5)
    np.testing.assert_allclose(steps[OUTPUT], dropped @ steps["X"])
    np.testing.assert_array_equal(kept, again["kept"])
    other = explain(RULES["scaled_dot"], replace(example, seed=1))
    assert not np.array_equal(kept, next(step.values for step in other if step.name == "kept"))


def test_the_layer_by_separate_and_by_fused_matrices() -> None:
    steps = {step.name: step.values for step in explain(RULES["scaled_dot"], EXAMPLES["multihead"])}
    X, Zs = steps["X"], []
    for head in range(2):
        q, k, v = (X @ steps[f"W_{one}"][head] + steps[f"b_{one}"][head] for one in "qkv")
        scores = q @ k.T / 2
        np.testing.assert_array_equal(steps[SCORES][head], scores)
        powers = np.exp(scores)
        Zs.append(powers / powers.sum(axis=1, keepdims=True) @ v)
    np.testing.assert_allclose(steps["Z"], Zs)
    np.testing.assert_allclose(steps["Concat"], np.hstack(Zs))
    np.testing.assert_allclose(steps[OUTPUT], np.hstack(Zs) @ steps["W_O"] + steps["b_O"])
    np.testing.assert_array_equal(steps["fused W_q"], np.hstack(list(steps["W_q"])))
    np.testing.assert_array_equal(steps["view"][1, 0], steps["q"][0, 1])
    np.testing.assert_array_equal(steps["transpose"], steps["q"])


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


def test_concatenate_with_its_combine_layer() -> None:
    made = explain(RULES["concat_linear"], EXAMPLES["concatenate"])
    steps = {step.name: step.values for step in made}
    assert steps[WEIGHTS].shape == (1, 32)
    assert float(steps[WEIGHTS].sum()) == pytest.approx(1, abs=1e-15)
    logits = np.concatenate([steps["q"], steps["k"]], axis=1) @ steps["w"].T + steps["bias"]
    np.testing.assert_allclose(steps[SCORES], logits, atol=1e-14)
    assert steps[OUTPUT].shape == (1, 64)
    joined = np.concatenate([steps["q"], steps["Z"]], axis=1)
    np.testing.assert_allclose(steps[OUTPUT], joined @ steps["W_O"], atol=1e-14)


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


def test_heads_are_parts_of_the_features_and_each_has_its_steps() -> None:
    tokens = np.random.default_rng(1).standard_normal((3, 8))
    steps = explain(RULES["scaled_dot"], example_of({"X": tokens}, heads=2))
    (heads,) = (step for step in steps if step.name == "q = k = v")
    assert heads.blocks == ("head 1", "head 2")
    np.testing.assert_array_equal(np.hstack(list(heads.values)), tokens)
    assert steps[-1].name == "Concat"
    assert steps[-1].values.shape == (3, 8)


def test_the_seed_draws_parameters_and_nothing_else() -> None:
    question = EXAMPLES["five-tokens"]

    def of(seed: int) -> dict[str, np.ndarray]:
        return {s.name: s.values for s in explain(RULES["general"], replace(question, seed=seed))}

    np.testing.assert_array_equal(of(1)["X"], of(2)["X"])
    np.testing.assert_array_equal(of(1)["w"], of(1)["w"])
    assert not np.array_equal(of(1)["w"], of(2)["w"])


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


def test_the_inner_steps_of_a_rule_by_loops() -> None:
    tokens, context = np.array([[1.0, 2], [0, 1], [3, -1]]), np.array([[1.0, 0], [2, 1]])
    labels = {"labels": ("a", "b", "c"), "key_labels": ("d", "e")}
    made = explain(RULES["additive"], example_of({"X": tokens, "Y": context}, **labels))
    steps = {step.name: step for step in made}
    w_query, w_key, bias, v = (steps[n].values for n in ("w_query", "w_key", "bias", "v of additive"))
    from_q, from_k = steps["w_query q"], steps["w_key k + bias"]
    assert (from_q.rows, from_k.rows) == (("a", "b", "c"), ("d", "e"))
    hidden = steps["tanh(w_query q + w_key k + bias)"]
    assert (hidden.blocks, hidden.rows) == (("a", "b", "c"), ("d", "e"))
    for i, j in np.ndindex(3, 2):
        q, k = w_query.dot(tokens[i]), w_key.dot(context[j]) + bias
        np.testing.assert_allclose(from_q.values[i], q)
        np.testing.assert_allclose(from_k.values[j], k)
        np.testing.assert_allclose(hidden.values[i, j], np.tanh(q + k))
        np.testing.assert_allclose(steps[SCORES].values[i, j], v.dot(np.tanh(q + k)))


def test_every_rule_shows_its_inner_steps_on_one_key_and_on_heads() -> None:
    for name, rule in RULES.items():
        for rows in ({"X": np.eye(3, 4), "Y": np.ones((1, 4))}, {"X": np.ones((1, 4))}, {"X": np.eye(3, 4)}):
            if rule.pairs_keys and "Y" in rows:
                continue
            steps = explain(rule, example_of(rows, heads=2))
            assert steps_text(steps), name


def test_padding_that_drops_nothing_says_so() -> None:
    example = replace(EXAMPLES["five-tokens"], mask=Mask(padding="seeded"))
    (masked,) = (step for step in explain(RULES["dot"], example) if step.name == MASKED)
    assert "none is dropped here; padding:3 keeps 3 keys" in masked.text
    example = replace(EXAMPLES["five-tokens"], mask=Mask(padding=(3,)))
    (masked,) = (step for step in explain(RULES["dot"], example) if step.name == MASKED)
    assert "none is dropped" not in masked.text


def test_queries_and_keys_of_other_widths_are_refused() -> None:
    example = example_of({"X": [[1, 2], [3, 4]], "Y": [[1, 0, 1]]})
    with pytest.raises(
        BadInput, match=r"^queries have 2 features and keys 3: a score needs as many of both$"
    ):
        explain(RULES["dot"], example)
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


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        (lambda q, k, *_: q @ k.T * np.nan, "the rule odd returned scores that are NaN or infinite"),
        (
            lambda q, k, *_: np.full((len(q), len(k)), np.inf),
            "the rule odd returned scores that are NaN or infinite",
        ),
        (lambda q, *_: q, r"returned scores of shape \(5, 4\); \(5, 5\) is needed"),
    ],
)
def test_a_wrong_reference_is_named(reference: Any, words: str) -> None:
    with pytest.raises(PluginFailed, match=words):
        explain(replace(RULES["dot"], name="odd", reference=reference), EXAMPLES["five-tokens"])


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
