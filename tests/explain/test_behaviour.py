"""Rules by what they do to weights; the tables of all rules are transcripts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attnbench.explain.behaviour import behaviour_steps, behaviours
from attnbench.rules import attnbench_rules

RULES = {rule.name: rule for rule in attnbench_rules()}


def test_the_tables_show_no_more_digits_than_other_seeds_support() -> None:
    tables = [
        {
            step.name: step.values
            for step in behaviour_steps(list(behaviours([RULES["dot"]], (64,), seed=seed)))
        }
        for seed in range(4)
    ]
    for name, spread in (("gradient against D", 0.08), ("entropy against D", 0.02)):
        assert np.ptp([table[name] for table in tables]) <= spread
        assert all(np.array_equal(np.round(table[name], 2), table[name]) for table in tables)


def test_what_is_shown_of_plain_scores_by_loops() -> None:
    rows, deviations = [], []
    for draw in range(128):
        rng = np.random.default_rng([5, draw, 6, 9])
        q, k = rng.standard_normal((8, 6)) * 2, rng.standard_normal((9, 6))
        scores = [[sum(a * b for a, b in zip(x, y, strict=True)) / 6**0.5 for y in k] for x in q]
        deviations.append(np.mean([np.std(row) for row in scores]))
        rows += [np.exp(row) / sum(np.exp(row)) for row in scores]
    (shown,) = behaviours([RULES["scaled_dot"]], (6,), (2.0,), keys=9, seed=5)
    steep = [np.linalg.norm(np.diag(row) - np.outer(row, row)) for row in rows]
    want = (np.mean(deviations), np.mean([-(row * np.log(row)).sum() / np.log(9) for row in rows]),
            np.mean([row.max() for row in rows]), np.median(steep))  # fmt: skip
    np.testing.assert_allclose((shown.deviation, shown.entropy, shown.largest, shown.gradient), want)


def test_the_largest_gain_gives_finite_numbers() -> None:
    (row,) = behaviours([RULES["dot"]], (4,), (1e100,))
    assert np.isfinite(row.deviation)


def test_a_width_that_a_rule_does_not_support_is_left_empty() -> None:
    odd = replace(RULES["dot"], name="odd", supports=lambda case: "even D" if case.D % 2 == 0 else None)
    rows = list(behaviours([RULES["dot"], odd], (4, 5)))
    first = next(behaviour_steps(rows))
    assert (first.rows, first.columns) == (("dot", "odd"), ("4", "5"))
    np.testing.assert_array_equal(np.isnan(first.values), [[False, False], [True, False]])
