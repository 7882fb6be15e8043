"""The number of calls follows from warm-up and budget; orders favour no candidate."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.runner.options import Options, repetitions_for
from attnbench.runner.plan import (
    FEWEST_REPETITIONS,
    LONGEST_SAMPLE_CALLS,
    MOST_SAMPLES,
    WARM_CALL_BELOW_S,
    plan_all,
    plan_calls,
    plan_candidates,
)
from attnbench.runner.slot_order import order_of_slots
from attnbench.stats.protocol import SAMPLE_S, SEGMENTS
from attnbench.stats.tests import LEVEL, time_interval
from attnbench.types.compared import BASE, HEAD, parts_of, sided
from attnbench.types.record import CheckResult

TRACES = st.lists(st.integers(0, 10**11), min_size=1, max_size=20)
SEEDS = st.integers(0, 2**32)
SAMPLES = st.dictionaries(st.sampled_from("abcdefghi"), st.integers(1, 30))


@pytest.mark.parametrize(
    ("call_ns", "repetitions", "expected"),
    [
        (10_000, 8, (40, 25, 20, 8)),
        (5_000_000, 8, (1, 2, 1, 8)),
        # Two segments of one call of 15 ms in 8 repetitions, for a budget of 0.16 s.
        (15_000_000, 8, (1, 1, 1, 8)),
        (2_000_000_000, 8, (1, 1, 0, 8)),
        (20_000_000_000, 8, (1, 1, 0, FEWEST_REPETITIONS)),
        (20_000_000_000, 2, (1, 1, 0, 2)),
        (WARM_CALL_BELOW_S * 1e9 - 1, 8, (1, 1, 1, 8)),
        (WARM_CALL_BELOW_S * 1e9, 8, (1, 1, 0, 8)),
    ],
)
def test_calls_by_the_time_of_one(call_ns: float, repetitions: int, expected: tuple[int, ...]) -> None:
    plan = plan_calls(call_ns, Options(budget_s=0.16, repetitions=repetitions))
    found = (plan.calls, plan.samples, plan.warm_calls, plan.repetitions)
    assert (found[0], found[2:]) == (expected[0], expected[2:])
    assert abs(found[1] - expected[1]) <= 1


@given(TRACES, st.floats(1e-3, 100), st.integers(1, 50))
def test_there_is_always_something_to_measure(trace: list[int], budget_s: float, repetitions: int) -> None:
    plan = plan_all({"a": trace}, Options(budget_s=budget_s, repetitions=repetitions))["a"]
    assert 1 <= plan.calls <= LONGEST_SAMPLE_CALLS
    assert 1 <= plan.samples <= MOST_SAMPLES
    assert plan.warm_calls >= 0
    assert min(repetitions, FEWEST_REPETITIONS) <= plan.repetitions <= repetitions
    assert plan.segments in (1, SEGMENTS)


@given(st.integers(1_000, 10**7), st.floats(0.05, 100))
def test_the_budget_is_kept_and_used_where_calls_are_short_enough(call_ns: int, budget_s: float) -> None:
    plan = plan_calls(call_ns, Options(budget_s=budget_s))
    assert plan.segments == SEGMENTS
    spent_s = plan.calls * plan.samples * SEGMENTS * plan.repetitions * call_ns / 1e9
    least_s = SEGMENTS * plan.repetitions * max(call_ns / 1e9, 1.5 * SAMPLE_S)
    assert 0.4 * budget_s <= spent_s <= 1.000001 * max(1.01 * budget_s, least_s)
    sample_s = plan.calls * call_ns / 1e9
    assert plan.calls == 1 or sample_s >= SAMPLE_S / 1.5
    if plan.samples < MOST_SAMPLES // 2:
        assert plan.calls == 1 or sample_s <= 1.5 * SAMPLE_S


@given(
    st.integers(1_000, 10**9),
    st.lists(st.floats(0.26, 3.9), max_size=6),
    st.floats(0.01, 10),
    st.integers(1, 25),
)
def test_candidates_about_as_fast_as_the_baseline_have_its_very_plan(
    baseline_ns: int, times: list[float], budget_s: float, repetitions: int
) -> None:
    """Another number of calls would itself make one look faster than the other."""
    traces = {f"b{i}": [round(baseline_ns * by), 10**12] for i, by in enumerate(times)}
    options = Options(budget_s=budget_s, repetitions=repetitions, baseline="base")
    plans = plan_all({**traces, "base": [10**12, baseline_ns]}, options)
    assert set(plans) == {"base", *traces}
    assert set(plans.values()) == {plan_calls(baseline_ns, options)}


def test_candidates_far_from_the_baseline_have_a_plan_of_their_own() -> None:
    options = Options(baseline="base")
    for other_ns in (10_000, 250_000):
        plans = plan_all({"base": [50_000], "other": [other_ns]}, options)
        assert plans == {"base": plan_calls(50_000, options), "other": plan_calls(other_ns, options)}
    # Without the baseline, the fastest takes its place.
    plans = plan_all({"a": [90_000], "b": [30_000], "c": [900_000]}, options)
    assert plans["a"] == plans["b"] == plan_calls(30_000, options)
    assert plans["c"] == plan_calls(900_000, options)
    assert plan_all({}, options) == {}
    # A side is held against the base of the baseline.
    sides = plan_all({"eager@base": [50_000], "eager@head": [40_000]}, Options())
    assert set(sides.values()) == {plan_calls(50_000, Options())}


def test_plans_say_how_a_candidate_is_started_and_why() -> None:
    def found(call_ms: float = 0.1, *, fresh: bool = True) -> CheckResult:
        return CheckResult(None, 1.0, 1.0, [call_ms], fresh, ["found"])

    checked = {"quick": found(), "kept": found(fresh=False), "slow": found(2e3), "slower": found(9e3)}
    plans = plan_candidates(checked, Options(), note="shared")
    assert plans["quick"].notes == ["shared", "found"]
    assert "so intervals may be too narrow; a second run" in plans["kept"].notes[1]
    assert (plans["slow"].repetitions, plans["slow"].segments, plans["quick"].segments) == (9, 1, SEGMENTS)
    words = f"slow: measured in {FEWEST_REPETITIONS} of 9 repetitions; a larger --budget allows all"
    assert plans["slower"].notes[1] == words


@pytest.mark.parametrize(
    ("budget_s", "repetitions"),
    [(1e-9, 9), (0.249, 9), (0.25, 22), (1.999, 22), (2, 30), (3.9, 30), (4, 40), (1000, 40)],
)
def test_repetitions_follow_from_the_budget_and_are_enough_for_a_verdict(
    budget_s: float, repetitions: int
) -> None:
    assert repetitions_for(budget_s) == repetitions
    assert 2 * 0.5**repetitions <= LEVEL
    interval = time_interval([float(i) for i in range(1, repetitions + 1)])
    assert 0.95 <= interval.confidence <= 0.997
    assert interval.low > 1 or repetitions == 9


# --- orders ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [3, 4, 5])
def test_each_candidate_follows_each_other_about_equally_often(size: int) -> None:
    follows: Counter[tuple[str, str]] = Counter()
    first: Counter[str] = Counter()
    for seed in range(300):
        order = order_of_slots(dict.fromkeys("abcde"[:size], 6), Random(seed))
        follows.update(pairwise(order))
        first[order[0]] += 1
    assert len(follows) == size * (size - 1)
    assert max(follows.values()) < 1.25 * min(follows.values())
    assert max(first.values()) < 2 * min(first.values())


@given(SAMPLES, SEEDS)
def test_every_candidate_has_as_many_slots_as_samples_spread_evenly(
    samples: dict[str, int], seed: int
) -> None:
    """One with every slot counts the rounds; another is never two rounds from where it belongs."""
    rounds = max(samples.values(), default=0) + 1
    order = order_of_slots({**samples, "clock": rounds}, Random(seed))
    assert Counter(order) == {**samples, "clock": rounds}
    so_far: Counter[str] = Counter()
    for name in order:
        so_far[name] += 1
        for other, count in samples.items():
            due = so_far["clock"] * count / rounds
            assert abs(so_far[other] - due) <= 1.5 + count / rounds, (other, so_far)


def test_two_candidates_alternate_and_either_may_begin() -> None:
    orders = {tuple(order_of_slots({"a": 5, "b": 5}, Random(seed))) for seed in range(40)}
    assert orders == {("a", "b") * 5, ("b", "a") * 5}
    assert order_of_slots({}, Random(0)) == []
    assert order_of_slots({"a": 3}, Random(0)) == ["a"] * 3


@given(st.lists(st.sampled_from("abcdef"), min_size=1, unique=True), st.integers(1, 12), SEEDS)
def test_sides_follow_each_other_in_every_round_and_go_first_as_often(
    backends: list[str], rounds: int, seed: int
) -> None:
    samples = {sided(name, side): rounds for name in backends for side in (BASE, HEAD)}
    order = order_of_slots(samples, Random(seed))
    assert len(order) == len(samples) * rounds
    assert all(before != after for before, after in pairwise(order))
    firsts = Counter(order[::2])
    for first, second in zip(order[::2], order[1::2], strict=True):
        assert parts_of(first)[0] == parts_of(second)[0]
        assert parts_of(first)[1] != parts_of(second)[1]
    if len(backends) > 1:
        assert all(abs(firsts[f"{name}@base"] - firsts[f"{name}@head"]) <= 1 for name in backends)
