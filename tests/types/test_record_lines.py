"""Lines of a run file: fields of later versions, words of statuses, and error budgets."""

from __future__ import annotations

import math
from typing import get_args

import msgspec
import pytest

from attnbench.types.record import Accuracy, EndLine, Line
from attnbench.types.status import MEANING, STATUSES, Status


def test_a_field_that_a_later_version_adds_is_left_out() -> None:
    text = b'{"kind":"end","finished":"x","wall_s":1,"phases_s":{},"more":[1,2]}'
    assert msgspec.json.decode(text, type=Line) == EndLine("x", 1.0, {})


def test_each_status_word_of_files_has_one_meaning() -> None:
    assert get_args(Status) == STATUSES
    assert [status for status in STATUSES if MEANING[status].timed] == ["ok", "inaccurate", "suspect"]
    assert [status for status in STATUSES if MEANING[status].declined] == ["unsupported", "unavailable"]


@pytest.mark.parametrize(
    ("error", "reference", "budget"),
    [(3e-7, 1.5e-7, 2.0), (0.0, 1e-7, 0.0), (0.0, 0.0, 0.0), (1e-9, 0.0, math.inf)],
)
def test_the_error_budget_is_a_ratio_even_where_the_reference_is_exact(
    error: float, reference: float, budget: float
) -> None:
    rms = Accuracy(error, 9.0, reference, 3.0, 1.0, 1.0, 1, 1, 1)
    largest = Accuracy(9.0, error, 3.0, reference, 1.0, 1.0, 1, 1, 1)
    assert (rms.error_budget, rms.max_error_budget) == (pytest.approx(budget), 3)
    assert (largest.error_budget, largest.max_error_budget) == (3, pytest.approx(budget))
