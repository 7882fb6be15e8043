"""The worked examples, digit for digit, on the path that ``attnbench explain`` shows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attnbench.inputs.draw import Parameters
from attnbench.oracle.solve import solve
from attnbench.rules import attnbench_rules
from attnbench.types.errors import BadInput, PluginFailed
from attnbench.types.mask import Mask
from attnbench.worked.examples import EXAMPLES, example, example_for
from attnbench.worked.steps import MASKED, OUTPUT, SCORES, WEIGHTS, Step, case_of, worked
from attnbench.worked.tokens import question_of, random_tokens

RULES = {rule.name: rule for rule in attnbench_rules()}


def steps_of(name: str, rule: str = "") -> dict[str, np.ndarray]:
    one = example(name)
    return {step.name: step.values for step in worked(RULES[rule or one.rule], one.make())}


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
        question = example_for(name).make()
        steps = {step.name: step.values for step in worked(rule, question)}
        case = case_of(rule, question)
        names = [parameter.name for parameter in rule.parameters(case)]
        drawn = {n: steps.get(f"{n} of {name}", steps[n])[None] for n in names}
        want = solve(
            case, rule, Parameters(drawn, {}), (question.q[None], question.k[None], question.v[None])
        )
        np.testing.assert_allclose(steps[OUTPUT], np.asarray(want[0, 0], float), atol=1e-12, err_msg=name)


def test_heads_are_parts_of_the_features_and_each_has_its_steps() -> None:
    tokens = random_tokens(3, 8, seed=1)
    steps = worked(RULES["scaled_dot"], question_of(tokens, heads=2))
    queries = [step for step in steps if step.name == "q"]
    assert [step.head for step in queries] == [0, 1]
    np.testing.assert_array_equal(np.hstack([step.values for step in queries]), tokens)
    assert [step.text for step in queries] == ["columns 1 to 4 of X", "columns 5 to 8 of X"]


def test_the_seed_draws_parameters_and_nothing_else() -> None:
    question = example("five-tokens").make()

    def of(seed: int) -> dict[str, np.ndarray]:
        return {s.name: s.values for s in worked(RULES["general"], replace(question, seed=seed))}

    np.testing.assert_array_equal(of(1)["q"], of(2)["q"])
    np.testing.assert_array_equal(of(1)["w"], of(1)["w"])
    assert not np.array_equal(of(1)["w"], of(2)["w"])


def test_a_sink_takes_its_share() -> None:
    weights = steps_of("five-tokens", "sinks")[WEIGHTS]
    assert np.all(weights.sum(axis=1) < 1)


def test_keys_that_pair_with_no_query_are_refused_in_words() -> None:
    question = example("concatenate").make()
    two = replace(question, k=np.repeat(question.k, 2, axis=1))
    with pytest.raises(
        BadInput, match=r"^concat_linear pairs each query with its own key: 1 queries, 2 keys$"
    ):
        worked(RULES["concat_linear"], two)


def test_keys_without_a_value_each_are_refused_in_words() -> None:
    with pytest.raises(BadInput, match=r"^dot needs a key for each value: 1 key, 32 values$"):
        worked(RULES["dot"], example("concatenate").make())


def test_the_v_of_additive_is_not_called_as_the_values_are() -> None:
    steps = worked(RULES["additive"], example("five-tokens").make())
    assert [step.name for step in steps].count("v") == 1
    assert [step.values.shape for step in steps if step.name == "v of additive"] == [(4,)]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_reference_that_gives_no_numbers_is_told_with_its_rule(bad: float) -> None:
    rule = replace(RULES["dot"], name="odd", reference=lambda q, k, parameters, positions: q @ k.T * bad)
    with pytest.raises(PluginFailed, match=r"the rule odd gives scores that are not finite"):
        worked(rule, example("self-attention").make())


def test_a_reference_that_gives_another_shape_is_told_with_its_rule() -> None:
    rule = replace(RULES["dot"], name="odd", reference=lambda q, k, parameters, positions: q)
    with pytest.raises(PluginFailed, match=r"gives scores of shape \(5, 4\); \(5, 5\) is needed"):
        worked(rule, example("five-tokens").make())


def test_a_row_that_keeps_no_key_is_explained() -> None:
    question = replace(example("five-tokens").make(), mask=Mask(padding=(0,)))
    (weights,) = (step for step in worked(RULES["dot"], question) if step.name == WEIGHTS)
    assert weights.text == "softmax over the keys of each row; 0 where a row keeps no key"
    assert not weights.values.any()


def test_an_explicit_float_mask_is_added() -> None:
    question = replace(example("five-tokens").make(), mask=Mask(explicit="float"))
    steps = {s.name: s for s in worked(RULES["dot"], question)}
    assert isinstance(steps[MASKED], Step)
    assert not np.array_equal(steps[MASKED].values, steps[SCORES].values)
    assert steps[MASKED].text == "mask float: its numbers are added, -inf is no score"


def test_an_example_that_is_not_there_names_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"^no example 'five-token'; did you mean 'five-tokens'\?$"):
        example("five-token")


def test_examples_say_what_they_are() -> None:
    assert all(one.rule in RULES and one.summary for one in EXAMPLES.values())
