"""How often a contender is called follows from its warm-up and the budget, before measuring."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from attnbench.runner.options import Options
from attnbench.runner.plan import FEWEST_SETS, plan_calls

DEFAULT = Options(budget_s=0.16, sets=8, rounds=2, sample_s=0.001)


def test_quick_calls_share_a_sample() -> None:
    plan = plan_calls((10_000, 10_000, 10_000), DEFAULT)
    assert plan.calls == 100
    assert plan.warm_calls == 1
    assert plan.samples == 10
    assert plan.sets == 8


def test_a_call_longer_than_a_sample_is_a_sample() -> None:
    plan = plan_calls((5_000_000,), DEFAULT)
    assert (plan.calls, plan.samples, plan.warm_calls, plan.sets) == (1, 2, 0, 8)


def test_a_call_that_breaks_the_budget_takes_part_in_fewer_sets() -> None:
    plan = plan_calls((2_000_000_000,), DEFAULT)
    assert (plan.calls, plan.samples, plan.sets) == (1, 1, FEWEST_SETS)


def test_only_the_end_of_the_warm_up_counts() -> None:
    assert plan_calls((10**9, 10_000, 10_000, 10_000), DEFAULT) == plan_calls((10_000,), DEFAULT)


@given(st.lists(st.integers(0, 10**11), min_size=1, max_size=20), st.floats(1e-3, 100), st.integers(1, 50))
def test_there_is_always_something_to_measure(trace: list[int], budget_s: float, sets: int) -> None:
    plan = plan_calls(tuple(trace), Options(budget_s=budget_s, sets=sets))
    assert plan.calls >= 1
    assert plan.samples >= 1
    assert 1 <= plan.sets <= sets


@given(st.integers(1_000, 10**7), st.floats(0.05, 10))
def test_the_budget_is_kept_where_calls_are_short_enough(call_ns: int, budget_s: float) -> None:
    options = Options(budget_s=budget_s)
    plan = plan_calls((call_ns,), options)
    spent_s = plan.calls * plan.samples * options.rounds * plan.sets * call_ns / 1e9
    least_s = options.rounds * plan.sets * max(call_ns / 1e9, 1.5 * options.sample_s)
    assert spent_s <= max(1.01 * budget_s, least_s)
