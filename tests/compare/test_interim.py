"""When a live comparison leaves out cells: after one look, if all repetitions so far decide."""

from __future__ import annotations

import pytest
from made_repetitions import simple_repetitions

from attnbench.stats.verdict import decided_candidates, repetitions_before_look
from attnbench.types.record import RepetitionLine

LOOK = 15
NAMES = ("k@base", "k@head")


def repetitions(*shares: float) -> list[RepetitionLine]:
    """The head side takes so much longer than the base side, a share for each repetition."""
    times = {"k@base": [100_000] * len(shares), "k@head": [round(100_000 * (1 + x)) for x in shares]}
    return simple_repetitions(**times)


@pytest.mark.parametrize(
    ("shares", "out"),
    [
        ([0.05] * 15, True),
        ([0.05] * 14 + [-0.01], False),
        ([0.05] * 14, False),
        ([0.015, 0.019] * 7 + [0.018], True),
        ([0.01, -0.015] * 7 + [0.0], True),
        ([0.03, -0.03] * 7 + [0.0], False),
        # The third smallest and the third largest bound 99.3 % of fifteen: two outliers on a side are within.
        ([0.5, 0.5] + [0.001] * 11 + [-0.5, -0.5], True),
        ([0.5, 0.5, 0.5] + [0.001] * 12, False),
        # What comes after the look changes nothing.
        ([0.05] * 15 + [-0.5] * 2, True),
        ([0.05] * 14 + [-0.01, 0.05, 0.05], False),
    ],
)
def test_fifteen_repetitions_decide_or_do_not(shares: list[float], out: bool) -> None:
    found = decided_candidates(repetitions(*shares), LOOK, ["k"], 0.02)
    assert found == (frozenset(NAMES) if out else frozenset())


@pytest.mark.parametrize(
    ("look", "delta", "out"), [(LOOK, 0.02, True), (LOOK, 0.004, False), (0, 0.02, False)]
)
def test_a_smaller_least_effect_needs_more_and_no_look_leaves_out_nothing(
    look: int, delta: float, out: bool
) -> None:
    assert bool(decided_candidates(repetitions(*[0.005, -0.005] * 7, 0.0), look, ["k"], delta)) == out


def test_a_repetition_that_one_side_lacks_does_not_count() -> None:
    lines = repetitions(*[0.05] * 15)
    del lines[3].samples["k@head"]
    assert decided_candidates(lines, LOOK, ["k"], 0.02) == frozenset()


def test_a_backend_of_one_side_alone_is_not_measured_to_the_end() -> None:
    alone = simple_repetitions(**{"k@head": [100_000] * 15})
    assert decided_candidates(alone, LOOK, ["k"], 0.02) == frozenset(NAMES)


@pytest.mark.parametrize(("cells", "look"), [(1, 15), (800, 15), (820, 16)])
def test_as_many_repetitions_as_one_difference_among_all_cells_needs(cells: int, look: int) -> None:
    """2 / 2^15 is 0.000061, which is 0.05 / 819."""
    assert repetitions_before_look(cells) == look
