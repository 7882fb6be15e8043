"""The forecast of a run, the time left while it goes on, and its command in the manifest."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_parts import CAUSAL, PLAIN

from attnbench.cases.ids import case_id, parse_case
from attnbench.plugins.registry import load_registry
from attnbench.runner import progress
from attnbench.runner.forecast import (
    WORKER_S,
    CaseForecast,
    Forecast,
    RunPlan,
    call_s,
    command_line,
    forecast,
    groups_of,
)
from attnbench.runner.options import Options
from attnbench.runner.progress import Clock, Moment
from attnbench.types.device import CPU
from attnbench.types.record import Record

LONG = "attention/dot/B1-H32-Lq4096-Lk4096-D128/none/float32/cpu/forward"
PLENTY = 2**60
REGISTRY = load_registry()


def plan(*cases: str, backends: tuple[str, ...] = ("eager", "bmm"), **more: object) -> RunPlan:
    return RunPlan(tuple(parse_case(case) for case in cases), backends, REGISTRY, Options(), **more)  # type: ignore[arg-type]


def of(planned: RunPlan, cores: int = 2, free: int = PLENTY, **options: object) -> Forecast:
    return forecast(replace(planned, options=Options(**options)), cores=cores, free_bytes=free)  # type: ignore[arg-type]


def of_case(*words: str, **options: object) -> CaseForecast:
    return of(plan(*words), **options).cases[0]  # type: ignore[arg-type]


def test_a_case_is_its_budgets_and_its_processes() -> None:
    whole = of(plan(PLAIN), budget_s=2.0, repetitions=20)
    (case,) = whole.cases
    assert (case.case, case.cells, case.over_budget) == (PLAIN, 2, False)
    # Two cells of 2 s each, with warm calls and handoffs.
    assert 2 * 2.0 < case.timing_s < 2 * 2.0 * 2.5
    assert case.processes_s > 2 * 20 * WORKER_S
    assert case.compiling_s == 0
    assert whole.total_s == whole.start_s + case.total_s
    assert case.total_s == case.timing_s + case.processes_s + case.checking_s


@given(st.floats(0.01, 100), st.integers(1, 50))
def test_time_grows_with_budget_repetitions_and_cases(budget_s: float, repetitions: int) -> None:
    base = of(plan(PLAIN), budget_s=budget_s, repetitions=repetitions)
    assert of(plan(PLAIN, CAUSAL), budget_s=budget_s, repetitions=repetitions).total_s > base.total_s
    more, doubled = (
        of_case(PLAIN, budget_s=budget_s, repetitions=repetitions + 1),
        of_case(PLAIN, budget_s=2 * budget_s, repetitions=repetitions),
    )
    assert more.processes_s > base.cases[0].processes_s == doubled.processes_s
    # Not always longer: of small budgets one sample a segment is the least.
    assert doubled.timing_s >= base.cases[0].timing_s


def test_calls_longer_than_their_share_of_the_budget_take_the_fewest_calls() -> None:
    """68 GFLOP are seconds a call on one core; with threads nothing is forked, so servers start twice."""
    case = of_case(LONG, budget_s=0.1, repetitions=9)
    each_s = call_s(parse_case(LONG), REGISTRY.rule("dot"))
    assert each_s == pytest.approx(4 * 32 * 4096**2 * 128 / CPU.flops_per_s)
    # Three repetitions of one call, two cells.
    assert case.timing_s == pytest.approx(2 * 3 * each_s, rel=0.05)
    assert case.over_budget
    threaded = of(plan(f"{LONG}/threads4"), budget_s=0.1, repetitions=9)
    # Calls of two seconds take part in all nine.
    assert threaded.cases[0].timing_s == pytest.approx(2 * 9 * each_s / 4, rel=0.05)
    assert threaded.start_s == 2 * of(plan(LONG)).start_s


def test_cells_are_those_that_are_not_refused_before_they_start() -> None:
    names = ("eager", "compiled", "flex")
    elsewhere = plan(PLAIN, backends=names, compiled_on=frozenset({CAUSAL}))
    assert of(plan(PLAIN, backends=("eager", "bmm", "fused_multihead"))).cells == 2
    assert of(plan(PLAIN, backends=names)).cells == 3
    assert of(elsewhere).cells == 1
    assert of(replace(elsewhere, named=("flex",))).cells == 2
    assert of(plan(PLAIN, backends=names), free=100).cells == 0
    # The memory of a device is another than that of this machine.
    assert of(plan(PLAIN.replace("cpu", "cuda")), free=100).cells == 2
    assert of(plan(PLAIN, backends=("fused_multihead",))).cases[0].total_s == 0


def test_checking_alone_is_neither_timed_nor_repeated() -> None:
    case = of_case(PLAIN, timed=False)
    assert case.timing_s == case.processes_s == 0
    assert 0 < case.checking_s <= of_case(PLAIN).checking_s


@pytest.mark.parametrize(
    ("program", "shown"),
    [
        ("/home/somebody/venv/bin/attnbench", "attnbench"),
        ("/home/somebody/attnbench/__main__.py", "attnbench"),
        ("/home/somebody/study.py", "study.py"),
    ],
)
def test_the_command_in_the_manifest_names_no_folder(
    monkeypatch: pytest.MonkeyPatch, program: str, shown: str
) -> None:
    monkeypatch.setattr(sys, "argv", [program, "run", "smoke"])
    assert command_line() == (shown, "run", "smoke")


def test_the_shortest_case_of_many_comes_first_and_alone_so_that_an_answer_is_soon_there() -> None:
    cases = [f"attention/dot/B1-H1-L{length}-D64" for length in (800, 16, *range(790, 798))]

    def groups(one: RunPlan) -> list[list[str]]:
        by_id = {case_id(case): case for case in one.cases}
        found = groups_of(of(one).cases, by_id, one.options.repetitions)
        return [[each.case for each in group] for group in found]

    ids = [case_id(parse_case(case)) for case in cases]
    rest = [ids[0], *ids[2:]]
    assert groups(plan(*cases)) == [[ids[1]], rest[:4], rest[4:8], rest[8:]]
    assert groups(plan(*cases[:4])) == [ids[:4]]


# --- the time left --------------------------------------------------------------------------------


class Time:
    """A monotonic clock that goes forward only when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    stopped = Time()
    monkeypatch.setattr(progress, "time", stopped)
    return stopped


