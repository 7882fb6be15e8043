"""The fastest backend of each case, and geometric means over common cases with their intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

import pytest

from attnbench.stats.answer import RunAnswer, TimeRatio, answer
from attnbench.types.record import Record

WOBBLE = (1.0, 1.02, 0.97, 1.01, 0.99, 1.03, 0.98, 1.0, 1.04)
"""Nine repetitions, in which all backends are slow or quick together."""
Runs = Mapping[str, Mapping[str, list[float]]]


def repetitions(runs: Runs) -> Iterator[tuple[str, int, dict[str, float]]]:
    for case, those in runs.items():
        for i in range(max(map(len, those.values()))):
            yield case, i, {name: ns[i] for name, ns in those.items() if i < len(ns)}


def answer_of(runs: Runs, counts: Mapping[str, float] | None = None) -> RunAnswer:
    """The answer of a run whose backends took so many ns in each repetition of each case."""
    baseline = "base"
    records = []
    for case, those in runs.items():
        best = min(those, key=lambda name: median(those[name]))
        for name, ns in those.items():
            against = median(ns) / median(those[baseline]) if baseline in those else None
            record = Record(
                case, "dot", name, "ok", median_ms=median(ns) / 1e6, ratio=against, baseline=baseline,
                delta=0.02, best=best, ratio_to_best=median(ns) / median(those[best]),
            )  # fmt: skip
            records.append(record)
    return answer(records, repetitions(runs), counts or {})


def mean_of_mine(found: RunAnswer) -> TimeRatio:
    (mean,) = (one.mean for one in found.standings if one.backend == "mine")
    assert mean is not None
    assert mean.interval is not None
    return mean


def steady(ns: float) -> list[float]:
    return [ns * share for share in WOBBLE]


def test_a_backend_wins_if_all_others_are_slower_in_all_repetitions() -> None:
    (lead,) = answer_of({"a": {"base": steady(300), "quick": steady(100), "next": steady(120)}}).leads
    assert (lead.best.backend, lead.sure, lead.ties) == ("quick", "clear", ())
    assert lead.following is not None
    assert lead.following.backend == "next"
    assert lead.takes is not None
    assert lead.takes.ratio == pytest.approx(1.2)
    assert lead.takes.interval is not None
    assert (lead.takes.interval.low, lead.takes.interval.high) == pytest.approx((1.2, 1.2))


@pytest.mark.parametrize(
    "ns", [steady(101), [*steady(120)[:8], 90.0]], ids=["within the least effect", "quicker once"]
)
def test_a_backend_that_may_be_as_fast_shares_the_lead(ns: list[float]) -> None:
    found = answer_of({"a": {"base": steady(300), "quick": steady(100), "rival": ns}})
    assert (found.leads[0].sure, found.leads[0].ties) == ("tie", ("rival",))
    assert {one.backend: (one.wins, one.ties) for one in found.standings} == {
        "quick": (0, 1), "rival": (0, 1), "base": (0, 0),
    }  # fmt: skip


def test_a_backend_that_is_slower_than_another_is_no_tie() -> None:
    """The fastest scatters, so neither is shown to be slower than it; ``slow`` always takes longer than
    ``rival``, which is another backend or the baseline."""
    wild = [90.0, 150.0, 80.0, 95.0, 160.0, 85.0, 92.0, 97.0, 99.0]
    runs = {"a": {"base": steady(300), "quick": wild, "rival": steady(105), "slow": steady(125)}}
    (lead,) = answer_of(runs).leads
    assert (lead.best.backend, lead.sure, lead.ties) == ("quick", "tie", ("rival",))
    assert set(lead.over) == {"base", "rival", "slow"}
    (lead,) = answer_of({"a": {"quick": wild, "base": steady(105), "slow": steady(125)}}).leads
    assert (lead.best.backend, lead.sure, lead.ties) == ("quick", "tie", ("base",))


@pytest.mark.parametrize(("ratio", "tied"), [(1.5, "base"), (1 / 1.5, "mine")])
def test_a_verdict_on_the_baseline_ends_a_tie(ratio: float, tied: str) -> None:
    """The pairs with the baseline decide, though the times of repetitions can't tell the two apart."""
    times = {"base": [110.0, 115.0] * 5, "mine": [115.0, 110.0] * 5, "quick": [70.0, 130.0] * 5}

    def record(name: str, **more: float) -> Record:
        ms = median(times[name]) / 1e6
        return Record(
            "a", "dot", name, "ok", median_ms=ms, baseline="base", delta=0.02, best="quick", repetitions=10,
            ratio_to_best=ms / (median(times["quick"]) / 1e6), **more,
        )  # fmt: skip

    paired = {"ratio": ratio, "ratio_low": ratio * 0.9, "ratio_high": ratio * 1.1, "p_value": 0.002}
    for p_value, ties in ((0.002, (tied,)), (0.2, ("base", "mine"))):
        records = [record("quick"), record("base"), record("mine", **(paired | {"p_value": p_value}))]
        (lead,) = answer(records, repetitions({"a": times})).leads
        assert (lead.best.backend, lead.sure, lead.ties) == ("quick", "tie", ties)


def test_three_repetitions_show_large_differences_only() -> None:
    far = answer_of({"a": {"base": [300.0] * 3, "quick": [100.0] * 3}})
    assert far.leads[0].sure == "clear"
    two = answer_of({"a": {"base": [300.0] * 2, "quick": [100.0] * 2}})
    assert (two.leads[0].sure, two.leads[0].ties) == ("few repetitions", ())
    slow = answer_of({"a": {"base": steady(120), "quick": steady(100), "slow": [3000.0] * 3}})
    assert slow.leads[0].sure == "clear"
    near = answer_of({"a": {"base": steady(120), "quick": steady(100), "near": [110.0] * 3}})
    assert near.leads[0].sure == "few repetitions"


