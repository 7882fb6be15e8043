"""The cases that the kit makes from the declarations of a backend, and mistakes that they show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import wrong_shapes

from attnbench import Backend, Case, Rule
from attnbench.cases.variant import words_matter
from attnbench.plugins.registry import load_registry
from attnbench.runner.options import make_options
from attnbench.testing.cases import MOST, MOST_COMPILED, ChosenCases, absent, ask, candidates, choose
from attnbench.testing.findings import merged
from attnbench.testing.judge import located, plan, records_of, rules_in
from attnbench.types.mask import mask_text
from attnbench.types.mask_structures import STRUCTURES

RULES = rules_in(load_registry())
SIMPLE = Backend("mine", "a test", prepare=print, rules=("scaled_dot",), dtypes=("float32",))


def small(choice: ChosenCases) -> list[Case]:
    return [one.case for one in choice.cases if not one.large]


def test_the_cases_cover_all_that_is_declared_and_are_the_same_each_time() -> None:
    backend = replace(
        SIMPLE, rules=None, dtypes=("float32", "bfloat16"), passes=("forward", "backward", "both"),
        operations=("attention", "multihead"), dropout=True,
    )  # fmt: skip
    choice = choose(backend, RULES)
    cases = small(choice)
    assert {case.rule for case in cases} == {name for name, rule in RULES.items() if rule.kind == "scores"}
    assert {case.dtype for case in cases} == {"float32", "bfloat16"}
    assert {case.pass_ for case in cases} == {"forward", "backward", "both"}
    assert {case.operation for case in cases} == {"attention", "multihead"}
    assert [(case.dropout, case.Lq > 1) for case in cases if case.dropout] == [(0.2, True)]
    chosen = {case.rule for case in cases if case.constants}
    assert chosen == {rule.name for rule in RULES.values() if rule.constants and rule.kind == "scores"}
    assert MOST // 2 < len(cases) <= MOST + 1 + len(chosen)
    assert len({one.id for one in choice.cases}) == len(choice.cases)
    assert choose(backend, RULES) == choice


def test_a_backend_may_decline_constants() -> None:
    backend = replace(SIMPLE, supports=lambda case, rule: "divides by √D" if case.constants else None)
    assert [case.constants for case in small(choose(SIMPLE, RULES)) if case.constants] == [(("scale", 0.3),)]
    choice = choose(backend, RULES)
    assert not any(case.constants for case in small(choice))
    assert choice.findings == ()


def test_a_kernel_for_its_models_constants_is_asked_with_the_rules_examples() -> None:
    """It declines the default cap of 2 everywhere, and counted as refused."""

    def supports(case: Case, rule: Rule) -> str | None:
        if case.constant("c", 2.0) < 5:
            return "caps from 5 up"
        return None if "scale" not in dict(case.constants) else "divides by √D"

    choice = choose(replace(SIMPLE, rules=("scaled_dot", "softcap"), supports=lambda case, rule: (
        supports(case, rule) if rule.name == "softcap" else None
    )), RULES)  # fmt: skip
    capped = [one for one in choice.cases if one.case.rule == "softcap"]
    assert {one.case.constants for one in capped} == {(("c", 5),)}
    assert {one.large for one in capped} == {False, True}
    assert choice.declined == 0
    assert choice.findings == ()
    assert all(case.constants in ((), (("scale", 0.3),)) for case in small(choice) if case.rule != "softcap")


def test_every_two_features_meet() -> None:
    cases = small(choose(SIMPLE, RULES))
    masks = {case.mask for case in cases}
    for has in (lambda c: c.Hkv < c.H, lambda c: c.Dv != c.D, lambda c: c.D % 8 != 0, lambda c: c.B > 1):
        assert {case.mask for case in cases if has(case)} == masks
    assert {(case.Lq > case.Lk) - (case.Lq < case.Lk) for case in cases} == {-1, 0, 1}
    assert any(case.Lq == 1 for case in cases)


@pytest.mark.slow
def test_words_for_a_structure_are_asked_of_those_that_declare_them() -> None:
    def structured(**change: Any) -> list[Case]:
        return [case for case in small(choose(replace(SIMPLE, **change), RULES)) if case.mask.more]

    of_any = structured(masks=("any",))
    assert len(of_any) == 5
    assert {word.word for case in of_any for word in case.mask.more} == {word.word for word in STRUCTURES}
    assert {case.mask.causal for case in of_any} == {None, "upper_left", "lower_right"}
    assert all(case.Hkv < case.H and case.Lq > 1 and words_matter(case) for case in of_any)
    assert structured() == []
    some = structured(masks=("causal", "chunked", "tree"))
    assert {mask_text(case.mask) for case in some} == {
        "causal+chunked:9", "causal:lower_right+tree:0,0,1,0,3,5,2", "chunked:9",
        "causal:lower_right+chunked:9",
    }  # fmt: skip
    assert all(case.query_offset for case in some if case.mask.causal == "lower_right")
    # An image may end at the last key, and a prefix have all of them.
    ends = {(mask_text(case.mask), case.Lk) for case in structured(masks=("causal", "image", "prefix"))}
    assert ends >= {("causal:lower_right+image:3,6,61,4", 65), ("causal+prefix:33", 33)}
    one_word = structured(
        masks=("any",), supports=lambda case, rule: "one alone" if len(case.mask.words) > 2 else None
    )
    assert {len(case.mask.words) for case in one_word} == {1, 2}
    packed = structured(masks=("any",), storages=("packed",))
    assert packed, "a word that fits each sequence is asked in a batch too"
    assert all(case.storage == "packed" for case in packed)


def test_more_is_asked_where_little_is_taken() -> None:
    def supports(case: Case, rule: Rule) -> str | None:
        return None if case.mask.window == 9 and case.Lq == 33 else "is particular"

    choice = choose(replace(SIMPLE, supports=supports), RULES)
    assert all(supports(case, RULES[case.rule]) is None for case in small(choice))
    assert choice.asked > choose(SIMPLE, RULES).asked
    assert 0 < choice.declined < choice.asked
    assert choice.findings == ()


def test_a_kernel_for_the_heads_and_pages_of_one_model_is_asked() -> None:
    def supports(case: Case, rule: Rule) -> str | None:
        page = dict(case.sizes).get("page", 16)
        return None if case.D == 128 and page % 256 == 0 else "needs D = 128 and pages of 256"

    narrow = replace(SIMPLE, storages=("paged",), masks=("any",), supports=supports)
    found = small(choose(narrow, RULES))
    assert len({case.mask for case in found}) >= 5
    assert {(case.D, dict(case.sizes)["page"]) for case in found} == {(128, 256)}


def test_a_latent_head_has_narrower_values_and_a_scale() -> None:
    latent = replace(SIMPLE, encodings=("latent",), masks=("any",))
    found = small(choose(latent, RULES))
    assert found
    assert all("scale" in dict(case.constants) for case in found)
    assert any(case.Dv < case.D for case in found)
    assert any(case.Dv == case.D for case in found)


def test_large_cases_are_easier_where_a_backend_or_the_memory_needs_it() -> None:
    def supports(case: Case, rule: Rule) -> str | None:
        return None if case.mask.is_none and case.group == 1 else "is particular"

    def large(**change: object) -> list[Case]:
        choice = choose(replace(SIMPLE, **change), RULES)  # type: ignore[arg-type]
        return [one.case for one in choice.cases if max(one.case.Lq, one.case.Lk, 16 * one.case.B) > 1000]

    easier = large(supports=supports)
    assert {max(case.Lq, case.Lk) for case in easier} == {2049, 4097, 40}
    assert all(case.mask.is_none and case.Hkv == case.H for case in easier)
    # The plain form of this rule would fill the memory.
    assert {max(case.Lq, case.Lk) for case in large(rules=("additive",))} == {4097, 40}


def test_each_half_precision_has_a_case_of_many_keys() -> None:
    def long(backend: Backend) -> set[tuple[str, int, int]]:
        found = [one.case for one in choose(backend, RULES).cases]
        return {
            (case.dtype, case.Lq, case.Lk) for case in found if case.Lk > 4096 and case.dtype != "float32"
        }

    half = replace(SIMPLE, rules=("scaled_dot",), dtypes=("float32", "bfloat16", "float16"))
    assert long(half) == {("bfloat16", 16, 8192), ("float16", 16, 8192)}
    as_many = replace(half, supports=lambda case, rule: None if case.Lq == case.Lk else "lengths differ")
    assert long(as_many) == {("bfloat16", 4097, 4097), ("float16", 4097, 4097)}


def test_a_compiling_backend_gets_few() -> None:
    choice = choose(replace(SIMPLE, compiles=True), RULES)
    assert (len(small(choice)), sum(one.large for one in choice.cases)) == (MOST_COMPILED, 1)


@pytest.mark.parametrize(
    ("change", "problem", "advice"),
    [
        ({"supports": lambda case, rule: "no"}, "supports() declined all ", "Return None for the cases"),
        ({"rules": ("mine",)}, "it declares the rule 'mine', but no loaded plugin brings", "Bring the rule"),
        ({"rules": ("mine", "dot")}, "it declares the rule 'mine', but no loaded plugin", "Bring the rule"),
        (
            {
                "passes": ("forward", "both"),
                "supports": lambda case, rule: "no" * (case.pass_ == "both") or None,
            },
            "it declares 'both' among its passes, but supports() declines every such case: no",
            "Remove 'both' from passes",
        ),
        ({"supports": lambda case, rule: 1 / 0}, "supports() raised ZeroDivisionError", "raise nothing"),
        (
            {"supports": lambda case, rule: case.B > 1 or None},
            "supports() gave a bool, True",
            "the reason as a string",
        ),
    ],
)
def test_declarations_that_mislead(change: dict[str, object], problem: str, advice: str) -> None:
    found = choose(replace(SIMPLE, **change), RULES).findings  # type: ignore[arg-type]
    assert {(finding.about, finding.check) for finding in found} == {("declarations", "supports")}
    assert len(merged(found)) == 1
    assert found[0].problem.startswith(problem)
    assert advice in found[0].do


@pytest.mark.parametrize(
    ("supports", "reason", "fault"),
    [
        (lambda case, rule: "has no such kernel", "has no such kernel", ""),
        (lambda case, rule: " ", "", "supports() gave an empty reason: give None, or a reason in words"),
        (lambda case, rule: exit(2), None, "supports() raised SystemExit: 2"),
        (iter([None, "not now"]), None, "supports() takes a case at the first call and declines it at"),
        # It declines both times, with other words.
        (iter(["has none of 3", "none of 4"]), "has none of 3", ""),
    ],
)
def test_answers_of_supports(supports: object, reason: str | None, fault: str) -> None:
    case = candidates(SIMPLE, RULES)[0].case
    asked = supports if callable(supports) else lambda case, rule: next(supports)
    answer = ask(replace(SIMPLE, supports=asked), case, RULES[case.rule])
    assert answer.reason == reason
    problem = answer.fault.problem if answer.fault else ""
    assert problem.startswith(fault)
    assert bool(problem) == bool(fault)


def test_a_rule_is_judged_on_a_backend_for_any() -> None:
    choices = plan(load_registry(), (), ("softcap",)).choices
    rules = {name: {one.case.rule for one in choice.cases} for name, choice in choices.items()}
    assert rules == {"eager": {"softcap"}}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, ""),
        ({"requires": ("no_such_module",)}, "needs no_such_module, which is not installed"),
        ({"available": lambda device: f"no {device}"}, "no cpu"),
        ({"available": lambda device: str(1 / 0)}, "available() raised ZeroDivisionError: division by zero"),
    ],
)
def test_a_backend_that_can_not_run_here(change: dict[str, object], reason: str) -> None:
    assert absent(replace(SIMPLE, **change)) == reason  # type: ignore[arg-type]


REACHED: dict[str, Callable[[Case], bool]] = {
    "wrong_scale at 80": lambda case: case.D == 80,
    "wrong_scale at 96": lambda case: case.D == 96,
    "third_group": lambda case: case.Hkv == 3 and case.H == 6,
    "last_key": lambda case: case.Lk == 385 and case.mask.is_none,
    "causal_rows": lambda case: case.mask.causal is not None and case.Lq > 2048,
    "rows": lambda case: case.Lq > 4096,
}
"""The cases in which each mistake shows."""


@pytest.mark.slow
@pytest.mark.parametrize("mistakes", [list(REACHED)[:4], list(REACHED)[4:]], ids=["small", "long"])
def test_mistakes_of_some_sizes_are_found(mistakes: list[str]) -> None:
    registry = located(Path(wrong_shapes.__file__)).registry
    names = ("attend", *(function.__name__ for function in wrong_shapes.WRONG))
    choices = plan(registry, names).choices
    asked: dict[str, tuple[str, ...]] = {}
    for mistake in mistakes:
        name, reached = mistake.partition(" ")[0], REACHED[mistake]
        case = next(one for one in choices[name].cases if reached(one.case))
        # Two mistakes may show in one case.
        asked[case.id] = (*asked.get(case.id, ("attend",)), name)
    found = {
        (record.case, record.backend): (record.status, record.failed_check)
        for record in records_of(asked, registry, make_options(timed=False))
    }
    assert found == {
        (case, name): ("ok", "") if name == "attend" else ("mismatch", "values")
        for case, both in asked.items()
        for name in both
    }


def test_every_two_sizes_meet() -> None:
    backend = replace(SIMPLE, dtypes=("float32", "bfloat16"))
    cases = [one.case for one in choose(backend, RULES).cases if one.large]
    lengths = {(case.Lq, case.Lk) for case in cases if 1 < case.Lq < 600 > case.Lk and case.B == 1}
    features = {16, 32, 64, 80, 96, 112, 128, 256}
    heads = {(3, 3), (6, 3), (8, 2), (6, 1), (7, 1), (16, 2)}
    for wanted, of in (
        (lengths, lambda case: (case.Lq, case.Lk)),
        (features, lambda case: case.D),
        (heads, lambda case: (case.H, case.Hkv)),
    ):
        for other, of_other in ((features, lambda case: case.D), (heads, lambda case: (case.H, case.Hkv))):
            if wanted is not other:
                assert {(of(case), of_other(case)) for case in cases} >= set(product(wanted, other))
    alone = {length for both in lengths for length in both}
    beside = {multiple + step for multiple in (16, 64, 128, 256, 512) for step in (-1, 0, 1)}
    assert beside <= alone
    assert {2049, 4097} <= {case.Lq for case in cases}
    assert {2049, 4097} <= {case.Lk for case in cases}
