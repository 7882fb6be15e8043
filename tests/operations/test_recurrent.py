"""Recurrent attention: the exact answer, and what its judge refuses and keeps."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recurrences
import torch
from batch_judge import Judge

import attnbench
from attnbench.backends.recurrent import RECURRENT_CHUNKED, RECURRENT_LOOP
from attnbench.cases.ids import parse_case
from attnbench.cases.select import check_case
from attnbench.inputs.draw import EPS, draw_inputs, draw_parameters, widen_inputs, widened
from attnbench.inputs.kinds import NORMAL
from attnbench.ipc.names import PLAIN
from attnbench.operations.recurrent import ADVICE
from attnbench.oracle.solve import solve_outputs
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.testing.diagnose import diagnose
from attnbench.testing.diagnosis_process import Look
from attnbench.testing.judge import plan
from attnbench.types.backend import Setup
from attnbench.types.case import Case
from attnbench.types.errors import BadCase
from attnbench.types.rule import Rule
from attnbench.verifier.case import passing_trivial_answer
from attnbench.verifier.errors import rounded

PLUGIN = str(Path(recurrences.__file__))
CASE = "recurrent/{}/B3-H4-Hkv2-L37-D8-Dv8/none/{}"
RULES = ("linear", "lightning", "gated", "delta", "gated_delta", "gated_delta_channels", "rwkv7", "selective")
RIGHT = ("step_by_step", *recurrences.RIGHT, "recurrent_loop")


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([PLUGIN])


@pytest.fixture(scope="module")
def judges(registry: Registry) -> Callable[[str], Judge]:
    """Open each case once."""
    return cache(lambda case: Judge(registry, case))


@pytest.mark.parametrize("rule", RULES)
def test_the_exact_answer_is_that_of_the_recurrence(registry: Registry, rule: str) -> None:
    """Written down for one head at a time, from the table of ONNX's LinearAttention."""
    case, record = parse_case(f"recurrent/{rule}/B2-H4-Hkv2-L9-D3-Dv5/none/float64"), registry.rule(rule)
    stored = draw_inputs(case, record, 3, 0)
    exact = solve_outputs(
        case, record, widened(draw_parameters(case, record), case), widen_inputs(case, record, stored)
    )
    for b in range(2):
        for h in range(4):
            S = stored["past_state"][b, h].copy()
            for i in range(9):
                q, k, v = stored["q"][b, h // 2, i], stored["k"][b, h // 2, i], stored["v"][b, h, i]
                removed = 0
                if rule == "rwkv7":
                    removed = np.outer(stored["b"][b, h, i], S.T @ stored["a"][b, h, i])
                if "decay" in stored:
                    g = stored["decay"][h] if rule == "lightning" else stored["decay"][b, h, i]
                    S = np.diag(np.exp(g * np.ones(3))) @ S
                if rule == "selective":
                    dt = stored["dt"][b, h, i]
                    S = np.exp(stored["rate"][h] * dt) * S
                    v = dt * v
                if "delta" in rule:
                    v = stored["beta"][b, h, i] * (v - S.T @ k)
                S = S + removed + np.outer(k, v)
                np.testing.assert_allclose(exact["out"][b, h, i], S.T @ q / 3**0.5, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(exact["state"][b, h], S, rtol=1e-12, atol=1e-12)


def test_two_pieces_with_the_state_handed_on_are_the_whole(registry: Registry) -> None:
    for rule in RULES:
        record = registry.rule(rule)
        cases = [parse_case(f"recurrent/{rule}/B2-H4-Hkv2-L{L}-D3-Dv5/none/float64") for L in (9, 4, 5)]
        given = widen_inputs(cases[0], record, draw_inputs(cases[0], record, 3, 0))

        def solved(case: Case, inputs: dict[str, Any], record: Rule = record) -> dict[str, Any]:
            return solve_outputs(case, record, widened(draw_parameters(case, record), case), inputs)

        whole, outs, state = solved(cases[0], given), [], given["past_state"]
        for case, steps in zip(cases[1:], (slice(4), slice(4, 9)), strict=True):
            own = {name: x if name == "rate" or x.ndim == 1 else x[:, :, steps] for name, x in given.items()}
            own["past_state"] = state
            piece = solved(case, own)
            outs.append(piece["out"])
            state = piece["state"].astype(np.float64)
        np.testing.assert_allclose(np.concatenate(outs, axis=2), whole["out"], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(state, whole["state"].astype(np.float64), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in ("linear", "delta")])
def test_a_decay_that_leaves_nothing_forgets_exactly(registry: Registry, rule: str) -> None:
    """Whatever came before step 5 of 9, where e^g is 0, no bit of what follows tells it."""
    for dtype, gone in (("float64", -20000.0), ("float32", -200.0)):
        case, record = parse_case(f"recurrent/{rule}/B2-H4-Hkv2-L9-D3-Dv5/none/{dtype}"), registry.rule(rule)
        given = draw_inputs(case, record, 3, 0)
        if rule == "lightning":
            given["decay"][:] = gone
        elif "rate" in given:
            given["rate"][:] = gone / given["dt"][:, :, 5].min()
        else:
            given["decay"][:, :, 5] = gone
        other = {name: array.copy() for name, array in given.items()}
        for name in {"k", "v", "a", "b"} & set(other):
            other[name][:, :, :5] *= 3
        other["past_state"] *= -7
        if "a" in given:  # What rwkv7 finds along a, it finds before the decay.
            given["b"][:, :, 5] = other["b"][:, :, 5] = 0
        setup = Setup(case, record, record.bind(case, {}), {}, {})
        prepared = [RECURRENT_LOOP.prepare(setup)]
        if rule in (RECURRENT_CHUNKED.rules or ()):
            prepared.append(RECURRENT_CHUNKED.prepare(setup))
        answers = []
        for inputs in (given, other):
            exact = solve_outputs(
                case, record, widened(draw_parameters(case, record), case), widen_inputs(case, record, inputs)
            )
            called = [call(*map(torch.from_numpy, inputs.values())) for call in prepared]
            answers.append([exact, *({"out": out.numpy(), "state": after.numpy()} for out, after in called)])
        for one, another in zip(*answers, strict=True):
            assert not np.array_equal(one["out"][:, :, :5], another["out"][:, :, :5])
            assert np.array_equal(one["out"][:, :, 5:], another["out"][:, :, 5:])
            assert np.array_equal(one["state"], another["state"])
            assert np.isfinite(np.asarray(one["out"], np.float64)).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("rule", RULES)
def test_right_kernels_are_kept(judges: Callable[[str], Judge], rule: str, dtype: str) -> None:
    judge = judges(CASE.format(rule, dtype))
    names = RIGHT if rule in ("rwkv7", "selective") else (*RIGHT, "recurrent_chunked")
    assert {name: found for name in names if (found := judge.problem(name))} == {}
    assert passing_trivial_answer(judge.opened) == ""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("mistake", recurrences.MISTAKES)
def test_a_wrong_kernel_is_refused_by_the_part(
    judges: Callable[[str], Judge], mistake: str, dtype: str
) -> None:
    problem = judges(CASE.format(recurrences.MISTAKES[mistake], dtype)).problem(mistake)
    in_state = {
        "state_transposed", "state_before_the_last_step", "state_with_the_scale", "state_as_it_was",
        # In a bfloat16 case the output is rounded like that by right kernels too.
        *(["state_in_bfloat16"] if dtype == "bfloat16" else []),
    }  # fmt: skip
    assert f"the output {'state' if mistake in in_state else 'out'!r}: " in problem
    assert "worst at (b=" in problem


def test_what_needs_no_computation_is_tried(judges: Callable[[str], Judge]) -> None:
    opened = judges(CASE.format("gated_delta", "float32")).opened
    tried = opened.judging.trivial_answers(opened.draw(0))
    assert set(tried) == {"zeros", "the initial state alone", "each step's own key and value alone"}


@pytest.mark.slow
def test_a_known_mistake_is_named(registry: Registry) -> None:
    """Others are not given the name of one that they resemble."""
    found = {}
    for backend, rule in (recurrences.MISTAKES | {"by_heads": "gated_delta"}).items():
        look = Look(CASE.format(rule, "float32"), registry.rules[rule].source, ("normal",))
        found[backend] = diagnose(look, backend, registry.backends[backend].source)
    names = {backend: one.mistake for backend, one in found.items() if one.mistake}
    assert names == recurrences.KNOWN
    assert found["beta_twice"].do == (
        "Your output equals the known mistake “beta applied twice”: multiply v - Sᵀk by beta once: not v or "
        "k too."
    )


def test_inputs_that_alone_show_a_mistake_have_advice(
    registry: Registry, judges: Callable[[str], Judge]
) -> None:
    for backend, (kind, rule) in recurrences.ON_STRESS_INPUTS.items():
        case = CASE.format(rule, "float32")
        assert f"on the stress input {kind}: " in judges(case).problem(backend)
        look = Look(case, registry.rules[rule].source, (kind,))
        found = diagnose(look, backend, registry.backends[backend].source)
        assert (found.do, found.mistake) == (ADVICE[kind], "")


@pytest.mark.parametrize("rule", ["delta", "rwkv7"])
def test_a_step_may_be_a_product_with_a_matrix(registry: Registry, rule: str) -> None:
    """Each element is a sum of D products, so it is rounded more often than by an update that is added."""
    judge = Judge(registry, f"recurrent/{rule}/H1-L256-D128-Dv32/none/float32")
    assert judge.problem(recurrences.BY_MATRICES) == ""
    assert "the output" in judge.problem("state_in_bfloat16")


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("rule", "dtype"),
    [
        ("gated", "float32"), ("gated_delta", "bfloat16"), ("linear", "float32"), ("linear", "bfloat16"),
        ("gated_delta_channels", "float32"), ("gated_delta_channels", "bfloat16"),
    ],
)  # fmt: skip
def test_limits_hold_over_a_hundred_thousand_steps(registry: Registry, rule: str, dtype: str) -> None:
    judge = Judge(registry, f"recurrent/{rule}/H2-L100000-D4-Dv4/none/{dtype}")
    assert judge.problem("recurrent_chunked") == ""
    assert "the output" in judge.problem("state_in_bfloat16")


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("recurrent/linear/H2-Lq4-Lk5-D8", "Lq = 4 and Lk = 5 must be equal"),
        ("recurrent/linear/H2-L8-D8/causal", "recurrent has no mask"),
        ("recurrent/scaled_dot/H2-L8-D8", "scaled_dot is a scoring rule, which recurrent has not"),
        ("attention/delta/H2-L8-D8", "delta is the update of a recurrence, which attention has not"),
    ],
)
def test_what_a_recurrence_can_not_have_is_refused(registry: Registry, case: str, reason: str) -> None:
    with pytest.raises(BadCase, match=reason):
        check_case(parse_case(case), registry)


