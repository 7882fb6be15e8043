"""Verdicts: the words, the correction for many comparisons, and what an unclear one says to do."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from attnbench.stats.tests import LEVEL, fewest_repetitions, sign_test
from attnbench.stats.verdict import FALSE_DISCOVERIES, Verdict, benjamini_hochberg, decide, verdicts
from attnbench.types.extensions import WORDS
from attnbench.types.record import Record

SURE = 2 / 512
P_VALUES = st.lists(st.floats(0.0, 1.0), max_size=40)


def record(backend: str = "mine", case: str = "case", **fields: Any) -> Record:
    """Ten percent slower for sure, unless said otherwise."""
    told: dict[str, Any] = {
        "ratio": 1.1, "ratio_low": 1.09, "ratio_high": 1.11, "ratio_confidence": 0.96,
        "p_value": SURE, "baseline": "base", "delta": 0.02, "repetitions": 9,
    }  # fmt: skip
    return Record(case, "dot", backend, **{"status": "ok", **told, **fields})


def test_the_example_of_benjamini_and_hochberg() -> None:
    """Their section 4: of fifteen p-values, four are told at a rate of 0.05; Bonferroni would tell three."""
    p_values = [
        0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344,
        0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000,
    ]  # fmt: skip
    adjusted = benjamini_hochberg(p_values)
    assert sum(p <= 0.05 for p in adjusted) == 4
    assert sum(15 * p <= 0.05 for p in p_values) == 3
    assert adjusted == pytest.approx(
        [0.0015, 0.003, 0.0095, 0.035625, 0.0603, 0.063857, 0.063857, 0.0645,
         0.0765, 0.486, 0.581182, 0.714875, 0.753231, 0.813214, 1.0], abs=1e-6,
    )  # fmt: skip


@given(P_VALUES, st.integers(0, 2**16))
def test_adjusting_is_blind_to_the_order(p_values: list[float], seed: int) -> None:
    places = Random(seed).sample(range(len(p_values)), len(p_values))
    mixed = benjamini_hochberg([p_values[place] for place in places])
    assert mixed == [benjamini_hochberg(p_values)[place] for place in places]


@given(P_VALUES, st.floats(0.0, 1.0))
def test_it_rejects_what_the_step_up_rule_rejects(p_values: list[float], rate: float) -> None:
    """The rule as it was published: the largest k with p_(k) <= k rate / m, and all up to it."""
    m, ordered = len(p_values), sorted(p_values)
    passing = [p for k, p in enumerate(ordered, 1) if p * (m / k) <= rate]
    limit = max(passing, default=-1.0)
    assert [after <= rate for after in benjamini_hochberg(p_values)] == [p <= limit for p in p_values]


@pytest.mark.parametrize(
    ("ratio", "low", "high", "p", "adjusted", "word"),
    [
        (1.1, 1.05, 1.15, SURE, SURE, "slower"),
        (0.9, 0.85, 0.95, SURE, SURE, "faster"),
        (1.0, 0.99, 1.01, 0.5, 0.5, "same"),
        (1.01, 1.005, 1.015, SURE, SURE, "same"),
        (1.0, 1 / 1.02, 1.02, 1.0, 1.0, "same"),
        (1.0, 0.98, 1.0, 1.0, 1.0, "unclear"),
        (1.0, 0.99, 1.021, 0.5, 0.5, "unclear"),
        (1.1, 1.05, 1.15, 0.0079, SURE, "unclear"),
        (1.1, 1.05, 1.15, SURE, 0.051, "unclear"),
        (1.019, 1.01, 1.03, SURE, SURE, "unclear"),
        (0.981, 0.97, 0.99, SURE, SURE, "unclear"),
        (1.0, None, None, 1.0, 1.0, "unclear"),
        (2.0, None, None, 0.25, 0.25, "unclear"),
        (2.0, 1.9, 2.1, None, None, "unclear"),
        (2.0, 1.9, 2.1, SURE, None, "unclear"),
    ],
)
def test_the_words(
    ratio: float, low: float | None, high: float | None, p: float | None, adjusted: float | None, word: str
) -> None:
    assert decide(ratio, low, high, p, adjusted, 0.02) == word


POSITIVE = st.floats(0.5, 2.0)


@given(
    st.tuples(POSITIVE, POSITIVE, POSITIVE).map(sorted), st.floats(0.0, 1.0), st.floats(0.0, 1.0),
    st.floats(1e-4, 0.5),
)  # fmt: skip
def test_what_each_word_promises(bounds: list[float], p: float, further: float, delta: float) -> None:
    low, ratio, high = bounds
    adjusted = min(1.0, p + further)
    word = decide(ratio, low, high, p, adjusted, delta)
    assert word in WORDS
    proved_same = 1 / (1 + delta) <= low <= high <= 1 + delta
    assert (word == "same") == proved_same
    if word in ("slower", "faster"):
        assert p <= LEVEL
        assert adjusted <= FALSE_DISCOVERIES
        assert ratio > 1 + delta if word == "slower" else ratio < 1 / (1 + delta)


@given(
    st.tuples(POSITIVE, POSITIVE, POSITIVE).map(sorted), st.sampled_from([0.001, 0.5]), st.floats(1e-4, 0.5),
    st.floats(0.0, 1.0),
)  # fmt: skip
def test_a_larger_least_effect_never_finds_a_difference_nor_loses_a_same(
    bounds: list[float], p: float, delta: float, more: float
) -> None:
    low, ratio, high = bounds
    word, later = (decide(ratio, low, high, p, p, d) for d in (delta, delta + more))
    assert later in {"same": ("same",), "unclear": ("same", "unclear")}.get(word, (word, "unclear", "same"))


@given(st.floats(1e-6, 1.0), st.integers(1, 8))
def test_fewest_repetitions_are_the_fewest(level: float, spread: int) -> None:
    n = fewest_repetitions(level)
    assert sign_test([1.0] * n) <= level
    assert n == 1 or sign_test([1.0] * (n - 1)) > level
    assert sign_test([1.0] * (n + spread)) <= level


def test_a_verdict_for_each_comparison() -> None:
    """Not for the baseline, nor what has no ratio to it, nor what is not ok."""
    found = verdicts(
        [
            record("base", ratio=1.0, ratio_low=None, ratio_high=None, p_value=None),
            record("slow"),
            record("quick", ratio=0.5, ratio_low=0.45, ratio_high=0.55),
            record("alike", ratio=1.0, ratio_low=0.99, ratio_high=1.01, p_value=1.0),
            record("alone", ratio=None, ratio_low=None, ratio_high=None, p_value=None),
            record("doubted", status="suspect"),
            Record("case", "dot", "wrong", "mismatch", "wrong numbers"),
        ]
    )
    assert {backend: verdict.word for (_, backend), verdict in found.items()} == {
        "slow": "slower", "quick": "faster", "alike": "same",
    }  # fmt: skip
    assert all(verdict.reason == "" for verdict in found.values())
    # Of three, two share the least p-value.
    assert found["case", "slow"].p_adjusted == pytest.approx(SURE * 3 / 2)
    assert found["case", "alike"].p_adjusted == 1.0
    assert verdicts([]) == {}


def test_a_baseline_that_has_a_p_value_of_itself_is_still_none() -> None:
    assert verdicts([record("base", ratio=1.0, p_value=1.0)]) == {}


def test_the_family_is_all_comparisons_given_and_each_counts_once() -> None:
    others = [record(case=f"case {i}", p_value=0.9, ratio_low=0.8, ratio=1.0) for i in range(39)]
    alone, among = verdicts([record()]), verdicts([record(), *others, record()])
    assert alone["case", "mine"] == Verdict("slower", SURE, "")
    assert (among["case", "mine"].word, among["case", "mine"].hint) == ("unclear", "chance")
    assert among["case", "mine"].p_adjusted == pytest.approx(40 * SURE)


def test_of_several_records_the_last_counts() -> None:
    found = verdicts([record(), record(ratio=0.9, ratio_low=0.89, ratio_high=0.91)])
    assert found == {("case", "mine"): Verdict("faster", SURE, "")}


FEW = (
    "repetitions can show large differences only: give --repetitions 9 or more; "
    "where a call takes long, a larger --budget"
)


@pytest.mark.parametrize(
    ("fields", "hint", "reason"),
    [
        ({"repetitions": 8, "p_value": 2 / 256}, "few repetitions", f"8 {FEW}"),
        ({"repetitions": 9, "p_value": 0.25, "ratio_low": None, "ratio_high": None}, "", f"9 {FEW}"),
        (
            {"ratio_low": 0.99, "p_value": 20 / 512},
            "",
            "repetitions disagree by more than --delta (2 %): give a larger --budget, "
            "for more and longer ones",
        ),
        (
            {"ratio": 1.05, "ratio_low": 1.03, "ratio_high": 1.1, "p_value": 20 / 512},
            "chance",
            "too few repetitions agree that it differs (sign test): give a larger --budget, "
            "for more and longer ones",
        ),
        (
            {"ratio": 1.024, "ratio_low": 1.01, "ratio_high": 1.04, "delta": 0.025},
            "small",
            "differs, by about --delta (2.5 %): give a larger --budget, or another --delta",
        ),
    ],
)
def test_an_unclear_verdict_says_why_and_has_a_word_if_its_interval_leaves_out_1(
    fields: dict[str, Any], hint: str, reason: str
) -> None:
    verdict = verdicts([record(**fields)])["case", "mine"]
    assert (verdict.word, verdict.hint, verdict.reason) == ("unclear", hint, reason)


@given(st.integers(9, 14), st.integers(2, 200))
def test_one_among_many_is_told_a_number_of_repetitions_that_would_do(repetitions: int, family: int) -> None:
    p = sign_test([1.0] * repetitions)
    assume(p * family > FALSE_DISCOVERIES)
    others = [record("mine", f"case {i}", p_value=1.0) for i in range(family - 1)]
    verdict = verdicts([record(p_value=p, repetitions=repetitions), *others])["case", "mine"]
    assert verdict.word == "unclear"
    assert f"chance among {family} comparisons" in verdict.reason
    (told,) = re.findall(r"give --repetitions (\d+) or more", verdict.reason)
    later = verdicts([record(p_value=sign_test([1.0] * int(told)), repetitions=int(told)), *others])
    assert later["case", "mine"].word == "slower"
    assert int(told) > repetitions
