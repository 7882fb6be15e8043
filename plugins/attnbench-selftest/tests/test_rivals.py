"""Each peer's rule on samples whose answer is known, and against the same test computed elsewhere."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from attnbench_selftest.rivals import bootstrap_medians, mann_whitney_p, t_test_p
from hypothesis import given
from hypothesis import strategies as st

from attnbench.plugins.registry import load_registry
from attnbench.plugins.sources import installed
from attnbench.types.extensions import WORDS, SampleSets, Word

RULES = {
    entry.record.name: entry.record
    for entry in load_registry(
        s for s in installed() if s.module == "attnbench_selftest.rivals"
    ).verdict_rules.values()
}
GATES = {"median_5pct", "min_5pct"}

X = np.array([30.02, 29.99, 30.11, 29.97, 30.01, 29.99])
Y = np.array([29.89, 29.93, 29.72, 29.98, 30.02, 29.98])
"""The two samples of screw weights of the article on Student's t-test in the English Wikipedia."""

samples = st.lists(st.floats(1, 1e6), min_size=2, max_size=12)


def said(name: str, candidate: SampleSets, baseline: SampleSets) -> Word:
    return RULES[name].decide(candidate, baseline)


def spread(centre: float, count: int = 40) -> list[float]:
    """Samples around a centre, evenly within ±1 %."""
    return [centre * (0.99 + 0.02 * i / (count - 1)) for i in range(count)]


def test_all_peers_of_the_protocol_are_there() -> None:
    assert list(RULES) == ["median_5pct", "min_5pct", "t_test", "pyperf", "u_test", "bootstrap", "asv"]


def test_welch_and_student_on_a_published_example() -> None:
    """Published: p = 0.09077 of unequal, 0.07857 of equal variances."""
    assert t_test_p(X, Y, one_variance=False) == pytest.approx(0.09077, abs=5e-6)
    assert t_test_p(X, Y, one_variance=True) == pytest.approx(0.07857, abs=5e-6)


@pytest.mark.parametrize(
    "p_of", [partial(t_test_p, one_variance=False), partial(t_test_p, one_variance=True), mann_whitney_p]
)
def test_samples_that_do_not_vary_have_a_p_value_too(p_of: object) -> None:
    same, more = np.full(5, 3.0), np.full(5, 4.0)
    assert p_of(same, same) == 1  # type: ignore[operator]
    assert p_of(same, more) < 0.05  # type: ignore[operator]


def test_mann_whitney_in_small_is_exact() -> None:
    """Three all above three: 2 of 20 orders are as extreme."""
    assert mann_whitney_p(np.array([4.0, 5, 6]), np.array([1.0, 2, 3])) == pytest.approx(0.1)


@pytest.mark.parametrize("count", [2, 5, 6, 31, 40])
def test_medians_of_resamples_are_distributed_as_if_they_were_resampled(count: int) -> None:
    values = np.random.default_rng(7).lognormal(size=count)
    rng = np.random.default_rng(8)
    made = np.median(rng.choice(values, size=(20_000, count)), axis=1)
    ours = np.concatenate([bootstrap_medians(values, rng) for _ in range(10)])
    for q in (0.025, 0.25, 0.5, 0.75, 0.975):
        at = np.quantile(made, q)
        assert np.mean(ours <= at) == pytest.approx(np.mean(made <= at), abs=0.015)
        assert np.mean(ours < at) == pytest.approx(np.mean(made < at), abs=0.015)


def test_the_bootstrap_is_seeded() -> None:
    x, y = [spread(100.0)], [spread(100.3)]
    assert len({said("bootstrap", x, y) for _ in range(5)}) == 1


@pytest.mark.parametrize("name", RULES)
def test_a_fifth_more_is_slower_and_a_fifth_less_is_faster(name: str) -> None:
    base = [spread(100.0), spread(100.0)]
    assert said(name, [spread(120.0), spread(120.0)], base) == "slower"
    assert said(name, [spread(80.0), spread(80.0)], base) == ("unclear" if name in GATES else "faster")


@pytest.mark.parametrize("name", RULES)
def test_the_very_same_samples_are_unclear_and_never_the_same(name: str) -> None:
    assert said(name, [spread(100.0)], [spread(100.0)]) == "unclear"


@pytest.mark.parametrize(
    ("name", "factor", "word"),
    [
        ("median_5pct", 1.049, "unclear"),
        ("median_5pct", 1.051, "slower"),
        ("min_5pct", 1.049, "unclear"),
        ("min_5pct", 1.051, "slower"),
        ("asv", 1.099, "unclear"),
        ("asv", 1.101, "slower"),
        ("asv", 1 / 1.099, "unclear"),
        ("asv", 1 / 1.101, "faster"),
        ("t_test", 1.01, "slower"),
        ("pyperf", 1.01, "slower"),
        ("u_test", 1.01, "slower"),
        ("bootstrap", 1.01, "slower"),
        ("t_test", 1.0005, "unclear"),
        ("pyperf", 1.0005, "unclear"),
        ("u_test", 1.0005, "unclear"),
        ("bootstrap", 1.0005, "unclear"),
    ],
)
def test_where_each_rule_draws_its_line(name: str, factor: float, word: Word) -> None:
    base = spread(100.0)
    assert said(name, [[ns * factor for ns in base]], [base]) == word


def test_the_gates_look_at_their_statistic_alone() -> None:
    base, outlier = [[100.0, 100.0, 100.0]], [[100.0, 100.0, 1.0]]
    assert said("median_5pct", base, outlier) == "unclear"
    assert said("min_5pct", base, outlier) == "slower"


def test_asv_wants_both_the_factor_and_the_test() -> None:
    """Three samples a side, all beyond the factor: no U test of three can reach 0.002."""
    assert said("asv", [[200.0, 201, 202]], [[100.0, 101, 102]]) == "unclear"
    assert said("asv", [spread(200.0, 9)], [spread(100.0, 9)]) == "slower"


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("nothing", [[], [[]]])
def test_without_samples_nothing_is_clear(name: str, nothing: SampleSets) -> None:
    assert said(name, nothing, [spread(1.0)]) == "unclear"
    assert said(name, [spread(1.0)], nothing) == "unclear"
    assert said(name, nothing, nothing) == "unclear"


@pytest.mark.parametrize("name", sorted(RULES.keys() - {"bootstrap"}))
@given(x=samples, y=samples)
def test_a_rule_says_one_of_the_words_and_its_opposite_of_the_opposite(
    name: str, x: list[float], y: list[float]
) -> None:
    one, other = said(name, [x], [y]), said(name, [y], [x])
    assert {one, other} <= set(WORDS)
    if name not in GATES | {"pyperf"}:
        assert {one, other} in ({"unclear"}, {"slower", "faster"})


@pytest.mark.parametrize("name", RULES)
def test_repetitions_are_pooled(name: str) -> None:
    x, y = spread(100.0), spread(101.0)
    assert said(name, [x[:10], x[10:]], [y[:25], y[25:]]) == said(name, [x], [y])
