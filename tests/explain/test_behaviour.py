"""Rules by what they do to weights: the textbook's reason for the scale, and what is known of others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attnbench.explain.behaviour import Behaviour, behaviour_steps, behaviours
from attnbench.rules import attnbench_rules

RULES = {rule.name: rule for rule in attnbench_rules()}
WIDTHS = (4, 16, 64, 256)


def of(rule: str, widths: tuple[int, ...] = WIDTHS, gains: tuple[float, ...] = (1.0,)) -> list[Behaviour]:
    return list(behaviours([RULES[rule]], widths, gains))


def test_unscaled_the_scores_grow_with_the_width_and_softmax_saturates() -> None:
    rows = of("dot")
    np.testing.assert_allclose([row.deviation for row in rows], np.sqrt(WIDTHS), rtol=0.15)
    assert all(np.diff([row.entropy for row in rows]) < 0)
    assert all(np.diff([row.largest for row in rows]) > 0)
    assert rows[-1].gradient < 0.1 * rows[1].gradient


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


def test_scaled_nothing_depends_on_the_width() -> None:
    rows = of("scaled_dot")
    np.testing.assert_allclose([row.deviation for row in rows], 1, rtol=0.15)
    for name in ("entropy", "largest", "gradient"):
        values = [getattr(row, name) for row in rows]
        np.testing.assert_allclose(values, np.mean(values), rtol=0.15)


def test_the_range_of_the_logits() -> None:
    cosine = of("cosine", (64,), (0.25, 1.0, 16.0))
    assert len({round(row.entropy, 9) for row in cosine}) == 1
    capped, plain = of("softcap", (64,), (16.0,))[0], of("scaled_dot", (64,), (16.0,))[0]
    assert capped.deviation < plain.deviation
    assert capped.gradient > 10 * plain.gradient


def test_costs_are_those_that_rules_state() -> None:
    (row,) = of("additive", (64,))
    assert (row.pair_flops, row.pair_bytes, row.parameter_count) == (256, 256, 2 * 64 * 64 + 2 * 64)
    (row,) = of("dot", (64,))
    assert (row.pair_flops, row.pair_bytes, row.parameter_count) == (128, 4, 0)


def test_a_rule_with_parameters_is_not_one_lucky_draw_of_them() -> None:
    entropies = [row.entropy for row in of("cosine", (16, 32, 64, 128, 256))]
    np.testing.assert_allclose(entropies, np.mean(entropies), rtol=0.05)


def test_the_slopes_of_alibi_are_seen() -> None:
    assert of("alibi", (64,))[0].entropy < of("scaled_dot", (64,))[0].entropy - 0.05


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
    assert np.isfinite(of("dot", (4,), (1e100,))[0].deviation)


def test_a_width_that_a_rule_does_not_support_is_left_empty() -> None:
    odd = replace(RULES["dot"], name="odd", supports=lambda case: "even D" if case.D % 2 == 0 else None)
    rows = list(behaviours([RULES["dot"], odd], (4, 5)))
    first = next(behaviour_steps(rows))
    assert (first.rows, first.columns) == (("dot", "odd"), ("4", "5"))
    np.testing.assert_array_equal(np.isnan(first.values), [[False, False], [True, False]])
