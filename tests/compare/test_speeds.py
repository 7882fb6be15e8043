"""Two modes are found where there are two, and hardly ever where there is one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from noise import autoregressive, cauchy, drift, normal, skewed

from attnbench.stats.summary import two_speeds

COUNTS = [36, 300]
TRIALS = 100


def two_modes(
    slow_share: float, factor: float, sd: float
) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda rng, n: rng.normal(0, sd, n) + (np.arange(n) < round(slow_share * n)) * np.log(factor)


ONE_MODE = {
    "normal 2 %": normal(0.02),
    "normal 20 %": normal(0.2),
    "normal 50 %": normal(0.5),
    "skewed": skewed(0.5),
    "heavy tails": cauchy(0.1),
    "heavy tail above": lambda rng, rows, n: np.abs(cauchy(0.3)(rng, rows, n)),
    "drift, quiet": lambda rng, rows, n: drift(0.5)(rng, rows, n) + rng.normal(0, 0.05, (rows, n)),
    "drift alone": drift(0.8),
    "flat": lambda rng, rows, n: rng.uniform(0, 0.8, (rows, n)),
    "bursts": lambda rng, rows, n: (
        skewed(1.0)(rng, rows, n) * (rng.random((rows, n)) < 0.1) + normal(0.03)(rng, rows, n)
    ),
    "slowly wandering by a few percent": autoregressive(0.99, 0.05),
    "wandering by much": autoregressive(0.8, 0.2),
}


def told(rows: np.ndarray) -> int:
    return sum(two_speeds(row) is not None for row in np.exp(rows).tolist())


@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize("name", ONE_MODE)
def test_one_mode_is_hardly_ever_taken_for_two(name: str, n: int) -> None:
    """At most one in a hundred, say; more than eight of 100 then come once in 10^6 times."""
    assert told(ONE_MODE[name](np.random.default_rng(n), TRIALS, n)) <= 8


@pytest.mark.parametrize(
    ("slow_share", "factor", "sd", "n"),
    [
        (0.5, 1.8, 0.05, 36), (0.5, 1.8, 0.1, 100), (0.15, 1.8, 0.03, 100), (0.85, 1.8, 0.03, 100),
        (0.15, 1.8, 0.05, 300), (0.85, 1.8, 0.05, 300), (0.15, 1.8, 0.1, 3000), (0.3, 1.4, 0.03, 100),
    ],
)  # fmt: skip
def test_two_modes_are_found(slow_share: float, factor: float, sd: float, n: int) -> None:
    rng = np.random.default_rng(1)
    rows = np.array([two_modes(slow_share, factor, sd)(rng, n) for _ in range(TRIALS)])
    assert told(rows) >= 0.95 * TRIALS
    found = two_speeds(np.exp(rows[0]).tolist())
    assert found is not None
    assert found.fast == pytest.approx(1.0, rel=0.05)
    assert found.slow == pytest.approx(factor, rel=0.05)
    assert found.slow_share == pytest.approx(slow_share, abs=0.03)


@pytest.mark.parametrize(
    "times",
    [[], [5.0], [1.0] * 100, [1.0] * 95 + [9.0] * 5, [1.0] * 50 + [1.1] * 50, [1.0] * 4 + [9.0] * 4],
    ids=["none", "one", "ties", "a rare mode", "modes that are near", "too few"],
)
def test_what_is_not_two_modes(times: list[float]) -> None:
    assert two_speeds(times) is None


def test_a_spike_with_a_spread_out_tail_is_one_mode() -> None:
    """The tail has its own median, with a gap before it, but is not gathered there."""
    tail = np.geomspace(4.0, 40.0, 150).tolist()
    assert two_speeds([1.0] * 850 + tail) is None
    gathered = np.linspace(10.0, 15.0, 150).tolist()
    assert two_speeds([1.0] * 850 + gathered) is not None


def test_a_shallow_dip_between_two_humps_is_one_mode_however_sure() -> None:
    rng = np.random.default_rng(3)
    humps = two_modes(0.5, 1.8, 0.17)(rng, 5_000)
    near = np.histogram(humps, bins=[-0.1, 0.1, 0.19, 0.39, 0.488, 0.688])[0]
    assert 0.5 * min(near[0], near[4]) < near[2] < 0.8 * min(near[0], near[4]), "there is a dip"
    assert two_speeds(np.exp(humps).tolist()) is None


@pytest.mark.parametrize("every", [2, 3, 7])
def test_modes_that_take_turns_are_found_among_very_many(every: int) -> None:
    found = two_speeds([1.8 if i % every == 0 else 1.0 for i in range(40_000)])
    assert found is not None
    assert found.slow_share == pytest.approx(1 / every, abs=0.01)


@given(st.lists(st.integers(1, 10**6), max_size=60), st.integers(0, 2**16), st.integers(0, 20))
def test_neither_order_nor_unit_matters(times: list[int], seed: int, power: int) -> None:
    rng = np.random.default_rng(seed)
    mixed = two_speeds((rng.permutation(times) * 2.0**power).tolist())
    straight = two_speeds(times)
    assert (mixed is None) == (straight is None)
    if mixed is not None and straight is not None:
        assert mixed.fast == pytest.approx(straight.fast * 2.0**power)
        assert mixed.slow_share == straight.slow_share
        assert straight.slow >= 1.25 * straight.fast * (1 - 1e-9)