def test_a_backend_alone_and_a_run_without_times() -> None:
    assert [lead.sure for lead in answer_of({"a": {"base": steady(1)}}).leads] == ["alone"]
    nothing = answer([Record("a", "dot", "mine", "ok"), Record("a", "dot", "other", "mismatch", "wrong")], [])
    assert nothing == RunAnswer((), (), None, (), 0, 0)
    # Without a repetition in common there is the quotient alone.
    timed = [
        Record("a", "dot", name, "ok", median_ms=ms, best="mine")
        for name, ms in (("mine", 2.0), ("slow", 5.0))
    ]
    (lead,) = answer(timed, []).leads
    assert (lead.sure, dict(lead.over)) == ("few repetitions", {"slow": TimeRatio(2.5, None)})


def test_a_step_is_the_sum_of_counted_calls_and_names_cases_without_a_time() -> None:
    one, two, lost = (f"attention/dot/H1-L{length}-D8" for length in (8, 16, 32))
    runs = {one: {"base": steady(300), "quick": steady(100)}, two: {"base": steady(500)}}
    least, base = answer_of(runs, {one: 2, two: 3, lost: 4}).totals
    assert (base.backend, base.ms) == ("base", pytest.approx(2100e-6))
    assert (least.backend, least.ms, least.missing) == (None, pytest.approx(1700e-6), (lost,))
    assert least.by_case == pytest.approx({one: 200e-6, two: 1500e-6})


def test_a_mean_is_geometric_and_over_repetitions() -> None:
    """Two cases at 0.5 and 2 times the baseline's time are even; one repetition is 1.1 ** 2 slower in one."""
    odd = steady(50)
    odd[3] *= 1.21
    found = answer_of(
        {"a": {"base": steady(100), "mine": odd}, "b": {"base": steady(100), "mine": steady(200)}}
    )
    mean = mean_of_mine(found)
    assert mean.ratio == pytest.approx(1.0)
    assert (mean.interval.low, mean.interval.high) == pytest.approx((1.0, 1.1))
    assert mean.interval.confidence == 1 - 2 / 2**9


def test_means_are_over_the_cases_that_most_backends_share() -> None:
    """Of three cases, ``part`` lacks one and takes it from all; ``rare`` has one alone and gets no mean."""
    runs = {
        case: {"base": steady(100), "whole": steady(ns)} for case, ns in (("a", 50), ("b", 50), ("c", 800))
    }
    runs["a"] |= {"part": steady(80), "rare": steady(10)}
    runs["b"] |= {"part": steady(20)}
    found = answer_of(runs)
    assert found.common == ("a", "b")
    means = {one.backend: one.mean and round(one.mean.ratio, 6) for one in found.standings}
    assert means == {"part": 0.4, "whole": 0.5, "base": 1.0, "rare": None}
    assert list(means) == ["part", "whole", "base", "rare"], "the least mean first"
    assert {one.backend: one.cases for one in found.standings} == {
        "base": 3,
        "whole": 3,
        "part": 2,
        "rare": 1,
    }


def test_without_the_baseline_there_is_a_winner_and_no_mean() -> None:
    found = answer_of({"a": {"mine": steady(100), "other": steady(200)}})
    assert found.leads[0].sure == "clear"
    assert (found.baseline, found.common) == (None, ())
    assert all(one.mean is None for one in found.standings)


def test_repetitions_that_lack_a_case_are_left_out_of_the_mean() -> None:
    runs = {
        "a": {"base": steady(100), "mine": steady(50)},
        "b": {"base": steady(100), "mine": steady(50)[:6]},
    }
    mean = mean_of_mine(answer_of(runs))
    assert (mean.ratio, mean.interval.confidence) == (0.5, 0.996)


@pytest.mark.parametrize(("slow", "use"), [(105, "quick"), (250, "other")])
def test_a_tie_names_the_backend_of_most_cases_unless_it_took_far_longer(slow: float, use: str) -> None:
    # Now slow, now quick: which is faster is not proved in the case c.
    unsteady = [slow if i % 3 else 80 for i in range(len(WOBBLE))]
    won = {case: {"quick": steady(100), "other": steady(130), "base": steady(300)} for case in "ab"}
    tied = {"c": {"quick": unsteady, "other": steady(100), "base": steady(300)}}
    found = answer_of(won | tied)
    assert found.leads[2].best.backend == "other"
    assert found.leads[2].ties == ("quick",)
    assert found.chosen == {"a": "quick", "b": "quick", "c": use}


def test_the_interval_of_pairs_is_preferred_to_that_of_the_medians() -> None:
    """Files from before 2026-11-28 have the latter alone."""
    both = {"quick": steady(100), "slow": steady(150)}
    pairs = {"ratio_to_best": 1.5, "ratio_to_best_low": 1.4, "ratio_to_best_high": 1.6}
    known = pairs | {"ratio_to_best_confidence": 0.96, "ratio_to_best_p_value": 0.004}
    for more, ends in ((known, (1.4, 1.6, 0.96)), ({"ratio_to_best": 1.5}, (1.5, 1.5, 0.99609375))):
        records = [
            Record("a", "dot", name, "ok", median_ms=median(both[name]) / 1e6, delta=0.02, best="quick",
                repetitions=9, **(more if name == "slow" else {"ratio_to_best": 1.0}))
            for name in both
        ]  # fmt: skip
        (lead,) = answer(records, repetitions({"a": both})).leads
        assert lead.takes is not None
        assert lead.takes.interval is not None
        found = lead.takes.interval
        assert (found.low, found.high, found.confidence) == pytest.approx(ends)
        assert lead.sure == "clear"
