from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from judged import Judge
from maths_tools import RULES, small_case
from right_kernels import unfused
from wrong_kernels import scale_off, score_lost

from attnbench.cases.ids import parse_case
from attnbench.inputs.draw import EPS
from attnbench.kit.reference import PLAIN
from attnbench.testing.mistakes import VALUES as MISTAKES
from attnbench.types.case import DTYPES, Layer
from attnbench.types.mask import Mask
from attnbench.verifier.errors import MOST_RMS, Errors, Scale, verdict
from attnbench.verifier.parts import Drawn, OwnScale

OUTPUT, VALUES = Scale(0.5, 2.0), Scale(1.0, 3.0)


def errors(rms: float, largest: float, not_finite: str = "") -> Errors:
    return Errors(rms * rms * 100, 100, largest, (0, 1, 2, 3), 1.5, 1.0, not_finite)


def judged(mine: Errors, reference: Errors, dtype: str = "float32", rows: int = 8):
    return verdict(
        mine, reference, output=OUTPUT, values=VALUES, dtype=dtype, rows=rows, rows_of=8, draws=2, axes="bhie"
    )


@pytest.mark.parametrize(("dtype", "share"), [("float64", 1), ("float32", 1), ("bfloat16", 2**-16)])
def test_an_operation_says_how_far_its_right_kernels_are_off_in_gaps_of_float32(
    dtype: str, share: float
) -> None:
    draws = [Drawn({}, {"state": np.array(numbers)}) for numbers in ([3.0, 4.0], [1.0, 2.0])]
    limits = OwnScale("state", dtype, lambda drawn: (10.0, 20.0) if drawn is draws[0] else (5.0, 40.0))
    scale, _ = limits.scales(draws, "")
    assert scale.rms == pytest.approx(np.sqrt(30 / 4) * (1 + 10 * share))
    assert scale.largest == pytest.approx(4 * (1 + 40 * share))


def test_the_limits_are_those_of_the_design() -> None:
    eps = EPS["float32"]
    accuracy, problem = judged(errors(1e-7, 5e-7), errors(2e-7, 6e-7))
    assert accuracy.rms_limit == pytest.approx(2 * 2e-7 + 2 * eps * 0.5)
    assert accuracy.max_limit == pytest.approx(4 * 6e-7 + 4 * eps * 2)
    assert (accuracy.reference_rms, accuracy.reference_max) == (2e-7, 6e-7)
    assert accuracy.error_budget == pytest.approx(0.5)
    assert (accuracy.rows, accuracy.rows_of, accuracy.draws) == (8, 8, 2)
    assert problem == ""


def test_a_reason_names_both_limits_and_the_worst_element() -> None:
    _, problem = judged(errors(0.1, 0.5), errors(0.0, 0.0))
    assert problem == (
        "RMS error 0.1 is above 1.19e-07, largest error 0.5 is above 9.54e-07; "
        "worst at (b=0, h=1, i=2, e=3): got 1.5, expected 1"
    )
    _, problem = judged(errors(1e-8, 0.5), errors(0.0, 0.0), rows=3)
    assert problem == (
        "largest error 0.5 is above 9.54e-07; "
        "worst at (b=0, h=1, i=2, e=3) (i counts the 3 rows compared): got 1.5, expected 1"
    )


def test_a_reason_shows_by_how_much_two_numbers_differ() -> None:
    near = replace(errors(0.1, 0.5), got=1.6007512, expected=1.6007514)
    assert judged(near, errors(0.0, 0.0))[1].endswith("got 1.6007512, expected 1.6007514")


def test_what_is_no_number_is_refused_however_small_the_rest() -> None:
    assert judged(errors(0, 0, "element (b=0) is not finite"), errors(1, 1))[1].startswith("element (b=0)")
    assert judged(errors(float("nan"), 0.0), errors(0, 0))[1]


