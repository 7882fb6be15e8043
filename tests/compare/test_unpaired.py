"""One stored run against another: by hand, and by how often identical code is called different."""

from __future__ import annotations

from math import exp, log
from statistics import quantiles

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.stats.unpaired import (
    FEWEST,
    MARGIN,
    Drift,
    SideTimes,
    compare_unpaired,
    drift_beside,
    drift_together,
    moved_calls,
    percent,
    reference_drift,
)

CALM = Drift(reference=0.0, beside=0.0)
NINE = tuple(1e5 * (1 + i / 1000) for i in range(9))
VALUES = st.lists(st.floats(-1, 1), min_size=1, max_size=12)


def moved(side: SideTimes, factor: float) -> SideTimes:
    return SideTimes(tuple(factor * ns for ns in side.times_ns), side.calls_ns, side.parents)


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=30))
def test_the_spread_is_from_the_first_tenth_to_the_last(values: list[float]) -> None:
    side = SideTimes(tuple(map(exp, values)))
    tenths = quantiles(values, n=10, method="inclusive")
    assert side.spread(whole=False) == pytest.approx(tenths[-1] - tenths[0], abs=1e-9)
    assert side.spread(whole=True) == pytest.approx(max(values) - min(values), abs=1e-9)


def test_forks_of_one_process_that_differ_from_those_of_another_widen_the_spread() -> None:
    steps = (1.0,) * 7 + (exp(1.0),) * 2
    assert SideTimes(steps, parents=(0,) * 7 + (1,) * 2).spread(whole=False) == pytest.approx(1.0)
    alike = (1e5,) * 9
    assert SideTimes(alike).spread(whole=True) == 0
    assert SideTimes(alike, parents=(0, 1, 2) * 3).spread(whole=True) == 0
    assert SideTimes(alike, parents=(0,) * 9).spread(whole=False) == 0.05


def test_a_lone_repetition_differs_as_its_calls_do_or_by_a_factor_of_two() -> None:
    assert SideTimes((5.0,), (1, 2, 5, 6, 9)).spread(whole=False) == pytest.approx(log(3))
    assert SideTimes((5.0,)).spread(whole=False) == pytest.approx(log(2))


def test_the_median_reference_call_shows_how_far_the_machine_moved() -> None:
    base = {"a": (10.0, 10.0, 99.0), "b": (10.0,), "c": (10.0,), "gone": (1.0,)}
    new = {"a": (11.0,), "b": (20.0,), "c": (8.0,), "late": (1.0,)}
    assert reference_drift(moved_calls(base, new)) == pytest.approx(log(1.25))
    assert reference_drift(moved_calls(new, base)) == pytest.approx(log(1.25))
    assert reference_drift(moved_calls({}, new)) is None
    assert reference_drift(moved_calls({"c": (0.0, float("nan"), float("inf"), -1.0)}, new)) is None


def test_three_other_backends_are_enough_and_their_median_counts() -> None:
    assert drift_beside([0.1, -0.3, 0.2]) == pytest.approx(0.1)
    assert drift_beside([-0.3, -0.2, -0.1]) == pytest.approx(0.2)
    assert drift_beside([0.1, 0.2]) is None


@pytest.mark.parametrize(
    ("logs", "moved", "together"),
    [
        ([0.3, 0.2], [], 0.2),
        ([-0.3, -0.2, -0.4], [], 0.2),
        ([0.3, -0.01], [], None),  # one of them stayed: the machine did too
        ([0.3, 0.0], [], None),
        ([0.3, 0.2, 0.4, 0.3], [], None),  # the other three show it
        # 28 % beside reference calls that moved by 9 % was the machine.
        ([0.25, 0.25], [0.01, 0.09], 0.25),
        ([0.25, 0.25], [0.01, 0.06], None),
        ([0.25], [0.09], 0.25),
        ([0.25], [0.01], None),
        ([0.25], [], None),
    ],
)
def test_few_backends_that_move_together_need_calm_reference_calls(
    logs: list[float], moved: list[float], together: float | None
) -> None:
    assert drift_together(logs, moved) == together


def test_the_largest_known_drift_counts() -> None:
    assert [Drift(0.03).most, Drift(None, 0.03).most, Drift(None, None, 0.03).most] == [0.03] * 3
    assert Drift(0.01, 0.02).most == Drift(0.02, 0.01).most == 0.02
    assert Drift().most == 0


