from __future__ import annotations

import numpy as np
import pytest

from attnbench.check.errors import scale_of
from attnbench.check.gradients import gradient_scale

MANY = np.random.default_rng(0).standard_normal(100_000)


def test_an_ordinary_gradient_counts_in_units_of_itself() -> None:
    scale = gradient_scale([MANY], [1.8 * MANY], "float32")
    own = scale_of([MANY])
    assert scale.rms == pytest.approx(own.rms, rel=1e-3)
    assert scale.largest == pytest.approx(own.largest, rel=1e-3)


def test_one_that_cancels_counts_in_units_of_what_it_is_left_of() -> None:
    before = scale_of([MANY])
    partly = gradient_scale([1e-3 * MANY], [MANY], "float32")
    assert partly.rms == pytest.approx(0.5 * before.rms, rel=1e-3)
    for left in (0.0, 1e-8):
        wholly = gradient_scale([left * MANY], [MANY], "float32")
        assert wholly.rms == pytest.approx(4 * before.rms, rel=1e-3)
        assert wholly.largest == pytest.approx(4 * before.largest, rel=1e-3)


def test_what_has_vanished_depends_on_the_dtype() -> None:
    before = scale_of([MANY])
    assert gradient_scale([1e-3 * MANY], [MANY], "bfloat16").rms == pytest.approx(4 * before.rms, rel=1e-3)
    assert gradient_scale([1e-8 * MANY], [MANY], "float64").rms == pytest.approx(0.5 * before.rms, rel=1e-3)


def test_of_few_numbers_more_is_allowed_and_draws_count_together() -> None:
    one = np.ones(1)
    assert gradient_scale([one], [one], "float32").rms == pytest.approx(3)
    assert gradient_scale([one] * 8, [one] * 8, "float32").rms == pytest.approx(2**0.5)
    # A sink acts through the denominators alone: held, nothing reaches it.
    assert gradient_scale([one], [0 * one], "float32").rms == pytest.approx(3)


def test_nothing_at_all_has_no_scale() -> None:
    assert gradient_scale([np.zeros(4)], [np.zeros(4)], "float32").largest == 0
