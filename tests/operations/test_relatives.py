"""Gated and differential attention: exact answers, and what their judge refuses and keeps."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import relatives
from batch_judge import Judge

from attnbench.cases.ids import parse_case
from attnbench.cases.select import check_case
from attnbench.inputs.draw import draw_inputs, draw_parameters, widen_inputs, widened
from attnbench.oracle.solve import solve_outputs
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.types.errors import BadCase
from attnbench.types.operation import operation_of
from attnbench.verifier.case import passing_trivial_answer

PLUGIN = str(Path(relatives.__file__))


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([PLUGIN])


@pytest.fixture(scope="module")
def judges(registry: Registry) -> Callable[[str], Judge]:
    """Open each case once."""
    return cache(lambda case: Judge(registry, case))


@pytest.mark.parametrize(
    "case", ["gated_output/scaled_dot/H4-Hkv2-L5-D3-Dv4", "differential/scaled_dot/H8-Hkv4-L5-D3-Dv4"]
)
def test_the_exact_answer_is_that_of_the_paper(registry: Registry, case: str) -> None:
    """Written down for one query at a time."""
    one, rule = parse_case(f"{case}/causal/float64"), registry.rule("scaled_dot")
    given = draw_inputs(one, rule, 3, 0)
    exact = solve_outputs(
        one, rule, widened(draw_parameters(one, rule), one), widen_inputs(one, rule, given)
    )["out"]

    def weights(h: int, i: int) -> np.ndarray:
        powers = np.exp(given["k"][0, h // 2, : i + 1] @ given["q"][0, h, i] / 3**0.5)
        return powers / powers.sum()

    for h, i in np.ndindex(exact.shape[1], 5):
        v = given["v"][0, h // 2, : i + 1]
        if one.operation == "gated_output":
            expected = weights(h, i) @ v / (1 + np.exp(-given["gate"][0, h, i]))
        else:
            expected = (weights(h, i) - given["lam"][0] * weights(h + 4, i)) @ v
        np.testing.assert_allclose(exact[0, h, i].astype(float), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", [relatives.GATED, relatives.DIFFERENTIAL, relatives.ROTATED])
def test_right_kernels_are_kept(judges: Callable[[str], Judge], case: str, dtype: str) -> None:
    judge = judges(case.format(dtype))
    names = ("by_products", operation_of(judge.opened.case).baseline)
    assert {name: found for name in names if (found := judge.problem(name))} == {}
    assert passing_trivial_answer(judge.opened) == ""


@pytest.mark.parametrize("case", [relatives.GATED, relatives.DIFFERENTIAL, relatives.ROTATED])
def test_another_exp_is_within_the_limits(judges: Callable[[str], Judge], case: str) -> None:
    """As torch's fused kernels have it: off by 20 ulp, each 0.72 gaps on average."""
    judge = judges(case.format("float32"))
    assert judge.problem("by_products") == ""
    accuracy = judge.opened.judge("by_products").accuracy
    (out,) = judge.opened.draw(judge.draws[-2]).expected.values()
    assert accuracy is not None
    assert accuracy.rms_limit > 20 * 0.72 * 2**-23 * float(np.sqrt(np.square(out).mean()))


@pytest.mark.parametrize("mistake", relatives.MISTAKES)
def test_a_wrong_kernel_is_refused(judges: Callable[[str], Judge], mistake: str) -> None:
    assert judges(relatives.MISTAKES[mistake].format("bfloat16")).problem(mistake) != ""


def test_rotated_queries_and_keys_meet_at_their_distance(registry: Registry) -> None:
    """With complex numbers, from RoFormer's formula: each pair of features turns by its position."""
    case = parse_case("rotated/scaled_dot/H2-Lq3-Lk5-D4/causal:lower_right/float64")
    record = registry.rule("scaled_dot")
    given = draw_inputs(case, record, 3, 0)
    exact = solve_outputs(
        case, record, widened(draw_parameters(case, record), case), widen_inputs(case, record, given)
    )["out"]

    def pairs(name: str, h: int, row: int, position: int) -> np.ndarray:
        x = given[name][0, h, row]
        x = x / np.sqrt((x**2).mean() + 1e-6) * given[f"norm_{name}"]
        return (x[:2] + 1j * x[2:]) * np.exp(1j * position / np.array([1.0, 100.0]))

    for h, i in np.ndindex(2, 3):
        q = pairs("q", h, i, i + 2)
        scores = [(q * pairs("k", h, j, j).conj()).real.sum() / 2 for j in range(i + 3)]
        powers = np.exp(scores)
        expected = powers / powers.sum() @ given["v"][0, h, : i + 3]
        np.testing.assert_allclose(exact[0, h, i].astype(float), expected, rtol=1e-12, atol=1e-12)


def test_heads_of_differential_attention_come_in_pairs(registry: Registry) -> None:
    with pytest.raises(BadCase, match="H = 5 and Hkv = 1 must be even"):
        check_case(parse_case("differential/scaled_dot/H5-Hkv1-L8-D8"), registry)