def test_the_resolution_is_both_spreads_with_their_margin_and_the_drift() -> None:
    base, drift = SideTimes(NINE), Drift(reference=0.01, beside=0.03)
    spread = base.spread(whole=False)
    found = compare_unpaired(base, moved(base, 1.2), drift, 0.02)
    far = MARGIN * 2 * spread + 0.03
    assert found.resolution == pytest.approx(exp(far) - 1)
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx((1.2 * exp(-far), 1.2 * exp(far)))
    assert found.word == "slower"
    assert compare_unpaired(base, moved(base, exp(0.99 * far)), drift, 0.02).word == "unclear"
    assert compare_unpaired(base, moved(base, exp(-1.01 * far)), drift, 0.02).word == "faster"


@given(VALUES, VALUES, st.floats(0, 0.2))
def test_exchanging_the_sides_exchanges_the_words(base: list[float], new: list[float], drift: float) -> None:
    sides = SideTimes(tuple(map(exp, base))), SideTimes(tuple(map(exp, new)))
    there = compare_unpaired(*sides, Drift(drift), 0.02)
    back = compare_unpaired(*reversed(sides), Drift(drift), 0.02)
    assert there.word == {"slower": "faster", "faster": "slower"}.get(back.word, back.word)
    assert log(there.ratio) == pytest.approx(-log(back.ratio), abs=1e-12)
    assert (there.interval is None) == (min(len(base), len(new)) < FEWEST)


def drawn(rng: np.random.Generator, servers: float, pairs: int, count: int) -> np.ndarray:
    """Times of identical code: forks that differ by 1 %, of servers that differ ``servers`` times as much."""
    own = rng.normal(0, 0.01 * servers, (pairs, 3))
    return np.asarray(1e5 * np.exp(own[:, np.arange(count) % 3] + rng.normal(0, 0.01, (pairs, count))))


@pytest.mark.parametrize(("servers", "count", "most"), [(0.0, 9, 0), (2.0, 9, 4), (0.0, 6, 1), (0.0, 25, 0)])
def test_identical_code_is_hardly_ever_called_different(servers: float, count: int, most: int) -> None:
    """most: of 4,000 pairs of runs."""
    rng = np.random.default_rng(0)
    base, new = drawn(rng, servers, 4000, count), drawn(rng, servers, 4000, count)
    parents = tuple(i % 3 for i in range(count))
    words = [
        compare_unpaired(
            SideTimes(tuple(b), parents=parents), SideTimes(tuple(n), parents=parents), CALM, 1e-9
        ).word
        for b, n in zip(base.tolist(), new.tolist(), strict=True)
    ]
    assert words.count("slower") + words.count("faster") <= most


@pytest.mark.parametrize(
    ("base", "new", "factor", "word"),
    [
        # Found in runs of identical code: numpy on additive, sdpa_math on one query.
        ((1, 1), (1, 0), 1.57, "unclear"),
        ((7, 4), (1, 1), 1.27, "unclear"),
        ((1, 1), (7, 4), 0.79, "unclear"),
        ((1, 1), (1, 1), 1.57, "slower"),
        ((7, 4), (6, 4), 1.27, "slower"),
        ((7, 4), (3, 2), 1.27, "slower"),
        ((7, 4), (1, 1), 2.2, "slower"),
        ((), (1, 0), 1.57, "slower"),
    ],
)
def test_calls_in_a_row_explain_a_factor_of_two(
    base: tuple[int, ...], new: tuple[int, ...], factor: float, word: str
) -> None:
    sides = SideTimes(NINE, in_a_row=base), SideTimes(tuple(factor * ns for ns in NINE), in_a_row=new)
    found = compare_unpaired(*sides, CALM, 0.02)
    assert found.word == word
    if word == "unclear":
        assert f"samples had {sum(base)} and {sum(new)} calls in a row" in found.reason


def test_a_share_is_told_as_a_factor_where_it_is_beyond_all_use() -> None:
    told = {0.0234: "2.3 %", 0.12: "12 %", 9.9: "990 %", 9.99: "1,000 %", 10.0: "a factor of 11"}
    told |= {0.1: "10 %", 210.0: "a factor of 210"}
    assert {share: percent(share) for share in told} == told