def test_moments_say_the_case_the_step_and_the_time_left(time: Time) -> None:
    moments: list[Moment] = []
    clock = Clock(moments.append, [{"a": 7, "b": 3}, {"c": 2}], ("a", "b", "c"))
    time.now += 5
    clock.begin_group()
    clock.notify("a", "oracle")
    time.now += 4
    clock.notify("b", "check")
    time.now += 6
    clock.begin_group()
    clock.notify("c", "oracle")
    # The start is not part of the estimate, and so far each group took as long as expected.
    assert moments == [
        Moment(1, 3, "a", "oracle", 5.0, 12.0),
        Moment(2, 3, "b", "check", 9.0, 8.0),
        Moment(3, 3, "c", "oracle", 15.0, 2.0),
    ]


def test_an_author_is_told_once_what_to_declare_after_three_slow_preparations() -> None:
    moments: list[Moment] = []
    names = "abcd"
    clock = Clock(moments.append, [dict.fromkeys(names, 1.0)], names)
    records = tuple(
        Record(case, "dot", backend, "ok", prepare_ms=ms)
        for case in names
        for backend, ms in (("slow", 4200.0), ("quick", 20.0), ("declares_it", 9000.0))
    )
    clock.begin_group()
    for done, case in enumerate(names, 1):
        clock.finish(case, SimpleNamespace(records=records[: 3 * done], times=()), ["declares_it"])  # type: ignore[arg-type]
    advice = "slow takes seconds to prepare in each case (4 s here): declare Backend(..., compiles=True), "
    assert [moment.advice for moment in moments] == [
        (),
        (),
        (f"{advice}so that suites give it few cases",),
        (),
    ]


def left(time: Time, groups: int, expected_s: float, takes_s: float) -> list[float]:
    """The time left at the beginning of each group of one case."""
    moments: list[Moment] = []
    cases = [f"{place}" for place in range(groups)]
    clock = Clock(moments.append, [{case: expected_s} for case in cases], cases)
    for case in cases:
        clock.begin_group()
        clock.notify(case, "oracle")
        time.now += takes_s
    return [moment.left_s for moment in moments]


def test_a_machine_half_as_fast_as_expected_is_believed_more_with_each_case(time: Time) -> None:
    found = left(time, 100, expected_s=2, takes_s=4)
    assert found[:2] == pytest.approx([200, 1.5 * 2 * 99])
    assert found[50] == pytest.approx(4 * 50, rel=0.02)
    assert found[99] == pytest.approx(4, rel=0.02)


def test_cases_that_take_no_time_have_none_left(time: Time) -> None:
    """Every backend is refused on them."""
    assert left(time, 2, expected_s=0, takes_s=0) == [0, 0]


def test_a_case_that_takes_longer_than_expected_counts_at_once(time: Time) -> None:
    moments: list[Moment] = []
    clock = Clock(moments.append, [{f"{place}": 2.0} for place in range(10)], ("0",))
    clock.begin_group()
    for _ in range(3):
        time.now += 2
        clock.notify("0", "oracle")
    assert [moment.left_s for moment in moments] == pytest.approx([18, 1.5 * 18, 2 * 18])