def test_the_conformance_kit_makes_cases_of_all_updates(registry: Registry) -> None:
    planned = plan(registry, ["step_by_step"])
    cases = [parse_case(case) for case in planned.cases(large=False)]
    assert {case.rule for case in cases} == set(RULES)
    assert {case.operation for case in cases} == {"recurrent"}
    dense = {case.Lq for case in cases if not case.batch}
    assert dense >= {1, 17, 63, 64, 65}
    assert {(case.rule, case.group > 1) for case in cases if case.Lq in (63, 64)} == {
        ("lightning", True), ("gated", True),
    }  # fmt: skip
    packed = [
        case.batch for case in (parse_case(one) for one in plan(registry, ["packed"]).cases(large=False))
    ]
    assert any("_q0_" in batch and "q63_q64_q65" in batch for batch in packed)


@pytest.mark.slow
def test_a_run_checks_and_times_both_built_in_backends(tmp_path: Path) -> None:
    run = attnbench.run(
        ["recurrent/gated_delta/H4-Hkv2-L40-D8"],
        ["recurrent_loop", "recurrent_chunked", "eager"],
        baseline="recurrent_loop",
        repetitions=1,
        budget=0.02,
        out=tmp_path,
    )
    records: dict[str, Any] = {record.backend: record for record in run.records}
    assert records["eager"].reason == "computes attention and multihead, not recurrent"
    for name in ("recurrent_loop", "recurrent_chunked"):
        assert (records[name].status, records[name].reason) == ("ok", "")
        assert records[name].median_ms > 0
        assert set(records[name].parts) == {"out", "state"}


