"""How often a contender is called follows from its warm-up and the budget, before measuring."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.runner.options import Options, sets_for
from attnbench.runner.plan import (
    FEWEST_SETS,
    LONGEST_SAMPLE_CALLS,
    MOST_SAMPLES,
    WARM_CALL_BELOW_S,
    call_time_ns,
    plan_all,
    plan_calls,
)
from attnbench.stats.interval import printed_interval
from attnbench.stats.protocol import STRETCHES, TURN_S
from attnbench.stats.verdict import LEVEL

DEFAULT = Options(budget_s=0.16, sets=8)

TRACES = st.lists(st.integers(0, 10**11), min_size=1, max_size=20)


def test_quick_calls_share_a_sample() -> None:
    plan = plan_calls(10_000, DEFAULT)
    assert (plan.calls, plan.samples, plan.warm_calls, plan.sets) == (40, 25, 20, 8)


def test_a_call_longer_than_a_turn_is_a_sample() -> None:
    plan = plan_calls(5_000_000, DEFAULT)
    assert (plan.calls, plan.samples, plan.warm_calls, plan.sets) == (1, 2, 0, 8)


def test_a_call_that_breaks_the_budget_takes_part_in_fewer_sets() -> None:
    plan = plan_calls(2_000_000_000, DEFAULT)
    assert (plan.calls, plan.samples, plan.sets) == (1, 1, FEWEST_SETS)
    few = plan_calls(2_000_000_000, Options(budget_s=0.16, sets=2))
    assert few.sets == 2, "not in more sets than there are"


def test_one_call_a_stretch_that_the_budget_nearly_pays_for_keeps_all_sets() -> None:
    """2 x 8 calls of 15 ms for a budget of 0.16 s."""
    assert plan_calls(15_000_000, DEFAULT).sets == 8


def test_warm_calls_last_as_long_as_they_should_and_are_one_at_least() -> None:
    assert plan_calls(10_000, DEFAULT).warm_calls == 20
    assert plan_calls(WARM_CALL_BELOW_S * 1e9 - 1, DEFAULT).warm_calls == 1
    assert plan_calls(WARM_CALL_BELOW_S * 1e9, DEFAULT).warm_calls == 0


def test_a_contender_is_as_fast_as_the_quickest_call_of_its_warm_up() -> None:
    assert call_time_ns([10**9, 10_000, 20_000, 11_000]) == 10_000
    assert call_time_ns([0]) == 1


@given(TRACES, st.floats(1e-3, 100), st.integers(1, 50))
def test_there_is_always_something_to_measure(trace: list[int], budget_s: float, sets: int) -> None:
    plan = plan_calls(call_time_ns(trace), Options(budget_s=budget_s, sets=sets))
    assert 1 <= plan.calls <= LONGEST_SAMPLE_CALLS
    assert 1 <= plan.samples <= MOST_SAMPLES
    assert plan.warm_calls >= 0
    assert min(sets, FEWEST_SETS) <= plan.sets <= sets


@given(st.integers(1_000, 10**7), st.floats(0.05, 100))
def test_the_budget_is_kept_where_calls_are_short_enough(call_ns: int, budget_s: float) -> None:
    options = Options(budget_s=budget_s)
    plan = plan_calls(call_ns, options)
    spent_s = plan.calls * plan.samples * STRETCHES * plan.sets * call_ns / 1e9
    least_s = STRETCHES * plan.sets * max(call_ns / 1e9, 1.5 * TURN_S)
    assert spent_s <= max(1.01 * budget_s, least_s)
    # Nor is much of it left over.
    assert spent_s >= 0.4 * budget_s


@given(st.integers(100, 10**8), st.floats(0.05, 100))
def test_samples_are_of_a_turn_or_one_call_until_there_are_enough_of_them(
    call_ns: int, budget_s: float
) -> None:
    plan = plan_calls(call_ns, Options(budget_s=budget_s))
    sample_s = plan.calls * call_ns / 1e9
    assert plan.calls == 1 or sample_s >= TURN_S / 1.5
    if plan.samples < MOST_SAMPLES // 2:
        assert plan.calls == 1 or sample_s <= 1.5 * TURN_S


@given(
    st.integers(1_000, 10**9),
    st.lists(st.floats(0.26, 3.9), max_size=6),
    st.floats(0.01, 10),
    st.integers(1, 25),
)
def test_contenders_about_as_fast_as_the_baseline_have_its_very_plan(
    baseline_ns: int, times: list[float], budget_s: float, sets: int
) -> None:
    """Another number of calls would itself make one look faster than the other."""
    traces = {f"b{i}": [round(baseline_ns * by), 10**12] for i, by in enumerate(times)}
    options = Options(budget_s=budget_s, sets=sets, baseline="base")
    plans = plan_all({**traces, "base": [10**12, baseline_ns]}, options)
    assert set(plans) == {"base", *traces}
    assert set(plans.values()) == {plan_calls(baseline_ns, options)}


@pytest.mark.parametrize("by", [0.2, 5.0])
def test_a_contender_far_from_the_baseline_has_a_plan_of_its_own(by: float) -> None:
    options = Options(baseline="base")
    plans = plan_all({"base": [50_000], "other": [round(50_000 * by)]}, options)
    assert plans == {
        "base": plan_calls(50_000, options),
        "other": plan_calls(round(50_000 * by), options),
    }
    assert plans["base"].calls != plans["other"].calls


def test_without_the_baseline_the_fastest_is_what_others_are_held_against() -> None:
    options = Options(baseline="absent")
    plans = plan_all({"a": [90_000], "b": [30_000], "c": [900_000]}, options)
    assert plans["a"] == plans["b"] == plan_calls(30_000, options)
    assert plans["c"] == plan_calls(900_000, options)
    assert plan_all({}, options) == {}


@given(st.dictionaries(st.sampled_from("abcd"), TRACES), st.floats(1e-3, 100))
def test_the_plan_of_all_is_a_plan_for_each(traces: dict[str, list[int]], budget_s: float) -> None:
    plans = plan_all(traces, Options(budget_s=budget_s, baseline="a"))
    assert list(plans) == list(traces)
    assert all(plan.calls >= 1 and plan.samples >= 1 for plan in plans.values())


@pytest.mark.parametrize(
    ("budget_s", "sets"),
    [(1e-9, 9), (0.1, 9), (0.249, 9), (0.25, 22), (1.999, 22), (2, 30), (3.9, 30), (4, 40), (1000, 40)],
)
def test_how_many_sets_a_budget_is_divided_into(budget_s: float, sets: int) -> None:
    assert sets_for(budget_s) == sets


@pytest.mark.parametrize("sets", sorted({sets_for(s) for s in (0.1, 0.25, 2, 4)}))
def test_sets_are_enough_for_a_verdict_and_a_narrow_interval(sets: int) -> None:
    """A sign test of all on one side, and an interval that, but for the fewest, leaves the outermost out."""
    assert 2 * 0.5**sets <= LEVEL
    interval = printed_interval([float(i) for i in range(sets)])
    assert interval is not None
    assert 0.95 <= interval.confidence <= 0.997
    assert interval.low > 0 or sets == 9
