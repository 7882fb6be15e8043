"""Which cases the kit makes of what a backend declares."""

from __future__ import annotations

from dataclasses import replace

import pytest

from attnbench import Backend, Case, Rule
from attnbench.plugins.registry import load_registry
from attnbench.testing.cases import candidates
from attnbench.testing.choosing import MOST, MOST_COMPILED, Choice, absent, ask, choose
from attnbench.testing.judge import plan, rules_in

RULES = rules_in(load_registry())
SIMPLE = Backend("mine", "a test", prepare=print, rules=("scaled_dot",), dtypes=("float32",))


def small(choice: Choice) -> list[Case]:
    return [one.case for one in choice.cases if not one.large]


def test_all_that_is_declared_is_asked_for() -> None:
    backend = replace(
        SIMPLE, rules=None, dtypes=("float32", "bfloat16"), passes=("forward", "backward", "both"),
        operations=("attention", "multihead"), dropout=True,
    )  # fmt: skip
    cases = small(choose(backend, RULES))
    assert {case.rule for case in cases} == set(RULES)
    assert {case.dtype for case in cases} == {"float32", "bfloat16"}
    assert {case.pass_ for case in cases} == {"forward", "backward", "both"}
    assert {case.operation for case in cases} == {"attention", "multihead"}
    assert [case.dropout for case in cases if case.dropout] == [0.2]
    assert MOST // 2 < len(cases) <= MOST + 1


def test_every_two_features_meet() -> None:
    cases = small(choose(SIMPLE, RULES))
    masks = {case.mask for case in cases}
    for of in (lambda c: c.Hkv < c.H, lambda c: c.Dv != c.D, lambda c: c.D % 8 != 0, lambda c: c.B > 1):
        assert {case.mask for case in cases if of(case)} == masks
    assert {(case.Lq > case.Lk) - (case.Lq < case.Lk) for case in cases} == {-1, 0, 1}
    assert any(case.Lq == 1 for case in cases)


def test_the_same_each_time_and_each_once() -> None:
    first, again = choose(SIMPLE, RULES), choose(SIMPLE, RULES)
    assert first == again
    assert len({one.id for one in first.cases}) == len(first.cases)


def test_what_is_declined_is_not_asked_for_and_counted() -> None:
    def supports(case: Case, rule: Rule) -> str | None:
        return None if case.mask.is_only_causal and case.Lq == case.Lk and case.D == 64 else "is particular"

    choice = choose(replace(SIMPLE, supports=supports), RULES)
    assert all(supports(case, RULES[case.rule]) is None for case in small(choice))
    assert len(small(choice)) >= 6
    assert 0 < choice.declined < choice.asked
    assert choice.findings == ()


def test_where_little_is_taken_more_is_asked_about() -> None:
    def supports(case: Case, rule: Rule) -> str | None:
        return None if case.mask.window == 9 and case.Lq == 33 else "is particular"

    first = candidates(SIMPLE, RULES)
    choice = choose(replace(SIMPLE, supports=supports), RULES)
    assert choice.asked > len(first)
    taken = choice.asked - choice.declined
    assert taken > sum(supports(one.case, RULES[one.case.rule]) is None for one in first)
    assert choose(SIMPLE, RULES).asked == len(first)


def test_with_dropout_there_is_more_than_one_query() -> None:
    backend = replace(SIMPLE, dropout=True)
    (with_dropout,) = [case for case in small(choose(backend, RULES)) if case.dropout]
    assert with_dropout.Lq > 1
    one_query = replace(backend, supports=lambda case, rule: None if case.Lq == 1 else "is particular")
    assert not any(case.dropout for case in small(choose(one_query, RULES)))


def test_large_cases_are_marked_and_made_easier_where_need_be() -> None:
    def supports(case: Case, rule: Rule) -> str | None:
        return None if case.mask.is_none and case.group == 1 else "is particular"

    large = [one.case for one in choose(replace(SIMPLE, supports=supports), RULES).cases if one.large]
    assert {max(case.Lq, case.Lk) for case in large} == {1100, 5000, 40}
    assert all(case.mask.is_none and case.Hkv == case.H for case in large)


def test_no_large_case_is_asked_of_a_rule_whose_plain_form_would_fill_the_memory() -> None:
    large = [one.case for one in choose(replace(SIMPLE, rules=("additive",)), RULES).cases if one.large]
    assert {max(case.Lq, case.Lk) for case in large} == {5000, 40}


def test_a_compiling_backend_gets_few() -> None:
    choice = choose(replace(SIMPLE, compiles=True), RULES)
    assert len(small(choice)) == MOST_COMPILED
    assert sum(one.large for one in choice.cases) == 1


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            {"supports": lambda case, rule: "no"},
            "supports() declined all ",
        ),
        ({"rules": ("mine",)}, "it declares the rule 'mine', but no loaded plugin brings this rule"),
        ({"rules": ("mine", "dot")}, "it declares the rule 'mine', but no loaded plugin brings this rule"),
        (
            {
                "passes": ("forward", "both"),
                "supports": lambda case, rule: "no" * (case.pass_ == "both") or None,
            },
            "it declares 'both' among its passes, but supports() declines every such case: no",
        ),
    ],
)
def test_declarations_that_mislead(change: dict[str, object], problem: str) -> None:
    found = choose(replace(SIMPLE, **change), RULES).findings  # type: ignore[arg-type]
    assert [(finding.about, finding.check) for finding in found] == [("declarations", "supports")]
    assert found[0].problem.startswith(problem)


def test_answers_of_supports() -> None:
    one = candidates(SIMPLE, RULES)[0]
    rule, answers, words = RULES[one.case.rule], iter([None, "not now"]), iter(["has none of 3", "none of 4"])
    backends = {
        "wordy": replace(SIMPLE, supports=lambda case, rule: next(words)),
        "fickle": replace(SIMPLE, supports=lambda case, rule: next(answers)),
        "empty": replace(SIMPLE, supports=lambda case, rule: " "),
        "fine": replace(SIMPLE, supports=lambda case, rule: "has no such kernel"),
        "leaves": replace(SIMPLE, supports=lambda case, rule: exit(2)),
    }
    found = {name: ask(backend, one.case, rule) for name, backend in backends.items()}
    assert "declines it at the second" in found["fickle"].fault
    assert found["empty"].fault == "supports() gave an empty reason: give None, or a reason in words"
    assert (found["fine"].reason, found["fine"].fault) == ("has no such kernel", "")
    # It declines both times, whatever its words are.
    assert (found["wordy"].reason, found["wordy"].fault) == ("has none of 3", "")
    assert found["leaves"].fault == "supports() raised SystemExit: 2"


def test_a_rule_is_judged_on_a_backend_for_any() -> None:
    choices = plan(load_registry(), (), ("softcap",)).choices
    assert {name: {one.case.rule for one in choice.cases} for name, choice in choices.items()} == {
        "eager": {"softcap"}
    }


def test_why_one_can_not_run_here() -> None:
    assert absent(SIMPLE) == ""
    assert absent(replace(SIMPLE, requires=("no_such_module",))) == (
        "needs no_such_module, which is not installed"
    )
    assert absent(replace(SIMPLE, available=lambda device: f"no {device}")) == "no cpu"
    raising = replace(SIMPLE, available=lambda device: str(1 / 0))
    assert absent(raising).startswith("available() raised ZeroDivision")
