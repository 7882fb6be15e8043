"""Changed inputs, solved and undone, against the oracle: for every rule, and no law too few or too many."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from maths_tools import RULES, setup_of, small_case, small_cases, stored_bits, tensor, wide_parameters

from attnbench.inputs.draw import draw_activations, widen
from attnbench.inputs.symmetries import Change, draw_change
from attnbench.kit.reference import PLAIN
from attnbench.oracle.solve import solve
from attnbench.types.case import DTYPES, Case, Dtype, Layer
from attnbench.types.mask import Mask
from attnbench.types.operation import operation_of
from attnbench.types.rule import Law

EVERY = sorted(RULES)
LAWS: tuple[Law, ...] = get_args(Law)


def drawn(case: Case):
    return draw_activations(case, RULES[case.rule], case.seed, 0)


def solved(case: Case, inputs) -> np.ndarray:
    a, b, c = (widen(array, case.dtype) for array in inputs)
    return solve(case, RULES[case.rule], wide_parameters(case), (a, b, c))


def specs(case: Case):
    return operation_of(case).inputs(case, RULES[case.rule])


def drawn_change(case: Case, rng: np.random.Generator, inputs=None) -> Change:
    """A change; settled for inputs where some are given."""
    change = draw_change(case, RULES[case.rule], rng)
    if inputs is None:
        return change
    named = {spec.name: array for spec, array in zip(specs(case), inputs, strict=True)}
    return change.settled(named, case.dtype, {spec.name: spec.axes for spec in specs(case)})


def changed(case: Case, change: Change, inputs):
    return tuple(
        change.do(spec.name, spec.axes, array, case.dtype)
        for spec, array in zip(specs(case), inputs, strict=True)
    )


def undone(case: Case, change: Change, output: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    return change.undo("out", operation_of(case).outputs(case)[0].axes, output, case.dtype, rows=rows)


def close(one: np.ndarray, other: np.ndarray) -> bool:
    return np.allclose(np.asarray(one, float), np.asarray(other, float), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("rule", EVERY)
@settings(max_examples=40)
@given(data=st.data(), dtype=st.sampled_from(DTYPES), seed=st.integers(0, 2**32))
def test_what_is_undone_is_the_answer_to_what_was_there_before(
    rule: str, data: st.DataObject, dtype: Dtype, seed: int
) -> None:
    case = replace(data.draw(small_cases()), rule=rule, dtype=dtype)
    if RULES[rule].supports(case) is not None:
        return
    inputs = drawn(case)
    change = drawn_change(case, np.random.default_rng(seed), inputs)
    after = solved(case, changed(case, change, inputs))
    assert close(undone(case, change, after), solved(case, inputs))


@pytest.mark.parametrize("rule", EVERY)
def test_a_rule_declares_every_law_that_holds_and_none_that_does_not(rule: str) -> None:
    case = small_case(rule, Lq=7, Lk=7)
    inputs = drawn(case)
    signs, moved = np.array([-1.0, 1, -1, -1, 1, 1]), np.array([2.0, 1, 0.5, 2, 0.5, 1])
    some = {
        "flip_features": Change(factors={"q": ("d", signs), "k": ("d", signs)}),
        "scale_features": Change(factors={"q": ("d", moved), "k": ("d", 1 / moved)}),
        "permute_queries": Change(orders={"i": np.array([3, 1, 0, 2, 6, 4, 5])}),
    }
    holding = []
    for law in LAWS:
        change = some[law]
        after = changed(case, change, inputs)
        if close(undone(case, change, solved(case, after)), solved(case, inputs)):
            holding.append(law)
    # Rules that pair keys with queries would need their keys permuted as well.
    assert tuple(holding) == RULES[rule].laws


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rule", EVERY)
def test_no_bit_of_a_plain_kernel_s_output_changes(rule: str, dtype: Dtype) -> None:
    """Not even rounding, where rows stay: in which order BLAS adds depends on where they are."""
    case = small_case(rule, Lq=7, Lk=7, D=16, Dv=8, dtype=dtype)
    kernel, inputs = PLAIN.prepare(setup_of(case)), drawn(case)
    for seed in range(5):
        change = replace(drawn_change(case, np.random.default_rng(seed), inputs), orders={})

        def output(arrays) -> np.ndarray:
            bits = kernel(*(tensor(array, dtype) for array in arrays))
            return widen(stored_bits(bits), dtype)

        before = output(inputs)
        after = output(changed(case, change, inputs))
        np.testing.assert_array_equal(undone(case, change, after), before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_features_with_the_smallest_numbers_stay_exact(dtype: Dtype) -> None:
    case = small_case(dtype=dtype)
    q, k, v = drawn(case)
    q = q.copy()
    # The smallest number of every dtype has the bits of 1.
    q.view(f"u{q.itemsize}")[..., 0] = 1
    moved = np.array([0.5, 0.5, 2, 2, 1, 1])
    change = Change(factors={"q": ("d", moved), "k": ("d", 1 / moved)})
    axes = {spec.name: spec.axes for spec in specs(case)}
    settled = change.settled({"q": q, "k": k, "v": v}, dtype, axes)
    after_q, after_k, _ = changed(case, settled, (q, k, v))
    np.testing.assert_array_equal(after_q[..., 0], q[..., 0])
    np.testing.assert_array_equal(after_k[..., 0], k[..., 0])
    np.testing.assert_array_equal(widen(after_q, dtype)[..., 1], widen(q, dtype)[..., 1] / 2)
    np.testing.assert_array_equal(widen(after_k, dtype)[..., 1], widen(k, dtype)[..., 1] * 2)


@pytest.mark.parametrize(
    ("mask", "free"),
    [
        (Mask(), "bghij"),
        (Mask(causal="upper_left"), "bgh"),
        (Mask(window=2), "bgh"),
        (Mask(padding="seeded"), "ghi"),
        (Mask(explicit="bool"), "gh"),
        (Mask(explicit="float"), "gh"),
    ],
)
def test_nothing_changes_places_where_the_mask_tells_places_apart(mask: Mask, free: str) -> None:
    case = small_case(B=4, H=8, Hkv=4, Lq=9, mask=mask)
    rng = np.random.default_rng(1)
    moved: set[str] = set()
    for _ in range(20):
        for letter, order in drawn_change(case, rng).orders.items():
            if not np.array_equal(order, np.arange(len(order))):
                moved.add(letter)
    assert moved == set(free)


@pytest.mark.parametrize(
    ("layer", "mirrored"),
    [(Layer(E=4), True), (Layer(E=4, bias=True), False), (Layer(E=4, cross=True), True)],
)
def test_a_layer_without_biases_turns_its_sign_with_its_input(layer: Layer, mirrored: bool) -> None:
    case = small_case(B=8, Lq=5, Lk=5, layer=layer)
    changes = [drawn_change(case, np.random.default_rng(seed)) for seed in range(9)]
    change = changes[-1]
    assert any((each.factors["out"][1] < 0).any() for each in changes) == mirrored
    assert np.array_equal(change.orders["i"], change.orders["j"]) == (not layer.cross)


def test_an_element_is_found_again_where_it_went() -> None:
    for case in (small_case(B=3, Lq=5), small_case(B=3, Lq=5, Lk=5, layer=Layer(E=4))):
        change = drawn_change(case, np.random.default_rng(1))
        axes = operation_of(case).outputs(case)[0].axes
        width = (case.H, case.Lq, case.Dv) if case.layer is None else (case.Lq, 4)
        output = np.random.default_rng(2).standard_normal((case.B, *width))
        before = np.abs(undone(case, change, output))
        for index in np.ndindex(before.shape):
            there = abs(output[change.place(axes, index)])
            assert there / before[index] in (1, 2, 4)


def test_rows_are_undone_alone_as_with_all_others() -> None:
    case = small_case(B=3, Lq=9)
    change = drawn_change(case, np.random.default_rng(1))
    output = np.random.default_rng(2).standard_normal((case.B, case.H, case.Lq, case.Dv))
    rows = np.array([0, 3, 8])
    whole = undone(case, change, output)
    np.testing.assert_array_equal(undone(case, change, output, rows), whole[:, :, rows])


@pytest.mark.parametrize("rule", EVERY)
def test_inputs_come_out_that_nobody_has_seen(rule: str) -> None:
    """From one draw as many as are asked for, with hardly a row of any array as it was."""
    case = small_case(rule, B=1, H=1, Hkv=1, Lq=8, Lk=8, D=8, Dv=8)
    rng, inputs = np.random.default_rng(0), drawn(case)
    seen = set()
    for _ in range(50):
        after = changed(case, drawn_change(case, rng), inputs)
        seen.add(b"".join(array.tobytes() for array in after))
        assert not np.array_equal(after[2], inputs[2])
    assert len(seen) == 50


def test_factors_cancel_in_scores_and_gradients_and_stay_small() -> None:
    case = small_case(D=64, Dv=64)
    factors = {name: each for name, (_, each) in drawn_change(case, np.random.default_rng(1)).factors.items()}
    assert set(np.abs(factors["q"])) == {0.5, 1, 2}
    assert (factors["q"] * factors["k"] == 1).all()
    assert set(np.abs(factors["v"])) == {1, 2, 4}
    assert np.array_equal(factors["v"], factors["out"])
    assert (factors["out"] * factors["upstream"] == 1).all()
