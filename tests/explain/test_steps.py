"""The textbook's examples, digit for digit, as ``attnbench explain`` computes and shows them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len

from attnbench.explain.examples import example_for, example_named, example_of
from attnbench.explain.picture import heatmap_spec
from attnbench.explain.steps import MASKED, OUTPUT, SCORES, WEIGHTS, Step, case_of, explain
from attnbench.explain.text import heatmap, number, numbers
from attnbench.inputs.draw import Parameters
from attnbench.oracle.solve import solve
from attnbench.rules import attnbench_rules
from attnbench.types.errors import BadInput, PluginFailed
from attnbench.types.mask import Mask

RULES = {rule.name: rule for rule in attnbench_rules()}


def steps_of(name: str, rule: str = "") -> dict[str, np.ndarray]:
    one = example_named(name)
    return {step.name: step.values for step in explain(RULES[rule or one.rule], one)}


def test_self_attention() -> None:
    steps = steps_of("self-attention")
    want = [[1, 2.957691, 2.011295], [1, 1.540148, 2.722573], [1, 2.864164, 2.0]]
    np.testing.assert_array_equal(np.round(steps[OUTPUT], 6), want)
    weights = [[0.9756, 0.0179, 0.0066], [0.2676, 0.7275, 0.0049], [0.9094, 0.0453, 0.0453]]
    np.testing.assert_array_equal(np.round(steps[WEIGHTS], 4), weights)


def test_five_tokens() -> None:
    steps = steps_of("five-tokens")
    np.testing.assert_array_equal(steps[SCORES][0], [1, 0, 0.5, 0.5, 0.75])
    np.testing.assert_array_equal(np.round(steps[WEIGHTS][0], 4), [0.2976, 0.1095, 0.1805, 0.1805, 0.2318])
    np.testing.assert_array_equal(np.round(steps[WEIGHTS][4], 4), [0.2374, 0.1440, 0.2374, 0.1440, 0.2374])


def test_projections() -> None:
    steps = steps_of("projections")
    assert list(steps) == ["X", "W_q", "W_k", "W_v", "q", "k", "v", SCORES, WEIGHTS, OUTPUT]
    np.testing.assert_array_equal(steps["k"], [[0, 1, 1], [4, 4, 0], [2, 3, 1]])
    np.testing.assert_array_equal(steps[SCORES], [[2, 4, 4], [4, 16, 12], [4, 12, 10]])
    want = [[1.936621, 6.683105, 1.595068], [1.999994, 7.963992, 0.053976], [1.999705, 7.759892, 0.358389]]
    np.testing.assert_array_equal(np.round(steps[OUTPUT], 6), want)


def test_concatenate_with_its_combine_layer() -> None:
    steps = steps_of("concatenate")
    assert steps[WEIGHTS].shape == (1, 32)
    assert float(steps[WEIGHTS].sum()) == pytest.approx(1, abs=1e-15)
    logits = np.concatenate([steps["q"], steps["k"]], axis=1) @ steps["w"].T + steps["bias"]
    np.testing.assert_allclose(steps[SCORES], logits, atol=1e-14)
    assert steps["combined"].shape == (1, 64)
    joined = np.concatenate([steps["q"], steps[OUTPUT]], axis=1)
    np.testing.assert_allclose(steps["combined"], joined @ steps["W_combine"], atol=1e-14)


def test_the_causal_sentence_sees_nothing_that_comes() -> None:
    steps = steps_of("causal-sentence")
    above = np.triu_indices(4, 1)
    assert np.all(steps[MASKED][above] == -np.inf)
    assert np.all(np.isfinite(steps[SCORES]))
    assert np.all(steps[WEIGHTS][above] == 0)
    np.testing.assert_allclose(steps[WEIGHTS].sum(axis=1), 1, atol=1e-15)


def test_every_rule_has_an_example_and_can_be_worked_on_it() -> None:
    for name, rule in RULES.items():
        question = example_for(name)
        steps = {step.name: step.values for step in explain(rule, question)}
        case = case_of(rule, question)
        names = [parameter.name for parameter in rule.parameters(case)]
        drawn = {n: steps.get(f"{n} of {name}", steps[n])[None] for n in names}
        want = solve(
            case, rule, Parameters(drawn, {}), (question.q[None], question.k[None], question.v[None])
        )
        np.testing.assert_allclose(steps[OUTPUT], np.asarray(want[0, 0], float), atol=1e-12, err_msg=name)


def test_heads_are_parts_of_the_features_and_each_has_its_steps() -> None:
    tokens = np.random.default_rng(1).standard_normal((3, 8))
    steps = explain(RULES["scaled_dot"], example_of(tokens, heads=2))
    queries = [step for step in steps if step.name == "q"]
    assert [step.head for step in queries] == [0, 1]
    np.testing.assert_array_equal(np.hstack([step.values for step in queries]), tokens)
    assert [step.text for step in queries] == ["columns 1 to 4 of X", "columns 5 to 8 of X"]


def test_the_seed_draws_parameters_and_nothing_else() -> None:
    question = example_named("five-tokens")

    def of(seed: int) -> dict[str, np.ndarray]:
        return {s.name: s.values for s in explain(RULES["general"], replace(question, seed=seed))}

    np.testing.assert_array_equal(of(1)["q"], of(2)["q"])
    np.testing.assert_array_equal(of(1)["w"], of(1)["w"])
    assert not np.array_equal(of(1)["w"], of(2)["w"])


def test_a_sink_takes_its_share() -> None:
    weights = steps_of("five-tokens", "sinks")[WEIGHTS]
    assert np.all(weights.sum(axis=1) < 1)


@pytest.mark.parametrize(
    ("rule", "keys", "sentence"),
    [
        ("concat_linear", 2, "concat_linear needs a key for each query: 1 queries, 2 keys"),
        ("dot", 1, "dot needs a key for each value: 1 key, 32 values"),
    ],
)
def test_keys_of_another_number_are_refused(rule: str, keys: int, sentence: str) -> None:
    one = example_named("concatenate")
    with pytest.raises(BadInput, match=f"^{sentence}$"):
        explain(RULES[rule], replace(one, k=np.repeat(one.k, keys, axis=1)))


def test_the_v_of_additive_is_not_called_as_the_values_are() -> None:
    steps = explain(RULES["additive"], example_named("five-tokens"))
    assert [step.name for step in steps].count("v") == 1
    assert [step.values.shape for step in steps if step.name == "v of additive"] == [(4,)]


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
        explain(replace(RULES["dot"], name="odd", reference=reference), example_named("five-tokens"))


def test_a_row_that_keeps_no_key_is_explained() -> None:
    example = replace(example_named("five-tokens"), mask=Mask(padding=(0,)))
    (weights,) = (step for step in explain(RULES["dot"], example) if step.name == WEIGHTS)
    assert weights.text == "softmax over the keys of each row; 0 where a row keeps no key"
    assert not weights.values.any()


def test_an_explicit_float_mask_is_added() -> None:
    example = replace(example_named("five-tokens"), mask=Mask(explicit="float"))
    steps = {step.name: step for step in explain(RULES["dot"], example)}
    assert not np.array_equal(steps[MASKED].values, steps[SCORES].values)
    assert steps[MASKED].text == "mask float: its numbers are added, -inf drops a key"


# As text


def weights_of(*heads: np.ndarray, labels: tuple[str, ...]) -> list[Step]:
    columns = heads[0].shape[1]
    return [Step(WEIGHTS, "", values, labels, labels[:columns], head) for head, values in enumerate(heads)]


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e100, "1.0e+100"), (-2.5e12, "-2.5e+12"), (999999999999.5, "999999999999.5000"), (-0.0, "0.0000"),
     (6e-6, "6.0e-06"), (-np.inf, "-inf")],
)  # fmt: skip
def test_a_number(value: float, text: str) -> None:
    assert number(value, 4) == text


def test_no_number_and_no_label_is_cut_where_few_columns_fit() -> None:
    step = Step("q", "X", np.full((2, 6), 1 / 3), ("first", "second"), head=0)
    lines = numbers(step, width=40, colour=False, digits=17).splitlines()
    assert lines[0] == "  first   …  0.3333333333333333  0.3333333333333333"


def test_labels_of_wide_characters_stand_in_line() -> None:
    labels = ("😀😀", "日本語のとても長いラベル", "cat")
    lines = heatmap(weights_of(np.eye(3), labels=labels), 80).splitlines()[:3]
    assert len({cell_len(line) for line in lines}) == 1
    assert max(map(cell_len, lines)) <= 2 + 16 + 1 + 6 + 1


def test_a_heatmap_is_cut_to_the_width() -> None:
    weights = weights_of(np.eye(7), labels=tuple(f"x{i}" for i in range(1, 8)))
    assert "the first" not in heatmap(weights, 30)
    assert "the first 7×3" in heatmap(weights, 10)


def test_heads_stand_side_by_side_on_one_scale_as_many_as_fit() -> None:
    heads = weights_of(*(np.array([[share, 0.0]]) for share in (0.5, 0.25, 0.5)), labels=("q",))
    assert heatmap(heads, 80).splitlines() == [
        "    head 1 head 2 head 3",
        "  q ██  |  ▒▒  |  ██  |",
        "    queries down, keys across; 0 |  ░░▒▒▓▓██| 0.5",
    ]
    assert heatmap(heads, 20).splitlines()[2:4] == ["    head 3", "  q ██  |"]


# As a picture


def test_labels_of_a_picture_are_text() -> None:
    hostile = ("'];alert(1)//", '"</script>')
    spec = json.dumps(heatmap_spec(weights_of(np.eye(2), labels=hostile), "title"))
    assert json.dumps(f"{json.dumps(list(hostile))}[datum.value]") in spec


def test_the_darkest_is_the_largest_of_all_heads_and_a_dropped_key_has_no_number() -> None:
    heads = weights_of(*(np.array([[share, 0.0]]) for share in (0.1, 0.3)), labels=("q",))
    spec = heatmap_spec(heads, "title\x1b")
    cells, text = spec["spec"]["layer"]
    assert cells["encoding"]["color"]["scale"]["domain"] == [0, 0.15, 0.3]
    assert text["encoding"]["text"]["condition"] == {"test": "datum.weight === 0", "value": ""}
    assert spec["title"] == "title\\x1b"


def test_a_picture_of_many_tokens_is_no_larger_than_a_screen() -> None:
    spec = heatmap_spec(weights_of(np.eye(256), labels=tuple(f"x{i}" for i in range(256))), "t")
    assert spec["width"] == {"step": 3}
    assert spec["layer"][0]["encoding"]["y"]["axis"]["values"] == list(range(0, 256, 5))
    with pytest.raises(BadInput, match="3 heads of 256×256 weights: at most 131072 cells can be drawn"):
        heatmap_spec(weights_of(*[np.eye(256)] * 3, labels=("x",)), "t")