@pytest.mark.parametrize(
    "case", [CASE.format("linear", "bfloat16"), "attention/scaled_dot/H2-L9-D8/none/bfloat16"]
)
def test_in_half_precision_limits_are_the_reference_s_error_and_one_gap(
    judges: Callable[[str], Judge], case: str
) -> None:
    """What else right kernels differ by is in float32, and less than a hundredth of that."""
    opened = judges(case).opened
    accuracy = opened.judge(PLAIN).accuracy
    drawn = [opened.draw(at).expected["out"] for at, one in enumerate(opened.stress_inputs) if one == NORMAL]
    gap = EPS["bfloat16"] * float(np.sqrt(np.mean(np.square(drawn))))
    assert accuracy.rms_limit == pytest.approx(2 * (accuracy.reference_rms + gap), rel=0.01)


def test_a_coarser_arithmetic_is_named_and_not_assumed(judges: Callable[[str], Judge]) -> None:
    """Nobody knows how errors of another operation scatter, so a backend must say what it computes in."""
    opened = judges(CASE.format("linear", "float32")).opened
    for index in range(len(opened.stress_inputs)):
        rough = {
            name: rounded(exact.astype(np.float64), "tf32").astype(np.float32)
            for name, exact in opened.draw(index).expected.items()
        }
        assert opened.score("coarse", index, rough) == ""
    judged = opened.judge("coarse")
    assert judged.arithmetic == ""
    assert "declare computes_in='tf32'" in judged.problem


def test_in_half_precision_an_arithmetic_is_declared_for_the_state(
    judges: Callable[[str], Judge], tmp_path: Path
) -> None:
    """The output is held to its dtype all the same."""
    case = CASE.format("gated_delta", "bfloat16")
    judge = judges(case)
    assert "declare computes_in='bfloat16'" in judge.problem("state_in_bfloat16")
    assert judge.opened.judge("state_in_bfloat16", (), "bfloat16").problem == ""
    judge.problem("beta_twice")
    assert "the output 'out': " in judge.opened.judge("beta_twice", (), "bfloat16").problem
    small = "recurrent/gated_delta/H2-L9-D8/none/bfloat16"
    run = attnbench.run([small], [recurrences.DECLARED], plugins=[PLUGIN], timed=False, out=tmp_path)
    (record,) = run.records
    assert (record.status, record.reason) == ("inaccurate", "in bfloat16 arithmetic, as the backend declares")
