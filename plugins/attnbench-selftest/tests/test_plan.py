"""What is planned: quick forms that are quick, full ones that can show what is claimed."""

from __future__ import annotations

import pytest

from attnbench.cases.identity import case_id
from attnbench.plugins.registry import load_registry
from attnbench.runner.plan import sets_for
from attnbench_selftest.rates import lower_bound, upper_bound
from attnbench.selftest.commands import NAMES, TRIALS, estimated_s, terms_of
from attnbench_selftest.plan import (
    Choices,
    aa_parts,
    coverage_launches,
    exact_parts,
    overhead_parts,
    power_parts,
)
from attnbench_selftest.plan import Part, seconds
from attnbench_selftest.measure import registry
from attnbench.types.errors import BadInput

QUICK, FULL = Choices(), Choices(full=True)


def cells(parts: tuple[Part, ...], length: int, percent: int = 0) -> int:
    return sum(
        len(part.cases) * part.together * (len(part.contenders) - 1)
        for part in parts
        if (part.length, part.percent) == (length, percent)
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_quick_form_is_planned_to_take_less_than_two_minutes(name: str) -> None:
    assert 10 < estimated_s(name, QUICK) < 120


@pytest.mark.parametrize("name", NAMES)
def test_a_full_form_takes_longer_and_less_than_a_night(name: str) -> None:
    assert estimated_s(name, QUICK) < estimated_s(name, FULL) < 8 * 3600


@pytest.mark.parametrize(("length", "budget_s", "sets"), [(16, 0.5, 22), (512, 2.0, 30)])
@pytest.mark.parametrize("choices", [QUICK, FULL])
def test_identical_contenders_are_measured_as_the_targets_say(
    choices: Choices, length: int, budget_s: float, sets: int
) -> None:
    (part,) = (part for part in aa_parts(choices) if part.length == length)
    assert (part.budget_s, part.sets) == (budget_s, sets)
    assert sets == sets_for(budget_s)


@pytest.mark.parametrize(
    ("length", "percent", "budget_s"), [(16, 5, 0.25), (16, 3, 1.0), (512, 5, 1.0), (512, 3, 4.0)]
)
@pytest.mark.parametrize("choices", [QUICK, FULL])
def test_slowdowns_are_planted_as_the_targets_say(
    choices: Choices, length: int, percent: int, budget_s: float
) -> None:
    (part,) = (p for p in power_parts(choices) if (p.length, p.percent) == (length, percent))
    assert (part.budget_s, part.sets) == (budget_s, sets_for(budget_s))
    assert part.contenders[0] == "copy_0"
    assert all(name.startswith(f"plus{percent}_") for name in part.contenders[1:])


def test_full_forms_can_show_their_targets() -> None:
    aa, power = aa_parts(FULL), power_parts(FULL)
    assert upper_bound(2, cells(aa, 16) + cells(aa, 512)) <= 0.002
    for length in (16, 512):
        assert lower_bound(228, 234) >= 0.95
        assert cells(aa, length) >= 234
        assert cells(power, length, 3) >= 234
        assert cells(power, length, 5) >= 773
    (exact,) = exact_parts(FULL)
    assert exact.trials * 91 >= 5000
    plan = coverage_launches(FULL)
    assert plan.launches * (len(plan.part.contenders) - 1) * len(plan.lengths) >= 1338


def test_quick_exact_has_cases_enough_to_refute() -> None:
    (part,) = exact_parts(QUICK)
    assert len(part.cases) >= 3
    assert (part.sets, len(part.contenders)) == (9, 14)


def test_cases_are_told_apart_by_seed() -> None:
    part = Part(16, ("copy_0",), 0.1, 9, trials=5, together=2)
    assert [case_id(case) for case in part.cases] == [
        f"attention/scaled_dot/B1-H4-Lq16-Lk16-D32/none/float32/cpu/forward{seed}"
        for seed in ("", "/seed1", "/seed2")
    ]


def test_what_the_user_says_goes_over_what_is_planned() -> None:
    said = Choices(lengths=(512,), device="cuda", budget_s=0.1, sets=9, trials=1)
    (part,) = aa_parts(said)
    assert (part.length, part.budget_s, part.sets, part.trials, part.together) == (512, 0.1, 9, 1, 1)
    assert [case.device for case in part.cases] == ["cuda"]
    assert [part.length for part in overhead_parts(Choices(lengths=(512,)))] == [1]
    assert coverage_launches(said).launches == 1
    assert coverage_launches(said).lengths == (512,)
    assert [part.length for part in exact_parts(said)] == [512]


def test_overhead_is_of_the_cpu() -> None:
    with pytest.raises(BadInput, match="measured on the cpu"):
        overhead_parts(Choices(device="cuda"))


def test_time_grows_with_all_that_takes_it() -> None:
    part = Part(16, ("copy_0", "copy_1"), 0.5, 17, trials=2, together=2)
    assert part.measuring_s == 2.0
    from dataclasses import replace

    for more in (
        replace(part, budget_s=1.0),
        replace(part, sets=34),
        replace(part, trials=4),
        replace(part, contenders=("a", "b", "c")),
    ):
        assert more.seconds > part.seconds
    assert seconds([part, part]) == 2 * seconds([part]) == seconds([part], 2)


@pytest.mark.parametrize(
    ("choices", "without", "stress", "whole", "as_planned", "leave_out"),
    [
        (QUICK, (), False, True, True, True),
        (FULL, (), False, True, True, True),
        (Choices(trials=3), (), False, True, True, True),
        (Choices(budget_s=0.1), (), False, True, False, True),
        (Choices(sets=9), (), False, True, False, True),
        (QUICK, (), True, True, False, True),
        (QUICK, ("pinning",), False, False, False, True),
        (QUICK, ("preemption",), False, False, False, False),
    ],
)
def test_what_counts_against_a_build(
    choices: Choices, without: tuple[str, ...], stress: bool, whole: bool, as_planned: bool, leave_out: bool
) -> None:
    terms = terms_of(choices, without, stress)
    assert (terms.whole, terms.as_planned, terms.leave_out) == (whole, as_planned, leave_out)
    assert terms.delta == 0.02


def test_contenders_are_the_self_tests_alone() -> None:
    ours, all_that_is_listed = registry(), load_registry()
    assert ours.faults == ()
    planned = {
        name
        for plan, _ in TRIALS.values()
        for choices in (QUICK, FULL)
        for part in plan(choices)
        for name in part.contenders
    }
    assert planned <= set(ours.backends)
    assert not planned & set(all_that_is_listed.backends)
    assert set(ours.backends) - set(all_that_is_listed.backends) >= planned
    assert set(coverage_launches(FULL).part.contenders) <= set(all_that_is_listed.backends)
