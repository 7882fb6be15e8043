"""Whom the self-test of the judge asks for what: everybody, on cases where their mistake can show."""

from __future__ import annotations

from itertools import combinations

import pytest

from attnbench.cases.identity import case_id, parse_case
from attnbench.cli.selftest_judge import WITHOUT as WORDS
from attnbench_selftest.judge_plan import covering_cases
from attnbench_selftest.judge_plan import BRIEF, FULL, Extent, Round, plan
from attnbench_selftest.judge import BASELINE, WITHOUT, options_without, registry
from attnbench_selftest.mutants import MUTANTS
from attnbench.types.errors import BadInput

REGISTRY = registry()
RULES = {name: entry.record for name, entry in REGISTRY.rules.items()}
BY_NAME = {mutant.backend_name: mutant for mutant in MUTANTS}


@pytest.fixture(scope="module", params=[FULL, BRIEF], ids=["full", "brief"])
def rounds(request: pytest.FixtureRequest) -> tuple[Extent, list[Round]]:
    return request.param, plan(MUTANTS, RULES, 3, request.param)


def test_everybody_is_asked(rounds: tuple[Extent, list[Round]]) -> None:
    asked = {name for one in rounds[1] for names in one.mutants.values() for name in names}
    assert asked == set(BY_NAME)


def test_nobody_is_asked_for_what_does_not_show_it(rounds: tuple[Extent, list[Round]]) -> None:
    for one in rounds[1]:
        for text, names in one.mutants.items():
            case = parse_case(text)
            assert [name for name in names if not BY_NAME[name].runs(case, RULES[case.rule])] == []
            assert len(set(names)) == len(names)


def test_timed_ones_are_timed_and_others_checked(rounds: tuple[Extent, list[Round]]) -> None:
    for one in rounds[1]:
        traits = {
            BY_NAME[name].trait for names in one.mutants.values() for name in names if not BY_NAME[name].right
        }
        assert (traits == {"timed"}) if one.timed else ("timed" not in traits)


@pytest.mark.slow
def test_in_full_each_has_its_number_of_cases_or_all_there_are() -> None:
    checked, _ = plan(MUTANTS, RULES, 3, FULL)
    for mutant in MUTANTS:
        if mutant.trait != "timed":
            able = sum(mutant.runs(case, RULES[case.rule]) for case in covering_cases(3))
            times = sum(mutant.backend_name in names for names in checked.mutants.values())
            assert times == min(able, FULL.right if mutant.right else FULL.wrong)


def test_a_seed_is_a_selection_and_other_inputs() -> None:
    one, other, again = (plan(MUTANTS, RULES, seed, FULL)[0] for seed in (1, 2, 1))
    assert one == again
    assert not set(one.mutants) & set(other.mutants)


def test_every_two_conditions_meet() -> None:
    cases = covering_cases(1)
    of = {
        "rule": lambda case: case.rule,
        "mask": lambda case: case.mask,
        "dtype": lambda case: case.dtype,
        "pass": lambda case: case.pass_,
        "layer": lambda case: case.layer is not None,
        "group": lambda case: case.group > 1,
        "order": lambda case: (case.Lq > case.Lk) - (case.Lq < case.Lk),
    }
    for left, right in combinations(of, 2):
        a, b = of[left], of[right]
        met = {(a(case), b(case)) for case in cases}
        assert met == {(x, y) for x in {a(c) for c in cases} for y in {b(c) for c in cases}}, (left, right)
    assert {case.rule for case in cases} == set(RULES)
    assert len({case_id(case) for case in cases}) == len(cases)


def test_the_words_for_checks_are_those_that_can_be_left_out() -> None:
    assert set(WORDS) == set(WITHOUT)
    assert options_without(["renewal"], timed=True).verified is False
    assert options_without(["loud"], timed=False).without == ("loud",)
    with pytest.raises(BadInput, match="no check 'louder'"):
        options_without(["louder"], timed=False)


def test_the_baseline_is_right_everywhere() -> None:
    assert BY_NAME[BASELINE].right
    for case in covering_cases(1):
        assert BY_NAME[BASELINE].runs(case, RULES[case.rule])