def test_exact_results_pass_where_the_reference_is_exact_and_values_are_zero() -> None:
    exact = errors(0.0, 0.0)
    _, problem = verdict(
        exact, exact, output=Scale(0, 0), values=Scale(0, 0), dtype="float32", rows=8, rows_of=8, draws=2
    )
    assert problem == ""


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_wrong_reference_does_not_raise_the_limit(dtype: str) -> None:
    accuracy, problem = judged(errors(0.9, 2.0), errors(0.9, 2.0), dtype)
    assert accuracy.rms_limit <= 2 * (MOST_RMS[dtype] + 1) * EPS[dtype] * 1.0001
    far_off, _ = judged(errors(0.9, 1e6), errors(0.9, 1e6), dtype)
    assert far_off.max_limit <= 4 * (4 * MOST_RMS[dtype] + 1) * EPS[dtype] * 3 * 1.0001
    if dtype in ("float32", "float64"):
        assert "do the rule's torch and NumPy forms agree?" in problem
    assert judged(errors(EPS[dtype], EPS[dtype]), errors(0.9, 2.0), dtype)[1] == ""


def test_the_mean_of_the_values_is_refused_in_bfloat16_however_many_keys_there_are() -> None:
    case = small_case(B=1, H=1, Hkv=1, Lq=16, Lk=1 << 15, D=64, Dv=64, dtype="bfloat16")
    judge = Judge(case, draws=1)
    means = [v.mean(dim=2, keepdim=True).expand(1, 1, 16, 64) for _, _, v in judge.inputs]
    assert judge.verdict(means)[1]


@pytest.mark.parametrize("rule", sorted(RULES))
def test_one_percent_on_answers_or_scores_is_refused_in_float32(rule: str) -> None:
    judge = Judge(small_case(rule, Lq=16, Lk=16, D=16, Dv=16))
    assert judge.verdict([torch.from_numpy(1.01 * answer).float() for answer in judge.expected])[1]
    assert not judge.verdict([torch.from_numpy(answer).float() for answer in judge.expected])[1]
    if RULES[rule].has_dot_form:
        assert judge.of(scale_off(0.01))[1]


def test_a_kernel_without_the_cap_is_refused_even_in_bfloat16() -> None:
    judge = Judge(small_case("softcap", B=1, Lq=64, Lk=64, D=64, Dv=64, dtype="bfloat16"))
    (uncapped,) = (mistake for mistake in MISTAKES if mistake.name == "cap_forgotten")
    call = uncapped.prepare(judge.setup)
    assert judge.verdict([call(*inputs) for inputs in judge.inputs])[1]
    assert not judge.of(unfused)[1]


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize(
    ("dtype", "layer"),
    [
        *((dtype, None) for dtype in DTYPES),
        ("float64", Layer(12)),
        ("float32", Layer(12, bias=True, cross=True)),
        ("bfloat16", Layer(12, bias=True)),
        ("float16", Layer(12, out=False)),
    ],
    ids=str,
)
def test_the_plain_reference_is_no_further_off_than_rounding(
    rule: str, dtype: str, layer: Layer | None
) -> None:
    mask = Mask(causal="lower_right", padding="seeded", explicit="float")
    judge = Judge(small_case(rule, Lq=9, Lk=7, dtype=dtype, layer=layer, mask=mask), draws=2)
    unit = EPS[dtype] * float(np.sqrt(np.mean(np.square(judge.values))))
    assert judge.reference.not_finite == ""
    assert 0 < judge.reference.rms < 4 * unit
    assert judge.verdict([PLAIN.prepare(judge.setup)(*inputs) for inputs in judge.inputs])[1] == ""


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_forgives_rounding_but_no_key_that_is_left_out(dtype: str) -> None:
    judge = Judge(parse_case(f"attention/scaled_dot/H1-L1024-D32/none/{dtype}"), draws=1)
    accuracy, problem = judge.of(unfused)
    assert problem == ""
    assert accuracy.error_budget < 1.5
    for share in (0.01, 0.05, 0.2):
        left_out = score_lost(lambda n, share=share: slice(n - round(share * n), n))
        assert "is above" in judge.of(left_out)[1]
