"""What all counted calls take: by hand."""

from __future__ import annotations

import pytest

from attnbench.stats.answer import answer
from attnbench.types.record import Record

MS = 1e6
X, Y, Z = (f"attention/dot/H1-L{length}-D8" for length in (8, 16, 32))


def record(case: str, backend: str, ms: float) -> Record:
    return Record(case, "dot", backend, "ok", median_ms=ms, best="a" if case == X else "b")


TIMES = [
    (X, 0, {"a": 1 * MS, "b": 3 * MS}),
    (X, 1, {"a": 2 * MS, "b": 4 * MS}),
    (X, 2, {"a": 3 * MS, "b": 5 * MS}),
    (Y, 0, {"a": 10 * MS, "b": 7 * MS}),
    (Y, 1, {"a": 20 * MS, "b": 8 * MS}),
    (Y, 2, {"a": 30 * MS, "b": 9 * MS}),
]
RECORDS = [record(X, "a", 2), record(X, "b", 4), record(Y, "a", 20), record(Y, "b", 8)]


def test_the_sum_is_taken_in_each_repetition() -> None:
    found = answer(RECORDS, TIMES, {X: 10, Y: 0.5}).totals
    assert [(one.backend, one.ms) for one in found] == [(None, 24), ("a", 30), ("b", 44)]
    assert found[1].by_case == {X: 20, Y: 10}
    # Sums of 15, 30 and 45 ms: three are enough for an interval, and it holds the median.
    assert found[1].interval.low < 30 < found[1].interval.high


X_ALONE = [(None, 20, {X: 20}), ("a", 20, {X: 20}), ("b", 40, {X: 40})]


@pytest.mark.parametrize(
    ("counts", "totals"), [({}, []), ({Z: 1}, []), ({X: 10}, X_ALONE), ({X: 10, Z: 1}, X_ALONE)]
)
def test_a_case_without_a_count_or_a_time_is_left_out_of_the_sum(
    counts: dict[str, float], totals: list[tuple[str | None, float, dict[str, float]]]
) -> None:
    found = answer(RECORDS, TIMES, counts).totals
    assert [(one.backend, one.ms, one.by_case) for one in found] == totals


def test_a_backend_without_a_time_in_some_case_has_no_sum() -> None:
    alone = [(X, 0, {"a": MS, "c": MS}), (Y, 0, {"a": MS})]
    found = answer([record(X, "a", 1), record(X, "c", 1), record(Y, "a", 1)], alone, {X: 1, Y: 1})
    assert [one.backend for one in found.totals] == [None, "a"]


def test_counts_of_unlike_stages_are_never_summed() -> None:
    counts, stages = {X: 10, Y: 0.5}, {X: "prefill", Y: "decode"}
    found = answer(RECORDS, TIMES, counts, stages).totals
    assert {(one.stage, *one.by_case) for one in found} == {("prefill", X), ("decode", Y)}
