"""Reports of many cases: the work grows with their number, and no faster."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable

import pytest
from page_runs import case, failed, run_of

from attnbench.reports.html.page import check_packages, page
from attnbench.reports.render import render_run
from attnbench.reports.run import Run
from attnbench.reports.table import View, table
from attnbench.types.errors import BadInput
from attnbench.types.words import Format


def run_of_many(cases: int) -> Run:
    """Each case has three times, and two backends that fail or decline for a reason of its own."""
    lengths = [8 + n for n in range(cases)]
    times = {case(length): {"eager": 1.0, "quick": 0.5 + length / 1e5, "slow": 2.0} for length in lengths}
    # As letters: reasons that differ in numbers alone are one.
    own = [f"in {'x' * (n % 97)}{'y' * (n // 97)}" for n in lengths]
    others = [
        failed(case(length), name, status, f"{name} {reason}")
        for length, reason in zip(lengths, own, strict=True)
        for name, status in (("wrong", "mismatch"), ("picky", "unsupported"))
    ]
    return run_of(times, *others)


def calls(work: Callable[[Run], object], cases: int) -> int:
    """Count the Python calls, and the steps of generators, that a report takes."""
    run, profile = run_of_many(cases), cProfile.Profile()
    profile.runcall(work, run)
    return pstats.Stats(profile).total_calls  # type: ignore[attr-defined, no-any-return]


def as_format(format: Format, **view: bool) -> Callable[[Run], str]:
    return lambda run: render_run(run, format, View(**view))


@pytest.mark.slow
@pytest.mark.parametrize(
    "work",
    [as_format("table"), as_format("markdown"), as_format("csv"), page],
    ids=["table", "markdown", "csv", "page"],
)
def test_twice_the_cases_are_at_most_twice_the_work(work: Callable[[Run], object]) -> None:
    if work is page:
        try:
            check_packages()
        except BadInput as failure:
            pytest.skip(str(failure))
    work(run_of_many(8))  # What is imported and read once.
    few, some, many = (calls(work, cases) for cases in (100, 200, 400))
    assert many - some < 2.1 * (some - few)


def test_of_very_many_cases_the_matrix_is_left_out() -> None:
    text = table(run_of_many(1001).parts, View(120))
    assert "more than 1,000 cases: --csv and --html have the ratio in each" in text
    assert max(map(len, text.splitlines())) < 200
    (line,) = (line for line in text.splitlines() if line.startswith("quick"))
    assert line.split()[1] == "0.505"  # Its mean.
